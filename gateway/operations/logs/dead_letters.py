"""Dead letters of a log: look at them, publish them again for the group that gave them up, drop
them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.operations.access import find_log
from queuegate.gateway.operations.logs.logs import partitions_numbered
from queuegate.storage.log_errors import LogDoesNotExist
from queuegate.storage.logs import dead_letters
from queuegate.storage.planning import probe_by_key

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.log_model import Log, Partition, Record
    from queuegate.storage.logs.dead_letters import DeadLetter

_STEP = 100
"""Records of one transaction, which may be large."""


class Requeued(NamedTuple):
    """What became of dead letters."""

    requeued: int
    """Were published again."""
    orphans: int
    """Stay: they are no dead letters, or their log or group is gone."""


async def find_dead_letter_log(engine: Engine, caller: Caller, right: str, name: str) -> Log | None:
    """The one of that name; None: it is not made before the first dead letter. Raises
    AccessDenied."""
    try:
        return await find_log(engine, caller, right, name)
    except LogDoesNotExist:
        return None


def tell_buried(engine: Engine, dead: Sequence[DeadLetter], appended: Mapping[int, int]) -> None:
    """Dead letters were committed, to these partitions of these logs: count them, and wake who
    waits there."""
    for one in dead:
        engine.series.groups.of(one.log, one.group).buried += 1
    engine.wakeups.appended(appended)
    for log_id in {*appended.values()}:
        engine.readers.partitions_made(log_id)


async def requeue(
    engine: Engine,
    log: Log,
    places: Sequence[tuple[int, int]] | None,
    *,
    source: str,
    group: str | None,
    most: int,
) -> Requeued:
    """Publish dead letters again, each for the group that gave it up, and delete them in ``log``:
    those of these places (partition, offset); or, None, those that come from the log ``source``,
    and one group of it, or any, so many at most, the oldest of each partition first. One that
    another requeue, or a delete, takes first is not counted.

    Raises PartitionDoesNotExist.
    """
    engine.check_room()
    if places is None:
        async with engine.database.transaction() as tx:
            await probe_by_key(tx)
            found = await dead_letters.first(tx, log.log_id, source, group, most)
    else:
        partitions = await partitions_numbered(engine, log, {number for number, _ in places})
        found = [(partitions[number].partition_id, offset) for number, offset in places]
    now = engine.clock.of(log.account_id).now()
    count = orphans = 0
    for start in range(0, len(found), _STEP):
        async with engine.database.transaction() as tx:
            done = await dead_letters.requeue(tx, now, log, found[start : start + _STEP])
        engine.wakeups.appended(done.partition_ids)
        count += done.requeued
        orphans += done.orphans
    return Requeued(count, orphans)


async def list_dead_letters(
    engine: Engine, log: Log, *, source: str, group: str | None, most: int
) -> list[tuple[Partition, Record]]:
    """Dead letters in ``log`` that come from another one, and from one of its groups, or any: so
    many at most, the oldest of each partition first."""
    async with engine.database.transaction() as tx:
        await probe_by_key(tx)
        return await dead_letters.list_records(tx, log.log_id, source, group, most)


async def purge(engine: Engine, log: Log, *, source: str, group: str | None) -> int:
    """Delete the same dead letters, all of them; how many there were."""
    count = 0
    while True:
        async with engine.database.transaction() as tx:
            await probe_by_key(tx)
            places = await dead_letters.first(tx, log.log_id, source, group, _STEP)
            if not places:
                return count
            count += await dead_letters.delete(tx, places)
