"""Archives of consumed messages: what receivers deleted of queues that archive."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from queuegate.storage.clocks.whose import EVERYBODYS, Whose
from queuegate.storage.model import Archived, NewMessage
from queuegate.storage.planning import probe_by_key
from queuegate.storage.queries import load
from queuegate.storage.queues.rows import Row, row_of

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction
    from queuegate.storage.model import Queue

_SQL = load("queues/archives")

_LOOKED_AT = 10_000
_SOURCE = "DeadLetterQueueSourceArn"


class Wanted(NamedTuple):
    """Which messages of an archive: archived from ``since`` to ``until``; None: no bound."""

    after_sequence: int = 0
    since: datetime | None = None
    until: datetime | None = None
    schedule: str | None = None
    """A word of their header ``_schedule``: of the messages that come back some may have it in
    another place than the caller thinks of."""


class Found(NamedTuple):
    """Numbers of messages, ascending. ``last_sequence``: behind it the search goes on; None when
    nothing was looked at. ``is_last``: nothing follows."""

    sequences: list[int]
    last_sequence: int | None
    is_last: bool


class Outdated(NamedTuple):
    """A queue and the instant before which what it archived is to go; None: all of it."""

    queue_id: int
    before: datetime | None


async def find(
    tx: Transaction, queue_id: int, wanted: Wanted, *, limit: int, most_bytes: int
) -> Found:
    """Find the next messages, up to ``limit`` and fewer when they are larger than ``most_bytes``.

    Looks at 10,000 of the queue's archive at most, in order of their numbers, so it may find fewer
    although there are more; with bounds in time, before that at those within them if they are
    fewer.
    """
    await probe_by_key(tx)
    arguments = (queue_id, *wanted, limit, _LOOKED_AT, most_bytes)
    row = None
    if wanted.since is not None or wanted.until is not None:
        row = await tx.fetchrow(_SQL["scan_by_age"].text, *arguments)
    if row is None:
        row = await tx.fetchrow(_SQL["scan"].text, *arguments)
    assert row is not None
    return Found(*row)


async def find_ids(
    tx: Transaction, queue_id: int, sequences: list[int], *, limit: int, most_bytes: int
) -> Found:
    """Those of these messages that are there, up to ``limit`` and ``most_bytes``."""
    await probe_by_key(tx)
    row = await tx.fetchrow(_SQL["scan_ids"].text, queue_id, sequences, limit, most_bytes)
    assert row is not None
    return Found(*row)


async def read(tx: Transaction, queue_id: int, sequences: list[int]) -> list[Archived]:
    """The messages of these numbers, in that order; absent are those that are gone."""
    await probe_by_key(tx)
    return [Archived(*row) for row in await tx.fetch(_SQL["read"].text, queue_id, sequences)]


async def send_again(
    tx: Transaction, now: datetime | None, target: Queue, kept: list[Archived]
) -> list[int]:
    """Send copies of messages to a queue of the same kind, which has room for them: their numbers
    there, in order; empty when the queue is gone.

    They start anew: sent now, never received, new message ids, of FIFO messages in the same group
    with a deduplication id of their own. All of it is part of the transaction.
    """
    await probe_by_key(tx)
    rows = [_copy(target, one) for one in kept]
    sent = await target.kind.send(tx, now, rows, wants_sequences=True)
    return [one for one in sent.sequences if one is not None]


def _copy(target: Queue, kept: Archived) -> Row:
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
    """Without the mark of a dead letter: the copy was never one."""
    if system is None or _SOURCE not in system:
        return system
    members = json.loads(system)
    members.pop(_SOURCE, None)
    return json.dumps(members, ensure_ascii=False) if members else None


async def remove_before(
    tx: Transaction, queue_id: int, before: datetime | None, *, limit: int
) -> int:
    """Delete up to ``limit`` messages that were archived before that instant (None: all); how many.

    Fewer than ``limit``: there are no more.
    """
    await probe_by_key(tx)
    return int(await tx.fetchval(_SQL["remove_before"].text, queue_id, before, limit))


async def find_outdated(
    tx: Transaction,
    now: datetime | None,
    *,
    after_queue_id: int,
    limit: int,
    whose: Whose = EVERYBODYS,
) -> tuple[list[Outdated], int | None]:
    """Queues behind ``after_queue_id`` whose archives have something that is to go: it is older
    than they keep it, or they were deleted. Looks at ``limit`` queues that have an archive, and
    says which one was the last; None: there are no more."""
    await probe_by_key(tx)
    row = await tx.fetchrow(_SQL["find_outdated"].text, now, after_queue_id, limit, *whose)
    assert row is not None
    last_queue_id, looked_at, queue_ids, befores = row
    found = [Outdated(*pair) for pair in zip(queue_ids, befores, strict=True)]
    return found, last_queue_id if looked_at == limit else None


async def remove_outdated(tx: Transaction, outdated: Outdated, limit: int) -> int:
    """Delete up to ``limit`` of them, but for those that others hold; how many."""
    await probe_by_key(tx)
    return int(await tx.fetchval(_SQL["remove_outdated"].text, *outdated, limit))
