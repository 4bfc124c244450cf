"""Dead-letter moves of queues, and the dead-letter queues of queues with a delivery limit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.queries import load
from queuegate.storage.queues import stored_queues
from queuegate.storage.queues.capacity import capacity_of
from queuegate.storage.storage_errors import Unavailable

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction
    from queuegate.storage.queue_model import Lease, Queue


_SQL = load("queues/queue_dead_letters")

_NAMES_TRIED = 5
_NAME_LENGTH = 80
_FIFO_SUFFIX = ".fifo"
_ENDING = "-dead-letters"
_NOT_TAKEN_OVER = {"RedrivePolicy", "RedriveAllowPolicy", "Policy", "DelaySeconds"}


async def find_or_make(tx: Transaction, now: datetime | None, queue: Queue) -> Queue | None:
    """Return the queue's dead-letter queue; None: the queue is deleted.

    This is the existing target of its redrive policy, or a queue of its own, created if needed.
    Only one of several concurrent callers creates it: the queue's row is locked to the end of the
    transaction. The new queue copies the queue's settings and size. The queue gets a redrive policy
    that names it, so every face finds it.
    """
    parent = await stored_queues.lock(tx, queue.queue_id)
    if parent is None or parent.max_deliveries is None:
        return None
    if parent.dead_letter_arn is not None:
        target = await stored_queues.find_by_arn(tx, parent.dead_letter_arn)
        if target is not None:
            return target
    own_id: int | None = await _SQL["own"].value(tx, parent.queue_id)
    own = None if own_id is None else await stored_queues.find_by_id(tx, own_id)
    if own is None:
        own = await _make(tx, now, parent)
        await _SQL["adopt"].run(tx, own.queue_id, parent.queue_id)
    policy = {"deadLetterTargetArn": own.arn, "maxReceiveCount": parent.max_deliveries}
    text = json.dumps(policy, separators=(",", ":"))
    attributes = {**parent.attributes, "RedrivePolicy": text}
    await stored_queues.set_attributes(tx, now, stored_queues.with_attributes(parent, attributes))
    return own


async def _make(tx: Transaction, now: datetime | None, parent: Queue) -> Queue:
    new = stored_queues.NewQueue(
        parent.account_id,
        parent.region,
        "",
        parent.is_fifo,
        {name: value for name, value in parent.attributes.items() if name not in _NOT_TAKEN_OVER},
        {},
        parent.is_archiving,
        parent.archive_days,
        parent.visibility_timeout_seconds,
        is_serial=parent.is_serial,
        has_priorities=parent.has_priorities,
        most_messages=parent.most_messages,
    )
    for attempt in range(_NAMES_TRIED):
        name = _name(parent.name, f"-{token_hex(4)}" if attempt else "")
        made = await stored_queues.create(tx, now, replace(new, name=name))
        if made is not None:
            return made
    raise Unavailable("Every name for a dead-letter queue is being taken by others.")


def _name(parent_name: str, suffix: str) -> str:
    stem = parent_name.removesuffix(_FIFO_SUFFIX)
    ending = f"{_ENDING}{suffix}{parent_name[len(stem) :]}"
    return stem[: _NAME_LENGTH - len(ending)] + ending


class ScanPosition(NamedTuple):
    """A position among received messages, in the order in which they became visible again."""

    visible_at: datetime
    sequence: int


BEGINNING = ScanPosition(datetime(2000, 1, 1, tzinfo=UTC), 0)


class Leased(NamedTuple):
    """A message to move."""

    sequence: int
    receive_count: int
    group_id: None = None


class Overdue(NamedTuple):
    """Exhausted messages that were leased, and the end of the scan.

    ``last`` None: the scan reached the end, everything visible at ``now``.
    """

    leased: list[Leased]
    looked_at: int
    last: ScanPosition | None
    now: datetime


async def lease_dead(
    tx: Transaction, now: datetime | None, queue: Queue, *, after: ScanPosition, looks: int
) -> Overdue:
    """Lease exhausted messages among the next ``looks`` that became visible again."""
    [(looked_at, last_visible_at, last_sequence, sequences, counts, present)] = await _SQL[
        "lease_dead"
    ].by_key.rows(
        tx, now, queue.queue_id, queue.max_receive_count, queue.retention_seconds, *after, looks
    )
    leased = [Leased(*pair) for pair in zip(sequences, counts, strict=True)]
    last = None if looked_at < looks else ScanPosition(last_visible_at, last_sequence)
    return Overdue(leased, looked_at, last, present)


find_due = partial(_SQL["find_due"].by_key.scan, int)
"""Find queues with own dead letters in which a message became visible again at or behind the mark
of its queue: two arrays, of queues and marks, precede the account filter."""


async def dead_letter_capacity(tx: Transaction, now: datetime | None, target: Queue) -> int | None:
    """Return the dead letters that the queue can take in this transaction; None: any number. Call
    before messages are leased or moved."""
    if target.most_messages is None:
        return None
    return (await capacity_of(tx, [target.queue_id], now))[target.queue_id]


async def dead_letter(
    tx: Transaction, now: datetime | None, queue: Queue, target: Queue, leased: Sequence[Lease]
) -> int:
    """Move leased messages to the target, as many as fit; return the count.

    The others stay hidden as after an uncounted receive: they are not delivered.
    """
    room = await dead_letter_capacity(tx, now, target)
    fits = leased if room is None else leased[:room]
    if len(fits) < len(leased):
        await queue.kind.hold(tx, now, queue, leased[len(fits) :])
    return await queue.kind.bury(tx, now, queue, target, fits) if fits else 0


class DeadLettered(NamedTuple):
    """The result of one poll. ``target`` None: nothing was moved."""

    target: Queue | None
    moved: int
    overdue: Overdue | None
    """None: nothing was examined because the target is full."""


async def dead_letter_due(
    tx: Transaction,
    now: datetime | None,
    queue: Queue,
    *,
    after: ScanPosition,
    looks: int,
    holds: bool,
) -> DeadLettered:
    """Move exhausted, visible messages of a standard queue with its own dead-letter queue.

    Examines the next ``looks`` messages. ``holds``: hide messages that do not fit, so that they
    block no receive; else examine nothing while the target is full.
    """
    target = await stored_queues.find_by_arn(tx, queue.dead_letter_arn or "")
    if target is None:
        # Lock the queue before its messages: others that move messages lock in this order.
        await stored_queues.lock(tx, queue.queue_id)
    elif await dead_letter_capacity(tx, now, target) == 0 and not holds:
        return DeadLettered(None, 0, None)
    overdue = await lease_dead(tx, now, queue, after=after, looks=looks)
    if not overdue.leased:
        return DeadLettered(None, 0, overdue)
    if target is None:
        target = await find_or_make(tx, now, queue)
    if target is None:
        return DeadLettered(None, 0, overdue)
    return DeadLettered(target, await dead_letter(tx, now, queue, target, overdue.leased), overdue)
