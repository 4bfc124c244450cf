"""Queues in plain text: one path, four methods, facts in headers (docs/reference/text-queue.md)."""
