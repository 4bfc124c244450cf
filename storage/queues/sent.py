"""What became of rows that were sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from queuegate.storage.model import SentMessage
from queuegate.storage.queues.rows import MESSAGE_ID, Row


class Sent(NamedTuple):
    """What became of rows for any queues."""

    gone: frozenset[int]
    """Queues that do not exist: their rows were not written."""
    sequences: Sequence[int | None]
    """One for each row, None where the queue is gone; may be empty when nobody wanted them."""
    sent_at: dict[int, datetime]
    """Queues that receives look at from a mark on, and when the first was written there."""
    repeats: Mapping[int, str] = {}
    """By place, from 0: rows that deduplication folded, and the ids of the messages that they
    repeat."""
    sent_at_us: Sequence[int | None] = ()
    """One for each row of queues with groups, in microseconds; None of those that repeat one."""
    prioritised: Sequence[int] = ()
    """The queues whose receives go by priority from the commit on, and did not before."""

    def messages(self, rows: Sequence[Row]) -> list[SentMessage | None]:
        """One for each of these rows, which were sent for their sequences; None where the queue is
        gone."""
        return [
            None
            if sequence is None
            else SentMessage(
                self.repeats.get(place, row[MESSAGE_ID]),
                sequence,
                place in self.repeats,
                self.sent_at_us[place] if self.sent_at_us else None,
            )
            for place, (row, sequence) in enumerate(zip(rows, self.sequences, strict=True))
        ]
