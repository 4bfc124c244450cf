"""Full target queues of messages without a sender: copies, schedules, moves, replays."""

from __future__ import annotations

import asyncio
import json
from uuid import UUID

import pytest

from queuegate.gateway.operations.queues import dead_letter_moves, queues, stored_messages
from queuegate.gateway.operations.queues.queues import Archiving, CreateQueue
from queuegate.gateway.operations.queues.stored_messages import ReplayArchive
from queuegate.gateway.operations.schedules.dispatch import run_now
from queuegate.scheduler import webhook_outcomes
from queuegate.scheduler.move_tasks import MoveMessages
from queuegate.scheduler.webhook_outcomes import FailedDelivery, no_answer
from queuegate.storage import schedules
from queuegate.storage.model import NewDelivery
from queuegate.storage.queue_model import Queue
from queuegate.storage.queues import depths
from queuegate.storage.storage_errors import QueueFull
from queuegate.storage.topics import web_hook_deliveries
from tests.operations.bounded import bounded, drain, fill, let_in, total, waiting_count
from tests.operations.schedule_store import ScheduleStore, queue_target
from tests.operations.topics_and_subscriptions import Sns
from tests.operations.world import World

RAW = {"RawMessageDelivery": "true"}


def redrive(queue: Queue) -> dict[str, str]:
    return {"RedrivePolicy": json.dumps({"deadLetterTargetArn": queue.arn})}


async def test_a_copy_for_a_full_queue_waits_until_there_is_room(world: World, sns: Sns) -> None:
    small, plain = await bounded(world, "small", 1), await world.make_queue("plain")
    topic = await sns.topic()
    for queue in (small, plain):
        await sns.subscribe(topic, queue.arn, **RAW)
    for text in "abc":
        await sns.publish(topic, text)
    assert await drain(world, plain, 10) == ["a", "b", "c"]
    assert (await total(world, small), await waiting_count(world)) == (1, 2)
    async with world.engine.database.transaction() as tx:
        shown = {one.name: one for one in await depths.depths(tx, world.clock.now(), 10)}
    assert (shown["small"].most_messages, shown["small"].waiting) == (1, 2)
    assert (shown["plain"].most_messages, shown["plain"].waiting) == (None, None)
    assert world.engine.series.queues[small.queue_id].sent == 1
    assert await let_in(world) == 0
    for text in "abc":
        assert await drain(world, small) == [text]
        # Who comes now comes behind those that wait.
        if text != "c":
            if text == "a":
                with pytest.raises(QueueFull):
                    await fill(world, small, "later")
            assert await let_in(world) == 1
    assert await waiting_count(world) == 0
    await fill(world, small, "later")


async def test_a_copy_for_a_full_queue_goes_to_the_dead_letter_queue(
    world: World, sns: Sns
) -> None:
    small, dead = await bounded(world, "small", 1), await bounded(world, "dead", 1)
    topic = await sns.topic()
    await sns.subscribe(topic, small.arn, **RAW, **redrive(dead))
    for text in "abc":
        await sns.publish(topic, text)
    # The dead-letter queue is full, too: the last one waits for its own queue.
    assert (await total(world, small), await total(world, dead)) == (1, 1)
    assert (await drain(world, dead), await drain(world, small)) == (["b"], ["a"])
    assert await let_in(world) == 1
    assert await drain(world, small) == ["c"]
    series = world.engine.series.queues
    assert (series[small.queue_id].sent, series[dead.queue_id].sent) == (1, 1)


async def test_an_envelope_that_waited_is_signed_when_it_is_received(
    world: World, sns: Sns
) -> None:
    small, topic = await bounded(world, "small", 1), await sns.topic()
    await sns.subscribe(topic, small.arn)
    await sns.publish(topic, "a", attributes={"k": {"DataType": "String", "StringValue": "ü"}})
    await sns.publish(topic, "b", attributes={"k": {"DataType": "String", "StringValue": "ü"}})
    await drain(world, small)
    assert await let_in(world) == 1
    [body] = await drain(world, small)
    envelope = json.loads(body)
    assert envelope["Message"] == "b"
    assert len(envelope["Signature"]) > 100
    assert envelope["MessageAttributes"]["k"]["Value"] == "ü"


