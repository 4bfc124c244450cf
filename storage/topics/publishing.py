"""Publishing: all writes of one publish, in one transaction.

Copies for standard queues alone use the send lane (``FanOut`` of
``storage.queues.messages``): one statement, together with other sends. Publishes to FIFO
queues, web hooks, logs or the outbox, from FIFO topics, and large ones use this lane.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.database import SEND_PLANNER, Database
from queuegate.storage.lanes import ClockNow, Entry, Lane, Reply
from queuegate.storage.logs.stored_records import append
from queuegate.storage.model import NewDelivery, NewOutboxMessage
from queuegate.storage.queries import load
from queuegate.storage.queue_model import QUEUE_ID, QueueKind, Row
from queuegate.storage.queues import capacity
from queuegate.storage.queues.capacity import CopyToQueue, OnSent, RemainingCapacity
from queuegate.storage.queues.kinds import KINDS
from queuegate.storage.queues.messages import BoundedSend, chunked
from queuegate.storage.topics import stored_outbox, web_hook_deliveries

if TYPE_CHECKING:
    from queuegate.storage.database import Connection, Transaction
    from queuegate.storage.model import NewLogRecord


_SQL = load("topics/publishing")
_NUMBER = _SQL["number"].text
_ARCHIVE = _SQL["archive"].text

_LOCKS_PER_FLUSH = 500
"""Advisory locks are in shared memory, which holds some thousands."""


class ArchivedPublication(NamedTuple):
    """A message in its topic's archive, in the order of the columns."""

    topic_id: int
    sequence: int
    message_id: str
    group_id: str
    deduplication_id: str
    subject: str | None
    message: str
    attributes: str | None
    sender_id: str
    published_at: datetime
    known_live: int
    """The highest ``live_from`` among the publisher's known subscriptions."""


class LogRecord(NamedTuple):
    """A record for a partition of a log, built when written."""

    partition_id: int
    make: Callable[[], NewLogRecord]


@dataclass(slots=True)
class Copies:
    """All copies of one message. Iterables are consumed once, in chunks: the copies of a large
    message need not all be in memory."""

    rows: Mapping[QueueKind, Iterable[Row]] = field(default_factory=dict)
    """For unbounded queues."""
    deliveries: Iterable[NewDelivery] = ()
    outbox: Iterable[NewOutboxMessage] = ()
    archived: ArchivedPublication | None = None
    bounded: Sequence[CopyToQueue] = ()
    """For bounded queues. Their ids are in ``Message.bounded``."""
    records: Sequence[LogRecord] = ()
    """For logs."""


class Numbering(NamedTuple):
    """The numbering input of a message on a FIFO topic."""

    topic_id: int
    group_id: str
    dedup_key: str
    """``storage.queues.messages.dedup_key``, which includes the topic's scope."""


class Message(NamedTuple):
    """One message of a publish. ``copies`` is called within the transaction with the message number
    (None on standard topics), unless the message is a duplicate."""

    message_id: str
    numbering: Numbering | None
    copies: Callable[[int | None], Copies]
    lock_count: int = 0
    """Limit of its advisory locks: its topic, its group and groups of FIFO queues."""
    bounded: frozenset[int] = frozenset()
    """Ids of target queues, at least all bounded ones."""


class Written(NamedTuple):
    """The outcome of one message: its id and number, or those of the first one for a duplicate."""

    message_id: str
    sequence: int | None
    is_duplicate: bool


class CopyPosition(NamedTuple):
    """The position of a copy: the message of that number in that queue."""

    queue_id: int
    sequence: int


class WrittenPublications(NamedTuple):
    """The result of messages; the lists have one element for each."""

    written: list[Written]
    gone: frozenset[int]
    """Deleted queues: their copies were not written."""
    places: list[list[CopyPosition]]
    """The copies in queues, if requested; other callers of a flush may get them, too."""
    sent: dict[int, datetime]
    """Standard queues written to, with the instant of the first write."""
    elsewhere: list[Counter[int]]
    """By queue id, the copies it received minus those intended for it: negative if it was full,
    positive if it received dead letters."""
    gone_partitions: frozenset[int]
    """Partitions of deleted logs: their records were not written."""

    def part(self, start: int, end: int) -> WrittenPublications:
        """Return the result of some messages. ``gone`` and others are those of all."""
        return self._replace(
            written=self.written[start:end],
            places=self.places[start:end],
            elsewhere=self.elsewhere[start:end],
        )


class Publication(Entry[WrittenPublications]):
    """The messages of one call, in order."""

    __slots__ = ("messages", "topic_arn", "wants_places")

    def __init__(
        self,
        messages: list[Message],
        reply: Reply[WrittenPublications],
        size_bytes: int,
        *,
        wants_places: bool = False,
        topic_arn: str = "",
    ) -> None:
        super().__init__(reply, size_bytes)
        self.messages = messages
        self.topic_arn = topic_arn
        self.wants_places = wants_places

    def party(self) -> str:
        """Return the topic."""
        return self.topic_arn


