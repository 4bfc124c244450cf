"""Standard queues, besides the lanes: operations within the caller's transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from queuegate.storage.database import probe_by_key
from queuegate.storage.queries import load
from queuegate.storage.queue_model import (
    BODY,
    PRIORITY,
    QUEUE_ID,
    TTL_SECONDS,
    Counts,
    Handle,
    NextVisible,
    ReceiptOutcome,
    Received,
    Row,
    Sent,
)
from queuegate.storage.queues.messages import VisibilityChange, chunked

if TYPE_CHECKING:
    import asyncpg

    from queuegate.storage.database import Transaction
    from queuegate.storage.queue_model import Lease, Queue, WatchedQueue


_SQL = load("queues/standard_queues")
_SEND = _SQL["insert"].text
_SEND_IN_ONE = _SQL["insert_in_one"].text
_SEND_WITH_PRIORITIES = load("queues/priorities")["insert"].text
_CHANGE_VISIBILITY = _SQL["change_visibility"].text
_HIDE_LAST = _SQL["hide_last"].text
_RELEASE = _SQL["release"].text
_HOLD = _SQL["hold"].text
_MOVE_TO_DEAD_LETTER = _SQL["move_to_dead_letter"].text
_PRIOR_COUNTS = _SQL["prior_counts"].text
_NEXT_VISIBLE = _SQL["next_visible"].text
_QUEUES = load("queues/stored_queues")
_COUNT_HIDDEN = _QUEUES["count_hidden"].text
_COUNT_FRESH_VISIBLE = _QUEUES["count_fresh_visible"].text
_READ_PAST_GONE = _QUEUES["read_past_gone"].text
_PURGE_BATCH = _QUEUES["purge_batch"].text

_MOST_HIDDEN_COUNTED = 120_001
_READ_PAST_EVERY = 100_000
"""Message numbers between index reads: their rows are still in memory, and a read takes at most 1
s."""


Write = Callable[..., Awaitable["SentRows"]]


def _fitting(rows: list[Row]) -> Write:
    is_urgent = any(row[PRIORITY] or row[TTL_SECONDS] for row in rows)
    return send_rows_with_priorities if is_urgent else send_rows


async def _send(
    choose: Callable[[list[Row]], Write],
    tx: Transaction,
    now: datetime | None,
    rows: Iterable[Row],
    *,
    wants_sequences: bool = False,
) -> Sent:
    """Write messages in chunks; one with a priority or an expiry gives its queue priorities."""
    gone: set[int] = set()
    sequences: list[int | None] = []
    sent_at: dict[int, datetime] = {}
    prioritised: list[int] = []
    for chunk in chunked(rows, lambda row: len(row[BODY])):
        counts = Counter([row[QUEUE_ID] for row in chunk])
        done = await choose(chunk)(tx, now, chunk, counts, wants_sequences=wants_sequences)
        for queue_id in done.live:
            sent_at.setdefault(queue_id, done.now)
        gone |= counts.keys() - set(done.live)
        sequences += done.sequences
        prioritised += done.prioritised
    return Sent(frozenset(gone), sequences, sent_at, prioritised=prioritised)


send = partial(_send, _fitting)
send_with_priorities = partial(_send, lambda _: send_rows_with_priorities)
"""As ``send``, if some queues have priorities: there each message has one."""


class SentRows(NamedTuple):
    """The result of one statement's rows."""

    live: list[int]
    """Live queues: the rows of others were not written."""
    now: datetime
    sequences: Sequence[int | None]
    """One for each row, None if its queue is deleted; empty if not requested."""
    prioritised: Sequence[int] = ()
    """Queues whose receives go by priority since this commit."""
    now_ms: int = 0
    """The instant in milliseconds, as in receives, if rows may have a lease."""


async def send_rows(
    tx: Transaction,
    now: datetime | None,
    rows: list[Row],
    counts: dict[int, int],
    *,
    wants_sequences: bool = False,
    is_async: bool = False,
    leases_ms: list[int | None] | None = None,
) -> SentRows:
    """Write messages, of which each queue gets ``counts``.

    ``is_async``: the commit of the current transaction does not wait for the disk. ``leases_ms``:
    the lease of each message, received once; None: it is visible.
    """
    columns = _columns(rows, counts)
    queue_ids, ids, bodies, senders, *others, _, _, digests, places = columns
    is_plain = places is None and not (wants_sequences or is_async or leases_ms)
    if is_plain and len(counts) == len(senders) == 1:
        row = await tx.fetchrow(
            _SEND_IN_ONE, now, queue_ids[0], ids, bodies, senders[0], *others, len(rows), digests
        )
        assert row is not None
        return SentRows([] if row[1] is None else [row[1]], row[0], ())
    row = await tx.fetchrow(_SEND, now, *columns, wants_sequences, is_async, leases_ms)
    assert row is not None
    sequences = _sequences(row, rows) if wants_sequences else ()
    return SentRows(row[0], row[1], sequences, now_ms=row[3])