async def test_no_copy_overtakes_its_group(world: World, sns: Sns) -> None:
    small = await bounded(world, "small.fifo", 2)
    topic = await sns.topic("news.fifo")
    await sns.subscribe(topic, small.arn, **RAW)

    async def publish(text: str) -> None:
        await sns.publish(topic, text, group_id="g", deduplication_id=text)

    for text in "abcd":
        await publish(text)
    assert await drain(world, small) == ["a"]
    # There is room, but not for those that come behind others.
    await publish("e")
    assert (await total(world, small), await waiting_count(world)) == (1, 3)
    seen = []
    while await waiting_count(world):
        await let_in(world)
        seen += await drain(world, small)
    seen += await drain(world, small, 10)
    assert seen == ["b", "c", "d", "e"]


async def test_what_waits_goes_when_its_queue_would_not_keep_it(world: World, sns: Sns) -> None:
    small, topic = await bounded(world, "small", 1), await sns.topic()
    await sns.subscribe(topic, small.arn, **RAW)
    await sns.publish(topic, "a")
    await sns.publish(topic, "b")
    world.clock.move_on(days=4)
    assert await let_in(world) == 1
    assert (await total(world, small), await waiting_count(world)) == (1, 0)


async def test_what_waits_goes_with_its_queue(world: World, sns: Sns) -> None:
    small, topic = await bounded(world, "small", 1), await sns.topic()
    await sns.subscribe(topic, small.arn, **RAW)
    await sns.publish(topic, "a")
    await sns.publish(topic, "b")
    await queues.delete_queue(world.engine, world.caller, small)
    assert await let_in(world) == 1
    assert await waiting_count(world) == 0


async def test_a_purge_takes_what_waits_along(world: World, sns: Sns) -> None:
    small, topic = await bounded(world, "small", 1), await sns.topic()
    await sns.subscribe(topic, small.arn, **RAW)
    for text in "abc":
        await sns.publish(topic, text)
    assert await queues.purge_queue(world.engine, world.caller, small) == 1
    assert (await let_in(world), await total(world, small)) == (0, 0)


async def test_publishes_to_full_queues_in_both_orders_do_not_wait_in_a_circle(
    world: World, sns: Sns
) -> None:
    """Straight, crossed, and through FIFO topics, whose groups are locked, too."""
    one, two = await bounded(world, "one.fifo", 3), await bounded(world, "two.fifo", 3)
    topics = [await sns.topic(f"{name}.fifo") for name in ("a", "b")]
    for topic, order in zip(topics, ((one, two), (two, one)), strict=True):
        for queue in order:
            await sns.subscribe(topic, queue.arn, **RAW)
    for topic in topics:
        await world.engine.topics.find(topic.account_id, topic.region, topic.name)

    async def publish(number: int) -> None:
        topic = topics[number % 2]
        await sns.publish(topic, str(number), group_id="g", deduplication_id=str(number))

    async def send(number: int) -> None:
        queue = (one, two)[number % 2]
        try:
            await world.send(queue, "x", group_id="g", deduplication_id=f"own-{number}")
        except QueueFull:
            return

    await asyncio.gather(*[publish(n) for n in range(40)], *[send(n) for n in range(40)])
    assert [await total(world, queue) for queue in (one, two)] == [3, 3]


async def test_a_schedule_with_a_full_queue_fails_alone(world: World, store: ScheduleStore) -> None:
    small, plain = await bounded(world, "small", 1), await world.make_queue("plain")
    await store.add("first", queue_target(small, "first"))
    await store.add("full", queue_target(small, "full"), failure_threshold=2)
    await store.add("plain", queue_target(plain, "plain"))
    assert await store.fire(60) == 3
    assert (await drain(world, plain), await drain(world, small)) == (["plain"], ["first"])
    assert (await store.get("first")).failure_count == 0
    full = await store.get("full")
    assert (full.failure_count, full.fired_count) == (1, 0)
    assert full.last_error is not None
    assert full.last_error.startswith("Queue 'small' is full")


