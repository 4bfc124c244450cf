"""Moving the clock of tests: that of everybody, or that of one account."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from time import time
from typing import TYPE_CHECKING

from queuegate.gateway.operations.looking import move_clocks
from queuegate.storage.clocks import stored_clocks as settings
from queuegate.storage.clocks.stored_clocks import Standing, StoredClock

if TYPE_CHECKING:
    from queuegate.gateway.operations.engine import Engine

USAGE = (
    'Send {"advance": "5m"} or {"advance_seconds": 300} to move on, '
    '{"to": "2030-01-01T00:00:00Z"} for an instant, {"ahead_seconds": 0, "back": true} to go back, '
    'and with it or alone {"freeze": true} or {"freeze": false}; with "account": "111122223333" '
    "for one account."
)
_MEMBERS = frozenset(
    ("advance", "advance_seconds", "ahead_seconds", "to", "freeze", "account", "back")
)
_WAYS = ("advance", "advance_seconds", "ahead_seconds", "to")
_ACCOUNT = re.compile(r"[0-9]{12}", re.ASCII)
_EARLIEST = datetime(2001, 1, 1, tzinfo=UTC).timestamp()
_LATEST = datetime(2100, 1, 1, tzinfo=UTC).timestamp()
_TOO_FAR = "A clock can stand between the years 2001 and 2099."
# Of an instant that was read from a clock a moment ago and is written back.
_BACK_SECONDS = 0.001


class BadMove(Exception):
    """A move that is not understood or not allowed. The text says what to send instead."""


@dataclass(frozen=True, slots=True)
class Move:
    """Where to let a clock stand. At most one of the three ways is given.

    ``account_id`` None: the common clock, and with it those of all accounts that are not frozen.
    ``freezes`` None: a frozen clock stays frozen, unless ``ahead_seconds`` says how to go on.
    """

    account_id: str | None = None
    advance_seconds: float | None = None
    ahead_seconds: float | None = None
    """Of the real clock; that of an account, of the common one."""
    to: float | None = None
    """Seconds since the epoch."""
    freezes: bool | None = None
    may_go_back: bool = False


def read_move(wanted: object) -> Move:
    """The move that a JSON value asks for. Raises BadMove."""
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
    """An account id. Raises BadMove."""
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
    # With it comes what reads schedules, which no start has to wait for.
    from queuegate.protocol.expressions.intervals import interval_seconds

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
    """Move a clock, and come back when every process goes by it.

    Raises BadMove for one that goes back without ``may_go_back``, or too far, and for too many
    accounts with a clock of their own; then nothing is changed.
    """
    async with engine.database.transaction() as tx:
        held = await settings.hold_clock(tx)
        moved = moved_clock(held, wanted, time())
        if len(moved.accounts) > engine.limits.moved_accounts:
            raise BadMove(
                f"{engine.limits.moved_accounts} accounts have a clock of their own: put some back "
                'with {"account": "...", "ahead_seconds": 0, "back": true}.'
            )
        await settings.move_clock(tx, moved)
    move_clocks(engine, moved)
    await engine.wakeups.wait_for_clocks(moved.moves)


def moved_clock(held: StoredClock, wanted: Move, real: float) -> StoredClock:
    """Where the clocks stand after the move, when the real one shows ``real``. Raises BadMove."""
    common = held.common
    accounts = dict(held.accounts)
    account_id = wanted.account_id
    if account_id is None:
        common = _moved(common, wanted, real, real)
    else:
        standing = accounts.pop(account_id, Standing())
        standing = _moved(standing, wanted, real, common.instant(real, real))
        if standing != Standing():
            accounts[account_id] = standing
    base = common.instant(real, real)
    instants = [base, *(standing.instant(real, base) for standing in accounts.values())]
    if not all(_EARLIEST <= instant < _LATEST for instant in instants):
        raise BadMove(_TOO_FAR)
    return StoredClock(common, accounts, held.moves + 1)


def _moved(standing: Standing, wanted: Move, real: float, base: float) -> Standing:
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
    # What is stored is rounded, and the same again may be just below.
    if not _EARLIEST <= after < _LATEST:
        raise BadMove(_TOO_FAR)
    if is_frozen:
        return Standing(0.0, (real, after))
    # Sums of numbers as large as the present are not exact.
    return Standing(round(after - base, 6) + 0.0)


def _shown(timestamp: float) -> str:
    try:
        return datetime.fromtimestamp(timestamp, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return f"{timestamp:g}"
