"""What logs need not keep any more: first it is gone for everybody, then it is removed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.clocks.whose import Whose
from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

_SQL = load("logs/retention")
_FIND_RETIRABLE = _SQL["find_retirable"].text
_LOCK_PARTITIONS = _SQL["lock_partitions"].text
_RETIRE = _SQL["retire"].text
_FIND_UNSWEPT = _SQL["find_unswept"].text
_REMOVE_RECORDS = _SQL["remove_records"].text
_REMOVE_PARTITIONS = _SQL["remove_partitions"].text
_REMOVE_LOGS = _SQL["remove_logs"].text


async def find_retirable(
    tx: Transaction, now: datetime | None, after: int, limit: int, whose: Whose
) -> tuple[list[int], int | None]:
    """Those of the next partitions whose oldest record need not be kept, and the last partition
    that was looked at; None: there are no more."""
    row = await tx.fetchrow(_FIND_RETIRABLE, now, after, limit, *whose)
    assert row is not None
    return row["partition_ids"], row["last_partition_id"]


async def lock(tx: Transaction, partition_ids: Collection[int]) -> None:
    """Keep others from appending to these partitions."""
    await tx.execute(_LOCK_PARTITIONS, partition_ids)


async def retire(
    tx: Transaction, now: datetime | None, partition_ids: Sequence[int], limit_each: int
) -> list[int]:
    """Let partitions begin behind what they need not keep, up to so many records of each. How many
    of those that had some."""
    await lock(tx, partition_ids)
    rows = await tx.fetch(_RETIRE, now, partition_ids, limit_each)
    return [count for (count,) in rows]


class Unswept(NamedTuple):
    """Records of a partition that are gone for everybody."""

    partition_id: int
    from_offset: int
    to_offset: int


async def find_unswept(tx: Transaction, limit: int) -> list[Unswept]:
    """Partitions with records that can be removed."""
    return [Unswept(*row) for row in await tx.fetch(_FIND_UNSWEPT, limit)]


async def sweep(tx: Transaction, unswept: Sequence[Unswept], limit_each: int) -> int:
    """Remove up to so many records of each of these partitions, which are in order of their ids,
    and those of deleted logs with their last one. How many records."""
    partition_ids, from_offsets, to_offsets = zip(*unswept, strict=True)
    count: int = await tx.fetchval(
        _REMOVE_RECORDS, partition_ids, from_offsets, to_offsets, limit_each
    )
    await tx.execute(_REMOVE_PARTITIONS, partition_ids)
    return count


async def remove_logs(tx: Transaction, limit: int) -> int:
    """Remove logs that were deleted and of which nothing is left; how many."""
    count: int = await tx.fetchval(_REMOVE_LOGS, limit)
    return count
