"""Refusals of priorities and of times to live."""

from __future__ import annotations

from storage.errors import InvalidParameterValue


class PriorityOutOfRange(InvalidParameterValue):
    """There is no such priority."""


class PriorityUnfit(InvalidParameterValue):
    """A message with a priority for a queue that has its messages in order."""


class TtlOutOfRange(InvalidParameterValue):
    """A message cannot live for so long, or for no time."""
