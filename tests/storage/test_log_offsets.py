"""Readers of an offset can read every earlier offset, however many writers there are.

Two gateways append at once, each on its connection, in flushes of very different length, while
a reader follows. The same test without the lock on the partition has to fail: with offsets from a
sequence, as an AUTO_INCREMENT would give them, a short transaction commits before a long one that
has drawn lower offsets, and a reader in between never sees those.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest

from queuegate.storage.database import Database
from queuegate.storage.logs import stored_logs, stored_records
from queuegate.storage.logs.stored_records import Append, AppendLane
from queuegate.storage.model import Appended, LogRetention, NewLogRecord, ReadRange
from tests.storage.fifo_queue import Replied

_FLUSHES = 40
_LONG = 300
_ATTEMPTS = 50
_BEGIN = "advanced AS MATERIALIZED ("
_END = "), written AS ("
# A block of offsets for each flush, which nobody waits for, and then how far readers may go.
_WITHOUT_THE_LOCK = """advanced AS MATERIALIZED (
  SELECT n.partition_id, nextval('unlocked_offsets') AS first_offset, clock.now AS last_published_at
  FROM clock, unnest($2::bigint[], $3::int[], $4::bigint[])
    AS n (partition_id, record_count, byte_count)
), told AS (
  UPDATE log_partitions AS p SET next_offset = greatest(p.next_offset, a.first_offset + 1000)
  FROM advanced AS a WHERE p.partition_id = a.partition_id
"""


class Gateways:
    """Two that append to one partition, and whoever reads it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.lanes = [AppendLane(database, lambda: None) for _ in range(2)]
        self.partition_id = 0
        self._names = itertools.count()

    async def open(self) -> None:
        async with self.database.transaction() as tx:
            log = await stored_logs.insert(tx, None, ("1", "r"), "orders", None, LogRetention())
            assert log is not None
            [partition] = await stored_logs.make_partitions(tx, log.log_id, ["a"])
        self.partition_id = partition.partition_id

    async def append(self, lane: AppendLane, count: int, *, has_ids: bool) -> list[int]:
        new = [
            NewLogRecord(
                self.partition_id, b"x" * 200, record_id=str(next(self._names)) if has_ids else None
            )
            for _ in range(count)
        ]
        done: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        lane.lane.submit(Append("", new, Replied(done), 0, is_plain=not has_ids))
        return (await done).offsets

    async def write(self, lane: AppendLane, count: int, *, with_ids: bool) -> list[int]:
        """The offsets of what one gateway appended."""
        offsets: list[int] = []
        for number in range(_FLUSHES * (1 if count == _LONG else 5)):
            offsets += await self.append(lane, count, has_ids=with_ids and number % 3 == 0)
        return offsets

    async def follow(self, done: asyncio.Event) -> list[int]:
        """The offsets that somebody sees who always goes on where what was there ended."""
        seen: list[int] = []
        place = 0
        while True:
            is_last = done.is_set()
            async with self.database.transaction() as tx:
                [found] = await stored_records.read(
                    tx,
                    [ReadRange(self.partition_id, place, 1 << 40)],
                    most_records=100_000,
                    most_bytes=1 << 30,
                )
            assert found is not None
            seen += [record.offset for record in found.records]
            place = found.next_offset
            if is_last:
                return seen

    async def run(self, *, with_ids: bool) -> tuple[list[int], list[int]]:
        """The offsets that were appended, and those that the follower saw."""
        done = asyncio.Event()
        follower = asyncio.create_task(self.follow(done))
        written = await asyncio.gather(
            *[
                self.write(lane, count, with_ids=with_ids)
                for lane, count in zip(self.lanes, (_LONG, 1), strict=True)
            ]
        )
        done.set()
        return sorted(itertools.chain(*written)), await follower


@pytest.fixture
async def gateways(database: Database) -> AsyncIterator[Gateways]:
    made = Gateways(database)
    await made.open()
    yield made
    for lane in made.lanes:
        await lane.close()


@pytest.mark.parametrize("with_ids", [False, True], ids=["plain", "with-ids"])
async def test_no_offset_is_skipped(gateways: Gateways, with_ids: bool) -> None:
    written, seen = await gateways.run(with_ids=with_ids)
    assert written == [*range(_FLUSHES * (_LONG + 5))]
    assert seen == written


async def test_without_the_lock_offsets_are_skipped(
    own_database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the test above would not notice."""
    statement = stored_records._APPEND
    begin, end = statement.index(_BEGIN), statement.index(_END)
    monkeypatch.setattr(
        stored_records, "_APPEND", statement[:begin] + _WITHOUT_THE_LOCK + statement[end:]
    )
    database = Database(own_database_dsn)
    await database.open()
    gateways = Gateways(database)
    async with database.transaction() as tx:
        await tx.execute(
            "CREATE SEQUENCE unlocked_offsets INCREMENT BY 1000 MINVALUE 0 START WITH 0"
        )
    await gateways.open()
    written: set[int] = set()
    missed: set[int] = set()
    for _ in range(_ATTEMPTS):
        more, seen = await gateways.run(with_ids=False)
        written.update(more)
        missed = written.difference(seen)
        if missed:
            break
    for lane in gateways.lanes:
        await lane.close()
    await database.close()
    assert missed
