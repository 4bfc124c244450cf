"""Refusals of priorities and of times to live."""

from __future__ import annotations

from queuegate.storage.errors import InvalidParameterValue


class PriorityOutOfRange(InvalidParameterValue):
    """There is no such priority."""


class PriorityUnfit(InvalidParameterValue):
    """A message with a priority for a queue that has its messages in order."""

    def __init__(self, priority: int, name: str) -> None:
        super().__init__(f"'{name}' has its messages in order: they have no priority.")
        self.priority = priority


class TtlOutOfRange(InvalidParameterValue):
    """A message cannot live for so long, or for no time."""
