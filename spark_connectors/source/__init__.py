"""The queue as a source: streams (driver and executor mode) and batches."""