async def send_rows_with_priorities(
    connection: Transaction,
    now: datetime | None,
    rows: list[Row],
    counts: dict[int, int],
    *,
    wants_sequences: bool = False,
    is_async: bool = False,
) -> SentRows:
    """As ``send_rows``, with priorities and expiries."""
    priorities = [row[PRIORITY] for row in rows]
    ttls = [row[TTL_SECONDS] for row in rows]
    urgent = {row[QUEUE_ID] for row in rows if row[PRIORITY] or row[TTL_SECONDS] is not None}
    columns = _columns(rows, counts)
    row = await connection.fetchrow(
        _SEND_WITH_PRIORITIES,
        now,
        *columns,
        wants_sequences,
        is_async,
        priorities,
        ttls,
        list(urgent),
    )
    assert row is not None
    sequences = _sequences(row, rows) if wants_sequences else ()
    return SentRows(row[0], row[1], sequences, row[4])


def _sequences(row: asyncpg.Record, rows: list[Row]) -> Sequence[int | None]:
    """Return one for each row; None if its queue is deleted."""
    live, _, sequences, *_ = row
    if len(sequences) == len(rows):
        return sequences  # type: ignore[no-any-return]
    written = iter(sequences)
    exists = frozenset(live)
    return [next(written) if one[QUEUE_ID] in exists else None for one in rows]


def _columns(rows: list[Row], counts: dict[int, int]) -> tuple[Any, ...]:
    """Return the columns of the statement in their cheapest form; see its comment."""
    queue_ids, message_ids, bodies, senders, attributes, systems, delays, digests, *_ = zip(
        *rows, strict=True
    )
    places = None
    if len(set(map(id, bodies))) < len(bodies):
        bodies, places = _shared(bodies)
    return (
        queue_ids[:1] if len(counts) == 1 else queue_ids,
        "{" + ",".join(message_ids) + "}",
        bodies,
        senders[:1] if len(set(senders)) == 1 else senders,
        attributes if any(attributes) else None,
        systems if any(systems) else None,
        delays if any(delays) else None,
        list(counts),
        list(counts.values()),
        b"".join(digests),
        places,
    )


