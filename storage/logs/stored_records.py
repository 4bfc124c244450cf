"""Records: the lane that appends them, and reads.

Offsets are dense and assigned under the lock of their partition, held until the commit: a reader
never sees an offset before a lower one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.database import SEND_PLANNER, Database
from queuegate.storage.lanes import ClockNow, Entry, Lane, Reply
from queuegate.storage.model import Appended, NewLogRecord, ReadRange, StoredRecord
from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Connection, Transaction


_SQL = load("logs/stored_records")
_APPEND = _SQL["append"].text
_APPEND_KNOWN = _SQL["append_known"].text
_READ_RANGES = _SQL["read_ranges"].text


class Append(Entry[Appended | None]):
    """The records of one call, appended all or none. The reply is None if the log is deleted."""

    __slots__ = ("is_plain", "log_arn", "records")

    def __init__(
        self,
        log_arn: str,
        records: list[NewLogRecord],
        reply: Reply[Appended | None],
        size_bytes: int,
        *,
        is_plain: bool,
    ) -> None:
        super().__init__(reply, size_bytes)
        self.log_arn = log_arn
        self.records = records
        self.is_plain = is_plain
        """The records have only a payload, a key and metadata."""

    def party(self) -> str:
        """Return the log."""
        return self.log_arn


class AppendLane:
    """One lane, which connects at its first entry."""

    def __init__(self, database: Database, clock_now: ClockNow) -> None:
        self._now = clock_now
        self.on_appended: Callable[[Iterable[int]], None] = lambda _: None
        """Called after the commit with the partitions that got records."""
        self.lane: Lane[Append] = Lane("append", database, self._flush, settings=SEND_PLANNER)

    async def close(self) -> None:
        """Finish the pending entries and close the connection."""
        await self.lane.close()

    async def _flush(self, connection: Connection, batch: list[Append]) -> list[Append]:
        now = self.lane.now_of(batch[0].log_arn, self._now)
        if len(batch) == 1:
            records = batch[0].records
        else:
            records = [record for entry in batch for record in entry.records]
        if False in [entry.is_plain for entry in batch]:
            appended = await append(connection, now, records)
            self.on_appended({record.partition_id for record in records})
        else:
            appended = await _append_plain(connection, now, records, self.on_appended)
        start = 0
        for entry in batch:
            end = start + len(entry.records)
            entry.done(_part(appended, start, end))
            start = end
        return []


class _Outcome(NamedTuple):
    """The result of appends. ``offsets`` are None if the partition is deleted."""

    offsets: list[int | None]
    duplicates: list[bool] | None


def _part(outcome: _Outcome, start: int, end: int) -> Appended | None:
    offsets: list[int] = []
    for offset in outcome.offsets[start:end]:
        if offset is None:
            return None
        offsets.append(offset)
    return Appended(offsets, outcome.duplicates and outcome.duplicates[start:end])


async def _append_plain(
    connection: Connection,
    now: datetime | None,
    records: list[NewLogRecord],
    on_appended: Callable[[Iterable[int]], None],
) -> _Outcome:
    counts: dict[int, int] = {}
    sizes: dict[int, int] = {}
    places: list[int] = []
    ids, payloads, keys, _, metadata, _, _ = zip(*records, strict=True)
    for partition_id, payload, text in zip(ids, payloads, metadata, strict=True):
        place = counts.get(partition_id, 0)
        places.append(place)
        counts[partition_id] = place + 1
        size = len(payload) if text is None else len(payload) + len(text.encode())
        sizes[partition_id] = sizes.get(partition_id, 0) + size
    ordered = sorted(counts)
    rows = await connection.fetch(
        _APPEND,
        now,
        ordered,
        [counts[one] for one in ordered],
        [sizes[one] for one in ordered],
        ids,
        places,
        payloads,
        _or_none(keys),
        _or_none(metadata),
    )
    firsts: dict[int, int] = dict(map(tuple, rows))
    on_appended(firsts)
    if len(firsts) == len(counts):
        return _Outcome([firsts[one] + place for one, place in zip(ids, places, strict=True)], None)
    offsets = [
        firsts[one] + place if one in firsts else None
        for one, place in zip(ids, places, strict=True)
    ]
    return _Outcome(offsets, None)


async def append(
    tx: Transaction, now: datetime | None, records: Sequence[NewLogRecord]
) -> _Outcome:
    """Append records of any kind within this transaction.

    A record whose id exists with the same key is not appended again; of equal ones given, the first
    counts. The offsets are None if the log is deleted: none of its records are appended.
    """
    chosen: list[NewLogRecord] = []
    places: list[int] = []
    repeats: list[bool] = []
    known: dict[tuple[int, str | None, str], int] = {}
    for record in records:
        place = len(chosen)
        if record.record_id is not None:
            identity = (record.partition_id, record.key, record.record_id)
            place = known.setdefault(identity, place)
        places.append(place)
        repeats.append(place < len(chosen))
        if place == len(chosen):
            chosen.append(record)
    ids, payloads, keys, record_ids, metadata, failures, only = zip(*chosen, strict=True)
    row = await tx.fetchrow(
        _APPEND_KNOWN,
        now,
        sorted(set(ids)),
        ids,
        payloads,
        keys,
        record_ids,
        metadata,
        failures,
        only,
    )
    assert row is not None
    offsets, duplicates = row
    return _Outcome(
        [offsets[place] for place in places],
        [is_repeat or duplicates[place] for place, is_repeat in zip(places, repeats, strict=True)],
    )


def _or_none(texts: Sequence[str | None]) -> Sequence[str | None] | None:
    """Return None for an array of only None."""
    return None if texts.count(None) == len(texts) else texts


class Read(NamedTuple):
    """The result of a range."""

    start_offset: int
    """The start of the partition's retained records: lower ones are deleted."""
    next_offset: int
    """The next offset of the partition."""
    records: list[StoredRecord]


