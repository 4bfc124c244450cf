"""Archives of consumed messages: messages that receivers deleted from archiving queues."""

from __future__ import annotations

import json
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from queuegate.storage.database import probe_by_key
from queuegate.storage.queries import load
from queuegate.storage.queue_model import ArchivedCopy, NewMessage, Received, Row
from queuegate.storage.queues.messages import row_of

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction
    from queuegate.storage.queue_model import Queue

_SQL = load("queues/archives")

_LOOKED_AT = 10_000
_SOURCE = "DeadLetterQueueSourceArn"


class ArchiveFilter(NamedTuple):
    """A filter of archived messages: archived from ``since`` to ``until``; None: no bound."""

    after_sequence: int = 0
    since: datetime | None = None
    until: datetime | None = None
    schedule: str | None = None
    """A word of the header ``_schedule``. Matches may contain the word elsewhere in that header."""


class ArchiveScan(NamedTuple):
    """Message numbers, ascending. ``last_sequence``: the search continues behind it; None: nothing
    was examined. ``is_last``: nothing follows."""

    sequences: list[int]
    last_sequence: int | None
    is_last: bool


class Outdated(NamedTuple):
    """A queue and the instant before which its archive expires; None: the whole archive."""

    queue_id: int
    before: datetime | None


async def find(
    tx: Transaction, queue_id: int, wanted: ArchiveFilter, *, limit: int, most_bytes: int
) -> ArchiveScan:
    """Find the next messages, at most ``limit`` and ``most_bytes``.

    Examines at most 10,000 archived messages in order of their numbers, so it may find fewer than
    exist. With time bounds, it first examines the messages within them if these are fewer.
    """
    arguments = (queue_id, *wanted, limit, _LOOKED_AT, most_bytes)
    row = None
    if wanted.since is not None or wanted.until is not None:
        row = await _SQL["scan_by_age"].by_key.row(tx, *arguments)
    if row is not None:
        return ArchiveScan(*row)
    return await _SQL["scan"].by_key.only(tx, ArchiveScan._make, *arguments)


async def find_ids(
    tx: Transaction, queue_id: int, sequences: list[int], *, limit: int, most_bytes: int
) -> ArchiveScan:
    """Find these messages, at most ``limit`` and ``most_bytes``; missing ones are skipped."""
    return await _SQL["scan_ids"].by_key.only(
        tx, ArchiveScan._make, queue_id, sequences, limit, most_bytes
    )


async def read(tx: Transaction, queue_id: int, sequences: list[int]) -> list[ArchivedCopy]:
    """Return the messages with these numbers, in order; deleted ones are absent."""
    rows = await _SQL["read"].by_key.rows(tx, queue_id, sequences)
    return [ArchivedCopy(Received(*row[:-2]), *row[-2:]) for row in rows]


async def send_again(
    tx: Transaction, now: datetime | None, target: Queue, kept: list[ArchivedCopy]
) -> list[int]:
    """Send copies of messages to a queue of the same kind, which has room (``rooms``).

    Returns their numbers there, in order; empty if the queue is deleted. Copies start anew: sent
    now, never received, with new message ids. A FIFO copy keeps its group and gets its own
    deduplication id. All of it is part of the transaction.
    """
    await probe_by_key(tx)
    rows = [_copy(target, one.message) for one in kept]
    sent = await target.kind.send(tx, now, rows, wants_sequences=True)
    return [one for one in sent.sequences if one is not None]


def _copy(target: Queue, kept: Received) -> Row:
    message_id = str(uuid4())
    message = NewMessage(
        kept.body,
        kept.attributes,
        _system(kept.system),
        group_id=kept.group_id,
        deduplication_id=message_id,
        digest=kept.body_md5,
    )
    return row_of(target, message, message_id, kept.sender_id)


def _system(system: str | None) -> str | None:
    """Remove the source of a dead letter: the copy was never dead-lettered."""
    if system is None or _SOURCE not in system:
        return system
    members = json.loads(system)
    members.pop(_SOURCE, None)
    return json.dumps(members, ensure_ascii=False) if members else None


async def remove_before(
    tx: Transaction, queue_id: int, before: datetime | None, *, limit: int
) -> int:
    """Delete at most ``limit`` messages archived before that instant (None: all); return the count.

    A count below ``limit`` means that none are left.
    """
    return await _SQL["remove_before"].by_key.value(tx, queue_id, before, limit)


find_outdated = partial(_SQL["find_outdated"].by_key.scan, Outdated)
"""Find archives with expired messages, or of deleted queues."""


async def remove_outdated(tx: Transaction, outdated: Outdated, limit: int) -> int:
    """Delete at most ``limit`` outdated messages, except locked ones; return the count."""
    return await _SQL["remove_outdated"].by_key.value(tx, *outdated, limit)
