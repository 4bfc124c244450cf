"""What became of rows that were sent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple


class Sent(NamedTuple):
    """What became of rows for any queues."""

    gone: frozenset[int]
    """Queues that do not exist: their rows were not written."""
    sequences: Sequence[int | None]
    """One for each row, None where the queue is gone; may be empty when nobody wanted them."""
    sent_at: dict[int, datetime]
    """Queues that receives look at from a mark on, and when the first was written there."""
