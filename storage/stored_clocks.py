"""The test clock that all processes share, and the monotonic present of all statements."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.notifications import TIME_IS_KEPT, Notice, notify
from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction


_SQL = load("stored_clocks")

# "QG" in ASCII, third use. Older versions have the same key.
_LOCK = (0x5147, 3)


class StoredPresent(NamedTuple):
    """The server's clock, and what the processes on this database know of the present."""

    clock: datetime
    offset_us: int
    """Microseconds that the present is ahead of the clock."""
    mark: datetime | None
    """A present of the last second, while a process keeps the time."""


async def read_present(tx: Transaction, kept: datetime | None = None) -> StoredPresent:
    """Read the present. ``kept``, the present of a process that keeps the time, raises the mark,
    unless it is ahead of what is stored."""
    [row] = await _SQL["read_present"].rows(tx, *_LOCK, kept)
    return StoredPresent(row["clock"], row["offset_us"], row["mark"])


async def change_offset(tx: Transaction, seen_us: int, offset_us: int) -> bool:
    """Change the offset for all processes. Return False if it is no longer ``seen_us``."""
    [row] = await _SQL["change_offset"].rows(tx, *_LOCK, seen_us, offset_us)
    return row["is_changed"] is True


async def is_time_kept(tx: Transaction) -> bool:
    """Return True if another process listens, and so keeps the time."""
    [row] = await _SQL["is_time_kept"].rows(tx, *TIME_IS_KEPT)
    return bool(row["is_kept"])


async def ask_for_time(tx: Transaction) -> None:
    """Ask the processes that keep the time to raise the mark soon."""
    await notify(tx, Notice.CLOCK_MOVED, 0, 0)


_AHEAD = "clock_ahead_seconds"
_MOVES = "clock_moves"
_FROZEN = "clock_frozen"
_ACCOUNTS = "clock_accounts"

# A frozen clock moves by less than a second a day, so that later events are at least a microsecond
# later.
_PACE_OF_A_FROZEN_CLOCK = 1e-5


class ClockSetting(NamedTuple):
    """The setting of a test clock. All numbers are seconds."""

    ahead_seconds: float = 0.0
    """Ahead of the real clock; for an account, of the common one."""
    frozen: tuple[float, float] | None = None
    """Start by the real clock, and the instant shown, both since the epoch; overrides
    ``ahead_seconds``."""

    def instant(self, real: float, base: float) -> float:
        """Return the clock's instant, given the real clock and the ``base`` it is ahead of, in
        seconds since the epoch."""
        if self.frozen is None:
            return base + self.ahead_seconds
        since, stood_at = self.frozen
        return stood_at + max(real - since, 0.0) * _PACE_OF_A_FROZEN_CLOCK


class StoredClock(NamedTuple):
    """The clocks of every process, and the number of moves: more moves are later news."""

    common: ClockSetting
    accounts: Mapping[str, ClockSetting]
    """The clocks of accounts with their own."""
    moves: int

    def instant_of(self, account_id: str | None, real: float) -> float | None:
        """Return the instant of an account's clock (None: the common one) at ``real``, in seconds
        since the epoch; None: not moved."""
        common = self.common.instant(real, real)
        own = self.accounts.get(account_id or "")
        if own is not None:
            return own.instant(real, common)
        return None if self.common == ClockSetting() else common


async def read_clock(tx: Transaction) -> StoredClock:
    """Read the clock of every process on this database."""
    [row] = await _SQL["read_clock"].rows(tx, _AHEAD, _MOVES, _FROZEN, _ACCOUNTS)
    accounts = json.loads(row["accounts"] or "{}")
    return StoredClock(
        _standing(row["ahead_seconds"], json.loads(row["frozen"] or "null")),
        {account_id: _standing(*members) for account_id, members in accounts.items()},
        row["moves"],
    )


def _standing(ahead_seconds: float, frozen: list[float] | None) -> ClockSetting:
    return ClockSetting(float(ahead_seconds), None if frozen is None else (frozen[0], frozen[1]))


async def lock_clock(tx: Transaction) -> StoredClock:
    """Read the clock and lock it until the transaction ends."""
    await _SQL["hold_clock"].run(tx, _AHEAD)
    return await read_clock(tx)


async def move_clock(tx: Transaction, moved: StoredClock) -> None:
    """Move the locked clock of every process on this database, and of those that start later.

    ``moved.moves`` is one more than before.
    """
    values = {
        _AHEAD: moved.common.ahead_seconds,
        _MOVES: moved.moves,
        _FROZEN: moved.common.frozen,
        _ACCOUNTS: moved.accounts,
    }
    await _SQL["write_settings"].run(
        tx, list(values), [json.dumps(value) for value in values.values()]
    )
    await notify(tx, Notice.CLOCK_MOVED, 0, moved.moves)
