"""Publishing: all that one publish writes, in one transaction.

Copies for standard queues alone ride on the send lane (``storage.messages.FanOut``): one statement,
together with everybody's sends. Whatever also goes to FIFO queues, web hooks or the outbox, comes
from a FIFO topic, or is too large for that, takes this lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from storage import deliveries, messages, outbox
from storage.database import Database
from storage.fifo_entries import FifoMessage
from storage.fifo_lanes import send_rows as send_fifo_rows
from storage.lanes import Entry, Lane
from storage.messages import NewMessage
from storage.model import NewDelivery, NewOutboxMessage
from storage.queries import load

if TYPE_CHECKING:
    from storage.database import Connection

_SQL = load("publishing")
_NUMBER = _SQL["number"].text
_ARCHIVE = _SQL["archive"].text

_LOCKS_PER_FLUSH = 500
"""Advisory locks live in shared memory, which has room for some thousands."""
_CHUNK_BYTES = 4 << 20
_CHUNK_ROWS = 2_000

ClockNow = Callable[[], datetime | None]
_Row = TypeVar("_Row")


class Archived(NamedTuple):
    """A message as its topic's archive keeps it, in the order of the columns."""

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
    """The highest ``live_from`` among the subscriptions that the publisher knew."""


@dataclass(slots=True)
class Copies:
    """Everything that one message becomes. Iterables are walked once, a part at a time: the copies
    of a large message for many queues or web hooks need not all be in memory."""

    standard: Iterable[NewMessage] = ()
    fifo: list[tuple[int, FifoMessage]] = field(default_factory=list)
    deliveries: Iterable[NewDelivery] = ()
    outbox: Iterable[NewOutboxMessage] = ()
    archived: Archived | None = None


class Numbering(NamedTuple):
    """What a FIFO topic needs to know of a message."""

    topic_id: int
    group_id: str
    dedup_key: str
    """``fifo_entries.dedup_key``: the topic's scope is in it."""


class Message(NamedTuple):
    """One message of a publish. ``copies`` is called within the transaction, with its number (None
    on standard topics), unless the message is a duplicate."""

    message_id: str
    numbering: Numbering | None
    copies: Callable[[int | None], Copies]
    lock_count: int = 0
    """Advisory locks that it takes at most: its topic, its group and groups of FIFO queues."""


class Written(NamedTuple):
    """One message's outcome: its id and number, or those of the message that it repeats."""

    message_id: str
    sequence: int | None
    is_duplicate: bool


class Publication(Entry):
    """The messages of one call, in order.

    Result: (list[Written], frozenset of queue ids that are gone: their copies were not written).
    """

    __slots__ = ("messages",)

    def __init__(
        self, messages: list[Message], reply: Callable[[object], None], size_bytes: int
    ) -> None:
        super().__init__(reply, size_bytes)
        self.messages = messages


class PublishLane:
    """One lane; it connects at its first entry.

    ``on_sent(queue_ids, now)`` is told what went to standard queues, before the commit.
    """

    def __init__(
        self,
        database: Database,
        clock_now: ClockNow,
        on_sent: Callable[[Iterable[int], datetime], None],
    ) -> None:
        self._now = clock_now
        self._on_sent = on_sent
        self.lane: Lane[Publication] = Lane(
            "publish",
            database,
            self._flush,
            settings={"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off"},
        )

    async def close(self) -> None:
        """Finish what was handed in and close the connection."""
        await self.lane.close()

    async def _flush(self, connection: Connection, batch: list[Publication]) -> list[Publication]:
        batch, left = _within_locks(batch)
        now = self._now()
        async with connection.transaction():
            written, numbered_at = await _number(connection, now, batch)
            copies = [
                message.copies(outcome.sequence)
                for entry, outcomes in zip(batch, written, strict=True)
                for message, outcome in zip(entry.messages, outcomes, strict=True)
                if not outcome.is_duplicate
            ]
            gone = await self._send_standard(connection, now, copies)
            gone |= await _send_fifo(connection, now, copies)
            requests = (row for one in copies for row in one.deliveries)
            for chunk in _chunks(requests, lambda row: len(row.body)):
                await deliveries.insert(connection, now, chunk)
            kept = (row for one in copies for row in one.outbox)
            for part in _chunks(kept, lambda row: len(row.body)):
                await outbox.insert(connection, now, part)
            await _archive(connection, numbered_at, copies)
        result = frozenset(gone)
        for entry, outcomes in zip(batch, written, strict=True):
            entry.reply((outcomes, result))
        return left

    async def _send_standard(
        self, connection: Connection, now: datetime | None, copies: list[Copies]
    ) -> set[int]:
        gone: set[int] = set()
        rows = (row for one in copies for row in one.standard)
        for chunk in _chunks(rows, lambda row: len(row[2])):
            counts: dict[int, int] = {}
            for row in chunk:
                counts[row[0]] = counts.get(row[0], 0) + 1
            live, sent_at = await messages.send_rows(connection, now, chunk, counts)
            self._on_sent(counts, sent_at)
            gone |= counts.keys() - set(live)
        return gone


def _within_locks(batch: list[Publication]) -> tuple[list[Publication], list[Publication]]:
    """As many entries as stay within the limit of locks, at least one, and the rest."""
    locks = 0
    for place, entry in enumerate(batch):
        locks += sum([message.lock_count for message in entry.messages])
        if locks > _LOCKS_PER_FLUSH and place:
            return batch[:place], batch[place:]
    return batch, []


def _chunks(rows: Iterator[_Row], size_of: Callable[[_Row], int]) -> Iterator[list[_Row]]:
    chunk: list[_Row] = []
    size = 0
    for row in rows:
        chunk.append(row)
        size += size_of(row)
        if size >= _CHUNK_BYTES or len(chunk) >= _CHUNK_ROWS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


async def _number(
    connection: Connection, now: datetime | None, batch: list[Publication]
) -> tuple[list[list[Written]], datetime | None]:
    """Numbers and duplicates, per entry and message; and the instant of it."""
    numbered = [
        (message.message_id, message.numbering)
        for entry in batch
        for message in entry.messages
        if message.numbering is not None
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
    return [[_written(message, answers) for message in entry.messages] for entry in batch], instant


def _written(message: Message, answers: Iterator[tuple[int, object]]) -> Written:
    if message.numbering is None:
        return Written(message.message_id, None, False)
    sequence, first_id = next(answers)
    return Written(str(first_id), sequence, str(first_id) != message.message_id)


async def _send_fifo(
    connection: Connection, now: datetime | None, copies: list[Copies]
) -> set[int]:
    """Send what goes to FIFO queues; a queue's own deduplication may fold some of it."""
    lines: set[tuple[int, str]] = set()
    rows = []
    for queue_id, message in [pair for one in copies for pair in one.fifo]:
        key = (queue_id, message.dedup_key)
        if key not in lines:
            lines.add(key)
            rows.append((queue_id, *message))
    if not rows:
        return set()
    answers = await send_fifo_rows(connection, now, rows)
    return {row[0] for line, row in enumerate(rows, 1) if line not in answers}


async def _archive(connection: Connection, at: datetime | None, copies: list[Copies]) -> None:
    kept = [one.archived for one in copies if one.archived is not None]
    if kept:
        await connection.execute(_ARCHIVE, at, *zip(*kept, strict=True))
