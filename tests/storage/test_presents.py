"""The present of statements does not go back with the clock of the server.

A mark that lies ahead of the clock is what a step back leaves: the mark is where the clock was.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import storage
from scheduler.keep_time import KeepTime
from storage.clocks import presents
from storage.clocks.presents import Present
from storage.database import Database
from tests.storage.fifo_queue import FifoQueue, bodies, make_queue
from tests.storage.fifo_queue import make_message as make_fifo_message
from tests.storage.standard_queue import MovingClock, StandardQueue
from tests.storage.standard_queue import make_queue as make_standard_queue

HOUR = timedelta(hours=1)
# They run before there is a present, or ask the clock itself.
MAY_ASK_THE_CLOCK = {"preflight", "migrate", "presents", "receipt_secrets"}


async def keep(database: Database, at_least: datetime | None = None) -> Present:
    async with database.transaction() as tx:
        return await presents.keep(tx, at_least)


async def step_back(database: Database, by: timedelta = HOUR) -> datetime:
    """The clock was so far ahead; where it was."""
    return (await keep(database, (await keep(database)).clock + by)).present


class OwnClock(MovingClock):
    """Of lanes that leave the time to the database, unless ``instant`` says otherwise."""

    def now(self) -> datetime:
        # None is what production hands over.
        return self.given  # type: ignore[return-value]

    given: datetime | None = None


@pytest.fixture
async def plain(database: Database) -> AsyncIterator[StandardQueue]:
    queue = StandardQueue(database, await make_standard_queue(database), OwnClock())
    yield queue
    await queue.lanes.close()


@pytest.fixture
async def grouped(database: Database) -> AsyncIterator[FifoQueue]:
    queue = FifoQueue(database, await make_queue(database), lambda: None)
    yield queue
    await queue.lanes.close()


async def test_what_was_sent_before_a_step_is_received_after_it(
    database: Database, plain: StandardQueue
) -> None:
    clock = plain.clock
    assert isinstance(clock, OwnClock)
    clock.given = datetime.now(UTC) + HOUR
    await plain.send("before")
    await step_back(database, HOUR + timedelta(minutes=1))
    clock.given = None
    await plain.send("after")
    assert bodies(await plain.receive()) == ["before", "after"]


async def test_a_fifo_group_goes_on_after_a_step(database: Database, grouped: FifoQueue) -> None:
    present = await step_back(database)
    await grouped.send(make_fifo_message("g", "1"), make_fifo_message("g", "2"))
    [first] = await grouped.receive(1)
    assert await grouped.delete(first) == ["ok"]
    [second] = await grouped.receive(1)
    assert (first.body, second.body) == ("1", "2")
    await keep(database, present + timedelta(seconds=40))
    assert await grouped.hide(second, 0) == "expired"
    assert bodies(await grouped.receive()) == ["2"]


async def test_a_timeout_ends_by_the_present_while_the_clock_is_behind(
    database: Database, plain: StandardQueue
) -> None:
    present = await step_back(database)
    await plain.send("a")
    [message] = await plain.receive(visibility=30)
    assert await plain.receive() == []
    await keep(database, present + timedelta(seconds=29))
    assert await plain.receive() == []
    await keep(database, present + timedelta(seconds=60))
    [again] = await plain.receive()
    assert (again.sequence, again.receive_count) == (message.sequence, 2)


async def test_the_present_never_sinks(database: Database) -> None:
    present = await step_back(database)
    for earlier in (None, present - HOUR, present - timedelta(days=400)):
        assert (await keep(database, earlier)).present == present


async def test_the_present_is_the_clock_where_that_is_later(database: Database) -> None:
    before = await keep(database)
    behind = await keep(database, before.present - HOUR)
    assert behind.present >= before.present
    assert behind.behind_seconds < HOUR.total_seconds() / 2
    async with database.transaction() as tx:
        assert await tx.fetchval("SELECT present() - clock_timestamp() < interval '1 minute'")


async def test_whoever_writes_the_mark_writes_alone(database: Database) -> None:
    async with database.transaction() as one:
        first = await presents.keep(one, (await keep(database)).clock + HOUR)
        async with database.transaction() as other:
            second = await presents.keep(other, first.present + HOUR)
    assert second.present == first.present + HOUR
    assert (await keep(database)).present == first.present


class Tally:
    def __init__(self) -> None:
        self.behind: list[float] = []
        self.steps = 0

    def stands_behind(self, seconds: float) -> None:
        self.behind.append(seconds)

    def stepped_back(self) -> None:
        self.steps += 1


async def test_time_goes_on_a_tenth_slower_until_the_clock_has_caught_up(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    monotonic = 100.0
    tally = Tally()
    jobs = [KeepTime(database, tally, lambda: monotonic) for _ in range(2)]
    for job in jobs:
        await job.run_round(1)
    assert tally.steps == 0
    present = await step_back(database)
    for _ in range(3):
        for job in jobs:
            await job.run_round(1)
        assert (await keep(database)).present - present == timedelta(
            seconds=0.9 * (monotonic - 100.0)
        )
        monotonic += 10.0
    assert tally.steps == 2
    assert caplog.text.count("stepped back") == 2
    assert all(3_000 < seconds < 3_700 for seconds in tally.behind[2:])
    # The clock goes forward again, past the present.
    async with database.transaction() as tx:
        await tx.execute("SELECT setval('clock_mark', 1)")
    await KeepTime(database, tally, lambda: monotonic).run_round(1)
    assert tally.behind[-1] == 0.0
    assert tally.steps == 2


async def test_nothing_else_asks_the_clock(database: Database) -> None:
    for file in sorted((Path(storage.__file__).parent / "sql").glob("*.sql")):
        if file.stem not in MAY_ASK_THE_CLOCK:
            assert "clock_timestamp" not in file.read_text(), file.name
    async with database.transaction() as tx:
        asking = await tx.fetch(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'queuegate'::regnamespace"
            " AND (prosrc LIKE '%clock\\_timestamp%' OR prosrc ~ '\\mnow\\(\\)')"
        )
    assert [row["proname"] for row in asking] == []
