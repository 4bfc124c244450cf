"""The same clients of queues, while the clock of the database steps and everybody stands still.

Statements and the model go by the present that the processes keep. The simulation checks how this
present moves beside the time that truly passes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.runtime.time_keeper import TimeKeeper
from queuegate.gateway.operations.telemetry.series import ClockSeries
from queuegate.storage.queue_model import Queue
from tests.server_clock import server_clock
from tests.simulation.model import Impossible, ModelQueue
from tests.simulation.simulation import Simulation
from tests.simulation.world import World

if TYPE_CHECKING:
    from queuegate.storage.database import Database, Pooled

STEPS = (0.1, 0.5, 1.0, 3.0, 60.0, 7_200.0)
PAUSES = (0.1, 0.4, 1.0, 10.0, 60.0)
_EARLY = timedelta(seconds=0.05)
_GAINS = 1 / 2_000
_LOSES = 1 / 50
_MOST_ROUNDS = 20


class PausingDatabase:
    """Lends the observer's connection. The server stands still before and after each statement."""

    def __init__(self, world: ClockWorld) -> None:
        self._world = world
        self.pause = 0.0

    @asynccontextmanager
    async def statements(self) -> AsyncIterator[Pooled]:
        async with self._world.observer.statements() as connection:
            self._connection = connection
            yield cast("Pooled", self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def fetch(self, *arguments: Any) -> Any:
        await self._world.wait(self.pause / 2)
        found = await self._connection.fetch(*arguments)
        await self._world.wait(self.pause / 2)
        return found


class ClockWorld(World):
    """A database whose clock is not the time that passes, and two processes that keep the time."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.passed = timedelta()
        """The time that truly passed, as the clocks of gateways that never step see it."""
        self.server = PausingDatabase(self)
        self.keepers: list[TimeKeeper] = []
        self.tally = ClockSeries()
        self._kept_at = timedelta()
        self._stack = AsyncExitStack()
        self._start = self.server_at = self._sent_at = self.clock.instant_now
        self._allowed = timedelta.max
        """The present may be ahead of what passed by so much: less with all time that it lost."""
        self._looked_at = timedelta()
        self._steps_back = self._steps_forward = 0

    async def open(self) -> None:
        await super().open()
        self._server = await self._stack.enter_async_context(
            server_clock(self.observer, self.server_at)
        )
        self.keepers = [await self._begun() for _ in range(2)]
        await self.keep()

    async def close(self) -> None:
        await self._stack.aclose()
        await super().close()

    async def crash(self) -> None:
        """One process starts anew, and the other one goes on keeping the time."""
        await super().crash()
        await self.keep()
        self.keepers = [self.keepers[1], await self._begun()]
        self.look()

    async def _begun(self) -> TimeKeeper:
        database = cast("Database", self.server)
        keeper = TimeKeeper(database, self.tally, lambda: self.passed.total_seconds())
        await keeper.begin()
        return keeper

    async def wait(self, seconds: float) -> None:
        """Time passes, and the server's clock with it."""
        self.passed += timedelta(seconds=seconds)
        await self._set_server(timedelta(seconds=seconds))

    async def _set_server(self, by: timedelta) -> None:
        self.server_at += by
        await self._server.set(self.server_at)

    async def step(self, seconds: float) -> None:
        """The server's clock steps; nobody looks yet."""
        await self._set_server(timedelta(seconds=seconds))
        self._steps_back += seconds < 0
        self._steps_forward += seconds > 0
        self.look()

    async def pass_seconds(self, seconds: float) -> None:
        """Let rounds come as they do, but 20 at most: then those who keep the time stand still."""
        left = timedelta(seconds=seconds)
        for _ in range(_MOST_ROUNDS):
            pause = timedelta(seconds=min(one.pause_seconds for one in self.keepers))
            until_next = max(self._kept_at + pause - self.passed, timedelta())
            if until_next > left:
                break
            await self.wait(until_next.total_seconds())
            left -= until_next
            await self.keep()
        await self.wait(left.total_seconds())
        self.look()

    async def keep(self) -> None:
        """One round of each process."""
        for keeper in self.keepers:
            await keeper.run_round()
        self._kept_at = self.passed
        self.look()
        is_too_much = self.tally.forward_count > self._steps_forward
        if is_too_much or self.tally.step_count > self._steps_back:
            raise Impossible("an alert about a clock that did not step")

    def look(self) -> None:
        """Compare the presents of all processes. Clients of this instant go by the latest."""
        gained = (self.passed - self._looked_at) * _GAINS
        if self._allowed != timedelta.max:
            self._allowed += gained
        self._looked_at = self.passed
        for keeper in self.keepers:
            now, sent_at = keeper.now(), keeper.now_of_sends()
            if now < self._sent_at:
                raise Impossible(f"a message is hidden for {self._sent_at - now}")
            ahead = now - self._start - self.passed
            if ahead > self._allowed and ahead - self._allowed > _EARLY:
                raise Impossible(f"leases end {ahead - self._allowed} early")
            self._allowed = min(self._allowed, sent_at - self._start - self.passed)
            self.clock.instant_now = max(self.clock.instant_now, now)
        self._sent_at = max(self._sent_at, *(one.now_of_sends() for one in self.keepers))
        self.forget_marks()

    async def catch_up(self) -> None:
        """The server's clock shows the present again."""
        by = self.clock.instant_now - self.server_at
        if abs(by) > timedelta(seconds=0.2):
            await self.step(by.total_seconds())
        await self.keep()


class ClockSimulation(Simulation):
    """Of queues and topics, on a database whose clock steps."""

    steps = (*Simulation.steps, (10, "step_clock"), (10, "pause"))
    make_world = ClockWorld
    world: ClockWorld

    async def _step_clock(self, engine: Engine, queue: Queue, model: ModelQueue) -> None:
        """By some seconds, or for a moment, or to where time goes by the clock again."""
        how = self.random.choice(("ahead", "back", "for a moment", "caught up"))
        if how == "caught up":
            await self.world.catch_up()
            return
        seconds = self.random.choice(STEPS)
        self.note(f"{seconds} s {how}")
        if how == "for a moment":
            await self.world.step(seconds)
            await self._send(engine, queue, model)
        if how != "ahead":
            seconds = -seconds
        await self.world.step(seconds)

    async def _pause(self, engine: Engine, queue: Queue, model: ModelQueue) -> None:
        """Of the server or of a process, while a round asks or while none does."""
        seconds = self.random.choice(PAUSES)
        self.note(f"{seconds} s")
        if self.random.random() < 0.5:
            await self.world.wait(seconds)
            self.world.look()
            return
        self.world.server.pause = seconds
        await self.world.keep()
        self.world.server.pause = 0.0

    async def _drain(self, model: ModelQueue) -> None:
        await self.world.catch_up()
        await super()._drain(model)
