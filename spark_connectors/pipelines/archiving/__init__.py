"""Archives of queues: written exactly once, and read."""