class PublishLane:
    """The lane of publishes and of sends to bounded queues, which all may wait for the locks of
    such queues; it connects at its first entry. ``on_sent`` is called before the commit."""

    def __init__(self, database: Database, clock_now: ClockNow, on_sent: OnSent) -> None:
        self._now = clock_now
        self._on_sent = on_sent
        self.on_gone: Callable[[int], None] = lambda _: None
        """Called with queues that a bounded send found deleted or changed to another kind."""
        self.lane: Lane[Publication | BoundedSend] = Lane(
            "publish", database, self._flush, settings=SEND_PLANNER
        )

    async def close(self) -> None:
        """Finish the pending entries and close the connection."""
        await self.lane.close()

    async def _flush(
        self, connection: Connection, batch: list[Publication | BoundedSend]
    ) -> list[Publication | BoundedSend]:
        now = self.lane.now_of(batch[0].party(), self._now)
        bounded = [entry for entry in batch if isinstance(entry, BoundedSend)]
        if bounded:
            on_sent, on_gone = self._on_sent, self.on_gone
            return [*await capacity.send_bounded(connection, now, bounded, on_sent, on_gone)]
        publications = [entry for entry in batch if isinstance(entry, Publication)]
        return [*await self._publish(connection, now, publications)]

    async def _publish(
        self, connection: Connection, now: datetime | None, batch: list[Publication]
    ) -> list[Publication]:
        batch, left = _within_locks(batch)
        messages = [message for entry in batch for message in entry.messages]
        wants_places = any(entry.wants_places for entry in batch)
        async with connection.transaction():
            outcome = await write(
                connection,
                now,
                messages,
                wants_places=wants_places,
                clock_of=self._clock_of if self.lane.clocks else None,
            )
            for queue_id, sent_at in outcome.sent.items():
                self._on_sent((queue_id,), sent_at)
        start = 0
        for entry in batch:
            end = start + len(entry.messages)
            entry.done(outcome.part(start, end))
            start = end
        return left

    def _clock_of(self, queue_id: int) -> ClockNow:
        return self.lane.clock_of(queue_id, self._now)


ClockOf = Callable[[int], ClockNow]
"""Returns the clock of a queue's account."""


async def write(
    connection: Transaction,
    now: datetime | None,
    new: Sequence[Message],
    *,
    wants_places: bool = False,
    clock_of: ClockOf | None = None,
) -> WrittenPublications:
    """Write messages with all their copies within the current transaction.

    ``now`` None: the clock of the database. ``clock_of`` is given if accounts have their own
    clocks: a copy uses the clock of its queue. After the commit the caller wakes receivers and
    calls ``StandardLanes.lower_marks`` for ``sent``. Raises QueueFull for a message that must fit
    and does not.
    """
    bounded = frozenset[int]().union(*[message.bounded for message in new])
    held = await RemainingCapacity.hold(connection, now, bounded) if bounded else None
    written, numbered_at = await _number(connection, now, new)
    copies = [
        message.copies(one.sequence) if not one.is_duplicate else Copies()
        for message, one in zip(new, written, strict=True)
    ]
    elsewhere: list[Counter[int]] = [Counter() for _ in new]
    if held is not None:
        for one, changes in zip(copies, elsewhere, strict=True):
            if one.bounded:
                changes.update(await _find_room(connection, now, held, one))
    writing = _Writing(connection, wants_places=wants_places, count=len(new))
    for at, some in _by_clock(copies, now, clock_of):
        for kind in KINDS:
            await writing.send(kind, at, some)
    requests = (row for one in copies for row in one.deliveries)
    for chunk in chunked(requests, lambda row: len(row.body)):
        await web_hook_deliveries.insert(connection, now, chunk)
    kept = (row for one in copies for row in one.outbox)
    for part in chunked(kept, lambda row: len(row.body)):
        await stored_outbox.insert(connection, now, part)
    await _archive(connection, numbered_at, copies)
    gone_partitions = await _append(connection, now, copies)
    return WrittenPublications(
        written,
        frozenset(writing.gone),
        writing.places,
        writing.sent,
        elsewhere,
        frozenset(gone_partitions),
    )


async def _find_room(
    connection: Transaction, now: datetime | None, held: RemainingCapacity, copies: Copies
) -> Counter[int]:
    """Add copies for bounded queues to the others, as capacity allows."""
    rows: dict[QueueKind, list[Row]] = {}
    changes: Counter[int] = Counter()
    placed = await capacity.place_copies(connection, now, held, copies.bounded)
    for copy, found in zip(copies.bounded, placed, strict=True):
        if found is not None:
            rows.setdefault(found.queue.kind, []).append(found.row)
        if found is not copy.wanted:
            changes[copy.wanted.queue.queue_id] -= 1
            if found is not None:
                changes[found.queue.queue_id] += 1
    copies.rows = {
        kind: chain(copies.rows.get(kind, ()), rows.get(kind, ())) for kind in {*copies.rows, *rows}
    }
    return changes


