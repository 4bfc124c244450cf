"""Sends whose callers get to know the sequences, and commits that do not wait for the disk."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from queuegate.storage.database import Database
from queuegate.storage.lanes import Entry
from queuegate.storage.queue_model import Row
from queuegate.storage.queues.messages import FanOut, Send
from queuegate.storage.queues.standard_lanes import StandardLanes
from queuegate.storage.storage_errors import QueueDoesNotExist
from tests.storage.fifo_queue import Replied
from tests.storage.standard_queue import make_message, make_queue


def row(queue_id: int, body: str) -> Row:
    return make_message(queue_id, body)


class Sender:
    """A send lane whose entries wait until all are in line, and so share one flush."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.lanes = StandardLanes(database, lambda: None)
        self.results: dict[Entry[Any], asyncio.Future[object]] = {}

    def _future(self) -> asyncio.Future[object]:
        return asyncio.get_running_loop().create_future()

    def native(self, *rows: Row, is_async: bool = False) -> Send:
        done = self._future()
        entry = Send(list(rows), Replied(done), 0, wants_sequences=True, is_async=is_async)
        self.results[entry] = done
        return entry

    def plain(self, *rows: Row) -> Send:
        done = self._future()
        entry = Send(list(rows), Replied(done), 0)
        self.results[entry] = done
        return entry

    def fan_out(self, *rows: Row, wants_sequences: bool = True) -> FanOut:
        done = self._future()
        entry = FanOut(list(rows), Replied(done), 0, wants_sequences=wants_sequences)
        self.results[entry] = done
        return entry

    async def flush(self, *entries: Send | FanOut) -> list[Any]:
        """All of them with one statement."""
        for entry in entries:
            self.lanes.send.submit(entry)
        return [await self.results[entry] for entry in entries]

    async def bodies(self) -> dict[int, str]:
        async with self.database.transaction() as tx:
            return {r[0]: r[1] for r in await tx.fetch("SELECT sequence, body FROM messages")}


@pytest.fixture
async def sender(database: Database) -> Sender:
    return Sender(database)


async def test_sequences_are_those_of_the_messages_in_order(
    sender: Sender, database: Database
) -> None:
    first, second = [await make_queue(database, name) for name in ("a", "b")]
    one = sender.native(row(first, "1"), row(first, "2"))
    other = sender.plain(row(second, "3"))
    copies = sender.fan_out(row(second, "4"), row(first, "5"))
    quiet = sender.fan_out(row(second, "6"), wants_sequences=False)
    ones, others, copied, unasked = await sender.flush(one, other, copies, quiet)
    assert (copied.gone, unasked.gone) == (frozenset(), frozenset())
    bodies = await sender.bodies()
    assert [bodies[message.sequence] for message in ones] == ["1", "2"]
    assert [message.sequence for message in others] == [None]
    assert [bodies[sequence] for sequence in copied.sequences] == ["4", "5"]
    await sender.lanes.close()


async def test_sequences_keep_their_place_where_queues_are_gone(
    sender: Sender, database: Database
) -> None:
    queue_id = await make_queue(database)
    gone = queue_id + 1
    lost = sender.native(row(gone, "1"))
    copies = sender.fan_out(row(gone, "2"), row(queue_id, "3"), row(gone, "4"))
    kept = sender.native(row(queue_id, "5"))
    refused, copied, written = await sender.flush(lost, copies, kept)
    assert isinstance(refused, QueueDoesNotExist)
    assert copied.gone == {gone}
    bodies = await sender.bodies()
    assert [one and bodies[one] for one in copied.sequences] == [None, "3", None]
    assert [bodies[message.sequence] for message in written] == ["5"]
    await sender.lanes.close()


@pytest.mark.parametrize(
    ("asked", "waits"),
    [((True, True), False), ((True, False), True), ((False, False), True), ((True, None), True)],
)
async def test_a_commit_need_not_reach_the_disk_only_when_all_agree(
    sender: Sender,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    asked: tuple[bool | None, ...],
    waits: bool,
) -> None:
    """None: a message of the AWS API, which has no such wish."""
    queue_id = await make_queue(database)
    seen: list[str] = []
    fetchrow = asyncpg.Connection.fetchrow

    async def watching(self: asyncpg.Connection, statement: str, *arguments: object) -> object:
        """The setting as the transaction of the statement leaves it."""
        async with self.transaction():
            await self.execute("SET LOCAL synchronous_commit = on")
            found = await fetchrow(self, statement, *arguments)
            seen.append(await self.fetchval("SHOW synchronous_commit"))
        return found

    monkeypatch.setattr(asyncpg.Connection, "fetchrow", watching)
    entries = [
        sender.plain(row(queue_id, "x"))
        if wish is None
        else sender.native(row(queue_id, "x"), is_async=wish)
        for wish in asked
    ]
    await sender.flush(*entries)
    assert seen == ["on" if waits else "off"]
    monkeypatch.undo()
    # And the connection is what it was.
    connection = sender.lanes.send._connection
    assert connection is not None
    await connection.execute("SET synchronous_commit = on")
    await sender.flush(sender.native(row(queue_id, "x"), is_async=True))
    assert await connection.fetchval("SHOW synchronous_commit") == "on"
    await sender.lanes.close()
