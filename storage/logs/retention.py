"""Retention of logs: records are first retired, which hides them, and then removed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.clocks.whose import AccountFilter
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
    tx: Transaction, now: datetime | None, after: int, limit: int, whose: AccountFilter
) -> tuple[list[int], int | None]:
    """Return the next partitions whose oldest record may be retired, and the last one examined. The
    last one is None if there are no more."""
    row = await tx.fetchrow(_FIND_RETIRABLE, now, after, limit, *whose)
    assert row is not None
    return row["partition_ids"], row["last_partition_id"]


async def lock_partitions(tx: Transaction, partition_ids: Collection[int]) -> None:
    """Lock these partitions against appends."""
    await tx.execute(_LOCK_PARTITIONS, partition_ids)


async def retire(
    tx: Transaction, now: datetime | None, partition_ids: Sequence[int], limit_each: int
) -> list[int]:
    """Move the start of partitions past retention, by at most ``limit_each`` records; return the
    non-zero counts."""
    await lock_partitions(tx, partition_ids)
    rows = await tx.fetch(_RETIRE, now, partition_ids, limit_each)
    return [count for (count,) in rows]


class Unswept(NamedTuple):
    """Retired records of a partition."""

    partition_id: int
    from_offset: int
    to_offset: int


async def find_unswept(tx: Transaction, limit: int) -> list[Unswept]:
    """Return partitions with removable records."""
    return [Unswept(*row) for row in await tx.fetch(_FIND_UNSWEPT, limit)]


async def sweep(tx: Transaction, unswept: Sequence[Unswept], limit_each: int) -> int:
    """Remove at most ``limit_each`` records of each partition, given in the order of ids; return
    the count. Also removes partitions of deleted logs after their last record."""
    partition_ids, from_offsets, to_offsets = zip(*unswept, strict=True)
    count: int = await tx.fetchval(
        _REMOVE_RECORDS, partition_ids, from_offsets, to_offsets, limit_each
    )
    await tx.execute(_REMOVE_PARTITIONS, partition_ids)
    return count


async def remove_logs(tx: Transaction, limit: int) -> int:
    """Remove deleted logs with nothing left; return the count."""
    count: int = await tx.fetchval(_REMOVE_LOGS, limit)
    return count
