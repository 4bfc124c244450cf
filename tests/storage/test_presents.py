"""The present of statements does not go back with the clock of the server.

A mark that lies ahead of the clock is what a step back leaves: the mark is where the clock was.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from queuegate import storage
from queuegate.scheduler.keep_time import KeepTime
from queuegate.storage import stored_clocks
from queuegate.storage.database import Database
from queuegate.storage.stored_clocks import Present
from tests.server_clock import ServerClock, server_clock
from tests.storage.fifo_queue import START, FifoQueue, bodies, make_queue
from tests.storage.fifo_queue import make_message as make_fifo_message
from tests.storage.standard_queue import MovingClock, StandardQueue
from tests.storage.standard_queue import make_queue as make_standard_queue

if TYPE_CHECKING:
    from queuegate.storage.database import Pooled

HOUR = timedelta(hours=1)
# They run before there is a present, or ask the clock itself.
MAY_ASK_THE_CLOCK = {"database_statistics", "preflight", "migrate", "present", "receipt_secrets"}


async def keep(database: Database, at_least: datetime | None = None) -> Present:
    async with database.transaction() as tx:
        return await stored_clocks.keep_present(tx, at_least)


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
        first = await stored_clocks.keep_present(one, (await keep(database)).clock + HOUR)
        async with database.transaction() as other:
            second = await stored_clocks.keep_present(other, first.present + HOUR)
    assert second.present == first.present
    assert (await keep(database)).present == first.present


class Tally:
    def __init__(self) -> None:
        self.behind: list[float] = []
        self.steps = self.steps_forward = 0

    def stands_behind(self, seconds: float) -> None:
        self.behind.append(seconds)

    def stepped_back(self) -> None:
        self.steps += 1

    def stepped_forward(self) -> None:
        self.steps_forward += 1


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
    # The first round of each finds the clock behind, and leaves the present where it is.
    for _ in range(4):
        for job in jobs:
            await job.run_round(1)
        assert (await keep(database)).present - present == timedelta(
            seconds=0.9 * round(monotonic - 100.0, 3)
        )
        monotonic += 0.05
    assert tally.steps == 2
    assert caplog.text.count("stepped back") == 2
    assert all(3_000 < seconds < 3_700 for seconds in tally.behind[2:])
    # The clock goes forward again, past the present.
    async with database.transaction() as tx:
        await tx.execute("SELECT setval('clock_mark', 1)")
    await KeepTime(database, tally, lambda: monotonic).run_round(1)
    assert tally.behind[-1] == 0.0
    assert tally.steps == 2


class Stalling:
    """Time that passes while a round asks the database, and while nobody asks."""

    def __init__(self, database: Database, server: ServerClock) -> None:
        self._database = database
        self._server = server
        self.clock = START
        self.monotonic = 100.0
        self.pause = 0.0

    async def wait(self, seconds: float) -> None:
        self.monotonic += seconds
        self.clock += timedelta(seconds=seconds)
        await self._server.set(self.clock)

    @asynccontextmanager
    async def statements(self) -> AsyncIterator[Pooled]:
        """Lend a connection after a pause, as a slow database does."""
        async with self._database.statements() as connection:
            await self.wait(self.pause)
            yield connection

    def job(self, tally: Tally) -> KeepTime:
        return KeepTime(cast("Database", self), tally, lambda: self.monotonic)


@pytest.fixture
async def server(database: Database) -> AsyncIterator[ServerClock]:
    async with server_clock(database, START) as clock:
        await keep(database)
        yield clock


@pytest.mark.parametrize("pause", [0.1, 0.4, 10.0, 60.0])
async def test_a_round_that_stands_still_moves_nothing(
    database: Database, server: ServerClock, pause: float
) -> None:
    """A server, a gateway or an event loop that stops while the clock is asked."""
    time, tally = Stalling(database, server), Tally()
    job = time.job(tally)
    for time.pause in (0.0, pause, 0.0):
        await job.run_round(1)
        await time.wait(0.05)
    assert await server.present() == time.clock
    assert (tally.steps, tally.steps_forward, tally.behind) == (0, 0, [0.0] * 3)


async def test_a_round_that_stands_still_while_the_clock_is_behind(
    database: Database, server: ServerClock
) -> None:
    time = Stalling(database, server)
    job = time.job(Tally())
    time.clock -= HOUR
    for time.pause in (0.0, 10.0, 10.0, 0.0):
        await job.run_round(1)
        await time.wait(0.1)
    # Of 20 s that nobody moved the present: it may be slow, and no lease ends early.
    assert timedelta() < await server.present() - START <= timedelta(seconds=0.3)


async def test_a_mark_that_an_administrator_takes_back_stays_there(
    database: Database, server: ServerClock
) -> None:
    """As docs/how-to/troubleshooting.md has it, with gateways running."""
    await server.set(START + 400 * timedelta(days=1))
    await keep(database)
    await server.set(START)
    time = Stalling(database, server)
    job = time.job(Tally())
    for _ in range(3):
        await job.run_round(1)
        await time.wait(0.1)
    async with database.statements() as connection:
        await connection.execute("SELECT setval('queuegate.clock_mark', 1)")
    await job.run_round(1)
    assert await server.present() == time.clock


async def test_a_lease_of_the_moment_of_a_step_back_lasts(
    database: Database, server: ServerClock, plain: StandardQueue
) -> None:
    """The present stands still from the step to the round that finds it."""
    monotonic = 100.0
    job = KeepTime(database, Tally(), lambda: monotonic)
    await job.run_round(1)
    await server.set(START - HOUR)
    monotonic += 0.9
    await plain.send("a")
    assert bodies(await plain.receive(visibility=1)) == ["a"]
    while monotonic < 101.85:
        await job.run_round(1)
        assert await plain.receive() == []
        monotonic += 0.05


@pytest.mark.parametrize("seconds", [0.1, 1.0, 1.9, 3.0, 60.0, 7_200.0])
async def test_a_short_step_forward_hides_nothing(
    database: Database, server: ServerClock, plain: StandardQueue, seconds: float
) -> None:
    """Nobody looks at the clock between the step and the step back."""
    await server.set(START + timedelta(seconds=seconds))
    await plain.send("a")
    await server.set(START + timedelta(seconds=0.1))
    assert await server.present() >= START + timedelta(seconds=seconds - 0.25)
    # Time goes on: by the clock, and by rounds where that is behind.
    await server.set(START + timedelta(seconds=0.25))
    assert bodies(await plain.receive(visibility=30)) == ["a"]
    assert await plain.receive() == []


@pytest.mark.parametrize("seconds", [0.2, 1.0, 60.0, 7_200.0])
async def test_a_step_forward_is_told_once(
    database: Database, server: ServerClock, caplog: pytest.LogCaptureFixture, seconds: float
) -> None:
    time, tally = Stalling(database, server), Tally()
    job = time.job(tally)
    for step in (0.0, seconds, 0.0):
        time.clock += timedelta(seconds=step)
        await job.run_round(1)
        await time.wait(1.0)
    assert (tally.steps, tally.steps_forward) == (0, 1)
    assert caplog.text.count(f"stepped forward by {seconds:.1f} s") == 1


async def test_a_present_is_noted_by_whoever_is_first_after_a_quarter_of_a_second(
    database: Database, server: ServerClock
) -> None:
    """Beside transactions that stay open, and not by one that may not write."""
    more = timedelta(seconds=0.3)
    later = START + more
    await server.set(later)
    async with database.transaction() as reading:
        await reading.execute("SET TRANSACTION READ ONLY")
        assert await reading.fetchval("SELECT present()") == later
    async with database.transaction() as writing:
        assert await writing.fetchval("SELECT present()") == later
        await server.set(START)
        assert await server.present() == later
        await server.set(later + more)
        assert await server.present() == later + more
    await server.set(START)
    assert await server.present() == later + more


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
