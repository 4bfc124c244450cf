"""Ids: new ones, and how a refused one is worded."""

from __future__ import annotations

from itertools import count
from uuid import uuid4

from storage.errors import InvalidParameterValue

_next_number = count(1).__next__
_SUFFIX = str(uuid4())[8:]


def new_id() -> str:
    """An id in the form of a random UUID, for messages and requests; 0.25 µs.

    All but the first eight digits are random and belong to this process. Those eight differ for
    four thousand million ids in a row, and differ at a glance: they are a count, multiplied by an
    odd number that spreads it. Ids have to be distinct, not secret.
    """
    number = _next_number()
    return f"{number * 0x9E3779B1 & 0xFFFFFFFF:08x}{_SUFFIX}" if number < 1 << 32 else _later()


def _later() -> str:
    """The ids of a process that has used up its first four thousand million: plainly random."""
    return str(uuid4())


def bad_id(parameter: str, value: str) -> InvalidParameterValue:
    """Refusal of a group, deduplication or attempt id that breaks the rules (sqs.md 2.1)."""
    return InvalidParameterValue(
        f"Value {value} for parameter {parameter} is invalid. Reason: {parameter} can only include "
        "alphanumeric and punctuation characters. 1 to 128 in length."
    )
