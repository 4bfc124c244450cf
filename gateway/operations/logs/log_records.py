"""Records of a log: publish, read, long-poll and delete them; list, requeue and purge dead
letters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Self

from queuegate.gateway.operations.access.authorization import find_log
from queuegate.gateway.operations.logs.logs import (
    find_or_make_log,
    partitions_numbered,
    partitions_of_keys,
)
from queuegate.gateway.operations.runtime.replies import answered
from queuegate.gateway.operations.runtime.wakeups import place_of_partition
from queuegate.storage.database import probe_by_key
from queuegate.storage.logs import record_dead_letters, stored_logs, stored_records
from queuegate.storage.logs.stored_logs import number_of
from queuegate.storage.logs.stored_records import Append, Read
from queuegate.storage.model import (
    Appended,
    LogPartition,
    NewLogRecord,
    ReadRange,
    StoredLog,
    StoredRecord,
)
from queuegate.storage.storage_errors import (
    LogDoesNotExist,
    RecordDoesNotExist,
    RecordInvalid,
    Unavailable,
)

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.storage.lanes import Reply
    from queuegate.storage.logs.record_dead_letters import FailedRecord


_ATTEMPTS = 5
_RECORD_OVERHEAD_BYTES = 64


class RecordToPublish(NamedTuple):
    """A record to publish."""

    key: str
    payload: bytes
    record_id: str | None = None
    metadata: str | None = None
    """A JSON object of texts."""


class RecordPosition(NamedTuple):
    """The result of publishing; each list has one element for each record."""

    partitions: list[LogPartition]
    offsets: list[int]
    duplicates: list[bool] | None
    """True for records whose id was already there; None: no record has an id."""


async def publish_records(
    engine: Engine, caller: Caller, right: str, name: str, publications: Sequence[RecordToPublish]
) -> RecordPosition:
    """Publish all records, or none, to the caller's log of that name, created if there is none.
    Records are on disk, in their order within each partition, when this returns. Raises
    LogNameInvalid, AccessDenied, RecordInvalid and TooManyPartitions."""
    check(engine, publications)
    for _ in range(_ATTEMPTS):
        log = await find_or_make_log(engine, caller, right, name)
        partitions = await partitions_of(engine, log, publications)
        if partitions is not None:
            appended: Appended | None = await answered(
                start_publishing, engine, log, publications, partitions
            )
            if appended is not None:
                return RecordPosition(partitions, *appended)
        # The log was deleted, and the notification has not arrived yet.
        engine.logs.forget(log)
    raise Unavailable("The log is being deleted and made again.")


def known_partitions(
    engine: Engine, log: StoredLog, publications: Sequence[RecordToPublish]
) -> list[LogPartition] | None:
    """Return the partitions of these records if they are cached."""
    found = []
    by_key, by_number = engine.logs.by_key(log), engine.logs.by_number(log)
    for publication in publications:
        if log.partition_count is None:
            partition = by_key.get(publication.key)
        else:
            partition = by_number.get(number_of(log.partition_count, publication.key))
        if partition is None:
            return None
        found.append(partition)
    return found


async def partitions_of(
    engine: Engine, log: StoredLog, publications: Sequence[RecordToPublish]
) -> list[LogPartition] | None:
    """Return the partitions of these records, created for new keys. None: the log was deleted.
    Raises TooManyPartitions."""
    keys = [*dict.fromkeys(one.key for one in publications)]
    if log.partition_count is None:
        by_key = await partitions_of_keys(engine, log, keys)
        return None if by_key is None else [by_key[one.key] for one in publications]
    numbers = {key: number_of(log.partition_count, key) for key in keys}
    by_number = await partitions_numbered(engine, log, numbers.values())
    return [by_number[numbers[one.key]] for one in publications]


def start_publishing(
    engine: Engine,
    log: StoredLog,
    publications: Sequence[RecordToPublish],
    partitions: Sequence[LogPartition],
    reply: Reply[Appended | None],
) -> None:
    """Submit checked records to the lane. The reply is None, and nothing was done, if the log was
    deleted."""
    is_shared = log.partition_count is not None
    size = 0
    is_plain = True
    records = []
    for publication, partition in zip(publications, partitions, strict=True):
        key, payload, record_id, metadata = publication
        if record_id is not None:
            is_plain = False
        size += len(payload) + _RECORD_OVERHEAD_BYTES
        records.append(
            NewLogRecord(
                partition.partition_id, payload, key if is_shared else None, record_id, metadata
            )
        )
    engine.append.lane.submit(Append(log.arn, records, reply, size, is_plain=is_plain))


def check(engine: Engine, publications: Sequence[RecordToPublish]) -> None:
    """Raise RecordInvalid for a record that cannot be stored."""
    limits = engine.limits
    for key, payload, record_id, metadata in publications:
        if len(key) > limits.record_key_length:
            raise RecordInvalid(f"its key has more than {limits.record_key_length} characters.")
        if record_id is not None and not 0 < len(record_id) <= limits.record_id_length:
            raise RecordInvalid(f"its id must have 1 to {limits.record_id_length} characters.")
        if "\x00" in key or (record_id is not None and "\x00" in record_id):
            raise RecordInvalid("its key or its id holds a NUL character.")
        size = len(payload) if metadata is None else len(payload) + len(metadata)
        if size > limits.message_bytes:
            raise RecordInvalid(
                f"its payload and metadata have {size} bytes; {limits.message_bytes} are the most."
            )


class PartitionWatch:
    """A waiter that is parked on partitions during a ``with`` block. Enter the block before
    querying, so that later records wake it.

        with PartitionWatch(engine, partition_ids) as watch:
            while not (found := await look()) and await watch.wait(deadline):
                pass
    """

    def __init__(self, engine: Engine, partition_ids: Iterable[int]) -> None:
        self._engine = engine
        self._places = [place_of_partition(one) for one in partition_ids]
        self._woken = asyncio.Event()

    def __enter__(self) -> Self:
        self._park()
        return self

    def __exit__(self, *_: object) -> None:
        for place in self._places:
            self._engine.wakeups.leave(place, self)

    def wake(self) -> None:
        """End ``wait``: there may be records, or the gateway stops."""
        self._woken.set()

    def _park(self) -> None:
        for place in self._places:
            self._engine.wakeups.park(place, self)

    async def wait(self, until: float) -> bool:
        """Wait until there may be records. True: parked again. False: the deadline, in the event
        loop's time, has passed, or the gateway stops."""
        seconds = until - asyncio.get_running_loop().time()
        if self._engine.stopping or seconds <= 0:
            return False
        try:
            await asyncio.wait_for(self._woken.wait(), seconds)
        except TimeoutError:
            return False
        self._woken.clear()
        if self._engine.stopping:
            return False
        self._park()
        return True


