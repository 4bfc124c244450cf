"""Moves of clocks for tests: of the common clock, or of one account's."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from time import time
from typing import TYPE_CHECKING

from queuegate.gateway.operations.runtime.poller import move_clocks
from queuegate.storage import stored_clocks as settings
from queuegate.storage.notifications import Notice
from queuegate.storage.storage_errors import Rejected
from queuegate.storage.stored_clocks import ClockSetting, StoredClock

if TYPE_CHECKING:
    from queuegate.gateway.operations.runtime.engine import Engine

USAGE = (
    'Send {"advance": "5m"} or {"advance_seconds": 300} to move on, '
    '{"to": "2030-01-01T00:00:00Z"} for an instant, {"ahead_seconds": 0, "back": true} to go back, '
    'and with it or alone {"freeze": true} or {"freeze": false}; with "account": "111122223333" '
    "for one account."
)
_WAYS = ("advance", "advance_seconds", "ahead_seconds", "to")
_MEMBERS = {*_WAYS, "freeze", "account", "back"}
_ACCOUNT = re.compile(r"[0-9]{12}", re.ASCII)
_EARLIEST = datetime(2001, 1, 1, tzinfo=UTC).timestamp()
_LATEST = datetime(2100, 1, 1, tzinfo=UTC).timestamp()
_TOO_FAR = "A clock can stand between the years 2001 and 2099."
# Allowance for an instant that was read from a clock and is written back.
_BACK_SECONDS = 0.001


class BadMove(Rejected):
    """An invalid move. The text says what to send instead."""


@dataclass(frozen=True, slots=True)
class Move:
    """A new position of a clock. At most one of the three ways is set. ``account_id`` None: the
    common clock, and all clocks of accounts that are not frozen. ``freezes`` None: a frozen clock
    stays frozen, unless ``ahead_seconds`` is set."""

    account_id: str | None = None
    advance_seconds: float | None = None
    ahead_seconds: float | None = None
    """Ahead of the real clock; for an account, of the common clock."""
    to: float | None = None
    """Seconds since the epoch."""
    freezes: bool | None = None
    may_go_back: bool = False


def read_move(wanted: object) -> Move:
    """Return the move in a JSON value. Raises BadMove."""
    if not isinstance(wanted, dict) or not wanted or not wanted.keys() <= _MEMBERS:
        raise BadMove(USAGE)
    ways = [way for way in _WAYS if way in wanted]
    if len(ways) > 1 or not (ways or "freeze" in wanted):
        raise BadMove(USAGE)
    advance = _duration(wanted["advance"]) if "advance" in wanted else None
    return Move(
        read_account(wanted["account"]) if "account" in wanted else None,
        advance if advance is not None else _number(wanted, "advance_seconds"),
        _number(wanted, "ahead_seconds"),
        _instant(wanted["to"]) if "to" in wanted else None,
        _truth(wanted, "freeze"),
        bool(_truth(wanted, "back")),
    )


def read_account(value: object) -> str:
    """Return an account id. Raises BadMove."""
    if not isinstance(value, str) or _ACCOUNT.fullmatch(value) is None:
        raise BadMove('"account" is the twelve digits of an account, such as "111122223333".')
    return value


def _number(wanted: Mapping[str, object], name: str) -> float | None:
    if name not in wanted:
        return None
    value = wanted[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadMove(f'"{name}" is a number of seconds. {USAGE}')
    return float(value)


def _truth(wanted: Mapping[str, object], name: str) -> bool | None:
    if name not in wanted:
        return None
    value = wanted[name]
    if not isinstance(value, bool):
        raise BadMove(f'"{name}" is true or false.')
    return value


def _duration(value: object) -> float:
    # Imported late: it imports the parser of schedules, which the start does not need.
    from queuegate.protocol.timing import interval_seconds

    text = " ".join(value.lower().split()) if isinstance(value, str) else ""
    seconds = interval_seconds(text) if len(text) <= 100 else None
    if seconds is None:
        raise BadMove(
            '"advance" is a duration: numbers with s, m, h, d or w, such as "90s", "5m" or "1h30m".'
        )
    return float(seconds)


def _instant(value: object) -> float:
    instant = None
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            instant = datetime.fromisoformat(value)
    if instant is None or instant.tzinfo is None:
        raise BadMove('"to" is an instant with its zone, such as "2030-01-01T00:00:00Z".')
    return (instant - datetime.fromtimestamp(0, UTC)).total_seconds()


async def move(engine: Engine, wanted: Move) -> None:
    """Move a clock, and return when every process uses it. Raises BadMove, and changes nothing, for
    moves backwards without ``may_go_back``, moves too far, and too many accounts with clocks of
    their own."""
    async with engine.database.transaction() as tx:
        held = await settings.lock_clock(tx)
        moved = moved_clock(held, wanted, time())
        if len(moved.accounts) > engine.limits.moved_accounts:
            raise BadMove(
                f"{engine.limits.moved_accounts} accounts have a clock of their own: put some back "
                'with {"account": "...", "ahead_seconds": 0, "back": true}.'
            )
        await settings.move_clock(tx, moved)
    move_clocks(engine, moved)
    await engine.wakeups.wait_until_applied(Notice.CLOCK_MOVED, moved.moves)


def moved_clock(held: StoredClock, wanted: Move, real: float) -> StoredClock:
    """Return the clocks after the move, if the real clock shows ``real``. Raises BadMove."""
    common = held.common
    accounts = dict(held.accounts)
    account_id = wanted.account_id
    if account_id is None:
        common = _moved(common, wanted, real, real)
    else:
        standing = accounts.pop(account_id, ClockSetting())
        standing = _moved(standing, wanted, real, common.instant(real, real))
        if standing != ClockSetting():
            accounts[account_id] = standing
    base = common.instant(real, real)
    instants = [base, *(standing.instant(real, base) for standing in accounts.values())]
    if not all(_EARLIEST <= instant < _LATEST for instant in instants):
        raise BadMove(_TOO_FAR)
    return StoredClock(common, accounts, held.moves + 1)


def _moved(standing: ClockSetting, wanted: Move, real: float, base: float) -> ClockSetting:
    before = standing.instant(real, base)
    is_frozen = standing.frozen is not None
    after = before
    if wanted.advance_seconds is not None:
        after = before + wanted.advance_seconds
    elif wanted.ahead_seconds is not None:
        after = base + wanted.ahead_seconds
        is_frozen = False
    elif wanted.to is not None:
        after = wanted.to
    if after < before - _BACK_SECONDS and not wanted.may_go_back:
        raise BadMove(
            f"That would move the clock back by {before - after:.3f} s, to {_shown(after)}: what "
            'fires or ends at a time may do so again, or wait. Add "back": true if you want that.'
        )
    if wanted.freezes is not None:
        is_frozen = wanted.freezes
    # Stored times are rounded, so the same time again may be slightly earlier.
    if not _EARLIEST <= after < _LATEST:
        raise BadMove(_TOO_FAR)
    if is_frozen:
        return ClockSetting(0.0, (real, after))
    # Sums of numbers as large as the present are not exact.
    return ClockSetting(round(after - base, 6) + 0.0)


def _shown(timestamp: float) -> str:
    try:
        return datetime.fromtimestamp(timestamp, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return f"{timestamp:g}"
