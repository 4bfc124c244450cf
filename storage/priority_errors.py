"""Errors of priorities and lifetimes."""

from __future__ import annotations

from queuegate.storage.errors import InvalidParameterValue


class PriorityOutOfRange(InvalidParameterValue):
    """A priority out of range."""


class PriorityUnfit(InvalidParameterValue):
    """A message with a priority for an ordered queue."""

    def __init__(self, priority: int, name: str) -> None:
        super().__init__(f"'{name}' has its messages in order: they have no priority.")
        self.priority = priority


class TtlOutOfRange(InvalidParameterValue):
    """A lifetime out of range."""
