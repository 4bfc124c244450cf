"""Dead letters of a log: list them, republish them for their consumer group, or delete them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.operations.access.authorization import find_log
from queuegate.gateway.operations.logs.logs import partitions_numbered
from queuegate.storage.database import probe_by_key
from queuegate.storage.logs import record_dead_letters
from queuegate.storage.storage_errors import LogDoesNotExist

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.storage.logs.record_dead_letters import FailedRecord
    from queuegate.storage.model import LogPartition, StoredLog, StoredRecord

_STEP = 100
"""Maximum number of records in one transaction, because records may be large."""


class RequeuedRecords(NamedTuple):
    """The result of a requeue."""

    requeued: int
    """Number of records that were republished."""
    orphans: int
    """Number of records that stay: they are not dead letters, or their log or group was deleted."""


async def find_dead_letter_log(
    engine: Engine, caller: Caller, right: str, name: str
) -> StoredLog | None:
    """Return the dead-letter log of that name; None: the first dead letter creates it. Raises
    AccessDenied."""
    try:
        return await find_log(engine, caller, right, name)
    except LogDoesNotExist:
        return None


def notify_dead_lettered(
    engine: Engine, dead: Sequence[FailedRecord], appended: Mapping[int, int]
) -> None:
    """Count committed dead letters, and wake waiters of their partitions."""
    for one in dead:
        engine.series.groups.of(one.log, one.group).buried += 1
    engine.wakeups.appended(appended)
    for log_id in {*appended.values()}:
        engine.readers.partitions_made(log_id)


async def requeue(
    engine: Engine,
    log: StoredLog,
    places: Sequence[tuple[int, int]] | None,
    *,
    source: str,
    group: str | None,
    most: int,
) -> RequeuedRecords:
    """Republish dead letters, each for the group that dead-lettered it, and delete them in ``log``.
    ``places`` are (partition, offset). None: up to ``most`` dead letters of the log ``source`` and
    one group of it, or all groups, the oldest of each partition first. Dead letters that are
    requeued or deleted concurrently are not counted.

    Raises PartitionDoesNotExist.
    """
    engine.check_room()
    if places is None:
        async with engine.database.transaction() as tx:
            await probe_by_key(tx)
            found = await record_dead_letters.first(tx, log.log_id, source, group, most)
    else:
        partitions = await partitions_numbered(engine, log, {number for number, _ in places})
        found = [(partitions[number].partition_id, offset) for number, offset in places]
    now = engine.clock.of(log.account_id).now()
    count = orphans = 0
    for start in range(0, len(found), _STEP):
        async with engine.database.transaction() as tx:
            done = await record_dead_letters.requeue(tx, now, log, found[start : start + _STEP])
        engine.wakeups.appended(done.partition_ids)
        count += done.requeued
        orphans += done.orphans
    return RequeuedRecords(count, orphans)


async def list_dead_letters(
    engine: Engine, log: StoredLog, *, source: str, group: str | None, most: int
) -> list[tuple[LogPartition, StoredRecord]]:
    """Return up to ``most`` dead letters in ``log`` from a source log and one of its groups, or
    all, the oldest of each partition first."""
    async with engine.database.transaction() as tx:
        await probe_by_key(tx)
        return await record_dead_letters.list_records(tx, log.log_id, source, group, most)


async def purge(engine: Engine, log: StoredLog, *, source: str, group: str | None) -> int:
    """Delete all dead letters of a source log and one of its groups, or all. Return their
    number."""
    count = 0
    while True:
        async with engine.database.transaction() as tx:
            await probe_by_key(tx)
            places = await record_dead_letters.first(tx, log.log_id, source, group, _STEP)
            if not places:
                return count
            count += await record_dead_letters.delete(tx, places)
