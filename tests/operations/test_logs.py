"""Logs: making, changing and ending them, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from queuegate.gateway.operations.access.authorization import PUBLISH_RECORDS, find_log
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.logs.log_records import (
    ReadLimits,
    RecordRange,
    RecordToPublish,
    delete_record,
    offsets_at,
    publish_records,
    read_record,
    read_records,
)
from queuegate.gateway.operations.logs.logs import (
    change_log,
    counts,
    create_log,
    delete_log,
    list_logs,
    partitions_numbered,
    purge_log,
)
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.storage.model import LogRetention, StoredLog
from queuegate.storage.storage_errors import (
    LogDoesNotExist,
    LogExists,
    LogNameInvalid,
    PartitionDoesNotExist,
    RecordDoesNotExist,
    RecordInvalid,
    TooManyPartitions,
)
from tests.operations.world import TestClock, World

READ = "log:ReadRecords"


async def publish(
    engine: Engine, caller: Caller, *payloads: str, key: str = "a", record_id: str | None = None
) -> list[int]:
    """The offsets of new records in the log `orders`."""
    some = [RecordToPublish(key, payload.encode(), record_id) for payload in payloads]
    return (await publish_records(engine, caller, PUBLISH_RECORDS, "orders", some)).offsets


async def make(engine: Engine, caller: Caller, **settings: int | None) -> StoredLog:
    return (await create_log(engine, caller, "orders", None, LogRetention(**settings))).log


async def payloads(engine: Engine, log: StoredLog, *numbers: int) -> list[list[bytes]]:
    """Read the payloads of each partition."""
    wanted = [RecordRange(number, 0, 1_000) for number in numbers or (0,)]
    found = await read_records(engine, log, wanted, ReadLimits(1_000, 1_000_000))
    return [[record.payload for record in one.records] for one in found]


async def test_logs_and_records_that_cannot_be_made(world: World) -> None:
    await make(world.engine, world.caller)
    with pytest.raises(LogExists):
        await create_log(world.engine, world.caller, "orders", 4, LogRetention())
    with pytest.raises(LogNameInvalid):
        await create_log(world.engine, world.caller, "a b", None, LogRetention())
    with pytest.raises(RecordInvalid):
        await publish(world.engine, world.caller, "1", key="x" * 257)


async def test_logs_are_listed_by_name(engine: Engine, caller: Caller) -> None:
    for name in ("b", "a-1", "a-2", "a_3", "A"):
        await create_log(engine, caller, name, None, LogRetention())
    found, has_more = await list_logs(engine, caller, prefix="a", after="a-1", limit=1)
    assert ([log.name for log in found], has_more) == (["a-2"], True)
    found, has_more = await list_logs(engine, caller, prefix="", after="", limit=9)
    assert ([log.name for log in found], has_more) == (["A", "a-1", "a-2", "a_3", "b"], False)
    other = replace(caller, account_id="999999999999")
    assert (await list_logs(engine, other, prefix="", after="", limit=9))[0] == []


async def test_a_log_says_what_it_holds(engine: Engine, caller: Caller, clock: TestClock) -> None:
    log = await make(engine, caller)
    assert await counts(engine, [log]) == [(0, 0, 0, None, 0)]
    await publish(engine, caller, "12", "345")
    oldest = clock.fixed
    clock.move_on(5)
    await publish(engine, caller, "6", key="b")
    assert await counts(engine, [log]) == [(2, 3, 6, oldest, 0)]


async def test_a_purged_log_goes_on_where_it_was(engine: Engine, caller: Caller) -> None:
    log = await make(engine, caller)
    await publish(engine, caller, "1", "2", record_id=None)
    await publish(engine, caller, "3", key="b", record_id="x")
    assert await purge_log(engine, log) == 3
    assert await purge_log(engine, log) == 0
    assert await publish(engine, caller, "4") == [2]
    # Its id went with it.
    assert await publish(engine, caller, "5", key="b", record_id="x") == [1]
    assert await payloads(engine, log, 0, 1) == [[b"4"], [b"5"]]
    assert (await counts(engine, [log]))[0][:3] == (2, 2, 2)


async def test_a_deleted_log_is_gone_and_its_name_is_free(engine: Engine, caller: Caller) -> None:
    await publish(engine, caller, "1")
    log = await find_log(engine, caller, READ, "orders")
    await delete_log(engine, log)
    for question in (
        delete_log(engine, log),
        change_log(engine, log, lambda _: LogRetention()),
        find_log(engine, caller, READ, "orders"),
    ):
        with pytest.raises(LogDoesNotExist):
            await question
    assert await publish(engine, caller, "2") == [0]
    again = await find_log(engine, caller, READ, "orders")
    assert again.log_id != log.log_id
    assert await payloads(engine, again) == [[b"2"]]


async def test_a_log_that_went_elsewhere_is_made_again(engine: Engine, caller: Caller) -> None:
    """By another process, whose notification has not arrived: what is cached is wrong."""
    for record_id in (None, "x"):
        await publish(engine, caller, "1", record_id=record_id)
        log = await find_log(engine, caller, READ, "orders")
        kept = dict(engine.logs.by_key(log))
        await delete_log(engine, log)
        engine.logs._keep(log)
        engine.logs.keep_partitions(log, kept.values())
        with pytest.raises(LogDoesNotExist):
            await payloads(engine, log)
        engine.logs._keep(log)
        engine.logs.keep_partitions(log, kept.values())
        assert await publish(engine, caller, "2", record_id=record_id) == [0]


async def test_records_need_a_partition_that_is_there(engine: Engine, caller: Caller) -> None:
    log = await make(engine, caller)
    await publish(engine, caller, "1")
    for question in (
        partitions_numbered(engine, log, [0, 7]),
        read_records(engine, log, [RecordRange(7, 0, 1)], ReadLimits(1, 1)),
        delete_record(engine, log, 7, 0),
        offsets_at(engine, log, [7], log.created_at),
    ):
        with pytest.raises(PartitionDoesNotExist):
            await question
    with pytest.raises(RecordDoesNotExist):
        await read_record(engine, log, 0, 1)
    with pytest.raises(RecordDoesNotExist):
        await delete_record(engine, log, 0, 1)


async def test_keys_have_only_so_many_partitions(engine: Engine, caller: Caller) -> None:
    engine.limits = replace(engine.limits, log_partitions=3)

    async def publish_to(keys: Sequence[str]) -> list[int]:
        some = [RecordToPublish(key, b"") for key in keys]
        return (await publish_records(engine, caller, PUBLISH_RECORDS, "orders", some)).offsets

    await publish_to("ab")
    with pytest.raises(TooManyPartitions):
        await publish_to("acd")
    assert await publish_to("abc") == [1, 1, 0]


async def test_an_offset_is_found_for_a_time(world: World) -> None:
    log = await make(world.engine, world.caller)
    assert world.clock.fixed is not None
    start = world.clock.fixed
    for number in range(10):
        await publish(world.engine, world.caller, str(number), str(number))
        world.clock.move_on(10)
    await publish(world.engine, world.caller, "x", key="b")
    await delete_record(world.engine, log, 0, 10)
    for seconds, offsets in (
        (-5, (0, 0)),
        (0, (0, 0)),
        (1, (2, 0)),
        # What was there is gone: from there, the next one comes first.
        (45, (10, 0)),
        (50, (10, 0)),
        (90, (18, 0)),
        (91, (20, 0)),
        (101, (20, 1)),
    ):
        at = start + (world.clock.fixed - start) * (seconds / 100)
        found = await offsets_at(world.engine, log, None, at)
        assert found == [*enumerate(offsets)], seconds
    assert await offsets_at(world.engine, log, [1], start) == [(1, 0)]


async def test_time_never_goes_back_within_a_partition(world: World) -> None:
    await publish(world.engine, world.caller, "1")
    world.clock.move_on(-60)
    await publish(world.engine, world.caller, "2")
    log = await find_log(world.engine, world.caller, READ, "orders")
    [found] = await read_records(world.engine, log, [RecordRange(0, 0, 9)], ReadLimits(9, 9))
    first, second = found.records
    assert first.published_at == second.published_at
