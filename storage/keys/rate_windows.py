"""The windows in which requests of producers count, for all processes on a database."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.lanes import ClockNow, Entry, Lane, Reply
from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Connection, Database, Transaction
    from queuegate.storage.key_model import RateLimit

_SQL = load("keys/rate_windows")
_TAKE = _SQL["take"].text


class Granted(NamedTuple):
    """How many permits a process has, and until when; times are from the moment of asking."""

    permits: int
    slot: int
    """Where they count: who gives some back names it."""
    lease_seconds: float
    """How long they may be spent."""
    hold_seconds: float
    """How long there will be no others; 0: nothing of that is known."""


class Take(Entry[Granted]):
    """A process asks for permits of one producer: only when it has heard of the last ones."""

    __slots__ = ("key", "limit", "needed", "per_slot", "returned", "returned_slot")

    def __init__(
        self, key: tuple[str, str], limit: RateLimit, needed: int, reply: Reply[Granted]
    ) -> None:
        super().__init__(reply)
        self.key = key
        """(account, producer)."""
        self.limit = limit
        self.needed = needed
        self.per_slot = 0.0
        """How many requests it had lately in a hundredth of a window."""
        self.returned = 0
        """Permits of ``returned_slot`` that were not spent."""
        self.returned_slot = 0

    def party(self) -> str:
        """As an ARN, which tells the account."""
        account_id, producer_id = self.key
        return f"arn:aws:queuegate::{account_id}:{producer_id}"


class RateLane:
    """One connection for all that this process asks."""

    def __init__(self, database: Database, now: ClockNow) -> None:
        # What a crash may lose need not be on disk.
        settings = {"synchronous_commit": "off", "plan_cache_mode": "force_generic_plan"}
        self._now = now
        self.lane: Lane[Take] = Lane("rates", database, self._flush, settings=settings)

    async def _flush(self, connection: Connection, entries: list[Take]) -> list[Take]:
        entries = sorted(entries, key=lambda entry: entry.key)
        row = await connection.fetchrow(
            _TAKE,
            self.lane.now_of(entries[0].party(), self._now),
            [entry.key[0] for entry in entries],
            [entry.key[1] for entry in entries],
            [entry.limit.requests for entry in entries],
            [entry.limit.window_seconds for entry in entries],
            [entry.needed for entry in entries],
            [entry.per_slot for entry in entries],
            [entry.returned for entry in entries],
            [entry.returned_slot for entry in entries],
        )
        assert row is not None
        for entry, permits, slot, lease_ms, hold_ms in zip(entries, *row, strict=True):
            entry.done(Granted(permits, slot, lease_ms / 1000, hold_ms / 1000))
        return []


async def forget(tx: Transaction, now: datetime | None, limit: int) -> int:
    """Delete up to so many windows that are over; how many there were."""
    return len(await tx.fetch(_SQL["forget"].text, now, limit))