async def test_times_that_were_missed_are_made_up_for_together_or_not_at_all(
    world: World, store: ScheduleStore
) -> None:
    small = await bounded(world, "small", 2)
    await store.add("s", queue_target(small), catchup=True)
    await store.fire(180)
    assert await total(world, small) == 0
    assert (await store.get("s")).failure_count == 1


async def test_an_invocation_is_repeated_until_there_is_room(
    world: World, store: ScheduleStore
) -> None:
    small = await bounded(world, "small", 1)
    await fill(world, small, "before")
    async with world.engine.database.transaction() as tx:
        place = (world.caller.account_id, world.caller.region)
        group = await schedules.ensure_default(tx, world.clock.now(), *place)
    await store.add("s", queue_target(small, "after"), group_id=group.group_id, max_attempts=5)
    await store.fire(60)
    [row] = await store.rows("schedule_invocations")
    assert await drain(world, small) == ["before"]
    await store.fire((row["due_at"] - store.new("x", {}).next_fire_at).total_seconds() + 60)
    assert await store.rows("schedule_invocations") == []
    assert await drain(world, small, 10) == ["after"]


async def test_a_dead_letter_of_a_schedule_waits_for_room(
    world: World, store: ScheduleStore
) -> None:
    dead = await bounded(world, "dead", 1)
    await fill(world, dead, "before")
    gone = await world.make_queue("gone")
    where = {"account_id": dead.account_id, "region": dead.region, "queue_name": dead.name}
    await store.add("s", queue_target(gone, "lost?"), dead_letter=where)
    await queues.delete_queue(world.engine, world.caller, gone)
    await store.fire(60)
    assert await waiting_count(world) == 1
    assert await drain(world, dead) == ["before"]
    assert await let_in(world) == 1
    assert await drain(world, dead) == ["lost?"]


async def test_a_run_by_hand_is_refused(world: World, store: ScheduleStore) -> None:
    small = await bounded(world, "small", 1)
    schedule = await store.add("s", queue_target(small))
    await run_now(world.engine, world.caller, schedule)
    with pytest.raises(QueueFull):
        await run_now(world.engine, world.caller, schedule)


async def test_a_dead_letter_of_a_web_hook_waits_for_room(world: World) -> None:
    dead = await bounded(world, "dead", 1)
    delivery = NewDelivery(
        str(UUID(int=1)),
        "Notification",
        True,
        str(UUID(int=2)),
        dead.account_id,
        dead.region,
        "news",
        "http://x",
        "x",
    )
    async with world.engine.database.transaction() as tx:
        await web_hook_deliveries.insert(tx, world.clock.now(), [delivery] * 2)
        claimed = await web_hook_deliveries.claim(
            tx, world.clock.now(), {UUID(int=1): 10}, held_ids=[], lease_seconds=30
        )
        letters = [
            FailedDelivery(one, no_answer("no"), one.body, dead.arn, None) for one in claimed
        ]
        counts, stuck = await webhook_outcomes.move_to_dead_letters(
            tx, world.clock.now(), letters, lambda *_: False
        )
        assert (dict(counts), stuck) == ({dead.queue_id: 1}, [])
        assert await tx.fetchval("SELECT count(*) FROM deliveries") == 0
    assert await waiting_count(world) == 1


async def moved(world: World, rounds: int = 1) -> int:
    worker = MoveMessages(world.engine.database, world.clock.now, world.engine.wakeups.arrived)
    count = 0
    for _ in range(rounds):
        count += await worker.run_round(100)
        world.clock.move_on(2)
    return count