_NO_OFFSET = 2**63 - 1


class RecordRange(NamedTuple):
    """Offsets of a partition, without the end."""

    number: int
    from_offset: int
    to_offset: int


class RangeRecords(NamedTuple):
    """Records that were found in a range."""

    partition: LogPartition
    start_offset: int
    """First retained offset of the partition."""
    next_offset: int
    """Offset at which to continue: the end of the range or of the partition if all records were
    read."""
    records: list[StoredRecord]


class ReadLimits(NamedTuple):
    """Maximum records and bytes of one call."""

    records: int
    bytes: int


async def read_records(
    engine: Engine,
    log: StoredLog,
    wanted: Sequence[RecordRange],
    most: ReadLimits,
    wait_seconds: int = 0,
) -> list[RangeRecords]:
    """Return records of these ranges, in their order and by offset, up to the maximum of records or
    bytes, but at least one. Wait up to ``wait_seconds`` for the first record. Raises
    PartitionDoesNotExist, and LogDoesNotExist if the log was deleted."""
    partitions = await partitions_numbered(engine, log, {one.number for one in wanted})
    ranges = [ReadRange(partitions[one.number].partition_id, *one[1:]) for one in wanted]
    most = ReadLimits(min(most.records, engine.logs.records_within(log, most.bytes)), most.bytes)
    reads = await _look(engine, ranges, most, wait_seconds)
    count, size = _size_of(reads)
    engine.logs.note_read(log, count, size)
    is_cut_short = count >= most.records or size >= most.bytes
    found: list[RangeRecords] = []
    for one, read in zip(reversed(wanted), reversed(reads), strict=True):
        if read is None:
            engine.logs.forget(log)
            raise LogDoesNotExist(log.name)
        if not is_cut_short:
            next_offset = max(one.from_offset, min(one.to_offset, read.next_offset))
        elif read.records:
            # The last range with records: earlier ranges were read to their ends.
            next_offset = read.records[-1].offset + 1
            is_cut_short = False
        else:
            next_offset = max(one.from_offset, min(one.to_offset, read.start_offset))
        found.append(
            RangeRecords(partitions[one.number], read.start_offset, next_offset, read.records)
        )
    found.reverse()
    return found


