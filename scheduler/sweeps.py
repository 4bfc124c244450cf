"""Sweeps: background work that is one function, called again and again with a number of rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from queuegate.scheduler.clocks import ClockNow, Clocks, EachClock, WhoseNow, earliest
from queuegate.scheduler.worker import Worker
from queuegate.storage.clocks.whose import Whose

if TYPE_CHECKING:
    from queuegate.scheduler.chores import Chores
    from queuegate.storage.chores import Chore
    from queuegate.storage.clocks.moved_accounts import Holding
    from queuegate.storage.database import Database, Transaction

_Found = TypeVar("_Found")
_Place = TypeVar("_Place", int, str)


class Job:
    """A sweep of a database, by a clock, for those who go by it."""

    def __init__(
        self, sweep: Sweep, database: Database, now: ClockNow, whose: WhoseNow = Whose
    ) -> None:
        self.name = sweep.name
        self.pause_seconds = sweep.pause_seconds
        self.whose = whose
        self.now = now
        self._run = sweep.run
        self._database = database

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Every look is a transaction of its own, and so is every batch."""
        return self._database.transaction()

    async def run_round(self, rows: int) -> int:
        """Handle up to about ``rows`` rows; fewer: there are no more."""
        return await self._run(self, rows)

    async def go_through(
        self,
        rows: int,
        first: _Place,
        look: Callable[[Transaction, _Place], Awaitable[tuple[list[_Found], _Place | None]]],
        remove: Callable[[Transaction, list[_Found], int], Awaitable[tuple[int, list[_Found]]]],
    ) -> int:
        """Remove rows of whatever is found, page by page. ``look`` also says where the next page
        begins; None: there is none. ``remove`` also says what may have more rows."""
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
    """Of the first that was found, then of the next."""

    async def remove_first(
        tx: Transaction, found: list[_Found], limit: int
    ) -> tuple[int, list[_Found]]:
        return await remove(tx, found[0], limit), found[1:]

    return remove_first


@dataclass(frozen=True, slots=True)
class Sweep:
    """What is done, how many rows at most in a round, and how long nothing is done after one that
    found less."""

    name: str
    run: Callable[[Job, int], Awaitable[int]]
    pause_seconds: float
    most_rows: int
    holding: Holding | None = None
    """For accounts with clocks of their own that hold this, it is done apart, by their clocks.
    None: it only tidies up, and goes by the slowest of all clocks."""
    chore: Chore | None = None
    """Without any of this kind it sleeps. None: it never does."""

    def job(self, database: Database, now: ClockNow, whose: WhoseNow = Whose) -> Job:
        """For those who go by one clock."""
        return Job(self, database, now, whose)

    def worker(self, database: Database, clocks: Clocks, chores: Chores | None = None) -> Worker:
        """For everybody."""
        if self.holding is None:
            job: Job | EachClock = self.job(database, lambda: earliest(clocks))
        else:

            def make(now: ClockNow, whose: WhoseNow) -> Job:
                return self.job(database, now, whose)

            job = EachClock(database, clocks, self.holding, make)
        asks = None if chores is None or self.chore is None else (chores, self.chore)
        return Worker(job, most_rows=self.most_rows, chores=asks)
