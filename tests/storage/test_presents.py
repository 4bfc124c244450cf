"""The present of statements that get no instant: the server's clock and its offset."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from queuegate import storage
from queuegate.storage import stored_clocks
from queuegate.storage.database import Database
from tests.server_clock import ServerClock, server_clock
from tests.storage.fifo_queue import START, FifoQueue, bodies, make_queue
from tests.storage.fifo_queue import make_message as make_fifo_message
from tests.storage.standard_queue import MovingClock, StandardQueue
from tests.storage.standard_queue import make_queue as make_standard_queue

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
# They run before there is a present, or ask the clock itself.
MAY_ASK_THE_CLOCK = {"database_statistics", "preflight", "migrate", "present", "receipt_secrets"}


class OwnClock(MovingClock):
    """Of lanes that leave the time to the database, unless ``instant`` says otherwise."""

    def now(self) -> datetime:
        # None is what processes hand over that do not keep the time.
        return self.given  # type: ignore[return-value]

    given: datetime | None = None


@pytest.fixture
async def server(database: Database) -> AsyncIterator[ServerClock]:
    async with server_clock(database, START) as clock:
        yield clock


@pytest.fixture
async def plain(database: Database, server: ServerClock) -> AsyncIterator[StandardQueue]:
    queue = StandardQueue(database, await make_standard_queue(database), OwnClock())
    yield queue
    await queue.lanes.close()


@pytest.fixture
async def grouped(database: Database, server: ServerClock) -> AsyncIterator[FifoQueue]:
    queue = FifoQueue(database, await make_queue(database), lambda: None)
    yield queue
    await queue.lanes.close()


async def move(database: Database, ahead: timedelta) -> None:
    """Let the present be so far ahead of the server's clock."""
    async with database.transaction() as tx:
        seen = (await stored_clocks.read_present(tx)).offset_us
        assert await stored_clocks.change_offset(tx, seen, round(ahead / SECOND * 1e6))


async def test_what_was_sent_before_a_step_is_received_after_it(
    database: Database, server: ServerClock, plain: StandardQueue
) -> None:
    await plain.send("before")
    await server.set(START - HOUR)
    await move(database, HOUR)
    await plain.send("after")
    assert bodies(await plain.receive()) == ["before", "after"]


async def test_a_fifo_group_goes_on_after_a_step(
    database: Database, server: ServerClock, grouped: FifoQueue
) -> None:
    await grouped.send(make_fifo_message("g", "1"), make_fifo_message("g", "2"))
    await server.set(START - HOUR)
    await move(database, HOUR)
    [first] = await grouped.receive(1)
    assert await grouped.delete(first) == ["ok"]
    [second] = await grouped.receive(1)
    assert (first.body, second.body) == ("1", "2")
    await server.set(START - HOUR + 40 * SECOND)
    assert await grouped.hide(second, 0) == "expired"
    assert bodies(await grouped.receive()) == ["2"]


async def test_a_timeout_ends_by_the_present_while_the_clock_is_ahead(
    database: Database, server: ServerClock, plain: StandardQueue
) -> None:
    await plain.send("a")
    [message] = await plain.receive(visibility=30)
    await server.set(START + HOUR + 29 * SECOND)
    await move(database, -HOUR)
    assert await plain.receive() == []
    await server.set(START + HOUR + 31 * SECOND)
    [again] = await plain.receive()
    assert (again.sequence, again.receive_count) == (message.sequence, 2)


async def test_the_present_is_never_before_the_mark(
    database: Database, server: ServerClock
) -> None:
    async with database.transaction() as tx:
        assert (await stored_clocks.read_present(tx, START)).mark is None
        # Too far ahead to be true, and earlier than the mark.
        for kept in (START + HOUR, START - SECOND):
            assert (await stored_clocks.read_present(tx, kept)).mark == START
    await server.set(START - HOUR)
    assert await server.present() == START
    await server.set(START + SECOND)
    assert await server.present() == START + SECOND


async def test_whoever_changes_the_offset_knows_the_last_one(
    database: Database, server: ServerClock
) -> None:
    await move(database, SECOND)
    async with database.transaction() as tx:
        assert not await stored_clocks.change_offset(tx, 0, 5)
        assert await stored_clocks.change_offset(tx, 1_000_000, -5)
        assert (await stored_clocks.read_present(tx)).offset_us == -5


async def test_nothing_else_asks_the_clock(database: Database) -> None:
    folder = Path(storage.__file__).parent
    files = [file for file in folder.rglob("*.sql") if file.parent.name != "migrations"]
    assert len(files) > 40
    for file in files:
        if file.stem not in MAY_ASK_THE_CLOCK:
            assert "clock_timestamp" not in file.read_text(), file.name
    async with database.transaction() as tx:
        asking = await tx.fetch(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'queuegate'::regnamespace"
            " AND (prosrc LIKE '%clock\\_timestamp%' OR prosrc ~ '\\mnow\\(\\)')"
        )
    assert [row["proname"] for row in asking] == []
