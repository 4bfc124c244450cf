"""Logs: records by partition and offset, and what groups of readers have done with them."""
