"""Archives keep what their queues say, and no longer."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from queuegate.gateway.operations.topics.fan_out import copier
from queuegate.scheduler import all_workers, sweeps
from queuegate.scheduler.replay import ReplayCallbacks
from queuegate.scheduler.sweeps import collect_archives
from queuegate.scheduler.worker import IdleProbe, OneClock, Worker
from queuegate.storage.queue_model import Queue
from queuegate.storage.queues import archives, stored_queues
from tests.scheduler.conftest import NOON, StillClock, Store

ROUND = 1_000
KEPT = "SELECT count(*) FROM message_archive WHERE queue_id = $1"


async def keep(store: Store, queue: Queue, days: int | None, *, on: bool = True) -> None:
    async with store.database.transaction() as tx:
        await stored_queues.set_archiving(tx, queue.queue_id, on, days)


async def test_what_is_older_than_its_queue_keeps_it_goes(store: Store, clock: StillClock) -> None:
    made = [await store.make_queue(name) for name in ("short", "long", "forever", "off")]
    for queue, days in zip(made, (2, 30, None, 2), strict=True):
        await store.archive(queue, 48, days_ago=1)
        await keep(store, queue, days, on=queue is not made[3])
    job = collect_archives.job(store.database, clock.now)
    # Messages an hour apart, from two days and 23 hours ago to one day ago.
    assert await job.run_round(ROUND) == 2 * 23
    assert await job.run_round(ROUND) == 0
    assert [await store.number(KEPT, one.queue_id) for one in made] == [25, 48, 48, 25]
    clock.instant = NOON + timedelta(days=31)
    assert await job.run_round(ROUND) == 25 + 48 + 25
    assert [await store.number(KEPT, one.queue_id) for one in made] == [0, 0, 48, 0]


async def test_it_is_among_the_workers(store: Store, clock: StillClock) -> None:
    workers = all_workers(
        IdleProbe(store.database),
        OneClock(clock.now),
        lambda _queue_id, _count: None,
        ReplayCallbacks(copier),
    )
    assert collect_archives.name in {one.job.name for one in workers}


async def test_it_goes_in_rounds(store: Store, clock: StillClock) -> None:
    queue = await store.make_queue()
    await keep(store, queue, 1)
    await store.archive(queue, 5, days_ago=2)
    job = collect_archives.job(store.database, clock.now)
    assert [await job.run_round(2) for _ in range(4)] == [2, 2, 1, 0]


async def test_archives_of_deleted_and_forgotten_queues_go(store: Store, clock: StillClock) -> None:
    deleted, forgotten, live = [await store.make_queue(name) for name in ("a", "b", "c")]
    for queue in (deleted, forgotten, live):
        await store.archive(queue, 3)
    await store.delete_queue(deleted)
    async with store.database.transaction() as tx:
        await tx.execute("DELETE FROM queues WHERE queue_id = $1", forgotten.queue_id)
    assert await collect_archives.job(store.database, clock.now).run_round(ROUND) == 6
    assert await store.number(KEPT, live.queue_id) == 3


async def test_all_of_many_archives_are_looked_at(
    store: Store, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps, "_FOUND_PER_PAGE", 5)
    async with store.database.transaction() as tx:
        await tx.execute(
            "INSERT INTO message_archive (queue_id, sequence, archived_at, sent_at, receive_count,"
            " message_id, sender_id, body) SELECT n, 1, now(), now(), 1, gen_random_uuid(), '', ''"
            " FROM generate_series(1, 12) AS n"
        )
    assert await collect_archives.job(store.database, clock.now).run_round(ROUND) == 12


async def test_collectors_do_not_get_in_each_others_way(store: Store, clock: StillClock) -> None:
    queue = await store.make_queue()
    await keep(store, queue, 1)
    await store.archive(queue, 30, days_ago=3)
    before = NOON - timedelta(days=1)
    async with store.database.transaction() as tx:
        held = await archives.remove_outdated(
            tx, archives.Outdated(queue.queue_id, before), limit=10
        )
        assert held == 10
        assert await Worker(collect_archives.job(store.database, clock.now)).run_once() == 20
    await store.archive(queue, 300, days_ago=3)
    jobs = [collect_archives.job(store.database, clock.now) for _ in range(4)]
    assert sum(await asyncio.gather(*(job.run_round(ROUND) for job in jobs))) == 300
    assert await store.number(KEPT, queue.queue_id) == 0
