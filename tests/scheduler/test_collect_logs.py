"""Records that logs need not keep are collected, and what deleted logs leave."""

from __future__ import annotations

from datetime import timedelta

import pytest

from queuegate.scheduler import sweeps
from queuegate.scheduler.sweeps import remove_records, retire_records
from queuegate.storage.database import Database
from queuegate.storage.logs import stored_logs, stored_records
from queuegate.storage.model import LogPartition, LogRetention, NewLogRecord, ReadRange, StoredLog
from tests.scheduler.conftest import ACCOUNT, NOON, REGION, Store

HOUR = 3600
ROUND = 10_000


class Records:
    """A log, what is published to it and what its groups have done."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.database: Database = store.database
        self.now = store.clock.now
        self.log: StoredLog
        self.partitions: list[LogPartition]

    async def make(self, settings: LogRetention, keys: str = "a") -> None:
        async with self.database.transaction() as tx:
            log = await stored_logs.insert(tx, NOON, (ACCOUNT, REGION), "orders", None, settings)
            assert log is not None
            self.log = log
            self.partitions = await stored_logs.make_partitions(tx, log.log_id, [*keys])

    async def publish(self, count: int, *, hours_ago: float = 0, number: int = 0) -> None:
        """Records of a byte each."""
        new = NewLogRecord(self.partitions[number].partition_id, b"x")
        async with self.database.transaction() as tx:
            await stored_records.append(tx, NOON - timedelta(hours=hours_ago), [new] * count)

    async def make_group(self, *watermarks: int | None) -> None:
        """With its watermark in each partition; None: it never looked at it."""
        async with self.database.transaction() as tx:
            group_id = await tx.fetchval(
                "INSERT INTO log_groups (log_id, group_name, created_at, start_at)"
                " VALUES ($1, gen_random_uuid()::text, $2, '-infinity') RETURNING group_id",
                self.log.log_id,
                NOON,
            )
            for partition, watermark in zip(self.partitions, watermarks, strict=True):
                if watermark is not None:
                    await tx.execute(
                        "INSERT INTO log_positions (group_id, partition_id, number, watermark)"
                        " VALUES ($1, $2, $3, $4)",
                        group_id,
                        partition.partition_id,
                        partition.number,
                        watermark,
                    )

    async def retire(self) -> int:
        return await retire_records.job(self.database, self.now).run_round(ROUND)

    async def remove(self) -> int:
        """Run the job to its end and return how many rows of records remain."""
        job = remove_records.job(self.database, self.now)
        rounds = 0
        while await job.run_round(ROUND):
            rounds += 1
            assert rounds < 100
        return await self.store.number("SELECT count(*) FROM log_records")

    async def kept(self, number: int = 0) -> list[int]:
        """The offsets of a partition's records."""
        wanted = ReadRange(self.partitions[number].partition_id, 0, 1_000_000)
        async with self.database.transaction() as tx:
            [found] = await stored_records.read(
                tx, [wanted], most_records=10_000, most_bytes=1 << 30
            )
        assert found is not None
        return [record.offset for record in found.records]

    async def held(self) -> tuple[int, int]:
        """(records, bytes), as the log says."""
        async with self.database.transaction() as tx:
            [found] = await stored_logs.count(tx, [self.log.log_id])
        return found.record_count, found.byte_count


@pytest.fixture
def log(store: Store) -> Records:
    return Records(store)


async def test_what_nobody_reads_stays(log: Records) -> None:
    await log.make(LogRetention(retain_consumed_seconds=0))
    await log.publish(3, hours_ago=1_000)
    assert await log.retire() == 0
    await log.make_group(None)
    assert await log.retire() == 0
    assert await log.kept() == [0, 1, 2]