def _shared(bodies: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Return each body once, and their positions by entry, from 1, as the text of an array."""
    places: dict[int, int] = {}
    distinct = []
    found = []
    for body in bodies:
        place = places.get(id(body))
        if place is None:
            distinct.append(body)
            place = places[id(body)] = len(distinct)
        found.append(place)
    return tuple(distinct), "{" + ",".join(map(str, found)) + "}"


async def change_visibility(
    tx: Transaction, now: datetime | None, rows: Sequence[VisibilityChange]
) -> list[ReceiptOutcome]:
    """Hide messages, or show them; return an outcome for each row. Of two rows for one message the
    last one counts, as if they came one by one."""
    latest = {row[2]: (row[0], row[2], row[4]) for row in rows}
    columns = zip(*sorted(latest.values()), strict=True)
    changed = {sequence for (sequence,) in await tx.fetch(_CHANGE_VISIBILITY, now, *columns)}
    return ["ok" if row[2] in changed else "gone" for row in rows]


async def release(tx: Transaction, now: datetime | None, messages: list[Received]) -> None:
    """Release messages of one queue for a disconnected caller: visible at once, uncounted."""
    keys = sorted((m.sequence, m.receive_count) for m in messages)
    await tx.execute(_RELEASE, now, messages[0].queue_id, *zip(*keys, strict=True))


async def hide_last(
    tx: Transaction, now: datetime | None, handles: Sequence[Handle], seconds: int
) -> list[ReceiptOutcome]:
    """Hide messages of one queue for their last receiver until ``seconds`` from now, or show them
    (0). Returns an outcome for each; "expired" for a message received again since."""
    await probe_by_key(tx)
    latest: dict[int, int] = {}
    for _, _, sequence, receive_count in handles:
        latest[sequence] = max(receive_count, latest.get(sequence, 0))
    queue_id = handles[0][0]
    keys = sorted(latest.items())
    rows = await tx.fetch(_HIDE_LAST, now, queue_id, *zip(*keys, strict=True), seconds)
    hidden = {row[0] for row in rows}
    others = await find_existing(tx, [(queue_id, one) for one, _ in keys if one not in hidden])
    return [
        "ok"
        if sequence in hidden and receive_count == latest[sequence]
        else "expired"
        if sequence in hidden or (queue_id, sequence) in others
        else "gone"
        for _, _, sequence, receive_count in handles
    ]


async def hold(
    tx: Transaction, now: datetime | None, queue: Queue, messages: Sequence[Lease]
) -> None:
    """Hide leased messages for the queue's timeout, and undo the count of the lease."""
    seconds = max(queue.visibility_timeout_seconds, 1)
    keys = sorted((m.sequence, m.receive_count) for m in messages)
    await tx.execute(_HOLD, now, queue.queue_id, *zip(*keys, strict=True), seconds)


async def move_to_dead_letter(
    tx: Transaction,
    now: datetime | None,
    *,
    source_id: int,
    target_id: int,
    source_arn: str,
    messages: Sequence[Lease],
) -> int:
    """Move leased messages to the target; return the count, 0 if the target is deleted."""
    keys = sorted((m.sequence, m.receive_count) for m in messages)
    moved: int = await tx.fetchval(
        _MOVE_TO_DEAD_LETTER, now, source_id, target_id, source_arn, *zip(*keys, strict=True)
    )
    return moved


async def prior_counts(tx: Transaction, received: list[Received]) -> dict[int, int]:
    """Return by sequence the receives of messages of one queue before a redrive policy moved them
    there; messages never moved are missing."""
    await probe_by_key(tx)
    sequences = [message.sequence for message in received]
    rows = await tx.fetch(_PRIOR_COUNTS, received[0].queue_id, sequences)
    return {row["sequence"]: row["prior_count"] for row in rows}


async def next_visible(
    tx: Transaction, now: datetime | None, asked: list[WatchedQueue]
) -> list[NextVisible]:
    """Return the next visible message of each queue; empty queues are absent."""
    rows = await tx.fetch(_NEXT_VISIBLE, now, *zip(*asked, strict=True))
    return [NextVisible(*row) for row in rows]


async def counts(tx: Transaction, now: datetime | None, queue_id: int) -> Counts:
    """Return the counters of a standard queue, in time independent of its depth.

    The sum is exact except for messages past their retention not yet removed. In flight stops at
    its limit; delayed is exact unless more than the limit are delayed and as many visible.
    """
    await probe_by_key(tx)
    limit = _MOST_HIDDEN_COUNTED
    row = await tx.fetchrow(_COUNT_HIDDEN, now, queue_id, limit)
    assert row is not None
    total, in_flight, delayed = row
    if delayed == limit:
        visible = await tx.fetchval(_COUNT_FRESH_VISIBLE, now, queue_id, limit)
        if visible < limit:
            delayed = max(delayed, total - in_flight - visible)
    return Counts(max(0, total - in_flight - delayed), in_flight, delayed)


async def purge_batch(
    tx: Transaction, queue_id: int, *, after_sequence: int, last_sequence: int, limit: int
) -> tuple[int, int | None]:
    """Delete the next ``limit`` messages in any state; return the count and the last; None: no
    more. Sometimes, and at the end, it reads indexes past deleted rows, so that no receive has
    to."""
    await probe_by_key(tx)
    row = await tx.fetchrow(_PURGE_BATCH, queue_id, after_sequence, last_sequence, limit)
    assert row is not None
    looked_at, last = row
    is_last = looked_at < limit
    if is_last or last // _READ_PAST_EVERY > after_sequence // _READ_PAST_EVERY:
        # Past rows deleted by the transactions before this one.
        await tx.fetchval(_READ_PAST_GONE, queue_id)
    return looked_at, None if is_last else last


Key = tuple[int, int]
"""(queue_id, sequence)."""
_FIND_EXISTING = _SQL["find_existing"].text


async def find_existing(connection: Transaction, keys: Sequence[Key]) -> dict[Key, int]:
    """Return the messages that exist, with the number of their last receive."""
    if not keys:
        return {}
    rows = await connection.fetch(_FIND_EXISTING, *zip(*keys, strict=True))
    return {(row[0], row[1]): row[2] for row in rows}
