"""Logs: create, find, list, count, change, purge and delete them; their partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.operations.access.authorization import (
    check_right,
    find_log,
    log_arn,
    own_arn,
)
from queuegate.protocol import names
from queuegate.storage.logs import stored_logs
from queuegate.storage.model import LogCounts, LogPartition, LogRetention, PartitionState, StoredLog
from queuegate.storage.notifications import Notice, notify
from queuegate.storage.storage_errors import (
    LogDoesNotExist,
    LogExists,
    LogNameInvalid,
    PartitionDoesNotExist,
    TooManyPartitions,
    Unavailable,
)

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.storage.database import Transaction


CREATE = "log:CreateLog"
"""The additional right to create a log at first use."""
LIST = "log:ListLogs"
_ATTEMPTS = 5


class CreatedLog(NamedTuple):
    """``is_new`` False: the log existed."""

    log: StoredLog
    is_new: bool


async def create_log(
    engine: Engine, caller: Caller, name: str, partition_count: int | None, settings: LogRetention
) -> CreatedLog:
    """Return the new log, or an existing one of that name with the same settings. Raises
    LogNameInvalid, AccessDenied, QuotaReached, and LogExists if the settings differ."""
    made = await _make(engine, caller, name, partition_count, settings)
    if (made.log.partition_count, made.log.settings) != (partition_count, settings):
        raise LogExists(name)
    return made


async def find_or_make_log(engine: Engine, caller: Caller, right: str, name: str) -> StoredLog:
    """Return the caller's log of that name. If there is none, create one with a partition for each
    key. Raises LogNameInvalid and AccessDenied."""
    try:
        return await find_log(engine, caller, right, name)
    except LogDoesNotExist:
        return (await _make(engine, caller, name, None, LogRetention())).log


async def _make(
    engine: Engine, caller: Caller, name: str, partition_count: int | None, settings: LogRetention
) -> CreatedLog:
    if not names.is_standard_queue_name(name):
        raise LogNameInvalid(name)
    check_right(engine, caller, CREATE, log_arn(caller, name))
    engine.check_room()
    owner = caller.account_id, caller.region
    now = engine.clock.of(caller.account_id).now()
    # Retry if the existing log is deleted before it is read.
    for _ in range(_ATTEMPTS):
        async with engine.database.transaction() as tx:
            log = await stored_logs.find(tx, *owner, name)
            if log is not None:
                return CreatedLog(log, False)
            await engine.quotas.check_room(tx, caller.account_id, "logs")
            log = await stored_logs.insert(tx, now, owner, name, partition_count, settings)
            if log is not None:
                return CreatedLog(log, True)
    raise Unavailable("The log is being deleted and made again.")


async def list_logs(
    engine: Engine, caller: Caller, *, prefix: str, after: str, limit: int
) -> tuple[list[StoredLog], bool]:
    """Return the caller's logs with this prefix, by name, after ``after``, and True if there are
    more. Raises AccessDenied."""
    check_right(engine, caller, LIST, own_arn(caller, LIST, "*"))
    async with engine.database.transaction() as tx:
        found = await stored_logs.list_logs(
            tx, caller.account_id, caller.region, prefix=prefix, after=after, limit=limit + 1
        )
    return found[:limit], len(found) > limit


async def counts(engine: Engine, found: Sequence[StoredLog]) -> list[LogCounts]:
    async with engine.database.transaction() as tx:
        return await stored_logs.count(tx, [log.log_id for log in found])


async def change_log(
    engine: Engine, log: StoredLog, change: Callable[[LogRetention], LogRetention]
) -> StoredLog:
    """Return the log with new settings, computed by ``change`` from the present ones. Raises
    LogDoesNotExist."""
    async with engine.database.transaction() as tx:
        current = await locked(tx, log)
        settings = change(current.settings)
        await stored_logs.update(tx, log.log_id, settings)
        await notify(tx, Notice.LOG_CHANGED, log.log_id)
    engine.logs.changed(log.log_id)
    return replace(log, settings=settings)


async def locked(tx: Transaction, log: StoredLog) -> StoredLog:
    """Return the log as it is now. No partition can be created, and the log cannot change, until
    the transaction ends. Raises LogDoesNotExist, also if another log has taken its name."""
    if await stored_logs.lock(tx, log.log_id) is None:
        raise LogDoesNotExist(log.name)
    found = await stored_logs.find(tx, log.account_id, log.region, log.name)
    assert found is not None
    return found


async def delete_log(engine: Engine, log: StoredLog) -> None:
    """Delete a log with its records and groups. Raises LogDoesNotExist."""
    now = engine.clock.of(log.account_id).now()
    async with engine.database.transaction() as tx:
        if not await stored_logs.delete(tx, now, log.log_id):
            raise LogDoesNotExist(log.name)
        await notify(tx, Notice.LOG_CHANGED, log.log_id)
    engine.logs.forget(log)


async def purge_log(engine: Engine, log: StoredLog) -> int:
    async with engine.database.transaction() as tx:
        return await stored_logs.purge(tx, log.log_id)


async def partition_states(
    engine: Engine, log: StoredLog, *, after: int, limit: int
) -> tuple[list[PartitionState], bool]:
    """Return counts of partitions by number, after ``after``, and True if there are more."""
    async with engine.database.transaction() as tx:
        found = await stored_logs.partition_states(tx, log.log_id, after=after, limit=limit + 1)
    return found[:limit], len(found) > limit


async def partitions_numbered(
    engine: Engine, log: StoredLog, numbers: Iterable[int]
) -> dict[int, LogPartition]:
    """Return the partitions of these numbers. Raises PartitionDoesNotExist."""
    wanted = set(numbers)
    known = engine.logs.by_number(log)
    missing = wanted - known.keys()
    if missing:
        async with engine.database.transaction() as tx:
            found = await stored_logs.find_numbered(tx, log.log_id, sorted(missing))
        engine.logs.keep_partitions(log, found)
        absent = missing - {one.number for one in found}
        if absent:
            raise PartitionDoesNotExist(min(absent))
        known = engine.logs.by_number(log)
    return {number: known[number] for number in wanted}


async def partitions_of_keys(
    engine: Engine, log: StoredLog, keys: Sequence[str]
) -> dict[str, LogPartition] | None:
    """Return the partitions of these keys, created if there are none. None: the log was deleted.
    For logs that have a partition for each key. Raises TooManyPartitions."""
    known = engine.logs.by_key(log)
    missing = [key for key in keys if key not in known]
    if missing:
        is_new = False
        async with engine.database.transaction() as tx:
            found = await stored_logs.find_partitions(tx, log.log_id, missing)
            if len(found) < len(missing):
                made = await _make_partitions(engine, tx, log, missing)
                if made is None:
                    return None
                found = made
                is_new = True
        engine.logs.keep_partitions(log, found)
        if is_new:
            engine.readers.partitions_made(log.log_id)
        known = engine.logs.by_key(log)
    return {key: known[key] for key in keys}


async def _make_partitions(
    engine: Engine, tx: Transaction, log: StoredLog, keys: Sequence[str]
) -> list[LogPartition] | None:
    engine.check_room()
    count = await stored_logs.lock(tx, log.log_id)
    if count is None:
        return None
    # Other processes may have created some before the lock was taken.
    found = await stored_logs.find_partitions(tx, log.log_id, keys)
    there = {one.key for one in found}
    new = [key for key in keys if key not in there]
    most = engine.limits.log_partitions
    if count + len(new) > most:
        raise TooManyPartitions(most)
    return found + await stored_logs.make_partitions(tx, log.log_id, new)
