"""The clocks of statements: the database's, unless a tester moved it, or that of an account."""

from __future__ import annotations

from datetime import UTC, datetime
from time import time

from queuegate.storage.clocks.stored_clocks import Standing, StoredClock

_UNMOVED = Standing()


class Clock:
    """The common clock. ``now()`` is None for "ask the database", or the moved instant.

    ``of(account_id)`` is the clock that holds for an account: this one, unless a tester gave the
    account one of its own.
    """

    def __init__(self) -> None:
        self._standing = _UNMOVED
        self._moves = -1
        self.accounts: dict[str, AccountClock] = {}
        """Of the accounts that have one of their own. Always the same dictionary: lanes and workers
        look whether it is empty."""

    @property
    def moves(self) -> int:
        """The last of all moves that we know of."""
        return self._moves

    def of(self, account_id: str) -> Clock:
        """The clock of what belongs to this account."""
        return self.accounts.get(account_id, self) if self.accounts else self

    def of_arn(self, arn: str) -> Clock:
        """The clock of the account that an ARN names; of what is no ARN, the common one."""
        parts = arn.split(":", 5) if self.accounts else ()
        return self.of(parts[4]) if len(parts) == 6 else self

    @property
    def ahead_seconds(self) -> float:
        """How far the clock stands ahead of the real one, that of an account of the common one."""
        if self._standing.frozen is None:
            return self._standing.ahead_seconds
        return self.timestamp() - self._base()

    def _base(self) -> float:
        """What the clock is ahead of."""
        return time()

    @property
    def is_frozen(self) -> bool:
        """Whether it stands still until it is moved."""
        return self._standing.frozen is not None

    def set_ahead(self, seconds: float) -> None:
        """Stand ``seconds`` ahead of the real clock; 0 gives the database its clock back."""
        self._stand(Standing(seconds))

    def move(self, stored: StoredClock) -> bool:
        """Let all clocks stand where that many moves have left them, unless it is known where later
        ones have: news of them may come in any order. Whether one stands elsewhere than before."""
        if stored.moves <= self._moves:
            return False
        self._moves = stored.moves
        before = (self._standing, {name: one._standing for name, one in self.accounts.items()})
        self._stand(stored.common)
        for account_id in self.accounts.keys() - stored.accounts.keys():
            del self.accounts[account_id]
        for account_id, standing in stored.accounts.items():
            clock = self.accounts.get(account_id)
            if clock is None:
                clock = self.accounts[account_id] = AccountClock(self)
            clock._standing = standing
        return before != (stored.common, dict(stored.accounts))

    def now(self) -> datetime | None:
        """The argument ``now`` of statements."""
        return None if self._standing is _UNMOVED else self.instant()

    def instant(self) -> datetime:
        """The present as Python sees it, moved like ``now``: for comparing, never for storing."""
        return datetime.fromtimestamp(self.timestamp(), UTC)

    def seconds(self) -> int:
        """The present as whole seconds since the epoch, moved like ``now``."""
        return int(self.timestamp())

    def timestamp(self) -> float:
        """The same with its fraction."""
        real = time()
        return real if self._standing is _UNMOVED else self._standing.instant(real, real)

    def _stand(self, standing: Standing) -> None:
        self._standing = _UNMOVED if standing == _UNMOVED else standing


class AccountClock(Clock):
    """The clock of one account. It is ahead of the common one, and goes with it; frozen, it stands
    still whatever the common one does."""

    def __init__(self, common: Clock) -> None:
        super().__init__()
        self._common = common

    def now(self) -> datetime:
        """Never that of the database: one clock should tell all times of an account."""
        return self.instant()

    @property
    def is_frozen(self) -> bool:
        """Whether it stands still, by itself or with the common one."""
        return super().is_frozen or self._common.is_frozen

    def timestamp(self) -> float:
        """The present in seconds since the epoch."""
        return self._standing.instant(time(), self._base())

    def _base(self) -> float:
        return self._common.timestamp()
