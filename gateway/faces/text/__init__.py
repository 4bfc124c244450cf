"""Queues in plain text: one path, four methods, facts in headers (docs/text-queue.md)."""