@pytest.mark.parametrize("suffix", ["", ".fifo"])
async def test_a_move_task_waits_for_room(world: World, suffix: str) -> None:
    dead, small = await world.make_queue("dead" + suffix), await bounded(world, "t" + suffix, 2)
    policy = json.dumps({"deadLetterTargetArn": dead.arn, "maxReceiveCount": 5})
    await world.make_queue("source" + suffix, RedrivePolicy=policy)
    await fill(world, dead, *"abcde")
    task = await dead_letter_moves.start_move(world.engine, world.caller, dead.arn, small.arn)
    assert (await moved(world), await moved(world)) == (2, 0)
    [shown] = await dead_letter_moves.list_moves(world.engine, world.caller, dead.arn, 10)
    assert (shown.status, shown.moved_count) == ("RUNNING", 2)
    seen = await drain(world, small)
    assert (await moved(world), await total(world, small)) == (1, 2)
    seen += await drain(world, small) + await drain(world, small)
    assert await moved(world) == 2
    assert seen + await drain(world, small) + await drain(world, small) == list("abcde")
    assert await moved(world) == 0
    [shown] = await dead_letter_moves.list_moves(world.engine, world.caller, dead.arn, 10)
    assert (shown.status, shown.moved_count) == ("COMPLETED", 5)
    assert shown.task_id == task.task_id


async def test_a_move_task_without_room_can_be_cancelled(world: World) -> None:
    dead, small = await world.make_queue("dead"), await bounded(world, "small", 1)
    policy = json.dumps({"deadLetterTargetArn": dead.arn, "maxReceiveCount": 5})
    await world.make_queue("source", RedrivePolicy=policy)
    await fill(world, dead, *"abc")
    task = await dead_letter_moves.start_move(world.engine, world.caller, dead.arn, small.arn)
    await moved(world, 2)
    ended = await dead_letter_moves.cancel_move(world.engine, world.caller, dead.arn, task.task_id)
    assert ended.moved_count == 1
    assert (await moved(world), await total(world, dead)) == (0, 2)


async def bury(world: World, source: Queue, *bodies: str) -> None:
    """Send these and receive them once too often."""
    await fill(world, source, *bodies)
    for _ in range(2 * len(bodies)):
        world.clock.move_on(1)
        await world.receive(source, 10)


@pytest.mark.parametrize("suffix", ["", ".fifo"])
async def test_a_full_home_holds_up_no_other(world: World, suffix: str) -> None:
    dead = await world.make_queue("dead" + suffix)
    policy = json.dumps({"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1})
    members = {"RedrivePolicy": policy, "VisibilityTimeout": "0"}
    made = await queues.create_queue(
        world.engine,
        world.caller,
        CreateQueue("small" + suffix, members, dead_letter_arn=dead.arn, most_messages=2),
    )
    small, plain = made.queue, await world.make_queue("plain" + suffix, **members)
    await bury(world, small, "a", "b")
    await bury(world, plain, "c", "d")
    assert await total(world, dead) == 4
    await fill(world, small, "full")
    await dead_letter_moves.start_move(world.engine, world.caller, dead.arn)
    await moved(world, 3)
    # In a FIFO queue what is behind a message of its group waits for it.
    found = [await total(world, queue) for queue in (dead, small, plain)]
    assert found == ([3, 2, 0] if suffix else [1, 2, 2])


async def test_a_replay_of_an_archive_goes_as_far_as_there_is_room(world: World) -> None:
    archiving = CreateQueue("kept", archiving=Archiving(True, None))
    kept = (await queues.create_queue(world.engine, world.caller, archiving)).queue
    small = await bounded(world, "small", 2)
    await fill(world, kept, *"abc")
    await drain(world, kept, 10)
    done = await stored_messages.replay(world.engine, world.caller, kept, small, ReplayArchive())
    assert len(done.ids) == 2
    assert done.last_id is not None
    with pytest.raises(QueueFull):
        await stored_messages.replay(world.engine, world.caller, kept, small, ReplayArchive())
    await drain(world, small, 10)
    rest = ReplayArchive(after_id=done.last_id)
    await stored_messages.replay(world.engine, world.caller, kept, small, rest)
    assert await drain(world, small, 10) == ["c"]