def _by_clock(
    copies: list[Copies], now: datetime | None, clock_of: ClockOf | None
) -> Iterator[tuple[datetime | None, list[Copies]]]:
    """Yield the copies for queues, separated by the clocks of their accounts."""
    if clock_of is None:
        yield now, copies
        return
    lists = [{kind: list(rows) for kind, rows in one.rows.items()} for one in copies]
    queue_ids = {row[QUEUE_ID] for one in lists for rows in one.values() for row in rows}
    clocks: dict[ClockNow, set[int]] = {}
    for queue_id in queue_ids:
        clocks.setdefault(clock_of(queue_id), set()).add(queue_id)
    for clock_now, mine in clocks.items():
        part = [
            Copies({kind: [r for r in rows if r[QUEUE_ID] in mine] for kind, rows in one.items()})
            for one in lists
        ]
        yield clock_now(), part


async def _append(
    connection: Transaction, now: datetime | None, copies: list[Copies]
) -> Iterable[int]:
    """Append records to logs; return the deleted partitions.

    Partitions are locked in the order of their ids, after all other locks of a publish: capacity of
    queues, topics, groups of FIFO queues. Holders of a partition take none of these.
    """
    wanted = [record for one in copies for record in one.records]
    if not wanted:
        return ()
    gone: set[int] = set()
    wanted.sort(key=itemgetter(0))
    made = (record.make() for record in wanted)
    for some in chunked(made, lambda record: len(record.payload)):
        appended = await append(connection, now, some)
        gone |= {
            record.partition_id
            for record, offset in zip(some, appended.offsets, strict=True)
            if offset is None
        }
    return gone


class _Writing:
    """The copies being written to queues."""

    def __init__(self, connection: Transaction, *, wants_places: bool, count: int) -> None:
        self._connection = connection
        self._wants_places = wants_places
        self.gone: set[int] = set()
        self.places: list[list[CopyPosition]] = [[] for _ in range(count)]
        self.sent: dict[int, datetime] = {}

    async def send(self, kind: QueueKind, now: datetime | None, copies: list[Copies]) -> None:
        """Send the copies for queues of this kind."""
        owners: list[tuple[int, int]] = []

        def rows() -> Iterator[Row]:
            for number, one in enumerate(copies):
                for row in one.rows.get(kind, ()):
                    if self._wants_places:
                        owners.append((number, row[QUEUE_ID]))
                    yield row

        done = await kind.send(self._connection, now, rows(), wants_sequences=self._wants_places)
        self.sent |= {
            queue_id: sent_at
            for queue_id, sent_at in done.sent_at.items()
            if queue_id not in self.sent
        }
        self.gone |= done.gone
        for (number, queue_id), sequence in zip(owners, done.sequences, strict=False):
            if sequence is not None:
                self.places[number].append(CopyPosition(queue_id, sequence))


def _within_locks(batch: list[Publication]) -> tuple[list[Publication], list[Publication]]:
    """Split off as many entries as the limit of locks allows, at least one."""
    locks = 0
    for place, entry in enumerate(batch):
        locks += sum([message.lock_count for message in entry.messages])
        if locks > _LOCKS_PER_FLUSH and place:
            return batch[:place], batch[place:]
    return batch, []


async def _number(
    connection: Transaction, now: datetime | None, new: Sequence[Message]
) -> tuple[list[Written], datetime | None]:
    """Number the messages and find duplicates; return the instant, too."""
    numbered = [
        (message.message_id, message.numbering) for message in new if message.numbering is not None
    ]
    answers: Iterator[tuple[int, object]] = iter(())
    instant = None
    if numbered:
        row = await connection.fetchrow(
            _NUMBER,
            now,
            [numbering.topic_id for _, numbering in numbered],
            [numbering.group_id for _, numbering in numbered],
            "{" + ",".join([numbering.dedup_key for _, numbering in numbered]) + "}",
            "{" + ",".join([message_id for message_id, _ in numbered]) + "}",
        )
        assert row is not None
        sequences, message_ids, instant = row
        answers = iter(zip(sequences, message_ids, strict=True))
    return [_written(message, answers) for message in new], instant


def _written(message: Message, answers: Iterator[tuple[int, object]]) -> Written:
    if message.numbering is None:
        return Written(message.message_id, None, False)
    sequence, first_id = next(answers)
    return Written(str(first_id), sequence, str(first_id) != message.message_id)


async def _archive(connection: Transaction, at: datetime | None, copies: list[Copies]) -> None:
    kept = [one.archived for one in copies if one.archived is not None]
    if kept:
        await connection.execute(_ARCHIVE, at, *zip(*kept, strict=True))
