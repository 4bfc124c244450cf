"""Small facts that all processes share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.notifications import tell_clock_moved
from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

_SQL = load("clocks/stored_clocks")

_AHEAD = "clock_ahead_seconds"
_MOVES = "clock_moves"
_FROZEN = "clock_frozen"
_ACCOUNTS = "clock_accounts"

# What comes later should be later, by a microsecond at least: a frozen clock does move, by less
# than a second a day.
_PACE_OF_A_FROZEN_CLOCK = 1e-5


class Standing(NamedTuple):
    """Where a tester let a clock stand. All numbers are seconds."""

    ahead_seconds: float = 0.0
    """Of the real clock, or that of an account of the common one."""
    frozen: tuple[float, float] | None = None
    """Since when by the real clock, and at which instant: seconds since the epoch.
    ``ahead_seconds`` says nothing then."""

    def instant(self, real: float, base: float) -> float:
        """What it shows when the real clock shows ``real``, and the one that it is ahead of
        ``base``: seconds since the epoch."""
        if self.frozen is None:
            return base + self.ahead_seconds
        since, stood_at = self.frozen
        return stood_at + max(real - since, 0.0) * _PACE_OF_A_FROZEN_CLOCK


class StoredClock(NamedTuple):
    """Where the clocks of every process on this database stand, and how many times one was moved:
    later news have more moves."""

    common: Standing
    accounts: Mapping[str, Standing]
    """Of the accounts that have one of their own."""
    moves: int

    def instant_of(self, account_id: str | None, real: float) -> float | None:
        """What the clock of an account shows, None for the common one, when the real one shows
        ``real``: seconds since the epoch. None: it is not moved."""
        common = self.common.instant(real, real)
        own = self.accounts.get(account_id or "")
        if own is not None:
            return own.instant(real, common)
        return None if self.common == Standing() else common


async def clock(tx: Transaction) -> StoredClock:
    """Where the clock of every process on this database stands."""
    row = await tx.fetchrow(_SQL["read_clock"].text, _AHEAD, _MOVES, _FROZEN, _ACCOUNTS)
    assert row is not None
    accounts = json.loads(row["accounts"] or "{}")
    return StoredClock(
        _standing(row["ahead_seconds"], json.loads(row["frozen"] or "null")),
        {account_id: _standing(*members) for account_id, members in accounts.items()},
        row["moves"],
    )


def _standing(ahead_seconds: float, frozen: list[float] | None) -> Standing:
    return Standing(float(ahead_seconds), None if frozen is None else (frozen[0], frozen[1]))


async def hold_clock(tx: Transaction) -> StoredClock:
    """The same, and until the end of the transaction nobody else moves it."""
    await tx.execute(_SQL["hold_clock"].text, _AHEAD)
    return await clock(tx)


async def move_clock(tx: Transaction, moved: StoredClock) -> None:
    """Move the held clock of every process on this database, and of those that start later.

    ``moved.moves`` is one more than what was held.
    """
    values = {
        _AHEAD: moved.common.ahead_seconds,
        _MOVES: moved.moves,
        _FROZEN: moved.common.frozen,
        _ACCOUNTS: moved.accounts,
    }
    await tx.execute(
        _SQL["write_settings"].text, list(values), [json.dumps(value) for value in values.values()]
    )
    await tell_clock_moved(tx, moved.moves)
