"""Logs as a whole, their partitions, and gauges of consumer groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from queuegate.storage.logs import log_groups
from queuegate.storage.model import LogCounts, LogPartition, LogRetention, PartitionState, StoredLog
from queuegate.storage.queries import load
from queuegate.storage.storage_errors import LogDoesNotExist

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction


_SQL = load("logs/stored_logs")


def log_of(row: Sequence[Any]) -> StoredLog:
    """Return the log of a row with its columns."""
    log_id, account_id, region, name, created_at, partition_count, *settings = row
    return StoredLog(
        log_id, account_id, region, name, created_at, partition_count, LogRetention(*settings)
    )


async def find(tx: Transaction, account_id: str, region: str, name: str) -> StoredLog | None:
    """Return the live log of that name."""
    return await _SQL["find_log"].first(tx, log_of, account_id, region, name)


async def list_logs(
    tx: Transaction, account_id: str, region: str, *, prefix: str, after: str, limit: int
) -> list[StoredLog]:
    """Return live logs by name in byte order, behind ``after``."""
    return await _SQL["list_logs"].all(tx, log_of, account_id, region, prefix, after, limit)


async def insert(
    tx: Transaction,
    now: datetime | None,
    owner: tuple[str, str],
    name: str,
    partition_count: int | None,
    settings: LogRetention,
) -> StoredLog | None:
    """Create a log of that account and region; return None if the name exists."""
    return await _SQL["insert_log"].first(tx, log_of, now, *owner, name, partition_count, *settings)


async def update(tx: Transaction, log_id: int, settings: LogRetention) -> bool:
    """Replace the settings of a log; return False if it is deleted."""
    return await _SQL["update_log"].value(tx, log_id, *settings) is not None


async def lock(tx: Transaction, log_id: int) -> int | None:
    """Lock the log against new partitions, changes and deletion; return its partition count, None
    if it is deleted."""
    return await _SQL["lock_log"].value(tx, log_id)


async def find_partitions(tx: Transaction, log_id: int, keys: Sequence[str]) -> list[LogPartition]:
    """Return the existing partitions of these keys."""
    return await _SQL["find_partitions"].all(tx, LogPartition._make, log_id, keys)


async def make_partitions(tx: Transaction, log_id: int, keys: Sequence[str]) -> list[LogPartition]:
    """Create partitions for keys without one. The caller locks the log."""
    return await _SQL["make_partitions"].all(tx, LogPartition._make, log_id, keys)


async def find_numbered(tx: Transaction, log_id: int, numbers: Sequence[int]) -> list[LogPartition]:
    """Return the existing partitions of these numbers."""
    return await _SQL["find_numbered"].all(tx, LogPartition._make, log_id, numbers)


def number_of(partition_count: int, key: str) -> int:
    """Return the partition number of a key in a log with a fixed number of partitions."""
    return crc32(key.encode()) % partition_count


async def partitions_for(
    tx: Transaction, log: StoredLog, keys: Iterable[str]
) -> dict[str, LogPartition]:
    """Return the partitions of these keys, created if needed without a limit. For moves only:
    publishers get ``TooManyPartitions``. Raises LogDoesNotExist."""
    if log.partition_count is not None:
        numbers = {key: number_of(log.partition_count, key) for key in keys}
        numbered = await find_numbered(tx, log.log_id, sorted({*numbers.values()}))
        by_number = {one.number: one for one in numbered}
        return {key: by_number[number] for key, number in numbers.items()}
    wanted = sorted({*keys})
    found = await find_partitions(tx, log.log_id, wanted)
    if len(found) < len(wanted):
        if await lock(tx, log.log_id) is None:
            raise LogDoesNotExist(log.name)
        found = await find_partitions(tx, log.log_id, wanted)
        there = {one.key for one in found}
        found += await make_partitions(tx, log.log_id, [one for one in wanted if one not in there])
    return {one.key: one for one in found if one.key is not None}


async def partition_states(
    tx: Transaction, log_id: int, *, after: int, limit: int
) -> list[PartitionState]:
    """Return the contents of the partitions behind that number."""
    return await _SQL["partition_states"].all(tx, PartitionState._make, log_id, after, limit)


async def count(tx: Transaction, log_ids: Sequence[int]) -> list[LogCounts]:
    """Return the counts of each of these logs."""
    return await _SQL["count_logs"].all(tx, LogCounts._make, log_ids)


async def delete(tx: Transaction, now: datetime | None, log_id: int) -> bool:
    """Delete a log with its groups, its records later; return False if it is deleted already."""
    if await lock(tx, log_id) is None:
        return False
    await log_groups.delete_all(tx, log_id)
    await _SQL["delete_log"].run(tx, now, log_id)
    return True


async def purge(tx: Transaction, log_id: int) -> int:
    """Drop all records of a log; return the count."""
    return await _SQL["purge_log"].value(tx, log_id)


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
    return await _SQL["of_groups"].by_key.all(tx, GroupGauges._make, now, most, _MOST_PARTITIONS)


async def live_groups(tx: Transaction, group_ids: Iterable[int]) -> set[int]:
    """Return the groups that are not deleted."""
    return {row[0] for row in await _SQL["live_groups"].rows(tx, [*group_ids])}
