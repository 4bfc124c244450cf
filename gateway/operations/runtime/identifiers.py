"""Ids of messages and requests."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from uuid import uuid4

STEP = 0x9E3779B97F4A7C15F39CC0605CEDC835
"""2^128 divided by the golden ratio: the step whose multiples, modulo 2^128, are the most evenly
spread."""
_MASK = (1 << 128) - 1
_next_number: Callable[[], int]
_middle: str


def _begin() -> None:
    """Start at a random number, also in a forked process."""
    global _next_number, _middle
    _next_number = count(int.from_bytes(os.urandom(16), "big"), STEP).__next__
    _middle = str(uuid4())[8:24]


_begin()
os.register_at_fork(after_in_child=_begin)


def new_id() -> str:
    """Return a unique id in the form of a random UUID, at the cost of formatting a number. Ids are
    distinct, not secret.

    The start and the middle of a process have 122 random bits. The upper 80 bits of a counter are
    put before and after the middle. They are distinct for 2^78 ids, and evenly spread in their
    first and last digits, for shards. The lower 48 bits are left out, because their last digits
    repeat after a few steps.
    """
    digits = (_next_number() & _MASK).to_bytes(16, "big").hex()
    return f"{digits[:8]}{_middle}{digits[8:20]}"
