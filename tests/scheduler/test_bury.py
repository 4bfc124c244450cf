"""Messages that were delivered often enough go to the dead-letter queue without a receiver."""

from __future__ import annotations

from datetime import timedelta

from queuegate.scheduler.delivery_limits import EnforceDeliveryLimits
from queuegate.storage.queries import AccountFilter
from queuegate.storage.queue_model import Counts, Queue
from queuegate.storage.queues import stored_queues
from tests.scheduler.conftest import ACCOUNT, NOON, REGION, StillClock, Store


class Burying:
    """The worker, and what it told of."""

    def __init__(self, store: Store, whose: AccountFilter | None = None) -> None:
        self.told: list[tuple[int, int]] = []
        self.job = EnforceDeliveryLimits(
            store.database,
            store.clock.now,
            lambda _, queue_id, count: self.told.append((queue_id, count)),
            lambda: whose or AccountFilter(),
        )

    async def round(self, rows: int = 5_000) -> int:
        return await self.job.run_round(rows)


async def make(store: Store, name: str = "orders", most: int | None = None) -> Queue:
    """A queue whose messages are dead after one delivery."""
    new = stored_queues.NewQueue(
        ACCOUNT, REGION, name, False, {}, {}, most_messages=most, max_deliveries=1
    )
    async with store.database.transaction() as tx:
        queue = await stored_queues.create(tx, store.clock.now(), new)
    assert queue is not None
    return queue


async def own(store: Store, queue: Queue) -> Queue | None:
    async with store.database.transaction() as tx:
        found = await stored_queues.find_by_id(tx, queue.queue_id)
        assert found is not None
        return await stored_queues.find_by_arn(tx, found.dead_letter_arn or "")


async def test_it_moves_what_nobody_receives_any_more(store: Store, clock: StillClock) -> None:
    queue, burying = await make(store), Burying(store)
    await store.send(queue, 3)
    await store.receive(queue, 2)
    clock.instant = NOON + timedelta(seconds=29)
    assert await burying.round() == 0
    assert await own(store, queue) is None
    clock.instant = NOON + timedelta(seconds=30)
    assert await burying.round() == 2
    dead = await own(store, queue)
    assert dead is not None
    assert burying.told == [(dead.queue_id, 2)]
    assert await store.counts(dead) == Counts(2, 0, 0)
    assert await store.counts(queue) == Counts(1, 0, 0)
    [first, _] = await store.receive(dead)
    assert first.receive_count == 2
    assert await burying.round() == 0


async def test_a_redrive_policy_alone_waits_for_a_receiver(store: Store, clock: StillClock) -> None:
    target = await store.make_queue("dead")
    policy = f'{{"deadLetterTargetArn":"{target.arn}","maxReceiveCount":1}}'
    queue = await store.make_queue("orders", RedrivePolicy=policy)
    await store.send(queue)
    await store.receive(queue)
    clock.instant = NOON + timedelta(seconds=60)
    assert await Burying(store).round() == 0
    assert await store.counts(queue) == Counts(1, 0, 0)


async def test_without_room_they_stay_until_there_is_some(store: Store, clock: StillClock) -> None:
    queue, burying = await make(store, most=2), Burying(store)
    for _ in range(2):
        await store.send(queue, 2)
        await store.receive(queue)
        assert clock.instant is not None
        clock.instant += timedelta(seconds=30)
        await burying.round()
    dead = await own(store, queue)
    assert dead is not None
    assert await store.counts(dead) == Counts(2, 0, 0)
    assert await store.counts(queue) == Counts(2, 0, 0)
    # One look at the room, and nothing is touched.
    assert await burying.round() == 1
    assert await store.consume(dead, 1) == 1
    assert await burying.round() == 2
    assert await store.counts(dead) == Counts(2, 0, 0)
    assert await store.counts(queue) == Counts(0, 1, 0)
    assert [count for _, count in burying.told] == [2, 1]


async def test_rounds_are_bounded_and_no_queue_waits_for_ever(
    store: Store, clock: StillClock
) -> None:
    made = [await make(store, name) for name in "abc"]
    for queue in made:
        await store.send(queue, 10)
        await store.receive(queue)
    clock.instant = NOON + timedelta(seconds=30)
    burying = Burying(store)
    assert await burying.round(5) == 10
    # The first queue has new ones: the others have their turn before.
    await store.send(made[0], 10)
    await store.receive(made[0])
    clock.instant = NOON + timedelta(seconds=60)
    assert [await burying.round(5) for _ in range(3)] == [10, 10, 10]
    assert [await store.counts(queue) for queue in made] == [Counts(0, 0, 0)] * 3


async def test_what_may_be_delivered_again_is_looked_at_once(
    store: Store, clock: StillClock
) -> None:
    """However many wait, and although all of them became visible in the same moment."""
    queue, burying = await make(store), Burying(store)
    async with store.database.transaction() as tx:
        await tx.execute("UPDATE queues SET max_deliveries = 2 WHERE queue_id = $1", queue.queue_id)
        await tx.execute(
            "INSERT INTO messages (queue_id, visible_at, sent_at, receive_count, message_id,"
            " sender_id, body) SELECT $1::int, $2::timestamptz, $2, 1 + n / 1100,"
            " gen_random_uuid(), '', '' FROM generate_series(1, 1100) AS n",
            queue.queue_id,
            NOON,
        )
    assert [await burying.round(500) for _ in range(3)] == [500, 500, 100]
    assert [count for _, count in burying.told] == [1]
    clock.instant = NOON + timedelta(seconds=10)
    assert await burying.round() == 1_099
    clock.instant = NOON + timedelta(seconds=20)
    assert await burying.round() == 0


async def test_accounts_are_seen_to_by_their_clocks(store: Store, clock: StillClock) -> None:
    queue = await make(store)
    await store.send(queue)
    await store.receive(queue)
    clock.instant = NOON + timedelta(seconds=30)
    assert await Burying(store, AccountFilter((ACCOUNT,))).round() == 0
    assert await Burying(store, AccountFilter(("other",), are_chosen=True)).round() == 0
    assert await Burying(store, AccountFilter((ACCOUNT,), are_chosen=True)).round() == 1


async def test_what_is_past_its_retention_is_no_dead_letter(
    store: Store, clock: StillClock
) -> None:
    queue = await make(store)
    await store.send(queue)
    await store.receive(queue)
    clock.instant = NOON + timedelta(days=4)
    assert await Burying(store).round() == 1
    assert await own(store, queue) is None


async def test_many_queues_are_looked_at_page_by_page(store: Store, clock: StillClock) -> None:
    async with store.database.transaction() as tx:
        await tx.execute(
            "INSERT INTO queues (account_id, region, queue_name, is_fifo, created_at, modified_at,"
            " max_deliveries) SELECT $1, $2, 'q' || n, false, $3, $3, 2"
            " FROM generate_series(1, 600) AS n",
            ACCOUNT,
            REGION,
            NOON,
        )
        await tx.execute(
            "INSERT INTO messages (queue_id, visible_at, sent_at, receive_count, message_id,"
            " sender_id, body) SELECT queue_id, $1::timestamptz, $1, 1, gen_random_uuid(), '', ''"
            " FROM queues WHERE queue_id % 5 = 0",
            NOON,
        )
    assert await Burying(store).round() == 120
