"""The lane of sends to bounded queues of every kind.

A flush is one transaction: it locks the queues, selects the messages that fit in order of arrival,
and writes them. Unbounded queues have lanes of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.database import Database
from queuegate.storage.errors import QueueDoesNotExist, QueueFull
from queuegate.storage.lanes import ClockNow, Lane
from queuegate.storage.model import SentMessage
from queuegate.storage.planning import SEND_PLANNER
from queuegate.storage.queues.kinds import QueueKind
from queuegate.storage.queues.message_entries import BoundedSend, within_groups
from queuegate.storage.queues.rooms import Part, RemainingCapacity, find_fitting
from queuegate.storage.queues.rows import Row

if TYPE_CHECKING:
    from queuegate.storage.database import Connection, Transaction

_Outcome = SentMessage | QueueFull | None
"""The outcome of one message; None: its queue is deleted."""


class _Written(NamedTuple):
    """The result of one flush."""

    outcomes: list[_Outcome]
    """One for each message, in order."""
    prioritised: list[int]
    """As in ``Sent``."""


class _Overfilled(Exception):
    """A message taken for a duplicate was none: roll back the flush."""


class BoundedLane:
    """One lane, which connects at its first entry.

    ``on_sent(queue_ids, now)`` receives the standard queues written to, before the commit.
    """

    def __init__(
        self,
        database: Database,
        clock_now: ClockNow,
        on_sent: Callable[[Iterable[int], datetime], None],
    ) -> None:
        self._now = clock_now
        self._on_sent = on_sent
        self.on_gone: Callable[[int], None] = _nothing
        """Called with queues that a send found deleted or changed to another kind."""
        self.send: Lane[BoundedSend] = Lane(
            "bounded_send",
            database,
            self._flush,
            settings=SEND_PLANNER,
        )

    async def close(self) -> None:
        """Finish the pending entries and close the connection."""
        await self.send.close()

    async def _flush(self, connection: Connection, batch: list[BoundedSend]) -> list[BoundedSend]:
        batch, left = within_groups(batch)
        parts = [part for entry in batch for part in _parts(entry)]
        try:
            async with connection.transaction():
                written = await self._write(connection, batch, parts, folds_repeats=True)
        except _Overfilled:
            async with connection.transaction():
                written = await self._write(connection, batch, parts, folds_repeats=False)
        for queue_id in written.prioritised:
            self.on_gone(queue_id)
        answers = iter(written.outcomes)
        for entry in batch:
            self._answer(entry, [next(answers) for _ in entry.messages])
        return left

    async def _write(
        self,
        tx: Transaction,
        batch: list[BoundedSend],
        parts: list[Part],
        *,
        folds_repeats: bool,
    ) -> _Written:
        now = self.send.now_of(batch[0].party(), self._now)
        found = await find_fitting(tx, now, parts, folds_repeats=folds_repeats)
        rows: dict[QueueKind, list[Row]] = {}
        for part, fits in zip(parts, found.fits, strict=True):
            if fits:
                rows.setdefault(part.queue.kind, []).extend(part.rows)
        written: dict[QueueKind, Iterator[SentMessage | None]] = {}
        prioritised: list[int] = []
        for kind, some in rows.items():
            sent = await kind.send(tx, now, some, wants_sequences=True)
            written[kind] = iter(sent.messages(some))
            prioritised += sent.prioritised
            for queue_id, sent_at in sent.sent_at.items():
                self._on_sent((queue_id,), sent_at)
        if found.doubtful and (await RemainingCapacity.hold(tx, now, found.doubtful)).are_overfull:
            raise _Overfilled
        outcomes: list[_Outcome] = []
        for part, fits in zip(parts, found.fits, strict=True):
            queue = part.queue
            for _ in part.rows:
                outcomes.append(next(written[queue.kind]) if fits else QueueFull(queue))
        return _Written(outcomes, prioritised)

    def _answer(self, entry: BoundedSend, outcomes: list[_Outcome]) -> None:
        told: list[SentMessage | QueueFull] = []
        tells_sequences = entry.wants_sequences or entry.queue.kind.has_groups
        for one in outcomes:
            if one is None:
                self.on_gone(entry.party())
                entry.failed(QueueDoesNotExist())
                return
            if isinstance(one, QueueFull) and not entry.is_partial:
                entry.failed(one)
                return
            if isinstance(one, SentMessage) and not tells_sequences:
                one = one._replace(sequence=None)
            told.append(one)
        entry.done(told)


def _parts(entry: BoundedSend) -> list[Part]:
    """Return the parts of an entry; the messages of a part are sent all or none."""
    if entry.is_partial:
        return [Part(entry.queue, [row]) for row in entry.messages]
    return [Part(entry.queue, entry.messages)]


def _nothing(_: int) -> None:
    """Ignore the queue: the default callback."""
