"""Messages that have expired: finding the queues that hold some, and removing them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

from storage.clocks.whose import EVERYBODYS, Whose
from storage.planning import probe_by_key
from storage.queries import load

if TYPE_CHECKING:
    from storage.database import Transaction

_SQL = load("queues/expiries")


class OverduePage(NamedTuple):
    """``last_queue_id`` None: that was the last page."""

    queue_ids: list[int]
    last_queue_id: int | None


class Expiring(Protocol):
    """A table whose messages may expire."""

    async def find_overdue(
        self,
        tx: Transaction,
        now: datetime | None,
        *,
        after_queue_id: int,
        limit: int,
        whose: Whose = EVERYBODYS,
    ) -> OverduePage:
        """Queues behind ``after_queue_id`` that hold something expired. Looks at ``limit`` queues
        with messages that expire some time."""

    async def remove_overdue(
        self, tx: Transaction, now: datetime | None, queue_ids: list[int], limit: int
    ) -> tuple[int, list[int]]:
        """Delete about ``limit`` expired messages of these queues; how many went, and the queues
        that may have more."""


class StandardExpiring:
    """Messages of standard queues."""

    async def find_overdue(
        self,
        tx: Transaction,
        now: datetime | None,
        *,
        after_queue_id: int,
        limit: int,
        whose: Whose = EVERYBODYS,
    ) -> OverduePage:
        """See ``Expiring``."""
        await probe_by_key(tx)
        row = await tx.fetchrow(_SQL["find_overdue"].text, now, after_queue_id, limit, *whose)
        assert row is not None
        last_queue_id, looked_at, queue_ids = row
        return OverduePage(queue_ids, last_queue_id if looked_at == limit else None)

    async def remove_overdue(
        self, tx: Transaction, now: datetime | None, queue_ids: list[int], limit: int
    ) -> tuple[int, list[int]]:
        """See ``Expiring``. As many of each queue."""
        await probe_by_key(tx)
        limit_each = max(1, limit // len(queue_ids))
        rows = await tx.fetch(_SQL["remove_overdue"].text, now, queue_ids, limit_each)
        gone = {row["queue_id"]: row["gone"] for row in rows}
        left = [queue_id for queue_id in queue_ids if gone.get(queue_id) == limit_each]
        return sum(gone.values()), left


EXPIRING: tuple[Expiring, ...] = (StandardExpiring(),)
"""Every table that has messages with an end of their own."""
