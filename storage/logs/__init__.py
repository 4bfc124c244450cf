"""Logs: records by partition and offset, and the progress of consumer groups."""
