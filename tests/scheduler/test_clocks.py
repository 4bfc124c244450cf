"""Workers see to what is an account's by its clock, and to the rest by the common one."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from uuid import uuid4

from queuegate.gateway.operations.topics.fan_out import copier
from queuegate.scheduler import all_workers
from queuegate.scheduler.replay import ReplayCallbacks
from queuegate.scheduler.sweeps import collect_archives, expire
from queuegate.scheduler.worker import EachClock, IdleProbe, OneClock, earliest
from queuegate.storage.model import NewOutboxMessage
from queuegate.storage.queue_model import Queue
from queuegate.storage.queues import stored_queues
from queuegate.storage.topics import stored_outbox, stored_topics
from tests.scheduler.conftest import NOON, REGION, StillClock, Store

MOVED = "444455556666"


class Standing:
    """The clock of an account, where a test lets it stand."""

    is_frozen = False

    def __init__(self, instant: datetime) -> None:
        self.instant = instant

    def now(self) -> datetime:
        return self.instant


def clocks(clock: StillClock, **behind: float) -> OneClock:
    """The common clock, and that of the moved account so many seconds ahead."""
    found = OneClock(clock.now)
    found.accounts = {MOVED: Standing(NOON + timedelta(**behind))}
    return found


async def queue_of(store: Store, account_id: str, name: str, **attributes: str) -> Queue:
    new = stored_queues.NewQueue(
        account_id, REGION, name, name.endswith(".fifo"), attributes, {}, True, 1
    )
    async with store.database.transaction() as tx:
        queue = await stored_queues.create(tx, NOON, new)
    assert queue is not None
    return queue


async def test_retention_ends_by_the_clock_of_the_account(store: Store, clock: StillClock) -> None:
    plain = await store.make_queue("plain", MessageRetentionPeriod="60")
    moved = await queue_of(store, MOVED, "moved", MessageRetentionPeriod="60")
    for queue in (plain, moved):
        await store.send(queue, 3)
    ahead = EachClock(
        store.database, clocks(clock, seconds=60), "queues", partial(expire.job, store.database)
    )
    assert await ahead.run_round(100) == 3
    assert [(await store.counts(queue)).visible for queue in (plain, moved)] == [3, 0]

    await store.send(moved, 3)
    clock.instant = NOON + timedelta(hours=1)
    behind = EachClock(
        store.database, clocks(clock, seconds=1), "queues", partial(expire.job, store.database)
    )
    assert await behind.run_round(100) == 3
    assert await store.number("SELECT count(*) FROM messages") == 3


async def test_archives_are_kept_by_the_clock_of_the_account(
    store: Store, clock: StillClock
) -> None:
    plain, moved = [
        await queue_of(store, account_id, "q") for account_id in ("111122223333", MOVED)
    ]
    for queue in (plain, moved):
        await store.archive(queue, 1)
    job = EachClock(
        store.database,
        clocks(clock, days=2),
        "queues",
        partial(collect_archives.job, store.database),
    )
    assert await job.run_round(100) == 1
    kept = "SELECT count(*) FROM message_archive WHERE queue_id = $1"
    assert [await store.number(kept, queue.queue_id) for queue in (plain, moved)] == [1, 0]


async def test_every_worker_sees_to_accounts_apart(store: Store, clock: StillClock) -> None:
    await queue_of(store, MOVED, "q")
    async with store.database.transaction() as tx:
        await stored_topics.create(
            tx, NOON, stored_topics.NewTopic(MOVED, REGION, "t", False, {}, {}, None)
        )
        kept = (None, None, str(uuid4()), None, "body", None)
        sms = NewOutboxMessage(MOVED, REGION, "sms", "+15550100", "Notification", *kept)
        await stored_outbox.insert(tx, NOON, [sms])
    workers = all_workers(
        IdleProbe(store.database), clocks(clock, days=15), lambda *_: None, ReplayCallbacks(copier)
    )
    handled = {worker.job.name: await worker.run_once() for worker in workers}
    assert {name for name, count in handled.items() if count} == {"collect outbox"}


def test_what_only_tidies_up_goes_by_the_slowest_clock(clock: StillClock) -> None:
    assert earliest(OneClock(clock.now)) == NOON
    assert earliest(OneClock(lambda: None)) is None
    assert earliest(clocks(clock, seconds=1)) == NOON
    assert earliest(clocks(clock, seconds=-1)) == NOON - timedelta(seconds=1)
    database = OneClock(lambda: None)
    database.accounts = {MOVED: Standing(NOON - timedelta(days=36_500))}
    assert earliest(database) == NOON - timedelta(days=36_500)
