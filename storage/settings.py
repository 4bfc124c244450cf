"""Small facts that all processes share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.notifications import tell_clock_moved
from storage.queries import load

if TYPE_CHECKING:
    from storage.database import Transaction

_SQL = load("settings")
_READ = _SQL["read_setting"].text
_WRITE = _SQL["write_setting"].text

_CLOCK = "clock_ahead_seconds"


async def clock_ahead_seconds(tx: Transaction) -> float:
    """How far a tester moved the clock; 0.0 if never."""
    value = await tx.fetchval(_READ, _CLOCK)
    return float(value) if value is not None else 0.0


async def set_clock_ahead_seconds(tx: Transaction, seconds: float) -> None:
    """Move the clock of every process on this database, and of those that start later."""
    await tx.execute(_WRITE, _CLOCK, repr(seconds))
    await tell_clock_moved(tx, seconds)
