"""Small facts that all processes share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.notifications import tell_clock_moved
from storage.queries import load

if TYPE_CHECKING:
    from storage.database import Transaction

_SQL = load("settings")
_READ_CLOCK = _SQL["read_clock"].text
_HOLD_CLOCK = _SQL["hold_clock"].text
_WRITE = _SQL["write_setting"].text

_AHEAD = "clock_ahead_seconds"
_MOVES = "clock_moves"


class StoredClock(NamedTuple):
    """How far a tester moved the clock, 0.0 if never, and how many times: later news have more."""

    ahead_seconds: float
    moves: int


async def clock(tx: Transaction) -> StoredClock:
    """Where the clock of every process on this database stands."""
    row = await tx.fetchrow(_READ_CLOCK, _AHEAD, _MOVES)
    assert row is not None
    return StoredClock(row["ahead_seconds"], row["moves"])


async def hold_clock(tx: Transaction) -> StoredClock:
    """The same, and until the end of the transaction nobody else moves it."""
    await tx.execute(_HOLD_CLOCK, _AHEAD)
    return await clock(tx)


async def move_clock(tx: Transaction, held: StoredClock, ahead_seconds: float) -> StoredClock:
    """Move the held clock of every process on this database, and of those that start later."""
    moves = held.moves + 1
    await tx.execute(_WRITE, _AHEAD, repr(ahead_seconds))
    await tx.execute(_WRITE, _MOVES, repr(moves))
    await tell_clock_moved(tx, ahead_seconds, moves)
    return StoredClock(ahead_seconds, moves)
