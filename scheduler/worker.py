"""The loop that every background job runs in."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from queuegate.storage.storage_errors import Unavailable

if TYPE_CHECKING:
    from queuegate.scheduler.chores import Chores
    from queuegate.storage.pending_work import PendingWork

_log = logging.getLogger("queuegate.worker")

_DEADLINE_SECONDS = 30.0
_STOP_SECONDS = 5.0
_UNAVAILABLE_PAUSE_SECONDS = 2.0


class Job(Protocol):
    """Work in rounds. Every transaction in a round is short."""

    @property
    def name(self) -> str:
        """Return the name for logs."""

    @property
    def pause_seconds(self) -> float:
        """Return the seconds to wait when no work is left."""

    async def run_round(self, rows: int) -> int:
        """Handle about ``rows`` rows and return the count. From ``rows`` on, the next round follows
        at once."""


class Worker:
    """Runs one job repeatedly until it is stopped.

    Any number of processes may run the same job: jobs skip rows that another process has locked.
    A round over its deadline is cancelled, and the next round gets half as many rows. With
    ``chores`` the loop sleeps while no work of its kind exists.
    """

    def __init__(
        self,
        job: Job,
        *,
        most_rows: int = 1_000,
        deadline_seconds: float = _DEADLINE_SECONDS,
        chores: tuple[Chores, PendingWork] | None = None,
    ) -> None:
        self.job = job
        self.rows = most_rows
        self.probe: Callable[[int], None] | None = None
        """Called with the result of each round of the loop; production leaves it unset."""
        self._most_rows = most_rows
        self._deadline_seconds = deadline_seconds
        self._chores = chores
        self._stopping = asyncio.Event()
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, *, after_seconds: float = 0.0) -> None:
        """Start the loop. Workers that start one after the other share one connection."""
        self._stopping.clear()
        self._woken.clear()
        work = self._run(after_seconds)
        self._task = asyncio.get_running_loop().create_task(work, name=self.job.name)

    async def stop(self) -> None:
        """Finish the current round within five seconds, then end the loop."""
        self._stopping.set()
        self._woken.set()
        task, self._task = self._task, None
        if task is None:
            return
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([task], timeout=_STOP_SECONDS)
            task.cancel()
            await task

    async def run_once(self) -> int:
        """Run one round and return the rows handled; 0 if the round was cancelled."""
        try:
            async with asyncio.timeout(self._deadline_seconds):
                handled = await self.job.run_round(self.rows)
        except TimeoutError:
            self.rows = max(1, self.rows // 2)
            _log.warning("%s took too long, %d rows from now on", self.job.name, self.rows)
            return 0
        if self.rows < self._most_rows and handled >= self.rows:
            self.rows = min(self._most_rows, self.rows + max(1, self.rows // 8))
        return handled

    async def _run(self, after_seconds: float) -> None:
        if after_seconds:
            await self._wait(after_seconds)
        while not self._stopping.is_set():
            rows = self.rows
            pause = self.job.pause_seconds
            try:
                handled = await self.run_once()
                pause = self.job.pause_seconds
                more = handled >= rows
            except Unavailable as error:
                _log.log(error.log_level, "%s: %s", self.job.name, error)
                handled, more, pause = 0, False, max(pause, _UNAVAILABLE_PAUSE_SECONDS)
            except Exception:  # noqa: BLE001 - a bug must not end the loop
                _log.exception("%s failed", self.job.name)
                handled, more, pause = 0, False, max(pause, _UNAVAILABLE_PAUSE_SECONDS)
            if self.probe is not None:
                self.probe(handled)
            if not more:
                await self._wait(pause * random.uniform(0.8, 1.2))
            if not handled and self._chores is not None and not self._stopping.is_set():
                await self._sleep(*self._chores)

    async def _sleep(self, chores: Chores, chore: PendingWork) -> None:
        await chores.wait_for(chore, self._woken)
        if not self._stopping.is_set():
            self._woken.clear()

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)