async def read(
    tx: Transaction, ranges: Sequence[ReadRange], *, most_records: int, most_bytes: int
) -> list[Read | None]:
    """Return the records of each range in the order of their offsets; None: the partition is
    deleted.

    At most ``most_records`` and ``most_bytes``, but at least one record: a range cut short, and all
    ranges behind it, may have more. Records for one group alone are left out.
    """
    rows = await tx.fetch(
        _READ_RANGES,
        [one.partition_id for one in ranges],
        [one.from_offset for one in ranges],
        [one.to_offset for one in ranges],
        most_records,
        most_bytes,
    )
    found: list[Read | None] = [None] * len(ranges)
    mine: list[StoredRecord] = []
    last = 0
    new, kind = tuple.__new__, StoredRecord
    for place, offset, next_offset, *columns in rows:
        if next_offset is not None:
            found[place - 1] = Read(offset, next_offset, [])
            continue
        if place != last:
            at = found[place - 1]
            assert at is not None
            last, mine = place, at.records
        mine.append(new(kind, (offset, *columns)))
    return found


async def offsets_at(tx: Transaction, partition_ids: Sequence[int], at: datetime) -> dict[int, int]:
    """Return by partition the first offset published at ``at`` or later, or the next offset."""
    rows = await _SQL["offsets_at"].rows(tx, partition_ids, at)
    return dict(map(tuple, rows))


async def delete(tx: Transaction, partition_id: int, offset: int) -> bool:
    """Delete one record; others keep their offsets. Return False if there is none."""
    return await _SQL["delete_record"].value(tx, partition_id, offset) is not None


async def find_retirable(
    tx: Transaction, now: datetime | None, after: int, limit: int, *whose: object
) -> tuple[list[int], int | None]:
    """Return the next partitions whose oldest record may be retired, and the last one examined. The
    last one is None if there are no more. ``whose`` is the account filter."""
    row = await _SQL["find_retirable"].by_key.row(tx, now, after, limit, *whose)
    assert row is not None
    return row["partition_ids"], row["last_partition_id"]


async def lock_partitions(tx: Transaction, partition_ids: Collection[int]) -> None:
    """Lock these partitions against appends."""
    await _SQL["lock_partitions"].run(tx, partition_ids)


async def retire(
    tx: Transaction, now: datetime | None, partition_ids: Sequence[int], limit_each: int
) -> list[int]:
    """Retire at most ``limit_each`` records of each partition; return the non-zero counts."""
    await lock_partitions(tx, partition_ids)
    rows = await _SQL["retire"].rows(tx, now, partition_ids, limit_each)
    return [count for (count,) in rows]


class Unswept(NamedTuple):
    """Retired records of a partition."""

    partition_id: int
    from_offset: int
    to_offset: int


async def find_unswept(tx: Transaction, limit: int) -> list[Unswept]:
    """Return partitions with removable records."""
    return await _SQL["find_unswept"].all(tx, Unswept._make, limit)


async def sweep(tx: Transaction, unswept: Sequence[Unswept], limit_each: int) -> int:
    """Remove at most ``limit_each`` records of each partition, given in the order of ids; return
    the count. Also removes partitions of deleted logs after their last record."""
    partition_ids, from_offsets, to_offsets = zip(*unswept, strict=True)
    count: int = await _SQL["remove_records"].value(
        tx, partition_ids, from_offsets, to_offsets, limit_each
    )
    await _SQL["remove_partitions"].run(tx, partition_ids)
    return count


async def remove_logs(tx: Transaction, limit: int) -> int:
    """Remove deleted logs with nothing left; return the count."""
    return await _SQL["remove_logs"].value(tx, limit)
