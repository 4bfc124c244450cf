"""The same clients of queues, while the clock of the database steps and everybody stands still.

Nobody hands an instant to a statement: each goes by ``present()``, and the model goes by the same.
The simulation checks how the present moves beside the time that truly passes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, cast

from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.scheduler.keep_time import KeepTime
from queuegate.storage.queue_model import Queue
from tests.server_clock import server_clock
from tests.simulation.model import Impossible, ModelQueue
from tests.simulation.simulation import Simulation
from tests.simulation.world import StandingClock, World

if TYPE_CHECKING:
    from queuegate.storage.database import Database, Pooled

STEPS = (0.1, 0.5, 1.0, 3.0, 60.0, 7_200.0)
PAUSES = (0.1, 0.4, 1.0, 10.0, 60.0)
_EARLY = timedelta(seconds=0.05)
_BACK = timedelta(seconds=0.251)
_HIDDEN = timedelta(seconds=1.4)
_MOST_ROUNDS = 20


class AskedClock(StandingClock):
    """The database says what time it is; ``instant_now`` is what it said last."""

    def now(self) -> None:
        return None


class Rounds:
    """The time-keeping rounds on a database that may stand still, with counts."""

    def __init__(self, world: ClockWorld) -> None:
        self._world = world
        self.pause = 0.0
        self.steps = self.steps_forward = 0
        self.jobs = [
            KeepTime(cast("Database", self), self, lambda: world.passed.total_seconds())
            for _ in range(2)
        ]

    @asynccontextmanager
    async def statements(self) -> AsyncIterator[Pooled]:
        async with self._world.observer.statements() as connection:
            await self._world.wait(self.pause)
            yield connection

    def stands_behind(self, seconds: float) -> None:
        """Ask nothing of it."""

    def stepped_back(self) -> None:
        self.steps += 1

    def stepped_forward(self) -> None:
        self.steps_forward += 1


class ClockWorld(World):
    """A database whose clock is not the time that passes."""

    make_clock = AskedClock

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.passed = timedelta()
        """The time that truly passed, as the clocks of gateways that never step see it."""
        self._kept_at = timedelta()
        self.rounds = Rounds(self)
        self._stack = AsyncExitStack()
        self._start = self._server_at = self._latest = self.clock.instant_now
        self._allowed = timedelta.max
        """The present may be ahead of what passed by so much: less with each second that it lost,
        more when the server's clock goes ahead of it."""
        self._steps_back = self._steps_forward = 0

    async def open(self) -> None:
        await super().open()
        self._server = await self._stack.enter_async_context(
            server_clock(self.observer, self._server_at)
        )
        await self.keep()

    async def close(self) -> None:
        await self._stack.aclose()
        await super().close()

    async def wait(self, seconds: float) -> None:
        """Time passes, and the server's clock with it."""
        self.passed += timedelta(seconds=seconds)
        await self._set_server(timedelta(seconds=seconds))

    async def _set_server(self, by: timedelta) -> None:
        self._server_at += by
        await self._server.set(self._server_at)

    async def step(self, seconds: float) -> None:
        """The server's clock steps; nobody looks yet."""
        before = max(self.clock.instant_now, self._server_at)
        await self._set_server(timedelta(seconds=seconds))
        self._steps_back += seconds < 0
        self._steps_forward += seconds > 0
        if self._server_at > before and self._allowed != timedelta.max:
            self._allowed += self._server_at - before
        await self.look()

    async def pass_seconds(self, seconds: float) -> None:
        """Let rounds come as they do, but 20 at most: then those who keep the time stand still."""
        left = timedelta(seconds=seconds)
        for _ in range(_MOST_ROUNDS):
            pause = timedelta(seconds=self.rounds.jobs[0].pause_seconds)
            until_next = max(self._kept_at + pause - self.passed, timedelta())
            if until_next > left:
                break
            await self.wait(until_next.total_seconds())
            left -= until_next
            await self.keep()
        await self.wait(left.total_seconds())
        await self.look()
        await self._come_back()

    async def _come_back(self) -> None:
        """Wait for the latest present that there was: until then FIFO queues already have what
        standard queues hide."""
        since = self.passed
        while self.clock.instant_now < self._latest:
            await self.wait(self.rounds.jobs[0].pause_seconds)
            await self.keep()
            if self.passed - since > _HIDDEN:
                raise Impossible(f"messages are hidden for {self.passed - since}")

    async def keep(self) -> None:
        """One round of each process that keeps the time."""
        for job in self.rounds.jobs:
            await job.run_round(1)
        self._kept_at = self.passed
        await self.look()
        count = len(self.rounds.jobs)
        is_too_much = self.rounds.steps_forward > count * self._steps_forward
        if is_too_much or self.rounds.steps > count * self._steps_back:
            raise Impossible("an alert about a clock that did not step")

    async def look(self) -> None:
        """Read the present. Clients of this instant go by it."""
        present = await self._server.present()
        self.clock.instant_now = present
        if present < self._latest - _BACK:
            raise Impossible(f"the present went back by {self._latest - present}")
        self._latest = max(self._latest, present)
        ahead = present - self._start - self.passed
        if ahead > self._allowed and ahead - self._allowed > _EARLY:
            raise Impossible(f"leases end {ahead - self._allowed} early")
        self._allowed = min(self._allowed, ahead)
        self.forget_marks()

    async def catch_up(self) -> None:
        """The server's clock shows the present again, or a later instant."""
        await self.step(max((self.clock.instant_now - self._server_at).total_seconds(), 0.0) + 1.0)
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
            await self.world.look()
            return
        self.world.rounds.pause = seconds
        await self.world.keep()
        self.world.rounds.pause = 0.0

    async def _drain(self, model: ModelQueue) -> None:
        await self.world.catch_up()
        await super()._drain(model)
