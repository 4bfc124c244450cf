"""Keeps the outbox small: it is for looking at, not an archive."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from storage.clocks.whose import Whose
from storage.database import Database
from storage.topics import outbox

MOST_MESSAGES = 100_000
"""Of an account; the oldest ones beyond them go."""

_ACCOUNTS_PER_LOOK = 20


class CollectOutbox:
    """Removes messages of the outbox that are older than ``days``, and what an account has beyond
    ``most_messages``."""

    name = "collect outbox"
    pause_seconds = 60.0

    def __init__(
        self,
        database: Database,
        clock_now: Callable[[], datetime | None],
        whose: Callable[[], Whose] = Whose,
        *,
        days: int,
        most_messages: int = MOST_MESSAGES,
    ) -> None:
        self._database = database
        self._now = clock_now
        self._whose = whose
        self._days = days
        self._most_messages = most_messages

    async def run_round(self, rows: int) -> int:
        """Delete up to about ``rows`` messages; fewer: there are no more."""
        async with self._database.transaction() as tx:
            handled = await outbox.remove_old(
                tx, self._now(), days=self._days, limit=rows, whose=self._whose()
            )
        after: str | None = ""
        while after is not None and handled < rows:
            async with self._database.transaction() as tx:
                accounts = await outbox.find_excess(
                    tx, after_account_id=after, limit=_ACCOUNTS_PER_LOOK, most=self._most_messages
                )
            for account in accounts:
                if account.last_id is not None and handled < rows:
                    handled += await self._remove(
                        account.account_id, account.last_id, rows - handled
                    )
            after = accounts[-1].account_id if len(accounts) == _ACCOUNTS_PER_LOOK else None
        return handled

    async def _remove(self, account_id: str, last_id: int, rows: int) -> int:
        async with self._database.transaction() as tx:
            return await outbox.remove_excess(tx, account_id, last_id, rows)
