"""Messages that are handed, in the moment they are sent, to receives that wait for them.

Their rows are written as the receive would have left them: leased for its visibility timeout, and
received once. So one commit serves for both, and the receive needs no look of its own. What becomes
of a message whose receiver has gone meanwhile is the same as in a receive: it is released.
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


class Waiting(Protocol):
    """Receives that wait in this process."""

    handed: dict[int, int]
    """How many of the messages that a flush brought to a queue nobody has to be woken for."""

    def waits(self, queue_id: int) -> bool:
        """Whether there may be one on this queue."""

    def take(self, queue_id: int) -> Receive | None:
        """What the one asks for that has waited longest. It waits no more: it is to be answered,
        with nothing if nothing comes of it."""


class NobodyWaits:
    """For lanes that hand nothing over."""

    def __init__(self) -> None:
        self.handed: dict[int, int] = {}

    def waits(self, queue_id: int) -> bool:
        """Nobody."""
        return False

    def take(self, queue_id: int) -> None:
        """Nobody."""


class Handing:
    """Which rows of one flush go to which receives."""

    __slots__ = ("_current", "_takers", "_waited", "_waiting")

    def __init__(self, waiting: Waiting, queue_ids: Iterable[int], rows: Sequence[Row]) -> None:
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
        """For how many milliseconds each row is leased, if any is."""
        if not self._takers:
            return None
        return [None if taker is None else taker.visibility_ms for taker in self._takers]

    def note(self, sent: SentRows) -> None:
        """Nobody needs to be woken for what was handed over, while senders are answered."""
        if not self._takers:
            return
        handed = self._waiting.handed
        for taker, sequence in zip(self._takers, sent.sequences, strict=True):
            if taker is not None and sequence is not None:
                handed[taker.queue_id] = handed.get(taker.queue_id, 0) + 1

    def answer(self, rows: Sequence[Row], sent: SentRows) -> None:
        """Tell the receives. Those for which nothing was written have nothing."""
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
        """Nothing was written, or nobody knows: they have nothing, and wait on. A look would be
        one more question to a database that may be away."""
        for taker in dict.fromkeys(self._takers):
            if taker is not None:
                taker.done([])


def _received(row: Row, sequence: int, sent: SentRows) -> Received:
    """As the receive would have read it."""
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
