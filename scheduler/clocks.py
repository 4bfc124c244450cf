"""The clocks of workers: the common clock, and the clocks of accounts that have their own.

A statement uses one present. So rows of an account with its own clock are handled separately, and
excluded from the work by the common clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from queuegate.storage import pending_work
from queuegate.storage.queries import AccountFilter

if TYPE_CHECKING:
    from queuegate.scheduler.worker import Job
    from queuegate.storage.database import Database
    from queuegate.storage.pending_work import AccountWork

ClockNow = Callable[[], datetime | None]
WhoseNow = Callable[[], AccountFilter]


class AccountClock(Protocol):
    """The clock of one account."""

    def now(self) -> datetime:
        """Return the present of the account."""

    @property
    def is_frozen(self) -> bool:
        """Return True if the clock stands still: nothing becomes due until the clock is moved."""


class Clocks(Protocol):
    """All clocks."""

    def now(self) -> datetime | None:
        """Return the common present; None: the present of the database."""

    @property
    def is_frozen(self) -> bool:
        """Return True if the common clock stands still."""

    @property
    def accounts(self) -> Mapping[str, AccountClock]:
        """Return the clocks of accounts that have their own."""


class OneClock:
    """The common clock alone."""

    is_frozen = False
    accounts: Mapping[str, AccountClock] = {}

    def __init__(self, now: ClockNow) -> None:
        self.now = now


def others(clocks: Clocks) -> AccountFilter:
    """Return the account filter for the common clock."""
    return AccountFilter(tuple(clocks.accounts))


def presents(clocks: Clocks) -> dict[str, datetime]:
    """Return the present of each account that has its own clock."""
    return {account_id: clock.now() for account_id, clock in clocks.accounts.items()}


def earliest(clocks: Clocks) -> datetime | None:
    """Return the present of the slowest clock, for clean-up: rows expired by this clock are expired
    for all accounts, and may stay longer."""
    common = clocks.now()
    if not clocks.accounts:
        return common
    slowest = min(presents(clocks).values())
    return slowest if slowest < (common or datetime.now(UTC)) else common


class EachClock:
    """A job that runs by the common clock, then by the own clock of each account with ``holding``.

    ``make(now, whose)`` returns the job for one clock.
    """

    def __init__(
        self,
        database: Database,
        clocks: Clocks,
        holding: AccountWork,
        make: Callable[[ClockNow, WhoseNow], Job],
    ) -> None:
        self._database = database
        self._clocks = clocks
        self._holding = holding
        self._make = make
        self._common = make(clocks.now, lambda: others(clocks))
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
