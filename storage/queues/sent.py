"""Results of sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from queuegate.storage.model import SentMessage
from queuegate.storage.queues.rows import MESSAGE_ID, Row


class Sent(NamedTuple):
    """The result of rows for any queues."""

    gone: frozenset[int]
    """Deleted queues: their rows were not written."""
    sequences: Sequence[int | None]
    """One for each row, None if its queue is deleted; may be empty if not requested."""
    sent_at: dict[int, datetime]
    """By queue with a scan watermark, the instant of the first write."""
    repeats: Mapping[int, str] = {}
    """By position, from 0: rows that are duplicates, and the ids of the first messages."""
    sent_at_us: Sequence[int | None] = ()
    """One for each row of queues with groups, in microseconds; None for duplicates."""
    prioritised: Sequence[int] = ()
    """Queues whose receives go by priority since this commit."""

    def messages(self, rows: Sequence[Row]) -> list[SentMessage | None]:
        """Return one for each of these rows, sent with sequences; None if its queue is deleted."""
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
