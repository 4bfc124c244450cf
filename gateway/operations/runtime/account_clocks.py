"""Clocks of statements: the present of all processes, moved by a tester or not, and clocks of
accounts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from time import time

from queuegate.storage.stored_clocks import ClockSetting, StoredClock

_UNMOVED = ClockSetting()


class Clock:
    """The common clock. ``now()`` is the present that all processes agree on, or the moved time;
    None in a process that does not keep the time: then the database's clock counts.
    ``of(account_id)`` is the clock of an account: this one, unless a tester has set another."""

    def __init__(self) -> None:
        self._standing = _UNMOVED
        self._moves = -1
        self.accounts: dict[str, AdjustableClock] = {}
        """Clocks of accounts that have one of their own. Always the same dictionary, because lanes
        and workers check if it is empty."""
        self.present: Callable[[], datetime | None] = lambda: None
        self.present_of_sends: Callable[[], datetime | None] = lambda: None
        self.present_of_schedules: Callable[[], datetime | None] = lambda: None
        """Presents of a clock that no tester has moved (``TimeKeeper``)."""

    @property
    def moves(self) -> int:
        return self._moves

    def of(self, account_id: str) -> Clock:
        return self.accounts.get(account_id, self) if self.accounts else self

    def of_arn(self, arn: str) -> Clock:
        """Return the clock of an ARN's account; the common clock if the text is not an ARN."""
        parts = arn.split(":", 5) if self.accounts else ()
        return self.of(parts[4]) if len(parts) == 6 else self

    @property
    def ahead_seconds(self) -> float:
        """Return the seconds ahead of the real clock, or for an account of the common clock."""
        if self._standing.frozen is None:
            return self._standing.ahead_seconds
        return self.timestamp() - self._base()

    def _base(self) -> float:
        """Return the time to which ``ahead_seconds`` is added."""
        return time()

    @property
    def is_frozen(self) -> bool:
        return self._standing.frozen is not None

    def move(self, stored: StoredClock) -> bool:
        """Set all clocks as of that number of moves, unless a later move is known: notifications
        may come in any order. Return True if a clock has changed."""
        if stored.moves <= self._moves:
            return False
        self._moves = stored.moves
        before = (self._standing, {name: one._standing for name, one in self.accounts.items()})
        self._standing = _UNMOVED if stored.common == _UNMOVED else stored.common
        for account_id in self.accounts.keys() - stored.accounts.keys():
            del self.accounts[account_id]
        for account_id, standing in stored.accounts.items():
            clock = self.accounts.get(account_id)
            if clock is None:
                clock = self.accounts[account_id] = AdjustableClock(self)
            clock._standing = standing
        return before != (stored.common, dict(stored.accounts))

    def now(self) -> datetime | None:
        """Return the argument ``now`` of statements."""
        return self.present() if self._standing is _UNMOVED else self.instant()

    def now_of_sends(self) -> datetime | None:
        """Return the argument ``now`` of statements that make messages visible."""
        return self.present_of_sends() if self._standing is _UNMOVED else self.instant()

    @property
    def is_moved(self) -> bool:
        """Return True if a tester has moved the clock."""
        return self._standing is not _UNMOVED

    def instant(self) -> datetime:
        """Return the present in Python, moved like ``now``: for comparisons, not for storing."""
        return datetime.fromtimestamp(self.timestamp(), UTC)

    def seconds(self) -> int:
        """Return the present in whole seconds since the epoch, moved like ``now``."""
        return int(self.timestamp())

    def timestamp(self) -> float:
        """Return the present in seconds since the epoch, moved like ``now``."""
        real = time()
        return real if self._standing is _UNMOVED else self._standing.instant(real, real)


class AdjustableClock(Clock):
    """The clock of one account, ahead of the common clock; or frozen, independent of it."""

    def __init__(self, common: Clock) -> None:
        super().__init__()
        self._common = common

    def now_of_sends(self) -> datetime:
        """Return the time, which no process sees differently."""
        return self.instant()

    def now(self) -> datetime:
        """Return the time. Never None: one clock has to supply all times of an account."""
        return self.instant()

    @property
    def is_frozen(self) -> bool:
        return super().is_frozen or self._common.is_frozen

    def timestamp(self) -> float:
        return self._standing.instant(time(), self._base())

    def _base(self) -> float:
        return self._common.timestamp()


class ScheduleClocks:
    """The clocks that schedules fire by: a fire time is due when the server's clock shows it, also
    while the present is behind that clock after a step forward."""

    def __init__(self, common: Clock) -> None:
        self._common = common
        self.accounts = common.accounts

    def now(self) -> datetime | None:
        common = self._common
        return common.now() if common.is_moved else common.present_of_schedules()

    @property
    def is_frozen(self) -> bool:
        return self._common.is_frozen
