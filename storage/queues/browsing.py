"""Browsing: messages as they lie in a queue. Nothing is received, locked or counted."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from storage.model import Browsed, MessageState
from storage.planning import probe_by_key
from storage.queries import load
from storage.queues.message_ids import LAST

if TYPE_CHECKING:
    from storage.database import Transaction
    from storage.model import Queue

_SQL = load("queues/browsing")
_LAST_STANDARD = _SQL["last_standard"].text
_LAST_FIFO = _SQL["last_fifo"].text
_STANDARD_PAGE = _SQL["standard_page"].text
_FIFO_PAGE = _SQL["fifo_page"].text
_STANDARD_ENDS = _SQL["standard_ends"].text
_FIFO_ENDS = _SQL["fifo_ends"].text
_STANDARD_SAMPLE = _SQL["standard_sample"].text
_FIFO_SAMPLE = _SQL["fifo_sample"].text

_LOOKED_AT = 20_000
_MOST_SPLIT = 50_000
_PAGES_SAMPLED = 4_000


class Place(NamedTuple):
    """Where a message lies: places of one queue compare as its pages go.

    Standard queues have no groups; there the group is empty.
    """

    group_id: str
    sequence: int


START = Place("", 0)
"""Before every message."""
END = Place("\x7f", LAST)
"""Behind every message: group ids are printable ASCII."""


class Wanted(NamedTuple):
    """Which messages: behind ``after``, up to ``until``, in the queue since ``as_of``. None: any.

    Milliseconds since the epoch, compared with what receives show, bounds included.
    """

    as_of: int
    after: Place = START
    until: Place = END
    group_id: str | None = None
    sent_since_ms: int | None = None
    sent_until_ms: int | None = None
    min_receives: int | None = None
    max_receives: int | None = None
    state: MessageState | None = None
    message_ids: list[UUID] | None = None


class Page(NamedTuple):
    """Messages in order of their places. ``next``: behind it there may be more; None: nothing."""

    messages: list[Browsed]
    next: Place | None


async def last_number(tx: Transaction, queue: Queue) -> int:
    """A number that splits what is in queues of this kind now from what will be sent.

    In a statement of its own, so that whoever reads pages afterwards sees all of the former.
    """
    last: int = await tx.fetchval(_LAST_FIFO if queue.is_fifo else _LAST_STANDARD)
    return last


async def read_page(
    tx: Transaction,
    now: datetime | None,
    queue: Queue,
    wanted: Wanted,
    *,
    limit: int,
    most_bytes: int,
) -> Page:
    """The next messages: up to ``limit``, and fewer when they are larger than ``most_bytes``; one
    always comes if there is one.

    Looks at 20,000 messages at most, so it may find fewer although there are more. What is past
    its retention is not there.
    """
    await probe_by_key(tx)
    if queue.is_fifo:
        return await _fifo_page(tx, now, queue, wanted, limit=limit, most_bytes=most_bytes)
    rows = await tx.fetch(
        _STANDARD_PAGE,
        now,
        queue.queue_id,
        queue.retention_seconds,
        wanted.after.sequence,
        wanted.until.sequence,
        wanted.as_of,
        *wanted[3:],
        _LOOKED_AT,
        limit,
        most_bytes,
    )
    following = rows[0][0]
    messages = [Browsed(*row[1:]) for row in rows if row[1] is not None]
    return Page(messages, None if following is None else Place("", following))


async def _fifo_page(
    tx: Transaction,
    now: datetime | None,
    queue: Queue,
    wanted: Wanted,
    *,
    limit: int,
    most_bytes: int,
) -> Page:
    after, until = wanted.after, wanted.until
    if wanted.group_id is not None:
        after = max(after, Place(wanted.group_id, 0))
        until = min(until, Place(wanted.group_id, LAST))
    rows = await tx.fetch(
        _FIFO_PAGE,
        now,
        queue.queue_id,
        queue.retention_seconds,
        *after,
        *until,
        wanted.as_of,
        *wanted[4:],
        _LOOKED_AT,
        limit,
        most_bytes,
    )
    group_id, sequence = rows[0][:2]
    messages = [Browsed(*row[2:]) for row in rows if row[2] is not None]
    return Page(messages, None if sequence is None else Place(group_id, sequence))


async def find_ends(tx: Transaction, queue: Queue, as_of: int, parts: int) -> list[Place]:
    """Places that cut the queue into at most ``parts`` parts with about as many messages each:
    the last of each but of the last part, ascending.

    Exact up to 50,000 messages. Of more, a sample of the table's pages is read, however large it
    is; where the queue has little of a large table, the parts may be few and uneven.
    """
    await probe_by_key(tx)
    exact, sample = _STANDARD_ENDS, _STANDARD_SAMPLE
    if queue.is_fifo:
        exact, sample = _FIFO_ENDS, _FIFO_SAMPLE
    rows = await tx.fetch(exact, queue.queue_id, as_of, parts, _MOST_SPLIT)
    if rows and not rows[0]["is_whole"]:
        rows = await tx.fetch(sample, queue.queue_id, as_of, parts, _PAGES_SAMPLED)
    return [Place(row["group_id"], row["sequence"]) for row in rows[:-1]]
