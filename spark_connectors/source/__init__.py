"""The queue as a source: streams (driver and executor mode) and batches."""

from spark_connectors.source.data_source import QueuegateSqsDataSource, SqsDataSource

__all__ = ["QueuegateSqsDataSource", "SqsDataSource"]
