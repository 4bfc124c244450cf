"""The loop of background jobs, and the idle probe and clocks that all jobs share.

A statement uses one present. So rows of an account with its own clock are handled separately, and
excluded from the work by the common clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from queuegate.storage import pending_work
from queuegate.storage.queries import AccountFilter
from queuegate.storage.storage_errors import Unavailable

if TYPE_CHECKING:
    from queuegate.storage.database import Database
    from queuegate.storage.pending_work import AccountWork, PendingWork

_log = logging.getLogger("queuegate.worker")

_DEADLINE_SECONDS = 30.0
_STOP_SECONDS = 5.0
_UNAVAILABLE_PAUSE_SECONDS = 2.0

_probe_log = logging.getLogger("queuegate.chores")

PAUSE_SECONDS = 1.0
"""Interval of the idle probe. Workers that poll more often do not sleep."""

last_rounds: dict[str, float] = {}
"""By job of this process, seconds since the epoch at the end of its last round without a failure. A
job that sleeps counts the rounds of the idle probe."""

ClockNow = Callable[[], datetime | None]
FilterNow = Callable[[], AccountFilter]


class BackgroundJob(Protocol):
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


class Loop:
    """A loop in a task until it is stopped: the base of all workers."""

    name: str

    def __init__(self) -> None:
        self.probe: Callable[[int], None] | None = None
        """Called with what each round of the loop handled; production leaves it unset."""
        self._stopping = asyncio.Event()
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, *, after_seconds: float = 0.0) -> None:
        """Start the loop. Workers that start one after the other share one connection."""
        self._stopping.clear()
        self._woken.clear()
        work = self._run(after_seconds)
        self._task = asyncio.get_running_loop().create_task(work, name=self.name)

    async def stop(self) -> None:
        """Finish the current round within five seconds, then end the loop."""
        self._stopping.set()
        self._woken.set()
        task, self._task = self._task, None
        if task is not None:
            await end(task)

    async def _run(self, after_seconds: float) -> None:
        raise NotImplementedError

    async def _rest(self, seconds: float) -> None:
        """Wait for so long, or until the loop is stopped. Wakes are ignored."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)


class Worker(Loop):
    """Runs one job repeatedly until it is stopped.

    Any number of processes may run the same job: jobs skip rows that another process has locked.
    A round over its deadline is cancelled, and the next round gets half as many rows. With
    ``chores`` the loop sleeps while no work of its kind exists.
    """

    def __init__(
        self,
        job: BackgroundJob,
        *,
        most_rows: int = 1_000,
        deadline_seconds: float = _DEADLINE_SECONDS,
        chores: tuple[IdleProbe, PendingWork] | None = None,
    ) -> None:
        super().__init__()
        self.name = job.name
        self.job = job
        self.rows = most_rows
        self._most_rows = most_rows
        self._deadline_seconds = deadline_seconds
        self._chores = chores

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
            await self._rest(after_seconds)
        while not self._stopping.is_set():
            rows, handled, more = self.rows, 0, False
            pause = max(self.job.pause_seconds, _UNAVAILABLE_PAUSE_SECONDS)
            with failures_logged(_log, self.job.name):
                handled = await self.run_once()
                pause, more = self.job.pause_seconds, handled >= rows
            if self.probe is not None:
                self.probe(handled)
            if not more:
                await self._rest(pause * random.uniform(0.8, 1.2))
            if not handled and self._chores is not None and not self._stopping.is_set():
                chores, chore = self._chores
                await chores.wait_for(chore, self._woken, self.job.name)
                if not self._stopping.is_set():
                    self._woken.clear()


@contextlib.contextmanager
def failures_logged(log: logging.Logger, name: str) -> Iterator[None]:
    """Log a failure of a round and continue after the block: a bug must not end the loop."""
    try:
        yield
        last_rounds[name] = time.time()
    except Unavailable as error:
        log.log(error.log_level, "%s: %s", name, error)
    except Exception:
        log.exception("%s failed", name)


async def end(task: asyncio.Task[None]) -> None:
    """Wait five seconds for the end of a task, then cancel it. If the wait is cancelled, cancel the
    task at once."""
    try:
        await asyncio.wait([task], timeout=_STOP_SECONDS)
    finally:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


