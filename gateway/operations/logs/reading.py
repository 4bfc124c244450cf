"""Reading a log by offset, beside its groups; and where to begin for a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.operations.logs.logs import partitions_numbered
from queuegate.gateway.operations.logs.waiting import Watch
from queuegate.storage.log_errors import LogDoesNotExist, RecordDoesNotExist
from queuegate.storage.log_model import Log, Partition, ReadRange, Record
from queuegate.storage.logs import logs, records

if TYPE_CHECKING:
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.logs.records import Read


_NO_OFFSET = 2**63 - 1
"""No record gets as far."""


class Wanted(NamedTuple):
    """Offsets of a partition: from one to before another one."""

    number: int
    from_offset: int
    to_offset: int


class Found(NamedTuple):
    """What is there of what was wanted."""

    partition: Partition
    start_offset: int
    """Of what is kept of the partition."""
    next_offset: int
    """Where to go on. It is where the range ends, or the partition, if nothing is left of it."""
    records: list[Record]


class Most(NamedTuple):
    """How much one call reads."""

    records: int
    bytes: int


async def read_records(
    engine: Engine, log: Log, wanted: Sequence[Wanted], most: Most, wait_seconds: int = 0
) -> list[Found]:
    """Records of these ranges, in their order and within each in that of offsets: as many as there
    are, or as have so many bytes, but one at least. Waits until there is one.

    Raises PartitionDoesNotExist, and LogDoesNotExist when it was deleted.
    """
    partitions = await partitions_numbered(engine, log, {one.number for one in wanted})
    ranges = [ReadRange(partitions[one.number].partition_id, *one[1:]) for one in wanted]
    most = Most(min(most.records, engine.logs.records_within(log, most.bytes)), most.bytes)
    reads = await _look(engine, ranges, most, wait_seconds)
    count, size = _size_of(reads)
    engine.logs.note_read(log, count, size)
    is_cut_short = count >= most.records or size >= most.bytes
    found: list[Found] = []
    for one, read in zip(reversed(wanted), reversed(reads), strict=True):
        if read is None:
            engine.logs.forget(log)
            raise LogDoesNotExist(log.name)
        if not is_cut_short:
            next_offset = max(one.from_offset, min(one.to_offset, read.next_offset))
        elif read.records:
            # The last one that gave anything: what is before it was read to its end.
            next_offset = read.records[-1].offset + 1
            is_cut_short = False
        else:
            next_offset = max(one.from_offset, min(one.to_offset, read.start_offset))
        found.append(Found(partitions[one.number], read.start_offset, next_offset, read.records))
    found.reverse()
    return found


async def _look(
    engine: Engine, ranges: Sequence[ReadRange], most: Most, wait_seconds: int
) -> list[Read | None]:
    async def look() -> list[Read | None]:
        async with engine.database.transaction() as tx:
            return await records.read(tx, ranges, most_records=most.records, most_bytes=most.bytes)

    if not wait_seconds:
        return await look()
    until = asyncio.get_running_loop().time() + wait_seconds
    with Watch(engine, {one.partition_id for one in ranges}) as watch:
        reads = await look()
        while not any(one is None or one.records for one in reads) and await watch.wait(until):
            reads = await look()
    return reads


def _size_of(reads: Sequence[Read | None]) -> tuple[int, int]:
    """How many records were read, and their bytes as ``storage`` counts them."""
    count = size = 0
    for read in reads:
        if read is not None:
            count += len(read.records)
            for record in read.records:
                size += len(record.payload)
                if record.metadata is not None:
                    size += len(record.metadata.encode())
    return count, size


async def read_record(
    engine: Engine, log: Log, number: int, offset: int
) -> tuple[Partition, Record]:
    """One record. Raises PartitionDoesNotExist and RecordDoesNotExist."""
    wanted = Wanted(number, offset, min(offset + 1, _NO_OFFSET))
    [found] = await read_records(engine, log, [wanted], Most(1, 1))
    if not found.records:
        raise RecordDoesNotExist(number, offset)
    return found.partition, found.records[0]


async def delete_record(engine: Engine, log: Log, number: int, offset: int) -> None:
    """Delete one record; the others keep their offsets, and readers go over the gap.

    Raises PartitionDoesNotExist and RecordDoesNotExist.
    """
    partitions = await partitions_numbered(engine, log, [number])
    async with engine.database.transaction() as tx:
        if not await records.delete(tx, partitions[number].partition_id, offset):
            raise RecordDoesNotExist(number, offset)


async def offsets_at(
    engine: Engine, log: Log, numbers: Sequence[int] | None, at: datetime
) -> list[tuple[int, int]]:
    """(partition, offset of its first record that was published at that time or later) of these
    partitions, or of all; what comes next where there is none. Raises PartitionDoesNotExist."""
    if numbers is None:
        async with engine.database.transaction() as tx:
            states = await logs.partition_states(
                tx, log.log_id, after=-1, limit=engine.limits.log_partitions
            )
        ids = {one.partition_id: one.number for one in states}
    else:
        partitions = await partitions_numbered(engine, log, numbers)
        ids = {one.partition_id: one.number for one in partitions.values()}
    async with engine.database.transaction() as tx:
        found = await records.offsets_at(tx, [*ids], at)
    return sorted((ids[partition_id], offset) for partition_id, offset in found.items())
