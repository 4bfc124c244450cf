"""Schedules: rules that send to queues and topics at given times."""
