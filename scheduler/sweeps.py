"""Sweeps: background work of one function that is called repeatedly with a number of rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from queuegate.scheduler.clocks import ClockNow, Clocks, EachClock, WhoseNow, earliest
from queuegate.scheduler.worker import Worker
from queuegate.storage.queries import AccountFilter

if TYPE_CHECKING:
    from queuegate.scheduler.chores import Chores
    from queuegate.storage.database import Database, Transaction
    from queuegate.storage.pending_work import AccountWork, PendingWork

_Found = TypeVar("_Found")
_Place = TypeVar("_Place", int, str)


class Job:
    """A sweep by one clock, for the accounts of that clock."""

    def __init__(
        self, sweep: Sweep, database: Database, now: ClockNow, whose: WhoseNow = AccountFilter
    ) -> None:
        self.name = sweep.name
        self.pause_seconds = sweep.pause_seconds
        self.whose = whose
        self.now = now
        self._run = sweep.run
        self._database = database

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Open a transaction. Each look and each batch has its own."""
        return self._database.transaction()

    async def run_round(self, rows: int) -> int:
        """Handle about ``rows`` rows at most; fewer: no more rows exist."""
        return await self._run(self, rows)

    async def go_through(
        self,
        rows: int,
        first: _Place,
        look: Callable[[Transaction, _Place], Awaitable[tuple[list[_Found], _Place | None]]],
        remove: Callable[[Transaction, list[_Found], int], Awaitable[tuple[int, list[_Found]]]],
    ) -> int:
        """Remove rows of each found item, page by page. ``look`` returns items and the start of the
        next page; None: this was the last. ``remove`` returns its count and the items left."""
        handled = 0
        place: _Place | None = first
        while place is not None and handled < rows:
            async with self.transaction() as tx:
                found, place = await look(tx, place)
            while found and handled < rows:
                async with self.transaction() as tx:
                    gone, found = await remove(tx, found, rows - handled)
                handled += gone
        return handled


def one_by_one(
    remove: Callable[[Transaction, _Found, int], Awaitable[int]],
) -> Callable[[Transaction, list[_Found], int], Awaitable[tuple[int, list[_Found]]]]:
    """Return a ``remove`` of ``go_through`` that takes one item at a time."""

    async def remove_first(
        tx: Transaction, found: list[_Found], limit: int
    ) -> tuple[int, list[_Found]]:
        return await remove(tx, found[0], limit), found[1:]

    return remove_first


@dataclass(frozen=True, slots=True)
class Sweep:
    """A function to run, its most rows in a round, and its pause after a round that found fewer."""

    name: str
    run: Callable[[Job, int], Awaitable[int]]
    pause_seconds: float
    most_rows: int
    holding: AccountWork | None = None
    """The sweep runs separately for accounts that have their own clock and such rows. None: the
    sweep only cleans up, and uses the slowest clock."""
    chore: PendingWork | None = None
    """The sweep sleeps while no such work exists. None: the sweep never sleeps."""

    def job(self, database: Database, now: ClockNow, whose: WhoseNow = AccountFilter) -> Job:
        """Return the job for one clock."""
        return Job(self, database, now, whose)

    def worker(self, database: Database, clocks: Clocks, chores: Chores | None = None) -> Worker:
        """Return the worker for all accounts."""
        if self.holding is None:
            job: Job | EachClock = self.job(database, lambda: earliest(clocks))
        else:

            def make(now: ClockNow, whose: WhoseNow) -> Job:
                return self.job(database, now, whose)

            job = EachClock(database, clocks, self.holding, make)
        asks = None if chores is None or self.chore is None else (chores, self.chore)
        return Worker(job, most_rows=self.most_rows, chores=asks)
