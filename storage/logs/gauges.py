"""Progress of many groups at once, for /metrics."""

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
    """The progress of a group."""

    account_id: str
    region: str
    log: str
    group: str
    rebalances: int
    lag: int
    watermark_age_seconds: float
    """The age of the oldest unfinished record; 0 without one."""
    subscribers: int
    """Live subscribers."""
    held: int
    """Partitions held by live subscribers."""
    free: int
    waits_for_queue: bool | None
    """The queue that the group feeds does not exist. None: it feeds none."""


async def group_gauges(tx: Transaction, now: datetime | None, most: int) -> list[GroupGauges]:
    """Return gauges of the ``most`` oldest groups, up to about 50,000 partitions together."""
    await probe_by_key(tx)
    rows = await tx.fetch(_SQL["of_groups"].text, now, most, _MOST_PARTITIONS)
    return [GroupGauges(*row) for row in rows]


async def live_groups(tx: Transaction, group_ids: Iterable[int]) -> set[int]:
    """Return the groups that are not deleted."""
    return {row[0] for row in await tx.fetch(_SQL["live_groups"].text, [*group_ids])}