async def _look(
    engine: Engine, ranges: Sequence[ReadRange], most: ReadLimits, wait_seconds: int
) -> list[Read | None]:
    async def look() -> list[Read | None]:
        async with engine.database.transaction() as tx:
            return await stored_records.read(
                tx, ranges, most_records=most.records, most_bytes=most.bytes
            )

    if not wait_seconds:
        return await look()
    until = asyncio.get_running_loop().time() + wait_seconds
    with PartitionWatch(engine, {one.partition_id for one in ranges}) as watch:
        reads = await look()
        while not any(one is None or one.records for one in reads) and await watch.wait(until):
            reads = await look()
    return reads


def _size_of(reads: Sequence[Read | None]) -> tuple[int, int]:
    """Return the number of records and their bytes, as ``storage`` counts them."""
    records = [one for read in reads if read is not None for one in read.records]
    metadata = [len(one.metadata.encode()) for one in records if one.metadata is not None]
    return len(records), sum([len(one.payload) for one in records]) + sum(metadata)


async def number_of_key(engine: Engine, log: StoredLog, key: str) -> int | None:
    """Return the number of the partition that records of the key are in; None: there is none."""
    if log.partition_count is not None:
        return number_of(log.partition_count, key)
    async with engine.database.transaction() as tx:
        found = await stored_logs.find_partitions(tx, log.log_id, [key])
    return found[0].number if found else None


async def read_record(
    engine: Engine, log: StoredLog, number: int, offset: int
) -> tuple[LogPartition, StoredRecord]:
    """Return one record. Raises PartitionDoesNotExist and RecordDoesNotExist."""
    wanted = RecordRange(number, offset, min(offset + 1, _NO_OFFSET))
    [found] = await read_records(engine, log, [wanted], ReadLimits(1, 1))
    if not found.records:
        raise RecordDoesNotExist(number, offset)
    return found.partition, found.records[0]


async def delete_record(engine: Engine, log: StoredLog, number: int, offset: int) -> None:
    """Delete one record. The others keep their offsets; readers skip the gap. Raises
    PartitionDoesNotExist and RecordDoesNotExist."""
    partitions = await partitions_numbered(engine, log, [number])
    async with engine.database.transaction() as tx:
        if not await stored_records.delete(tx, partitions[number].partition_id, offset):
            raise RecordDoesNotExist(number, offset)


async def offsets_at(
    engine: Engine, log: StoredLog, numbers: Sequence[int] | None, at: datetime
) -> list[tuple[int, int]]:
    """Return (partition, offset of its first record published at that time or later) for these
    partitions, or all; the next offset if there is no such record. Raises PartitionDoesNotExist."""
    if numbers is None:
        async with engine.database.transaction() as tx:
            states = await stored_logs.partition_states(
                tx, log.log_id, after=-1, limit=engine.limits.log_partitions
            )
        ids = {one.partition_id: one.number for one in states}
    else:
        partitions = await partitions_numbered(engine, log, numbers)
        ids = {one.partition_id: one.number for one in partitions.values()}
    async with engine.database.transaction() as tx:
        found = await stored_records.offsets_at(tx, [*ids], at)
    return sorted((ids[partition_id], offset) for partition_id, offset in found.items())


_STEP = 100
"""Maximum number of records in one transaction, because records may be large."""


class RequeuedRecords(NamedTuple):
    """The result of a requeue."""

    requeued: int
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
        engine.series.groups.of(one.log, one.group).dead_lettered += 1
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
    requeued or deleted concurrently are not counted. Raises PartitionDoesNotExist."""
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
