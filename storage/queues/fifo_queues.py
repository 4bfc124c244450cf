"""Queues with groups, besides the lanes: moves, purge, retention, counters, wake-up times.

Each function is part of its caller's transaction. None deadlocks with its callers:
functions/fifo.sql documents the lock order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from queuegate.storage.database import probe_by_key
from queuegate.storage.queries import load
from queuegate.storage.queue_model import (
    DEDUP_KEY,
    GROUP_ID,
    MESSAGE_ID,
    QUEUE_ID,
    Counts,
    ReceiptOutcome,
    Received,
    Row,
    Sent,
    SentMessage,
)
from queuegate.storage.queues.messages import VisibilityChange

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction
    from queuegate.storage.queue_model import BrowsePosition


_SQL = load("queues/fifo_queues")
_SEND = _SQL["send"].text
_SEND_ONE = _SQL["send_one"].text
_FIND_REPEATS = _SQL["find_repeats"].text
_FIND_REPEATS_IN_GROUPS = load("queues/fifo_lanes")["find_repeats_in_groups"].text
_CHANGE_VISIBILITY = _SQL["change_visibility"].text
_RELEASE = _SQL["release"].text
_COUNTS = _SQL["counts"].text
_MOVE = _SQL["move"].text

_GROUPS_COUNTED = 10_000
_MESSAGES_COUNTED = 50_000
_LAST = (1 << 63) - 1


async def send(
    tx: Transaction, now: datetime | None, rows: Iterable[Row], *, wants_sequences: bool = False
) -> Sent:
    """Write messages for any queues; a queue's own deduplication may drop duplicates."""
    rows = list(rows)
    sent = await send_rows(tx, now, rows) if rows else []
    gone = [row[QUEUE_ID] for row, one in zip(rows, sent, strict=True) if one is None]
    repeats = {
        place: one.message_id
        for place, one in enumerate(sent)
        if one is not None and one.is_duplicate
    }
    sequences = [None if one is None else one.sequence for one in sent]
    instants = [None if one is None else one.sent_at_us for one in sent]
    return Sent(frozenset(gone), sequences, {}, repeats, instants)


async def find_repeats(tx: Transaction, now: datetime | None, rows: list[Row]) -> set[str]:
    """Return the deduplication keys of these rows, all of one queue, that are still valid."""
    keys = [row[DEDUP_KEY] or "" for row in rows]
    found = await tx.fetch(_FIND_REPEATS, now, rows[0][QUEUE_ID], "{" + ",".join(keys) + "}")
    return {one["dedup_key"].hex for one in found}


async def send_rows(
    tx: Transaction, now: datetime | None, rows: list[Row]
) -> list[SentMessage | None]:
    """Write messages; return one answer for each, None if the queue is deleted. Rows with the same
    queue and deduplication key are duplicates of the first."""
    lines: dict[tuple[int, str | None], int] = {}
    distinct: list[Row] = []
    for row in rows:
        key = (row[QUEUE_ID], row[DEDUP_KEY])
        if key not in lines:
            distinct.append(row)
            lines[key] = len(distinct)
    answers = await _write(tx, now, distinct)
    sent: list[SentMessage | None] = []
    for row in rows:
        line = lines[row[QUEUE_ID], row[DEDUP_KEY]]
        answer = answers.get(line)
        if answer is None:
            sent.append(None)
            continue
        sequence, original, sent_at_us = answer
        message_id = distinct[line - 1][MESSAGE_ID] if original is None else str(original)
        is_duplicate = message_id != row[MESSAGE_ID]
        sent.append(
            SentMessage(message_id, sequence, is_duplicate, None if is_duplicate else sent_at_us)
        )
    return sent


async def _write(
    tx: Transaction, now: datetime | None, rows: list[Row]
) -> dict[int, tuple[int, object, int]]:
    """Return by line, from 1: the number, the first message's id for a duplicate, and the send time
    in microseconds."""
    if len(rows) == 1:
        return await _write_one(tx, now, rows[0])
    (
        queue_ids,
        message_ids,
        bodies,
        sender_ids,
        attributes,
        systems,
        delays,
        _,
        group_ids,
        deduplication_ids,
        keys,
        _,
        ttls,
    ) = zip(*rows, strict=True)
    distinct_ids = list(set(queue_ids))
    row = await tx.fetchrow(
        _SEND,
        now,
        distinct_ids,
        distinct_ids if len(distinct_ids) == 1 else queue_ids,
        "{" + ",".join(message_ids) + "}",
        group_ids,
        "{" + ",".join(keys) + "}",
        deduplication_ids,
        bodies,
        sender_ids[:1] if len(set(sender_ids)) == 1 else sender_ids,
        attributes if any(attributes) else None,
        systems if any(systems) else None,
        delays if any(delays) else None,
        ttls if any(ttls) else None,
    )
    assert row is not None
    positions, sequences, originals, sent_at_us = row
    found = zip(positions or (), sequences or (), originals or (), strict=True)
    return {
        position: (sequence, original, sent_at_us + position - 1)
        for position, sequence, original in found
    }


