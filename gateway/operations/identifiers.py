"""New ids."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from uuid import uuid4

STEP = 0x9E3779B97F4A7C15F39CC0605CEDC835
"""2^128 divided by the golden ratio: of all steps the one whose multiples, modulo 2^128, stay
furthest apart."""
_MASK = (1 << 128) - 1
_next_number: Callable[[], int]
_middle: str


def _begin() -> None:
    """At a place of its own, also in a process that was forked from one that has begun."""
    global _next_number, _middle
    _next_number = count(int.from_bytes(os.urandom(16), "big"), STEP).__next__
    _middle = str(uuid4())[8:24]


_begin()
os.register_at_fork(after_in_child=_begin)


def new_id() -> str:
    """An id in the form of a random UUID, for messages and requests; as cheap as a number is made
    text. Ids have to be distinct, not secret.

    Where a process begins and what it has in the middle are 122 random bits. From there the upper
    80 bits of a number, before and behind the middle, go round in steps: they are distinct for 2^78
    ids, and whoever takes the first digits or the last ones for a shard fills all shards alike.
    The lower 48 bits are left out, as the last digits of a count return after a few steps.
    """
    digits = (_next_number() & _MASK).to_bytes(16, "big").hex()
    return f"{digits[:8]}{_middle}{digits[8:20]}"
