"""Processes keep one present while the clock of the database steps and everybody stands still."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest

from queuegate.gateway.operations.runtime.time_keeper import TimeKeeper
from queuegate.gateway.operations.telemetry.series import ClockSeries
from queuegate.storage.database import Database
from queuegate.storage.notifications import Notifications
from tests.server_clock import ServerClock, server_clock

if TYPE_CHECKING:
    from queuegate.storage.database import Pooled

START = datetime(2030, 1, 1, tzinfo=UTC)
STEPS = [seconds * sign for seconds in (0.1, 1.0, 60.0, 7_200.0) for sign in (1, -1)]
PAUSES = [0.1, 1.0, 10.0, 60.0]
NEARLY = timedelta(seconds=0.02)


class Pausing:
    """A connection. The world waits before and after each statement."""

    def __init__(self, world: World, connection: Pooled) -> None:
        self._world = world
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def fetch(self, *arguments: Any) -> Any:
        await self._world.wait(self._world.pause)
        found = await self._connection.fetch(*arguments)
        await self._world.wait(self._world.pause)
        return found


class World:
    """A server whose clock a test moves, and processes that keep the time."""

    def __init__(self, database: Database, server: ServerClock) -> None:
        self._database = database
        self._server = server
        self.clock = START
        self.passed = 1_000.0
        self.pause = 0.0
        """The server stands still for so long before it reads its clock, and after it."""
        self.tally = ClockSeries()

    async def wait(self, seconds: float) -> None:
        self.passed += seconds
        await self.step(seconds)

    async def step(self, seconds: float) -> None:
        self.clock += timedelta(seconds=seconds)
        await self._server.set(self.clock)

    @asynccontextmanager
    async def statements(self) -> AsyncIterator[Pooled]:
        async with self._database.statements() as connection:
            yield cast("Pooled", Pausing(self, connection))

    def transaction(self) -> Any:
        return self._database.transaction()

    def keeper(self, monotonic: Callable[[], float] | None = None) -> TimeKeeper:
        return TimeKeeper(cast("Database", self), self.tally, monotonic or (lambda: self.passed))

    async def begun(self, monotonic: Callable[[], float] | None = None) -> TimeKeeper:
        keeper = self.keeper(monotonic)
        await keeper.begin()
        return keeper

    def true(self) -> datetime:
        return START + timedelta(seconds=self.passed - 1_000.0)

    def agrees(self, *keepers: TimeKeeper) -> bool:
        """Return True if all are within milliseconds of the time that truly passed."""
        presents = [now for one in keepers for now in (one.now(), one.now_of_sends())]
        return all(abs(present - self.true()) < NEARLY for present in presents)

    async def present(self) -> datetime:
        return await self._server.present()

    @property
    def steps(self) -> tuple[int, int]:
        return self.tally.forward_count, self.tally.step_count


@pytest.fixture
async def world(database: Database) -> AsyncIterator[World]:
    async with server_clock(database, START) as server:
        yield World(database, server)


@pytest.mark.parametrize("seconds", STEPS)
async def test_time_goes_on_when_the_clock_steps(world: World, seconds: float) -> None:
    """One process finds the step, then another, and a third one starts."""
    one, other = await world.begun(), await world.begun()
    await world.wait(0.5)
    await world.step(seconds)
    assert world.agrees(one, other)
    for keeper in (one, other, one):
        await keeper.run_round()
        assert world.agrees(one, other)
        await world.wait(0.5)
    assert world.agrees(one, other, await world.begun())
    assert abs(await world.present() - world.true()) < NEARLY
    assert sum(world.steps) <= 1
    if abs(seconds) >= 1:
        assert world.steps == ((1, 0) if seconds > 0 else (0, 1))


async def test_hours_that_no_clock_counted_have_passed(world: World) -> None:
    """Of a paused virtual machine."""
    first, other = await world.begun(), await world.begun()
    await world.step(8 * 3_600.0)
    for keeper in (first, other):
        await keeper.run_round()
        assert abs(keeper.now() - world.clock) < NEARLY


async def test_a_process_that_starts_alone_takes_a_clock_that_is_ahead(world: World) -> None:
    stopped = await world.begun()
    await world.step(3_600.0)
    await stopped.run_round()
    assert world.agrees(stopped, await world.begun())
    await world.wait(3.0)
    assert abs((await world.begun()).now() - world.clock) < NEARLY


async def test_processes_that_find_a_step_at_once_correct_it_once(world: World) -> None:
    keepers = [await world.begun() for _ in range(4)]
    await world.step(60.0)
    await asyncio.gather(*(one.run_round() for one in keepers))
    for keeper in keepers:
        await keeper.run_round()
    assert world.agrees(*keepers)
    assert world.steps == (1, 0)


async def test_a_step_in_the_moment_of_a_correction_is_corrected_too(world: World) -> None:
    one, other = await world.begun(), await world.begun()
    await world.step(60.0)
    await one.run_round()
    await world.step(3.0)
    for keeper in (other, one, other):
        await keeper.run_round()
        assert world.agrees(one, other)


@pytest.mark.parametrize("pause", PAUSES)
async def test_a_round_that_stands_still_moves_nothing(world: World, pause: float) -> None:
    """A server, a gateway or an event loop that stops while the clock is asked."""
    keeper = await world.begun()
    for world.pause in (0.0, pause, 0.0):
        await keeper.run_round()
        assert world.agrees(keeper)
        assert abs(keeper.now_of_clock() - world.true()) < NEARLY
        await world.wait(0.1)
    assert world.steps == (0, 0)


@pytest.mark.parametrize("pause", PAUSES)
@pytest.mark.parametrize("seconds", [60.0, -60.0])
async def test_a_step_is_measured_by_a_short_round_trip(
    world: World, pause: float, seconds: float
) -> None:
    one, other = await world.begun(), await world.begun()
    await world.step(seconds)
    world.pause = pause
    await one.run_round()
    world.pause = 0.0
    await other.run_round()
    world.pause = pause
    await one.run_round()
    world.pause = 0.0
    for keeper in (one, other):
        await keeper.run_round()
    assert world.agrees(one, other)
    assert sum(world.steps) == 1


@pytest.mark.parametrize("seconds", [60.0, -60.0, 1.0])
async def test_processes_far_from_the_database_find_a_step(world: World, seconds: float) -> None:
    """Each of their round trips is longer than one that a step is measured by at first."""
    world.pause = 0.03
    one, other = await world.begun(), await world.begun()
    await world.step(seconds)
    for _ in range(20):
        for keeper in (one, other):
            await keeper.run_round()
    assert {one.pause_seconds, other.pause_seconds} <= {0.25, 1.0}
    assert abs(await world.present() - world.true()) < 2 * NEARLY


async def test_rounds_that_stay_unsure_go_on(world: World) -> None:
    keeper = await world.begun()
    await world.step(7_200.0)
    world.pause = 60.0
    for _ in range(1_100):
        await keeper.run_round()
        assert keeper.pause_seconds < 0.25
    assert world.steps == (0, 0)


@pytest.mark.parametrize("seconds", [5.0, 3_600.0])
async def test_a_paused_machine_does_not_change_the_time_of_others(
    world: World, seconds: float
) -> None:
    """The monotonic clock of a virtual machine stands still with it."""
    lost = 0.0
    one, paused = await world.begun(), await world.begun(lambda: world.passed - lost)
    for keeper in (one, paused):
        await keeper.run_round()
    await world.wait(seconds)
    lost = seconds
    await one.run_round()
    await world.wait(1.0)
    for keeper in (paused, one, paused):
        await keeper.run_round()
    assert world.agrees(one)
    assert abs(paused.now() - world.true()) < NEARLY
    assert await world.present() == world.clock
    assert world.steps == (0, 0)
    await world.step(60.0)
    for keeper in (paused, one):
        await keeper.run_round()
    assert world.agrees(one, paused)


async def test_a_process_that_starts_after_a_step_waits_for_the_others(
    world: World, database: Database
) -> None:
    """None of them has found the step yet."""
    asked = asyncio.Event()
    listening = await Notifications.open(database, lambda _: asked.set(), lambda: None)
    old = await world.begun()
    await old.run_round()
    await world.wait(0.3)
    await world.step(60.0)
    new = world.keeper()
    starting = asyncio.create_task(new.begin())
    await asked.wait()
    await world.wait(0.01)
    await old.asked_for_time()
    await starting
    assert world.agrees(old, new)
    await listening.close()


async def test_a_process_that_starts_alone_does_not_wait(world: World) -> None:
    await (await world.begun()).run_round()
    await world.wait(60.0)
    assert world.agrees(await world.begun())


async def test_time_goes_on_from_the_mark_when_all_start_on_another_clock(world: World) -> None:
    old = await world.begun()
    await world.wait(1.0)
    await old.run_round()
    await world.step(-3_600.0)
    new = await world.begun()
    assert world.agrees(new)
    assert world.steps == (0, 1)


@pytest.mark.parametrize(("step", "seconds"), [(-1.0, 50.0), (0.025, 50.0)])
async def test_the_present_approaches_the_clock(world: World, step: float, seconds: float) -> None:
    """Slowly, however many processes there are."""
    keepers = [await world.begun() for _ in range(2)]
    await world.step(step)
    waited = 0.0
    while waited < 2 * seconds:
        for keeper in keepers:
            await keeper.run_round()
        await world.wait(0.25)
        waited += 0.25
        ahead = world.true() - world.clock
        if abs((await world.present()) - world.clock) < timedelta(milliseconds=1):
            break
        assert abs(ahead.total_seconds() + step) < 1e-6
    assert 0.9 * seconds < waited < 1.3 * seconds


async def test_an_administrator_takes_the_clock_as_it_is(world: World, database: Database) -> None:
    """As docs/how-to/troubleshooting.md has it, with gateways running."""
    keepers = [await world.begun(), await world.begun()]
    await world.step(-400.0 * 86_400)
    for keeper in keepers:
        await keeper.run_round()
    assert world.agrees(*keepers)
    async with database.statements() as connection:
        await connection.execute(
            "SELECT setval('queuegate.clock_mark', 1), setval('queuegate.clock_offset', 0)"
        )
    for keeper in keepers:
        await keeper.run_round()
        assert abs(keeper.now() - world.clock) < NEARLY
    assert await world.present() == world.clock


async def test_schedules_go_by_the_clock_where_it_is_later(world: World) -> None:
    keeper = await world.begun()
    await world.step(3_600.0)
    await keeper.run_round()
    assert -NEARLY < keeper.now_of_clock() - world.clock <= timedelta()
    await world.step(-7_200.0)
    await keeper.run_round()
    assert -NEARLY < keeper.now_of_clock() - world.true() <= timedelta()