async def _write_one(
    tx: Transaction, now: datetime | None, row: Row
) -> dict[int, tuple[int, object, int]]:
    queue_id, message_id, *texts, delay, _, group_id, deduplication_id, key, _, ttl = row
    written = await tx.fetchrow(
        _SEND_ONE, now, queue_id, message_id, group_id, key, deduplication_id, *texts, delay, ttl
    )
    assert written is not None
    sequence, original, sent_at_us = written
    return {} if sequence is None else {1: (sequence, original, sent_at_us)}


async def change_visibility(
    tx: Transaction, now: datetime | None, rows: Sequence[VisibilityChange], *, is_serial: bool
) -> list[ReceiptOutcome]:
    """Hide messages, or show them; return an outcome for each row."""
    changed = await tx.fetch(_CHANGE_VISIBILITY, now, *zip(*rows, strict=True), is_serial)
    outcomes: list[ReceiptOutcome] = ["gone"] * len(rows)
    for position, outcome in changed:
        outcomes[position - 1] = outcome
    return outcomes


async def release(tx: Transaction, now: datetime | None, messages: list[Received]) -> None:
    """Release messages leased for a disconnected caller: visible at once, uncounted."""
    rows = [(m.queue_id, m.group_id, m.sequence, m.receive_count) for m in messages]
    await tx.execute(_RELEASE, now, *zip(*rows, strict=True))


async def prior_counts(tx: Transaction, received: list[Received]) -> dict[int, int]:
    """As ``standard_queues.prior_counts``; 0 for messages that were never moved."""
    await probe_by_key(tx)
    groups = [message.group_id for message in received]
    sequences = [message.sequence for message in received]
    rows = await tx.fetch(_SQL["prior_counts"].text, received[0].queue_id, groups, sequences)
    return {row["sequence"]: row["prior_count"] for row in rows}


async def move_to_dead_letter(
    tx: Transaction,
    now: datetime | None,
    *,
    source_queue_id: int,
    target_queue_id: int,
    source_arn: str,
    rows: list[tuple[str, int, int]],
) -> int:
    """Move just received messages, as (group_id, sequence, receive_count); return the count.

    They are sent anew to the same group of the target: new number, sent now. Message id, body and
    attributes stay; the deduplication id becomes the message id. The receive count continues, so
    that the next receive shows the count given here. The group continues with its next message.
    Returns 0 if the target is deleted. The target may be the source.
    """
    group_ids, sequences, counts = zip(*sorted(rows), strict=True)
    targets = [target_queue_id] * len(rows)
    moved: int = await tx.fetchval(
        _MOVE, now, source_queue_id, group_ids, sequences, counts, targets, None, source_arn
    )
    return moved


class Movable(NamedTuple):
    """A message that a move task may move now."""

    group_id: str
    sequence: int
    message_id: UUID
    dead_letter_source_arn: str | None
    """The queue from which a redrive policy moved the message."""


async def take_for_move(
    tx: Transaction,
    now: datetime | None,
    queue_id: int,
    *,
    retention_seconds: int,
    limit: int,
    only: Sequence[BrowsePosition] | None = None,
) -> list[Movable]:
    """Lock at most ``limit`` receivable messages until the transaction ends.

    ``only`` restricts the messages. A group moves nothing if its head is in flight, delayed or not
    in ``only``. Locked groups are skipped.
    """
    await probe_by_key(tx)
    group_ids = None if only is None else list({one.group_id for one in only})
    sequences = None if only is None else [one.sequence for one in only]
    rows = await tx.fetch(
        _SQL["take_for_move"].text, now, queue_id, retention_seconds, limit, group_ids, sequences
    )
    return [Movable(*row) for row in rows]


async def move(
    tx: Transaction,
    now: datetime | None,
    source_queue_id: int,
    rows: list[tuple[str, int, int, str]],
) -> int:
    """Move messages of ``take_for_move``: (group_id, sequence, target_queue_id, new message id).

    Call in the same transaction. Messages start anew in the same group: sent now, never received,
    new number and deduplication id. Returns the count; messages for deleted queues stay.
    """
    group_ids, sequences, targets, message_ids = zip(*sorted(rows, key=_by_place), strict=True)
    moved: int = await tx.fetchval(
        _MOVE, now, source_queue_id, group_ids, sequences, None, targets, message_ids, None
    )
    return moved


