"""Fires schedules: sleeps until the next schedule is due, or until a wake.

Any number of processes may run it: each skips rows that another process has claimed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import Container
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from queuegate.scheduler.worker import (
    PAUSE_SECONDS,
    IdleProbe,
    Loop,
    account_presents,
    common_filter,
    failures_logged,
)
from queuegate.storage import pending_work, schedule_fires
from queuegate.storage.database import Database
from queuegate.storage.queries import AccountFilter

if TYPE_CHECKING:
    from queuegate.scheduler.schedule_rounds import Dispatch, FiringTally
    from queuegate.scheduler.worker import AllClocks
    from queuegate.storage.pending_work import NextSchedule
    from queuegate.storage.schedule_fires import PendingFires

_log = logging.getLogger("queuegate.fire")

_UNAVAILABLE_PAUSE_SECONDS = 1.0
# Bridges rounds a minute apart. Most processes have nothing to fire and close the connection.
_KEPT_SECONDS = 90.0
# One look serves many changes of schedules in a short time.
_BETWEEN_HINTS_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class FireOptions:
    """``poll_seconds``: longest time between looks. ``batch_size``: schedules fired in one
    transaction at most."""

    poll_seconds: float = 1.0
    batch_size: int = 500


class FireSchedules(Loop):
    """The worker that fires schedules. Call ``wake`` when schedules or the clock changed."""

    name = "fire"

    def __init__(
        self,
        database: Database,
        clocks: AllClocks,
        options: FireOptions,
        *,
        dispatch: Dispatch,
        tally: FiringTally,
    ) -> None:
        super().__init__()
        self._database = database
        self.chores: IdleProbe | None = None
        """Wakes the worker when work may exist. Unused if ``poll_seconds`` is shorter."""
        self.recorded: Container[str] = ()
        """The accounts that record events."""
        self._is_idle = False
        self._clocks = clocks
        self._options = options
        self._dispatch = dispatch
        self._tally = tally
        self._own: Database | None = None
        self._used_at = 0.0

    def wake(self) -> None:
        """Look at once: a schedule may be due, or due sooner."""
        self._woken.set()

    async def stop(self) -> None:
        """Finish the current round within five seconds, then end the loop. An interrupted round has
        fired nothing."""
        await super().stop()
        await self._close()

    async def run_once(self) -> int:
        """Run one round by the common clock and return the number of schedules and retries handled.
        ``stop`` closes the connection that the round opens."""
        return await self._run_round(self._clocks.now(), common_filter(self._clocks))

    async def _run_round(self, now: datetime | None, whose: AccountFilter) -> int:
        # Loads expressions and time zones: a megabyte that a start does not need.
        from queuegate.scheduler.schedule_rounds import Round

        time = asyncio.get_running_loop().time
        own = await self._opened()
        async with own.transaction() as tx:
            began = time()
            fires = Round(tx, now, self._dispatch, whose, self.recorded)
            outcome = await fires.run(self._options.batch_size)
        outcome.report(self._tally, time() - began)
        return outcome.handled

    async def _opened(self) -> Database:
        """Return a connection for rounds only, opened on first use. Sends look things up in
        the pool, so rounds that held connections of the pool could deadlock."""
        self._used_at = asyncio.get_running_loop().time()
        if self._own is None:
            database = self._database
            own = Database(database.dsn, max_connections=1, availability=database.availability)
            await own.open()
            self._own = own
        return self._own

    async def _close(self) -> None:
        own, self._own = self._own, None
        if own is not None:
            await own.close()

    async def _run(self, after_seconds: float) -> None:
        time = asyncio.get_running_loop().time
        wait = after_seconds
        looked_at = 0.0
        while not self._stopping.is_set():
            if wait > 0:
                with contextlib.suppress(TimeoutError):
                    await self._wait(wait)
                    soonest = looked_at + _BETWEEN_HINTS_SECONDS
                    await asyncio.wait_for(self._stopping.wait(), soonest - time())
            self._woken.clear()
            looked_at = time()
            with failures_logged(_log, self.name):
                wait = await self._step()
                continue
            wait = 0.0
            await self._rest(_UNAVAILABLE_PAUSE_SECONDS)

    async def _wait(self, seconds: float) -> None:
        """Wait for a wake or for the idle probe. Raise TimeoutError when the time is over."""
        try:
            await asyncio.wait_for(self._woken.wait(), seconds)
        except TimeoutError:
            chores = self.chores if self._options.poll_seconds >= PAUSE_SECONDS else None
            if not self._is_idle or chores is None:
                raise
            await chores.wait_for("schedules", self._woken, self.name)

    async def _step(self) -> float:
        """Look for due schedules, fire them and return the seconds until the next look."""
        clocks = self._clocks
        apart: list[NextSchedule] = []
        async with self._database.transaction() as tx:
            found = await schedule_fires.poll(tx, clocks.now(), common_filter(clocks))
            if clocks.accounts:
                apart = await pending_work.next_schedules(tx, account_presents(clocks))
        self._is_idle = not (found.is_due or apart) and found.next_in is None
        poll = self._options.poll_seconds * random.uniform(0.8, 1.0)
        handled = await self.run_once() if found.is_due else 0
        for one in apart:
            if one.is_due:
                handled += await self._fire_apart(one.account_id)
        if self.probe is not None:
            self.probe(handled)
        if handled:
            return 0.0
        if asyncio.get_running_loop().time() - self._used_at > _KEPT_SECONDS:
            await self._close()
        # Another worker holds schedules that are due but were not handled.
        return min(poll, self._next_in(found, apart))

    async def _fire_apart(self, account_id: str) -> int:
        clock = self._clocks.accounts.get(account_id)
        if clock is None:
            return 0
        return await self._run_round(clock.now(), AccountFilter((account_id,), are_chosen=True))

    def _next_in(self, found: PendingFires, apart: list[NextSchedule]) -> float:
        """Return the seconds until the next schedule is due. Frozen clocks do not count."""
        waits = [] if self._clocks.is_frozen else [found.next_in]
        for one in apart:
            clock = self._clocks.accounts.get(one.account_id)
            if clock is not None and not clock.is_frozen:
                waits.append(one.next_in)
        return max(0.0, min([wait for wait in waits if wait is not None], default=math.inf))
