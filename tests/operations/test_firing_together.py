"""Many workers at once, and the loop that they run in: never twice for a time, never skipped."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from queuegate.gateway.configuration.settings import Settings
from queuegate.gateway.operations.queues.queue_cache import QueueCache, QueueName
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.runtime.poller import move_clocks
from queuegate.gateway.operations.schedules.dispatch import Dispatcher, run_now
from queuegate.gateway.process.background import workers_for
from queuegate.scheduler.schedule_worker import FireOptions, FireSchedules
from queuegate.scheduler.sweeps import remove_schedule_groups
from queuegate.storage import schedules
from queuegate.storage.database import Database
from queuegate.storage.queue_model import Queue
from queuegate.storage.storage_errors import Unavailable
from queuegate.storage.stored_clocks import ClockSetting, StoredClock
from tests.operations.conftest import MakeQueue
from tests.operations.schedule_store import ScheduleStore, after, once, queue_target
from tests.waiting import until_async, yield_turns

PATIENCE_SECONDS = 30


@contextlib.asynccontextmanager
async def running(worker: FireSchedules) -> AsyncIterator[FireSchedules]:
    worker.start()
    try:
        yield worker
    finally:
        await worker.stop()


async def fired(store: ScheduleStore) -> Counter[tuple[str, str]]:
    """Count the fires of each schedule for each time."""
    found: Counter[tuple[str, str]] = Counter()
    for row in await store.rows("messages"):
        header = json.loads(json.loads(row["attributes"])["_schedule"]["StringValue"])
        found[header["name"], header["scheduled_for"]] += 1
    return found


async def until_sent(store: ScheduleStore, count: int) -> None:
    """Return when so many messages were sent."""

    async def sent() -> int:
        async with store.engine.database.transaction() as tx:
            found: int = await tx.fetchval("SELECT count(*) FROM messages")
            return found

    await until_async(sent, lambda found: found >= count)


async def test_many_workers_fire_each_time_once(store: ScheduleStore, database_dsn: str) -> None:
    """Each worker has connections and caches of its own, as in a process of its own."""
    queue = await store.make_queue()
    for number in range(120):
        await store.add(f"s{number}", queue_target(queue, schedule_header=True))
    databases = [Database(database_dsn, max_connections=3) for _ in range(4)]
    workers = []
    for database in databases:
        await database.open()
        engine = replace(store.engine, database=database, queues=QueueCache(database))
        worker = FireSchedules(
            database,
            store.clock,
            FireOptions(batch_size=7),
            dispatch=Dispatcher(engine, ""),
            tally=engine.series.schedules,
        )
        workers.append(worker)

    async def work(worker: FireSchedules) -> None:
        await until_async(worker.run_once, lambda fired: not fired)
        await worker.stop()

    for minute in (1, 2, 3):
        store.at(60 * minute)
        await asyncio.gather(*[work(worker) for worker in workers])
    counts = await fired(store)
    times = [f"2026-11-21T12:0{minute}:00Z" for minute in (1, 2, 3)]
    assert counts == {(f"s{n}", time): 1 for n in range(120) for time in times}
    for database in databases:
        await database.close()


async def test_changes_meanwhile_lose_and_repeat_nothing(store: ScheduleStore) -> None:
    """Somebody rewrites the schedules all the time, with the times that they have."""
    queue = await store.make_queue()
    for number in range(30):
        await store.add(f"s{number}", queue_target(queue, schedule_header=True))
    ended = asyncio.Event()

    async def rewrite() -> int:
        place = (store.caller.account_id, store.caller.region)
        count = 0
        while not ended.is_set():
            async with store.engine.database.transaction() as tx:
                found = await schedules.lock(tx, *place, None, f"s{count % 30}")
                assert found is not None
                await schedules.replace(tx, None, found.schedule_id, found)
            count += 1
        return count

    rewriting = asyncio.create_task(rewrite())
    for minute in range(1, 6):
        store.at(60 * minute)
        async with asyncio.timeout(PATIENCE_SECONDS):
            left = 30
            while left:
                left -= await store.run(store.worker(batch_size=10))
    ended.set()
    assert await rewriting > 5
    counts = await fired(store)
    assert set(counts.values()) == {1}
    assert len(counts) == 30 * 5


async def test_the_loop_goes_on_until_nothing_is_due(store: ScheduleStore) -> None:
    queue = await store.make_queue()
    for number in range(25):
        await store.add(f"s{number}", queue_target(queue), timing=once(after(60)))
    store.at(60)
    async with running(store.worker(batch_size=10, poll_seconds=600.0)):
        await until_sent(store, 25)


async def test_the_loop_wakes_at_the_next_time(store: ScheduleStore) -> None:
    """On the real clock, and without a look in between."""
    store.clock.fixed = None
    time = datetime.now(UTC) + timedelta(seconds=0.6)
    target = queue_target(await store.make_queue())
    await store.add("s", target, timing=once(time), next_fire_at=time)
    async with running(store.worker(poll_seconds=600.0)):
        await until_sent(store, 1)
    [row] = await store.rows("messages")
    assert timedelta(0) <= row["sent_at"] - time < timedelta(seconds=5)
    assert await store.find("s") is None


async def test_the_loop_is_woken_by_a_change(store: ScheduleStore, make_queue: MakeQueue) -> None:
    """Through a notification of the database, as from another process."""
    queue = await make_queue()
    await store.engine.wakeups.start()
    worker = store.worker(poll_seconds=600.0)
    looked = asyncio.Event()
    worker.probe = lambda _: looked.set()
    store.engine.wakeups.on["schedules"] = worker.wake
    async with running(worker):
        await asyncio.wait_for(looked.wait(), PATIENCE_SECONDS)
        store.at(60)
        await store.add("s", queue_target(queue))
        await until_sent(store, 1)
    await store.engine.wakeups.stop()


async def test_the_loop_is_woken_by_a_moved_clock(store: ScheduleStore) -> None:
    store.clock.fixed = None
    time = datetime.now(UTC) + timedelta(hours=1)
    target = queue_target(await store.make_queue())
    await store.add("s", target, timing=once(time), next_fire_at=time)
    worker = store.worker(poll_seconds=600.0)
    looked = asyncio.Event()
    worker.probe = lambda _: looked.set()
    store.engine.wakeups.on["schedules"] = worker.wake
    async with running(worker):
        await asyncio.wait_for(looked.wait(), PATIENCE_SECONDS)
        move_clocks(store.engine, StoredClock(ClockSetting(3_601), {}, 1))
        await until_sent(store, 1)


async def test_the_loop_survives_bugs_and_a_database_that_is_away(
    store: ScheduleStore, make_queue: MakeQueue, database_dsn: str
) -> None:
    queue = await make_queue()
    await store.add("s", queue_target(queue))
    store.at(60)
    database = Database(database_dsn)
    worker = FireSchedules(
        database,
        store.clock,
        FireOptions(),
        dispatch=store.dispatcher,
        tally=store.engine.series.schedules,
    )
    async with running(worker):
        # Its pool is not open yet: nothing is available to it.
        await yield_turns()
        await database.open()
        await until_sent(store, 1)
    await database.close()


async def test_a_stopped_loop_fires_nothing(store: ScheduleStore, make_queue: MakeQueue) -> None:
    await store.add("s", queue_target(await make_queue()))
    store.at(60)
    worker = store.worker()
    worker.start(after_seconds=600)
    await worker.stop()
    assert await store.bodies() == []
    await worker.stop()


@pytest.mark.parametrize("enabled", [True, False])
async def test_workers_fire_schedules_where_settings_say_so(engine: Engine, enabled: bool) -> None:
    settings = Settings(schedule_enabled=enabled)
    names = [type(worker).__name__ for worker in workers_for(engine, settings)]
    assert ("FireSchedules" in names) is enabled


async def test_a_large_group_goes_bit_by_bit(store: ScheduleStore, make_queue: MakeQueue) -> None:
    place = (store.caller.account_id, store.caller.region)
    queue = await make_queue()
    async with store.engine.database.transaction() as tx:
        made = await schedules.create_group(tx, None, *place, "large")
        assert made is not None
        for number in range(1_100):
            new = store.new(f"s{number}", queue_target(queue), group_id=made.group_id)
            await schedules.create(tx, None, new)
    async with store.engine.database.transaction() as tx:
        await schedules.lock_group(tx, *place, "large")
        assert not await schedules.delete_group(tx, None, made.group_id)
        found = await schedules.find_group(tx, *place, "large")
        assert found is not None
        assert found.is_deleting
    job = remove_schedule_groups.job(store.engine.database, lambda: None)
    assert [await job.run_round(60) for _ in range(3)] == [60, 40, 0]
    async with store.engine.database.transaction() as tx:
        assert await schedules.find_group(tx, *place, "large") is None


async def test_one_connection_is_enough_for_all_lookups(
    store: ScheduleStore, make_queue: MakeQueue, database_dsn: str
) -> None:
    """Neither a round nor a manual run waits for a connection with the last one in hand."""
    queue = await make_queue()
    schedule = await store.add("s", queue_target(queue))
    narrow = Database(database_dsn, max_connections=1)
    await narrow.open()
    store.engine.database = narrow
    store.engine.queues = QueueCache(narrow)
    async with asyncio.timeout(8):
        assert await store.fire(60) == 1
        store.engine.queues.clear()
        runs = [run_now(store.engine, store.caller, schedule) for _ in range(5)]
        assert len(await asyncio.gather(*runs)) == 5
    assert len(await store.bodies()) == 6
    await narrow.close()


class Overtaken(QueueCache):
    """Before it looks anything up, somebody has taken the last connection to lock a schedule."""

    def __init__(self, database: Database, store: ScheduleStore) -> None:
        super().__init__(database)
        self._store = store
        self.waiting: list[asyncio.Task[object]] = []

    async def find_many(self, names: Iterable[QueueName]) -> dict[QueueName, Queue | None]:
        if not self.waiting:
            taken = asyncio.Event()
            self.waiting.append(asyncio.create_task(self._lock(taken)))
            await taken.wait()
        return await super().find_many(names)

    async def _lock(self, taken: asyncio.Event) -> object:
        caller = self._store.caller
        async with self._database.transaction() as tx:
            taken.set()
            return await schedules.lock(tx, caller.account_id, caller.region, None, "s")


async def test_who_waits_for_a_schedule_gives_its_connection_back(
    store: ScheduleStore, make_queue: MakeQueue, database_dsn: str
) -> None:
    """The round needs a connection to look things up, and whoever has it waits for the round."""
    await store.add("s", queue_target(await make_queue()))
    narrow = Database(database_dsn, max_connections=1)
    await narrow.open()
    overtaken = Overtaken(narrow, store)
    store.engine.queues = overtaken
    async with asyncio.timeout(8):
        assert await store.fire(60) == 1
    [waiting] = overtaken.waiting
    with pytest.raises(Unavailable):
        await waiting
    await narrow.close()


def test_a_gateway_that_fires_nothing_reads_no_expressions() -> None:
    # Until 3.11 orjson reads zoneinfo itself.
    text = (
        "import sys, orjson; before = {*sys.modules}; "
        "import queuegate.gateway.process.gateway_process; "
        "import queuegate.gateway.process.background; "
        "read = {*sys.modules} - before; "
        "sys.exit(bool({'queuegate.protocol.timing', 'zoneinfo'} & read))"
    )
    subprocess.run([sys.executable, "-c", text], check=True, timeout=PATIENCE_SECONDS)
