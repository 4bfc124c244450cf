"""Ids: new ones, and how a refused one is worded."""

from __future__ import annotations

import os
import random

from storage.errors import InvalidParameterValue

_random_bits = random.Random(os.urandom(32)).getrandbits
_VERSION_MASK = ~((0xF << 76) | (0x3 << 62))
_VERSION_BITS = (0x4 << 76) | (0x2 << 62)


def new_id() -> str:
    """A random UUID, version 4, without the system call that the standard library's costs.

    Ids of messages and requests have to be distinct, not secret.
    """
    text = f"{_random_bits(128) & _VERSION_MASK | _VERSION_BITS:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def bad_id(parameter: str, value: str) -> InvalidParameterValue:
    """Refusal of a group, deduplication or attempt id that breaks the rules (sqs.md 2.1)."""
    return InvalidParameterValue(
        f"Value {value} for parameter {parameter} is invalid. Reason: {parameter} can only include "
        "alphanumeric and punctuation characters. 1 to 128 in length."
    )
