"""What /metrics asks about many groups at once: how far they are, and which are left."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.planning import probe_by_key
from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

_SQL = load("logs/gauges")

_MOST_PARTITIONS = 50_000


class GroupGauges(NamedTuple):
    """Where a group is."""

    account_id: str
    region: str
    log: str
    group: str
    rebalances: int
    lag: int
    watermark_age_seconds: float
    """Of the oldest record that it is not done with; 0 without one."""
    subscribers: int
    """Live ones."""
    held: int
    """Partitions that one of them holds."""
    free: int
    waits_for_queue: bool | None
    """Whether the queue that it feeds is not there. None: it feeds none."""


async def of_groups(tx: Transaction, now: datetime | None, most: int) -> list[GroupGauges]:
    """Those of the ``most`` oldest groups, and of no more than have about 50,000 partitions
    together."""
    await probe_by_key(tx)
    rows = await tx.fetch(_SQL["of_groups"].text, now, most, _MOST_PARTITIONS)
    return [GroupGauges(*row) for row in rows]


async def live_groups(tx: Transaction, group_ids: Iterable[int]) -> set[int]:
    """Those of these groups that are not deleted."""
    return {row[0] for row in await tx.fetch(_SQL["live_groups"].text, [*group_ids])}
