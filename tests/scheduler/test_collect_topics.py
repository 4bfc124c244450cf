"""Overdue confirmations, deduplication ids and old archives disappear."""

from __future__ import annotations

from datetime import timedelta

import pytest

from queuegate.gateway.operations.topics.fan_out import copier
from queuegate.scheduler import all_workers, sweeps
from queuegate.scheduler.replay import ReplayCallbacks
from queuegate.scheduler.sweeps import forget_topic_deduplication, remove_unconfirmed, trim_archives
from queuegate.scheduler.worker import IdleProbe, OneClock
from queuegate.storage.model import Topic
from queuegate.storage.topics import stored_topics
from tests.scheduler.conftest import ACCOUNT, NOON, REGION, StillClock, Store


async def make_topic(store: Store, name: str = "news.fifo", **attributes: str) -> Topic:
    new = stored_topics.NewTopic(
        ACCOUNT, REGION, name, name.endswith(".fifo"), attributes, {}, None
    )
    async with store.database.transaction() as tx:
        topic = await stored_topics.create(tx, NOON, new)
    assert topic is not None
    return topic


async def archive(store: Store, topic_id: int, count: int) -> None:
    """One message a minute, from noon on."""
    async with store.database.transaction() as tx:
        await tx.execute(
            "INSERT INTO topic_archive SELECT $1, n, $2::timestamptz + n * interval '1 minute',"
            " gen_random_uuid(), 'g', 'd', NULL, 'm', NULL, 's', $2, 0"
            " FROM generate_series(1, $3::int) AS n",
            topic_id,
            NOON,
            count,
        )


ARCHIVED = "SELECT count(*)::int FROM topic_archive WHERE topic_id = $1"


async def test_archive_keeps_its_days(store: Store, clock: StillClock) -> None:
    topic = await make_topic(store, ArchivePolicy='{"MessageRetentionPeriod":"1"}')
    await archive(store, topic.topic_id, 10)
    job = trim_archives.job(store.database, clock.now)
    assert await job.run_round(100) == 0

    clock.instant = NOON + timedelta(days=1, minutes=7)
    assert [await job.run_round(5) for _ in range(3)] == [5, 2, 0]
    assert await store.number(ARCHIVED, topic.topic_id) == 3


@pytest.mark.parametrize("how", ["deactivated", "deleted"])
async def test_archive_without_a_policy_goes(store: Store, clock: StillClock, how: str) -> None:
    topic = await make_topic(store, ArchivePolicy='{"MessageRetentionPeriod":"1"}')
    await archive(store, topic.topic_id, 10)
    async with store.database.transaction() as tx:
        if how == "deleted":
            await stored_topics.delete(tx, topic.topic_id)
        else:
            await stored_topics.set_attributes(tx, topic.topic_id, {})
    job = trim_archives.job(store.database, clock.now)

    assert [await job.run_round(6) for _ in range(3)] == [6, 4, 0]


async def test_all_of_many_archives_are_gone_through(
    store: Store, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps, "_FOUND_PER_PAGE", 5)
    async with store.database.transaction() as tx:
        await tx.execute(
            "INSERT INTO topic_archive SELECT n, n, $1, gen_random_uuid(), 'g', 'd', NULL, 'm',"
            " NULL, 's', $1, 0 FROM generate_series(1, 12) AS n",
            NOON,
        )
    assert await trim_archives.job(store.database, clock.now).run_round(100) == 12


async def test_deduplication_ids_are_forgotten_after_their_time(
    store: Store, clock: StillClock
) -> None:
    async with store.database.transaction() as tx:
        await tx.execute(
            "INSERT INTO topic_dedup SELECT 1, gen_random_uuid(), gen_random_uuid(), n,"
            " $1::timestamptz + n * interval '1 second' FROM generate_series(1, 10) AS n",
            NOON,
        )
    job = forget_topic_deduplication.job(store.database, clock.now)
    assert await job.run_round(100) == 0

    clock.instant = NOON + timedelta(seconds=4)
    assert [await job.run_round(3) for _ in range(3)] == [3, 1, 0]


async def test_subscriptions_nobody_confirmed_in_time_are_removed(
    store: Store, clock: StillClock
) -> None:
    topic = await make_topic(store, "news")
    async with store.database.transaction() as tx:
        await tx.execute(
            "INSERT INTO subscriptions (subscription_id, topic_id, protocol, endpoint, account_id,"
            " region, is_confirmed, was_authenticated, token, token_expires_at, created_at)"
            " SELECT gen_random_uuid(), $1, 'http', 'http://' || n, $2, $3, n > 5, false, n,"
            " CASE WHEN n <= 5 THEN $4::timestamptz + n * interval '1 day' END, $4"
            " FROM generate_series(1, 7) AS n",
            topic.topic_id,
            ACCOUNT,
            REGION,
            NOON,
        )
    job = remove_unconfirmed.job(store.database, clock.now)
    assert await job.run_round(10) == 0

    clock.instant = NOON + timedelta(days=3)
    assert await job.run_round(2) == 2
    assert await job.run_round(2) == 1
    async with store.database.transaction() as tx:
        assert await stored_topics.count_subscriptions(tx, clock.now(), topic.topic_id) == (2, 2)


def test_the_jobs_are_among_all_workers(store: Store, clock: StillClock) -> None:
    names = {
        worker.job.name
        for worker in all_workers(
            IdleProbe(store.database), OneClock(clock.now), lambda *_: None, ReplayCallbacks(copier)
        )
    }
    jobs = (remove_unconfirmed, forget_topic_deduplication, trim_archives)
    assert {job.name for job in jobs} <= names
