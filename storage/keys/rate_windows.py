"""Rate windows of producers, shared by all processes on a database."""

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
    """Permits of a process; times are relative to the request."""

    permits: int
    slot: int
    """The slot that counts them; returned permits name it."""
    lease_seconds: float
    """The seconds in which they may be used."""
    hold_seconds: float
    """The seconds without further permits; 0: unknown."""


class PermitRequest(Entry[Granted]):
    """A request for permits of one producer, made only after the reply to the previous one."""

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
        """Recent requests per hundredth of a window."""
        self.returned = 0
        """Unused permits of ``returned_slot``."""
        self.returned_slot = 0

    def party(self) -> str:
        """Return an ARN, which contains the account."""
        account_id, producer_id = self.key
        return f"arn:aws:queuegate::{account_id}:{producer_id}"


class RateLane:
    """One connection for all requests of this process."""

    def __init__(self, database: Database, now: ClockNow) -> None:
        # Windows lost in a crash need not be on disk.
        settings = {"synchronous_commit": "off", "plan_cache_mode": "force_generic_plan"}
        self._now = now
        self.lane: Lane[PermitRequest] = Lane("rates", database, self._flush, settings=settings)

    async def _flush(
        self, connection: Connection, entries: list[PermitRequest]
    ) -> list[PermitRequest]:
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


async def forget_windows(tx: Transaction, now: datetime | None, limit: int) -> int:
    """Delete at most ``limit`` expired windows; return the count."""
    return len(await tx.fetch(_SQL["forget"].text, now, limit))