def _by_place(row: tuple[str, int, int, str]) -> tuple[str, int]:
    return row[:2]


async def purge(tx: Transaction, queue_id: int, *, up_to: int, limit: int = 5000) -> int:
    """Purge one batch: messages up to number ``up_to``, in flight and delayed ones too.

    Also deletes their deduplication ids. Returns the rows deleted; repeat, each time in its own
    transaction, until it returns 0. Messages sent after ``up_to`` was read stay.
    """
    step = await purge_counted(tx, queue_id, up_to=up_to, limit=limit)
    return step.rows


class Purged(NamedTuple):
    """One batch of a purge: rows deleted, and the messages among them."""

    rows: int
    messages: int


async def purge_counted(tx: Transaction, queue_id: int, *, up_to: int, limit: int = 5000) -> Purged:
    """Purge one batch and count its messages. Call once in a transaction."""
    gone: int = await tx.fetchval(_SQL["purge"].text, None, queue_id, up_to, limit)
    messages: int = await tx.fetchval(_SQL["purged"].text, queue_id) if gone else 0
    forgotten: int = await tx.fetchval(_SQL["forget_dedup"].text, queue_id, up_to, limit)
    await tx.execute(_SQL["forget_attempts"].text, queue_id)
    return Purged(gone + forgotten, messages)


async def delete_batch_of_deleted_queue(tx: Transaction, queue_id: int, limit: int) -> int:
    """Remove at most ``limit`` messages of a deleted queue and their related rows.

    Returns the rows deleted. After 0, a send in progress at the deletion may still commit; repeat a
    minute later.
    """
    return await purge(tx, queue_id, up_to=_LAST, limit=limit)


async def expire(
    tx: Transaction, now: datetime | None, queue_id: int, retention_seconds: int, limit: int
) -> int:
    """Delete at most ``limit`` messages past their retention that are not in flight; return the
    count.

    Deletes from the front of each group, so never behind a message in flight.
    """
    return int(await tx.fetchval(_SQL["expire"].text, now, queue_id, retention_seconds, limit))


async def clean_dedup(tx: Transaction, now: datetime | None, limit: int) -> int:
    """Delete at most ``limit`` deduplication ids after 5 minutes; return the count."""
    return int(await tx.fetchval(_SQL["clean_dedup"].text, now, limit))


async def clean_attempts(tx: Transaction, now: datetime | None, limit: int) -> int:
    """Delete at most ``limit`` receive attempts after 5 minutes; return the count."""
    return int(await tx.fetchval(_SQL["clean_attempts"].text, now, limit))


async def set_delay(
    tx: Transaction, now: datetime | None, queue_id: int, delay_seconds: int
) -> int:
    """Apply a new DelaySeconds to messages never received; return the number changed."""
    await probe_by_key(tx)
    return int(await tx.fetchval(_SQL["set_delay"].text, now, queue_id, delay_seconds))


async def counts(tx: Transaction, now: datetime | None, queue_id: int) -> Counts:
    """Return the three counters of docs/contract/sqs.md 2.12; they add up to the exact total.

    In flight and delayed examine at most 20,000 groups and 50,000 messages; below that they are
    exact.
    """
    await probe_by_key(tx)
    [(total, in_flight, delayed)] = await tx.fetch(
        _COUNTS, now, queue_id, _GROUPS_COUNTED, _MESSAGES_COUNTED
    )
    return Counts(max(total - in_flight - delayed, 0), in_flight, delayed)


class NextReady(NamedTuple):
    """The next delivery of a queue: possible now, or in so many milliseconds (None: unknown)."""

    queue_id: int
    ready: bool
    in_ms: int | None


async def next_ready(
    tx: Transaction, now: datetime | None, queue_ids: list[int]
) -> list[NextReady]:
    """Return the next possible delivery of each queue."""
    rows = await tx.fetch(_SQL["next_ready"].text, now, queue_ids)
    return [NextReady(*row) for row in rows]


async def find_repeats_in_groups(
    tx: Transaction, now: datetime | None, rows: list[Row]
) -> set[str]:
    """Return the deduplication keys of these rows, all of one queue, whose messages still exist."""
    keys = "{" + ",".join([row[DEDUP_KEY] or "" for row in rows]) + "}"
    group_ids = [row[GROUP_ID] for row in rows]
    found = await tx.fetch(_FIND_REPEATS_IN_GROUPS, now, rows[0][QUEUE_ID], group_ids, keys)
    return {one["dedup_key"].hex for one in found}