class IdleProbe:
    """The idle probe of one database. It runs only while a worker sleeps."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._sleeping: dict[asyncio.Event, tuple[PendingWork, str]] = {}
        self._found: frozenset[PendingWork] = pending_work.EVERY_PENDING_WORK
        self._task: asyncio.Task[None] | None = None

    async def wait_for(self, chore: PendingWork, woken: asyncio.Event, job: str = "") -> None:
        """Return when work of this kind may exist, or when another task sets ``woken``.

        Return at once if the last probe found such work. While the database is unavailable, all
        kinds may have work, so that each worker reports its own failure.
        """
        if self._task is not None and chore in self._found:
            return
        self._sleeping[woken] = (chore, job)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._look(), name="chores")
        try:
            await woken.wait()
        finally:
            del self._sleeping[woken]
            if not self._sleeping:
                self._task.cancel()
                self._task = None

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(PAUSE_SECONDS)
            try:
                async with self.database.statements() as connection:
                    self._found = await pending_work.find_pending(connection)
            except Unavailable:
                self._found = pending_work.EVERY_PENDING_WORK
            except Exception:  # noqa: BLE001 - without this loop no worker would wake again
                _probe_log.exception("the idle probe failed")
                self._found = pending_work.EVERY_PENDING_WORK
            for woken, (chore, job) in self._sleeping.items():
                if chore in self._found:
                    woken.set()
                elif job:
                    last_rounds[job] = time.time()


class AccountPresent(Protocol):
    """The clock of one account."""

    def now(self) -> datetime:
        """Return the present of the account."""

    @property
    def is_frozen(self) -> bool:
        """Return True if the clock stands still: nothing becomes due until the clock is moved."""


class AllClocks(Protocol):
    """All clocks."""

    def now(self) -> datetime | None:
        """Return the common present; None: the present of the database."""

    @property
    def is_frozen(self) -> bool:
        """Return True if the common clock stands still."""

    @property
    def accounts(self) -> Mapping[str, AccountPresent]:
        """Return the clocks of accounts that have their own."""


class OneClock:
    """The common clock alone."""

    is_frozen = False
    accounts: Mapping[str, AccountPresent] = {}

    def __init__(self, now: ClockNow) -> None:
        self.now = now


def common_filter(clocks: AllClocks) -> AccountFilter:
    """Return the account filter for the common clock."""
    return AccountFilter(tuple(clocks.accounts))


def account_presents(clocks: AllClocks) -> dict[str, datetime]:
    """Return the present of each account that has its own clock."""
    return {account_id: clock.now() for account_id, clock in clocks.accounts.items()}


def earliest(clocks: AllClocks) -> datetime | None:
    """Return the present of the slowest clock, for clean-up: rows expired by this clock are expired
    for all accounts, and may stay longer."""
    common = clocks.now()
    if not clocks.accounts:
        return common
    slowest = min(account_presents(clocks).values())
    return slowest if slowest < (common or datetime.now(UTC)) else common


class EachClock:
    """A job that runs by the common clock, then by the own clock of each account with ``holding``.

    ``make(now, whose)`` returns the job for one clock.
    """

    def __init__(
        self,
        database: Database,
        clocks: AllClocks,
        holding: AccountWork,
        make: Callable[[ClockNow, FilterNow], BackgroundJob],
    ) -> None:
        self._database = database
        self._clocks = clocks
        self._holding = holding
        self._make = make
        self._common = make(clocks.now, lambda: common_filter(clocks))
        self.name = self._common.name
        self.pause_seconds = self._common.pause_seconds

    async def run_round(self, rows: int) -> int:
        """Handle about ``rows`` rows at most for each clock."""
        handled = await self._common.run_round(rows)
        self.pause_seconds = self._common.pause_seconds
        if self._clocks.accounts:
            handled += await self._run_apart(rows)
        return handled

    async def _run_apart(self, rows: int) -> int:
        async with self._database.transaction() as tx:
            found = await pending_work.find_accounts(tx, self._holding, self._clocks.accounts)
        handled = 0
        for account_id in found:
            clock = self._clocks.accounts.get(account_id)
            if clock is not None:
                handled += await self._run_for(account_id, clock.now, rows)
        return handled

    async def _run_for(self, account_id: str, now: ClockNow, rows: int) -> int:
        job = self._make(now, lambda: AccountFilter((account_id,), are_chosen=True))
        handled = await job.run_round(rows)
        self.pause_seconds = min(self.pause_seconds, job.pause_seconds)
        return handled
