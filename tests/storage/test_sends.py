"""The two statements of a send: what the one for a single queue writes is what the other writes."""

from __future__ import annotations

from typing import Any

import pytest

from queuegate.storage.database import Database
from queuegate.storage.queue_model import Row
from queuegate.storage.queues.standard_queues import SentRows, send_rows
from tests.storage.fifo_queue import START
from tests.storage.standard_queue import make_message, make_queue


async def _written(
    database: Database, rows: list[Row], *, wants_sequences: bool
) -> tuple[SentRows, list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Send and return the result, the messages in order without their numbers, and the counters."""
    queue_id = rows[0][0]
    async with database.transaction() as tx:
        sent = await send_rows(
            tx, START, rows, {queue_id: len(rows)}, wants_sequences=wants_sequences
        )
        messages = await tx.fetch("SELECT * FROM messages ORDER BY queue_id, sequence")
        deltas = await tx.fetch("SELECT queue_id, delta FROM queue_deltas")
        await tx.execute("DELETE FROM messages")
        await tx.execute("DELETE FROM queue_deltas")
    kept = [
        tuple(value for name, value in message.items() if name != "sequence")
        for message in messages
    ]
    return sent, kept, [tuple(delta) for delta in deltas]


def _batch(queue_id: int) -> list[Row]:
    rows = [
        make_message(queue_id, "plain"),
        make_message(queue_id, "später", delay_seconds=5),
        make_message(queue_id, "traced", system='{"AWSTraceHeader":"Root=1"}'),
        make_message(queue_id, "attributed"),
    ]
    rows[3] = (*rows[3][:4], '{"a":["String","1"]}', *rows[3][5:])
    return rows


@pytest.mark.parametrize("places", [[0], [1], [2], [3], [0, 0, 0], [0, 1, 2, 3]])
async def test_a_send_to_one_queue_writes_what_any_send_writes(
    database: Database, places: list[int]
) -> None:
    batch = _batch(await make_queue(database))
    rows = []
    for number, place in enumerate(places):
        row = batch[place]
        rows.append((*row[:2], f"{row[2]} {number}", *row[3:]))
    one, messages, deltas = await _written(database, rows, wants_sequences=False)
    other, expected, counted = await _written(database, rows, wants_sequences=True)
    assert len(messages) == len(rows)
    assert (messages, deltas) == (expected, counted)
    assert (one.live, one.now) == (other.live, other.now)


@pytest.mark.parametrize("state", ["deleted", "never made"])
async def test_a_send_to_one_queue_that_is_gone_writes_nothing(
    database: Database, state: str
) -> None:
    queue_id = await make_queue(database)
    if state == "deleted":
        async with database.transaction() as tx:
            await tx.execute("UPDATE queues SET deleted_at = $1", START)
    else:
        queue_id += 1
    rows = [make_message(queue_id, "a"), make_message(queue_id, "b")]
    sent, messages, deltas = await _written(database, rows, wants_sequences=False)
    assert (sent.live, messages, deltas) == ([], [], [])
