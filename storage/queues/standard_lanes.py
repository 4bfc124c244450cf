"""Lanes of standard queues, with and without priorities, and of visibility changes of every kind.

Entries carry whole calls: a batch of ten sends is one entry with ten rows. Results come through
``entry.done`` after the commit. The statement that deletes a message of an archiving queue also
writes it to ``message_archive``.

Direct hand-off delivers messages on send to parked receives. Their rows are written as the receive
would leave them: leased for its visibility timeout, received once. One commit serves both, and the
receive needs no poll of its own. If the receiver has disconnected, the message is released, as in a
receive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from queuegate.storage.database import RECEIVE_PLANNER, RELAXED_PLANNER, SEND_PLANNER, Database
from queuegate.storage.lanes import FINISHING_SECONDS, ClockNow, Lane
from queuegate.storage.queries import load
from queuegate.storage.queue_model import DELAY_SECONDS, QUEUE_ID, ReceiptOutcome, Received, Row
from queuegate.storage.queues import fifo_queues, standard_queues
from queuegate.storage.queues.fair_queues import FairReceives
from queuegate.storage.queues.kinds import FIFO, PRIORITISED, SERIAL
from queuegate.storage.queues.messages import (
    ChangeVisibility,
    Delete,
    DeleteLast,
    FanOut,
    Receive,
    Send,
    divide,
)
from queuegate.storage.queues.standard_queues import (
    Key,
    SentRows,
    Write,
    find_existing,
    send_rows,
    send_rows_with_priorities,
)
from queuegate.storage.queues.watermarks import (
    BEGINNING,
    LONG_SCAN_SECONDS,
    NEAR_REACH,
    FarScans,
    PriorityMarks,
    Watermarks,
)

if TYPE_CHECKING:
    from queuegate.storage.database import Connection


_SQL = load("queues/standard_queues")
_DELETE = _SQL["delete"].text
_DELETE_IN_ONE = _SQL["delete_in_one"].text
_COUNT_EXISTING = _SQL["count_existing"].text
_DELETE_AND_ARCHIVE = _SQL["delete_and_archive"].text
_DELETE_AND_ARCHIVE_IN_ONE = _SQL["delete_and_archive_in_one"].text


async def flush(
    connection: Connection, now: Callable[[], datetime | None], batch: list[Delete]
) -> None:
    """Delete the messages of the entries, and answer each entry after its own commit."""
    plain = [entry for entry in batch if not entry.archives]
    if plain:
        await _delete(connection, plain)
    if len(plain) < len(batch):
        await _delete_and_tell(connection, now, [entry for entry in batch if entry.archives])


async def _delete(connection: Connection, batch: list[Delete]) -> None:
    keys = sorted({(handle[0], handle[2]) for entry in batch for handle in entry.handles})
    queue_id = keys[0][0]
    sequences = "{" + ",".join([str(sequence) for _, sequence in keys]) + "}"
    if queue_id == keys[-1][0]:
        # One statement by key misses no row: messages not found are deleted.
        await connection.fetchval(_DELETE_IN_ONE, queue_id, sequences)
    else:
        queue_ids = "{" + ",".join([str(key[0]) for key in keys]) + "}"
        found = await connection.fetchval(_DELETE, queue_ids, sequences)
        while found < len(keys) and await connection.fetchval(
            _COUNT_EXISTING, queue_ids, sequences
        ):
            found += await connection.fetchval(_DELETE, queue_ids, sequences)
    for entry in batch:
        entry.done(["ok"] * len(entry.handles))


async def _delete_and_tell(
    connection: Connection, now: Callable[[], datetime | None], batch: list[Delete]
) -> None:
    """Delete for entries that all check the last receive, or none. If several entries name the same
    receive or the same message, one of them has deleted it."""
    by_receive = isinstance(batch[0], DeleteLast)
    latest: dict[Key, int] = {}
    owners: dict[Key, Delete] = {}
    for entry in batch:
        for queue_id, _, sequence, receive_count in entry.handles:
            key, count = (queue_id, sequence), receive_count if by_receive else 0
            if count > latest.get(key, -1):
                latest[key], owners[key] = count, entry
    others: dict[Key, int] = {}
    left = dict(latest)
    while left:
        for key in await _take(connection, now(), left, by_receive=by_receive):
            owners[key].found.add(key)
            del left[key]
        others = await find_existing(connection, sorted(left))
        left = {key: left[key] for key, count in others.items() if left[key] in (0, count)}
    for entry in batch:
        entry.done(_outcomes(entry, latest, others))


def _outcomes(
    entry: Delete, latest: Mapping[Key, int], others: Container[Key]
) -> list[ReceiptOutcome]:
    """Return the outcomes of an entry; of a message named twice, the first is "ok"."""
    found = set(entry.found)
    outcomes: list[ReceiptOutcome] = []
    for queue_id, _, sequence, receive_count in entry.handles:
        key = (queue_id, sequence)
        if key in found and latest[key] in (0, receive_count):
            found.discard(key)
            outcomes.append("ok")
        else:
            outcomes.append("expired" if key in others else "gone")
    return outcomes


async def _take(
    connection: Connection, now: datetime | None, wanted: Mapping[Key, int], *, by_receive: bool
) -> list[Key]:
    """Delete messages, and archive those of archiving queues; return the keys found."""
    keys = sorted(wanted)
    queue_ids, sequences = zip(*keys, strict=True)
    counts = [wanted[key] for key in keys] if by_receive else None
    if queue_ids[0] == queue_ids[-1]:
        statement, queue_ids = _DELETE_AND_ARCHIVE_IN_ONE, queue_ids[0]
    else:
        statement = _DELETE_AND_ARCHIVE
    rows = await connection.fetch(statement, now, queue_ids, sequences, counts)
    return [(row[0], row[1]) for row in rows]


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


_RECEIVE = _SQL["receive"].text
_RECEIVE_IN_ONE = _SQL["receive_in_one"].text
_RECEIVE_BY_PRIORITY = load("queues/priorities")["receive"].text

_RECEIVED_PER_FLUSH = 500


class StandardLanes:
    """The lanes of standard queues; each connects at its first entry.

    Sends and receives of queues with priorities or expiring messages have statements of their own,
    the variant PRIORITISED. A queue gets that kind at its first such message.
    """

    def __init__(
        self,
        database: Database,
        clock_now: ClockNow,
        now_of_sends: ClockNow | None = None,
        *,
        linger_seconds: float = 0.0,
        relaxes_deletes: bool = False,
    ) -> None:
        self._now = clock_now
        self._now_of_sends = now_of_sends or clock_now
        """The present of statements that make messages visible."""
        self._marks: dict[int, Watermarks] = {}
        self.fair = FairReceives(self._marks)
        self.far_scans = FarScans(
            database, self._marks, lambda queue_id: self.receive.now_of(queue_id, clock_now)
        )
        self.waiting: ParkedReceives = NoParkedReceives()
        """Parked receives for direct hand-off."""
        self.on_gone: Callable[[int], None] = lambda _: None
        """Called with queues that a send found deleted or changed."""
        self.large_send: Lane[Send | FanOut] = Lane(
            "large_send", database, self._flush_sends, settings=SEND_PLANNER
        )
        self.send: Lane[Send | FanOut] = Lane(
            "send",
            database,
            self._flush_sends,
            settings=SEND_PLANNER,
            linger_seconds=linger_seconds,
        )
        self.send.large = self.large_send
        # A lost receive commit causes a second delivery, which standard queues allow.
        self.receive: Lane[Receive] = Lane(
            "receive", database, self._flush_receives, settings=RELAXED_PLANNER
        )
        # Receives by priority or fairness, or of long messages, take longer than plain ones.
        self.ordered: Lane[Receive] = Lane(
            "ordered_receive", database, self._flush_ordered, settings=RELAXED_PLANNER
        )
        # Channels promise a message to one consumer: a crash must not undo the lease. Nor may it
        # undo a change of visibility.
        self.lease: Lane[Receive | ChangeVisibility] = Lane(
            "lease", database, self._flush_leases, settings=RECEIVE_PLANNER
        )
        self.visibility = self.lease
        # A lost delete commit also causes redelivery, but the caller was told that it is deleted.
        self.delete: Lane[Delete] = Lane(
            "delete",
            database,
            self._flush_deletes,
            settings=RELAXED_PLANNER if relaxes_deletes else RECEIVE_PLANNER,
        )
        self.lease.budget_seconds = self.delete.budget_seconds = FINISHING_SECONDS

    @property
    def lanes(self) -> tuple[Lane[Any], ...]:
        """All lanes, for opening, closing and observing."""
        return (
            self.send,
            self.large_send,
            self.receive,
            self.ordered,
            self.lease,
            self.delete,
        )

    async def close(self) -> None:
        """Finish the pending entries and close the connections."""
        await asyncio.gather(*(lane.close() for lane in self.lanes))
        await self.far_scans.close()

    def forget_marks(self) -> None:
        """Scan from the far left again: the clock was moved, or the database failed over."""
        self._marks.clear()

    def forget_marks_of(self, queue_id: int) -> None:
        """Scan from the far left again: a saved state may have been loaded."""
        self._marks.pop(queue_id, None)

    def look_near(self, queue_ids: Iterable[int]) -> None:
        """Start the next receive a little further left: messages came from elsewhere."""
        for queue_id in queue_ids:
            marks = self._marks.get(queue_id)
            if marks is not None:
                marks.look_near()

    def mark_of(self, queue_id: int) -> datetime:
        """Return an instant left of which nothing visible lies."""
        marks = self._marks.get(queue_id)
        return BEGINNING if marks is None else max(marks.bound() - NEAR_REACH, BEGINNING)

    def marks(self) -> dict[int, datetime]:
        """Return such an instant for each queue that has one."""
        return {queue_id: self.mark_of(queue_id) for queue_id in self._marks}

    async def _flush_sends(
        self, connection: Connection, batch: list[Send | FanOut]
    ) -> list[Send | FanOut]:
        rows: list[Row] = []
        counts: dict[int, int] = {}
        for entry in batch:
            messages = entry.messages
            rows += messages
            if entry.__class__ is Send:
                queue_id = messages[0][QUEUE_ID]
                counts[queue_id] = counts.get(queue_id, 0) + len(messages)
            else:
                for row in messages:
                    counts[row[QUEUE_ID]] = counts.get(row[QUEUE_ID], 0) + 1
        # No hand-off by priority: only a poll can choose among parked receives.
        takers = () if batch[0].variant is PRIORITISED else counts
        handing = DirectHandOff(self.waiting, takers, rows)
        sent = await self._write(connection, batch, rows, counts, handing)
        self.lower_marks(counts, sent.now)
        gone: frozenset[int] = frozenset()
        if len(sent.live) < len(counts):
            gone = frozenset(counts.keys() - set(sent.live))
            for queue_id in gone:
                self.on_gone(queue_id)
        for queue_id in sent.prioritised:
            self.on_gone(queue_id)
        handing.note(sent)
        sequences = iter(sent.sequences)
        for entry in batch:
            mine = [next(sequences) for _ in entry.messages] if sent.sequences else ()
            entry.answer(gone, mine)
        handing.answer(rows, sent)
        return []

    async def _write(
        self,
        connection: Connection,
        batch: list[Send | FanOut],
        rows: list[Row],
        counts: dict[int, int],
        handing: DirectHandOff,
    ) -> SentRows:
        write: Write = send_rows
        if batch[0].variant is PRIORITISED:
            write = send_rows_with_priorities
        leases = handing.leases()
        more = {} if leases is None else {"leases_ms": leases}
        try:
            return await write(
                connection,
                self.send.now_of(batch[0].party(), self._now_of_sends),
                rows,
                counts,
                wants_sequences=True in [entry.wants_sequences for entry in batch] or bool(more),
                is_async=False not in [entry.is_async for entry in batch],
                **more,
            )
        except BaseException:
            handing.failed()
            raise

    def lower_marks(self, queue_ids: Iterable[int], now: datetime) -> None:
        """Lower the marks: a commit took longer than the lag."""
        for queue_id in queue_ids:
            marks = self._marks.get(queue_id)
            if marks is not None:
                marks.lower(now)

    async def _flush_ordered(self, connection: Connection, batch: list[Receive]) -> list[Receive]:
        """Receive by priority, long messages, or from queues with noisy groups."""
        noisy = self.fair.noisy
        if not noisy or batch[0].variant is PRIORITISED:
            return await self._flush_receives(connection, batch)
        # One queue with noisy groups in a flush: the others wait for its statement.
        left: list[Receive] = []
        plain = [entry for entry in batch if entry.queue_id not in noisy]
        fair = [entry for entry in batch if entry.queue_id in noisy]
        if plain:
            left = await self._flush_receives(connection, plain)
        if fair:
            queue_id = fair[0].queue_id
            chosen, rest = _choose([entry for entry in fair if entry.queue_id == queue_id])
            now = self.receive.now_of(queue_id, self._now)
            await self.fair.receive(connection, now, queue_id, chosen[queue_id])
            left += rest + [entry for entry in fair if entry.queue_id != queue_id]
        return left

    async def _flush_receives(self, connection: Connection, batch: list[Receive]) -> list[Receive]:
        chosen, left = _choose(batch)
        now = self.receive.now_of(batch[0].queue_id, self._now)
        clock = asyncio.get_running_loop().time
        began = clock()
        if batch[0].variant is PRIORITISED:
            columns = self._receive_arguments(chosen, PriorityMarks, began)
            records = await connection.fetch(_RECEIVE_BY_PRIORITY, now, *columns)
            self._hand_out_by_priority(chosen, records)
        else:
            columns = self._receive_arguments(chosen, Watermarks, began)
            if len(chosen) == 1:
                one = [only for (only,) in columns]
                records = await connection.fetch(_RECEIVE_IN_ONE, now, *one)
            else:
                records = await connection.fetch(_RECEIVE, now, *columns)
            self._hand_out(chosen, records)
        took = clock() - began
        if took >= LONG_SCAN_SECONDS:
            for queue_id in chosen:
                marks = self._marks.get(queue_id)
                if marks is not None:
                    marks.took(began, took)
        return left

    def _receive_arguments(
        self, chosen: dict[int, list[Receive]], make_marks: type[Watermarks], time: float
    ) -> list[list[object]]:
        limits: list[object] = []
        fresh: list[object] = []
        received: list[object] = []
        retentions: list[object] = []
        visibilities: list[object] = []
        for queue_id, callers in chosen.items():
            first = callers[0]
            limits.append(
                first.limit if len(callers) == 1 else sum([entry.limit for entry in callers])
            )
            marks = self._marks.get(queue_id)
            if marks.__class__ is not make_marks:
                # No marks, or those of another statement.
                marks = self._marks[queue_id] = make_marks()
            assert marks is not None
            marks.begin(time, fresh, received)
            if marks.is_due:
                marks.is_due = False
                self.far_scans.start(queue_id, first.retention_seconds)
            retentions.append(first.retention_seconds)
            visibilities.append(first.visibility_ms)
        return [list(chosen), limits, fresh, received, retentions, visibilities]

    def _hand_out(self, chosen: dict[int, list[Receive]], records: Sequence[Iterable[Any]]) -> None:
        messages: dict[int, list[Received]] = {queue_id: [] for queue_id in chosen}
        # The cheapest constructor, without priority and expiry.
        new, kind = tuple.__new__, Received
        if len(chosen) == 1:
            [mine] = messages.values()
            mine += [new(kind, (*record, None, None)) for record in records]
        else:
            for record in records:
                message = new(kind, (*record, None, None))
                messages[message.queue_id].append(message)
        for queue_id, callers in chosen.items():
            mine = messages[queue_id]
            if mine:
                if len(mine) > 1:
                    mine.sort(key=_by_sequence)
                limit = sum([entry.limit for entry in callers])
                # None: marks were removed during the statement, whose result is older.
                marks = self._marks.get(queue_id)
                if marks is not None:
                    now = mine[0].leased_at or BEGINNING
                    marks.rise(mine, now, is_drained=len(mine) < limit)
            divide(mine, callers)

    def _hand_out_by_priority(
        self, chosen: dict[int, list[Receive]], records: Sequence[Iterable[Any]]
    ) -> None:
        found = [Received._make(record) for record in records]
        now = found[0].leased_at
        assert now is not None
        messages: dict[int, list[Received]] = {queue_id: [] for queue_id in chosen}
        for message in found:
            if message.sequence is not None:
                messages[message.queue_id].append(message)
        for queue_id, callers in chosen.items():
            mine = messages[queue_id]
            mine.sort(key=_by_urgency)
            marks = self._marks.get(queue_id)
            # Otherwise the marks were removed or replaced while the statement ran.
            if marks.__class__ is PriorityMarks:
                assert marks is not None
                limit = sum([entry.limit for entry in callers])
                marks.rise(mine, now, is_drained=len(mine) < limit)
            divide(mine, callers)

    async def _flush_deletes(self, connection: Connection, batch: list[Delete]) -> list[Delete]:
        await flush(connection, lambda: self.delete.now_of(batch[0].party(), self._now), batch)
        return []

    async def _flush_leases(
        self, connection: Connection, batch: list[Receive | ChangeVisibility]
    ) -> list[Receive | ChangeVisibility]:
        changes = [entry for entry in batch if isinstance(entry, ChangeVisibility)]
        if changes:
            return [*await self._change_visibilities(connection, changes)]
        receives = [entry for entry in batch if isinstance(entry, Receive)]
        return [*await self._flush_receives(connection, receives)]

    async def _change_visibilities(
        self, connection: Connection, batch: list[ChangeVisibility]
    ) -> list[ChangeVisibility]:
        """Change visibilities of all kinds of queues. Two changes of one message come in two
        flushes, in order."""
        taken: set[tuple[int, int]] = set()
        chosen: list[ChangeVisibility] = []
        left: list[ChangeVisibility] = []
        for entry in batch:
            keys = {(row[0], row[2]) for row in entry.rows}
            if taken.isdisjoint(keys):
                taken |= keys
                chosen.append(entry)
            else:
                left.append(entry)
        rows = [row for entry in chosen for row in entry.rows]
        now = self.visibility.now_of(batch[0].party(), self._now_of_sends)
        if batch[0].variant in (FIFO.order, SERIAL.order):
            is_serial = batch[0].variant == SERIAL.order
            outcomes = await fifo_queues.change_visibility(
                connection, now, rows, is_serial=is_serial
            )
        else:
            outcomes = await standard_queues.change_visibility(connection, now, rows)
        found = iter(outcomes)
        for entry in chosen:
            entry.done([next(found) for _ in entry.rows])
        return left


def _choose(batch: list[Receive]) -> tuple[dict[int, list[Receive]], list[Receive]]:
    """Return the receives of one flush, by queue, and the rest."""
    chosen: dict[int, list[Receive]] = {}
    left: list[Receive] = []
    total = 0
    for entry in batch:
        callers = chosen.get(entry.queue_id)
        if total >= _RECEIVED_PER_FLUSH or (
            # One statement gives a queue one timeout; the others wait for the next flush.
            callers is not None and callers[0].visibility_ms != entry.visibility_ms
        ):
            left.append(entry)
            continue
        if callers is None:
            chosen[entry.queue_id] = [entry]
        else:
            callers.append(entry)
        total += entry.limit
    return chosen, left


def _by_sequence(message: Received) -> int:
    return message.sequence


def _by_urgency(message: Received) -> tuple[int, int]:
    return -(message.priority or 0), message.sequence