async def test_what_every_group_has_read_goes_after_a_while(log: Records) -> None:
    """Collection never passes the watermark of the slowest group."""
    await log.make(LogRetention(retain_consumed_seconds=HOUR), "ab")
    await log.publish(4, hours_ago=2)
    await log.publish(4, hours_ago=0.5)
    await log.publish(4, hours_ago=2, number=1)
    await log.make_group(7, 2)
    await log.make_group(5, None)
    assert await log.retire() == 4
    assert (await log.kept(), await log.kept(1)) == ([4, 5, 6, 7], [0, 1, 2, 3])
    log.store.clock.instant = NOON + timedelta(hours=1)
    assert await log.retire() == 2
    assert await log.kept() == [6, 7]
    assert await log.held() == (6, 6)
    assert await log.remove() == 6


async def test_consumed_records_stay_if_that_is_no_reason(log: Records) -> None:
    await log.make(LogRetention(retain_consumed_seconds=None))
    await log.publish(4, hours_ago=1_000)
    await log.make_group(3)
    assert await log.retire() == 0


async def test_what_is_too_old_goes_whoever_has_read_it(log: Records) -> None:
    await log.make(LogRetention(max_age_seconds=HOUR))
    await log.publish(3, hours_ago=2)
    await log.publish(2, hours_ago=0.9)
    await log.make_group(None)
    assert await log.retire() == 3
    assert await log.kept() == [3, 4]
    assert await log.retire() == 0
    assert await log.remove() == 2


async def test_each_partition_gives_its_share_of_what_is_too_much(log: Records) -> None:
    await log.make(LogRetention(max_bytes=20), "ab")
    await log.publish(30)
    await log.publish(10, number=1)
    assert await log.retire() == 20
    assert (await log.kept(), await log.kept(1)) == ([*range(15, 30)], [*range(5, 10)])
    assert await log.held() == (20, 20)
    assert await log.retire() == 0


async def test_many_records_go_in_steps(log: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "_RECORDS_OF_EACH", 3)
    monkeypatch.setattr(sweeps, "_RETIRED_AT_ONCE", 2)
    monkeypatch.setattr(sweeps, "_PARTITIONS_PER_LOOK", 3)
    monkeypatch.setattr(sweeps, "_REMOVED_OF_EACH", 4)
    monkeypatch.setattr(sweeps, "_SWEPT_AT_ONCE", 3)
    await log.make(LogRetention(max_age_seconds=HOUR), "abcdefgh")
    for number in range(8):
        await log.publish(number + 1, hours_ago=2, number=number)
        await log.publish(1, number=number)
    assert await log.retire() == sum(range(9))
    assert await log.held() == (8, 8)
    assert await log.remove() == 8
    assert [await log.kept(number) for number in range(8)] == [[number + 1] for number in range(8)]


async def test_gaps_are_counted_with_what_goes(log: Records) -> None:
    await log.make(LogRetention(max_age_seconds=HOUR))
    await log.publish(4, hours_ago=2)
    await log.publish(3)
    for offset in (1, 5):
        async with log.database.transaction() as tx:
            assert await stored_records.delete(tx, log.partitions[0].partition_id, offset)
    assert await log.held() == (5, 5)
    assert await log.retire() == 3
    assert await log.held() == (2, 2)
    assert await log.kept() == [4, 6]


async def test_nothing_is_left_of_a_deleted_log(log: Records) -> None:
    await log.make(LogRetention(), "abc")
    for number in range(2):
        await log.publish(5, number=number)
    await log.make_group(1, 2, None)
    async with log.database.transaction() as tx:
        await stored_logs.delete(tx, NOON, log.log.log_id)
    assert await log.remove() == 0
    for table in ("logs", "log_partitions", "log_groups", "log_positions", "log_subscribers"):
        assert await log.store.number(f"SELECT count(*) FROM {table}") == 0, table


async def test_a_purged_log_is_swept(log: Records) -> None:
    await log.make(LogRetention())
    await log.publish(5)
    async with log.database.transaction() as tx:
        assert await stored_logs.purge(tx, log.log.log_id) == 5
    await log.publish(2)
    assert await log.remove() == 2
    assert await log.kept() == [5, 6]
