"""Direct hand-off: deliver messages on send to parked receives.

Their rows are written as the receive would leave them: leased for its visibility timeout, received
once. One commit serves both, and the receive needs no poll of its own. If the receiver has
disconnected, the message is released, as in a receive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from queuegate.storage.model import Received
from queuegate.storage.queues.rows import DELAY_SECONDS, QUEUE_ID, Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from queuegate.storage.queues.message_entries import Receive
    from queuegate.storage.queues.standard import SentRows


class ParkedReceives(Protocol):
    """The parked receives of this process."""

    handed: dict[int, int]
    """By queue, the messages of a flush that need no wake-up."""

    def waits(self, queue_id: int) -> bool:
        """Return True if a receive may be parked on this queue."""

    def take(self, queue_id: int) -> Receive | None:
        """Remove and return the longest parked receive. The caller must answer it, with an empty
        result if nothing is written."""


class NoParkedReceives:
    """A null object for lanes without direct hand-off."""

    def __init__(self) -> None:
        self.handed: dict[int, int] = {}

    def waits(self, queue_id: int) -> bool:
        """Return False: nothing is parked."""
        return False

    def take(self, queue_id: int) -> None:
        """Return None: nothing is parked."""


class DirectHandOff:
    """The assignment of one flush's rows to receives."""

    __slots__ = ("_current", "_takers", "_waited", "_waiting")

    def __init__(
        self, waiting: ParkedReceives, queue_ids: Iterable[int], rows: Sequence[Row]
    ) -> None:
        self._waiting = waiting
        self._waited = {queue_id for queue_id in queue_ids if waiting.waits(queue_id)}
        self._current: dict[int, tuple[Receive, int]] = {}
        takers = [self._taker(row) for row in rows] if self._waited else []
        self._takers = takers if any(takers) else []

    def _taker(self, row: Row) -> Receive | None:
        queue_id = row[QUEUE_ID]
        if row[DELAY_SECONDS] or queue_id not in self._waited:
            return None
        found = self._current.get(queue_id)
        if found is None or found[1] == 0:
            taker = self._waiting.take(queue_id)
            if taker is None:
                self._waited.discard(queue_id)
                return None
            found = taker, taker.limit
        self._current[queue_id] = found[0], found[1] - 1
        return found[0]

    def leases(self) -> list[int | None] | None:
        """Return the lease of each row in milliseconds; None: no row has one."""
        if not self._takers:
            return None
        return [None if taker is None else taker.visibility_ms for taker in self._takers]

    def note(self, sent: SentRows) -> None:
        """Count messages handed off, which need no wake-up, while senders are answered."""
        if not self._takers:
            return
        handed = self._waiting.handed
        for taker, sequence in zip(self._takers, sent.sequences, strict=True):
            if taker is not None and sequence is not None:
                handed[taker.queue_id] = handed.get(taker.queue_id, 0) + 1

    def answer(self, rows: Sequence[Row], sent: SentRows) -> None:
        """Answer the receives; those without a written row get nothing."""
        if not self._takers:
            return
        self._waiting.handed.clear()
        messages: dict[Receive, list[Received]] = {}
        for row, sequence, taker in zip(rows, sent.sequences, self._takers, strict=True):
            if taker is not None:
                mine = messages.setdefault(taker, [])
                if sequence is not None:
                    mine.append(_received(row, sequence, sent))
        for taker, mine in messages.items():
            taker.is_handed = bool(mine)
            taker.done(mine)

    def failed(self) -> None:
        """Answer the receives with nothing after a failed or uncertain write; they stay parked. A
        poll would be one more query to a database that may be down."""
        for taker in dict.fromkeys(self._takers):
            if taker is not None:
                taker.done([])


def _received(row: Row, sequence: int, sent: SentRows) -> Received:
    """Return the message as the receive would have read it."""
    queue_id, message_id, body, sender_id, attributes, system, _, digest, *_ = row
    at = sent.now_ms
    return Received(
        queue_id,
        sequence,
        UUID(message_id),
        1,
        body,
        sender_id,
        attributes,
        system,
        at,
        at,
        leased_at=sent.now,
        body_md5=digest,
    )
