"""Archives of queues: written exactly once, compacted, and read."""
