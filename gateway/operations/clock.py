"""The clock of statements: the database's, unless a tester moved it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from time import time


class Clock:
    """``now()`` is None for "ask the database", or the moved instant."""

    def __init__(self) -> None:
        self._ahead = timedelta(0)
        self._moves = -1

    @property
    def ahead_seconds(self) -> float:
        """How far the clock stands ahead of the real one."""
        return self._ahead.total_seconds()

    def set_ahead(self, seconds: float) -> None:
        """Stand ``seconds`` ahead of the real clock; 0 gives the database its clock back."""
        self._ahead = timedelta(seconds=seconds)

    def move(self, seconds: float, moves: int) -> bool:
        """Stand where that many moves have left it, unless it is known where later ones have: news
        of them may come in any order. Whether the clock stands elsewhere than before."""
        if moves <= self._moves:
            return False
        self._moves = moves
        before = self._ahead
        self.set_ahead(seconds)
        return self._ahead != before

    def now(self) -> datetime | None:
        """The argument ``now`` of statements."""
        return datetime.now(UTC) + self._ahead if self._ahead else None

    def instant(self) -> datetime:
        """The present as Python sees it, moved like ``now``: for comparing, never for storing."""
        return datetime.now(UTC) + self._ahead

    def seconds(self) -> int:
        """The present as whole seconds since the epoch, moved like ``now``."""
        return int(self.timestamp())

    def timestamp(self) -> float:
        """The same with its fraction."""
        return time() + self._ahead.total_seconds()
