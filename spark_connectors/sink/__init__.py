"""Sending rows to queues and topics: the format ``sns``, and the writers of ``sqs``."""
