"""Fair queues: message groups of standard queues, of which noisy ones come after quiet ones."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from queuegate.gateway.metrics import exposition
from queuegate.gateway.metrics.snapshots import DatabaseSnapshot
from queuegate.gateway.operations.queues.fair_queueing import FairGauges
from queuegate.gateway.operations.queues.sends import MessageToSend, send_all
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.storage.queue_model import NewMessage, Queue, Received
from queuegate.storage.queues.fair_queues import NotedQueue, QuietDepth, group_of
from tests.engines import engine_on
from tests.operations.world import World
from tests.sqs_calls import ReceiveMessage, answered, receive_message
from tests.waiting import until_so


async def send(world: World, queue: Queue, group: str | None, count: int) -> None:
    """So many messages of one group, each call a little later than the one before."""
    for start in range(0, count, 500):
        some = [
            MessageToSend(NewMessage(f"{group}-{number}", group_id=group))
            for number in range(start, min(start + 500, count))
        ]
        world.clock.move_on(0.001)
        await answered(send_all, world.engine, world.caller, queue, some, False)
    world.clock.move_on(0.5)


async def receive(
    world: World, queue: Queue, count: int, engine: Engine | None = None
) -> list[Received]:
    """Lease so many messages, ten at a time."""
    found: list[Received] = []
    while len(found) < count:
        world.clock.move_on(0.001)
        limit = min(10, count - len(found))
        request = ReceiveMessage(max_messages=limit, wait_seconds=0)
        some = await answered(receive_message, engine or world.engine, world.caller, queue, request)
        if not some:
            break
        found += some
    return found


async def groups(
    world: World, queue: Queue, count: int, engine: Engine | None = None
) -> Counter[str | None]:
    return Counter(group_of(one.system) for one in await receive(world, queue, count, engine))


async def noisy(world: World, queue: Queue, engine: Engine | None = None) -> set[str]:
    """The noisy groups as the process finds them now."""
    engine = engine or world.engine
    await engine.fairness.sample([queue.queue_id])
    return set(engine.standard.fair.noisy.get(queue.queue_id, {}))


async def test_fifty_quiet_groups_go_before_ten_thousand_messages_of_a_noisy_one(
    world: World,
) -> None:
    queue = await world.make_queue()
    await send(world, queue, "busy", 10_000)
    assert await groups(world, queue, 40) == {"busy": 40}
    assert await noisy(world, queue) == {"busy"}
    for number in range(50):
        await send(world, queue, f"quiet{number}", 10)
    # An empty queue gives 500 messages in 50 receives.
    found = await groups(world, queue, 1_000)
    assert sum(number for group, number in found.items() if group != "busy") == 500
    later = await groups(world, queue, 10_000)
    assert later == {"busy": 10_500 - 1_040}


async def test_groups_that_are_quiet_are_found_behind_the_backlog_that_was_there(
    world: World,
) -> None:
    queue = await world.make_queue()
    await send(world, queue, "busy", 10_000)
    for number in range(50):
        await send(world, queue, f"quiet{number}", 10)
    await receive(world, queue, 40)
    assert await noisy(world, queue) == {"busy"}
    found = await groups(world, queue, 600)
    assert sum(number for group, number in found.items() if group != "busy") == 500


async def test_messages_without_a_group_are_quiet(world: World) -> None:
    queue = await world.make_queue()
    await send(world, queue, None, 60)
    await send(world, queue, "busy", 200)
    await receive(world, queue, 100)
    assert await noisy(world, queue) == {"busy"}
    await send(world, queue, None, 20)
    assert await groups(world, queue, 30) == {None: 20, "busy": 10}


async def test_the_tenants_of_the_example_of_aws(world: World) -> None:
    """Tenant A floods the queue; B, C and D are received first as long as A has a backlog."""
    queue = await world.make_queue()
    for tenant in "ABCD":
        await send(world, queue, tenant, 2)
    assert await groups(world, queue, 8) == {"A": 2, "B": 2, "C": 2, "D": 2}
    assert await noisy(world, queue) == set()
    await send(world, queue, "A", 300)
    await receive(world, queue, 60)
    assert await noisy(world, queue) == {"A"}
    for _ in range(5):
        for tenant in "BCD":
            await send(world, queue, tenant, 1)
        found = await groups(world, queue, 5)
        assert found == {"A": 2, "B": 1, "C": 1, "D": 1}


async def test_of_noisy_groups_that_with_the_fewest_in_flight_comes_first(world: World) -> None:
    queue = await world.make_queue()
    await send(world, queue, "more", 60)
    await send(world, queue, "less", 40)
    await receive(world, queue, 100)
    assert await noisy(world, queue) == {"more", "less"}
    await send(world, queue, "more", 50)
    await send(world, queue, "less", 50)
    assert await groups(world, queue, 20) == {"less": 20}
    found = await groups(world, queue, 40)
    # A sample under way may miss the last receives, or count them twice.
    assert min(found["more"], found["less"]) >= 10


@pytest.mark.parametrize(
    ("count", "others", "expected"), [(29, 0, set()), (30, 0, {"g"}), (30, 300, set())]
)
async def test_thirty_in_flight_and_a_tenth_of_all_are_noisy(
    world: World, count: int, others: int, expected: set[str]
) -> None:
    queue = await world.make_queue()
    await send(world, queue, "g", count)
    await send(world, queue, None, others)
    await receive(world, queue, count + others)
    assert await noisy(world, queue) == expected


async def test_long_processing_is_noisy_without_thirty_in_flight(world: World) -> None:
    queue = await world.make_queue(VisibilityTimeout="3600")
    await send(world, queue, "slow", 3)
    await receive(world, queue, 3)
    assert await noisy(world, queue) == set()
    world.clock.move_on(20)
    assert await noisy(world, queue) == {"slow"}
    await send(world, queue, "slow", 5)
    await send(world, queue, "fast", 5)
    assert await groups(world, queue, 5) == {"fast": 5}


async def test_a_group_stays_noisy_until_its_backlog_is_gone(world: World) -> None:
    queue = await world.make_queue(VisibilityTimeout="5")
    await send(world, queue, "busy", 200)
    await receive(world, queue, 100)
    assert await noisy(world, queue) == {"busy"}
    world.clock.move_on(10)
    # Nothing is in flight any more, and 200 messages are visible.
    assert await noisy(world, queue) == {"busy"}
    await send(world, queue, "quiet", 5)
    assert await groups(world, queue, 10) == {"quiet": 5, "busy": 5}
    assert (await groups(world, queue, 500))["busy"] == 195
    async with world.engine.database.transaction() as tx:
        await tx.execute("DELETE FROM messages WHERE queue_id = $1", queue.queue_id)
    assert await noisy(world, queue) == set()


async def test_a_group_to_which_nothing_is_sent_for_five_minutes_is_quiet(world: World) -> None:
    queue = await world.make_queue(VisibilityTimeout="5")
    await send(world, queue, "busy", 200)
    await receive(world, queue, 100)
    assert await noisy(world, queue) == {"busy"}
    world.clock.move_on(200)
    await send(world, queue, "other", 1)
    await send(world, queue, "busy", 1)
    assert await noisy(world, queue) == {"busy"}
    world.clock.move_on(298)
    await send(world, queue, "other", 1)
    assert await noisy(world, queue) == {"busy"}
    world.clock.move_on(2)
    assert await noisy(world, queue) == set()
    # By age again.
    assert await groups(world, queue, 50) == {"busy": 50}


async def test_every_process_finds_the_noisy_groups_itself(world: World) -> None:
    queue = await world.make_queue()
    other = engine_on(world.engine.database, world.clock)
    await send(world, queue, "busy", 200)
    await receive(world, queue, 60)
    await receive(world, queue, 1, other)
    await until_so(lambda: queue.queue_id in other.standard.fair.noisy)
    await send(world, queue, "quiet", 20)
    assert await groups(world, queue, 10, other) == {"quiet": 10}
    await until_so(lambda: queue.queue_id in world.engine.standard.fair.noisy)
    assert await groups(world, queue, 20) == {"quiet": 10, "busy": 10}
    await other.close()


async def test_a_message_whose_commit_was_late_is_found(world: World) -> None:
    queue = await world.make_queue()
    await send(world, queue, "busy", 300)
    await receive(world, queue, 60)
    assert await noisy(world, queue) == {"busy"}
    await send(world, queue, "quiet", 10)
    await receive(world, queue, 20)
    late = world.clock.now()
    assert late is not None
    await send(world, queue, "late", 1)
    await receive(world, queue, 1)
    async with world.engine.database.transaction() as tx:
        await tx.execute(
            "UPDATE messages SET receive_count = 0, visible_at = $2 WHERE queue_id = $1"
            " AND body = 'late-0'",
            queue.queue_id,
            late - timedelta(seconds=5),
        )
    world.engine.standard.look_near([queue.queue_id])
    assert (await groups(world, queue, 20))["late"] == 1


async def test_a_queue_without_groups_is_not_watched(world: World) -> None:
    queue = await world.make_queue()
    await send(world, queue, None, 100)
    await receive(world, queue, 100)
    assert world.engine.fairness.watched == {}


async def test_a_queue_whose_groups_are_gone_is_watched_no_more(world: World) -> None:
    queue = await world.make_queue()
    await send(world, queue, "g", 1)
    await receive(world, queue, 1)
    assert [*world.engine.fairness.watched] == [queue.queue_id]
    async with world.engine.database.transaction() as tx:
        await tx.execute("DELETE FROM messages WHERE queue_id = $1", queue.queue_id)
    await send(world, queue, None, 5)
    world.clock.move_on(3_600)
    assert await noisy(world, queue) == set()
    assert world.engine.fairness.watched == {}


async def test_queues_with_priorities_go_by_priority(world: World) -> None:
    queue = await world.make_queue()
    await send(world, queue, "busy", 100)
    await receive(world, queue, 60)
    assert await noisy(world, queue) == {"busy"}
    await send(world, queue, "quiet", 1)
    urgent = MessageToSend(NewMessage("urgent", group_id="busy", priority=5))
    await answered(send_all, world.engine, world.caller, queue, [urgent], False)
    queue = await world.engine.queues.find(queue.account_id, queue.region, queue.name)
    [first] = await receive(world, queue, 1)
    assert first.body == "urgent"


async def test_fifo_queues_keep_their_order(world: World) -> None:
    queue = await world.make_queue("jobs.fifo")
    await send(world, queue, "busy", 60)
    await receive(world, queue, 60)
    assert await noisy(world, queue) == set()
    assert world.engine.fairness.watched.keys() <= {queue.queue_id}


async def test_metrics_of_quiet_groups(world: World) -> None:
    queue = await world.make_queue()
    await world.make_queue("plain")
    await send(world, queue, "busy", 100)
    await receive(world, queue, 40)
    await until_so(lambda: queue.queue_id in world.engine.standard.fair.noisy)
    await send(world, queue, "quiet", 5)
    await receive(world, queue, 2)
    later = MessageToSend(NewMessage("later", group_id="quiet", delay_seconds=60))
    await answered(send_all, world.engine, world.caller, queue, [later], False)
    world.clock.move_on(3)
    [shown] = await world.engine.fairness.gauges()
    assert (shown.queue.name, shown.noisy) == ("orders", 1)
    assert shown.quiet[1:4] == (3, 2, 1)
    assert 3 <= shown.quiet.oldest_seconds <= 5


def test_names_of_metrics() -> None:
    shown = FairGauges(NotedQueue(1, "1", "r", "q"), 2, QuietDepth(1, 3, 4, 5, 6.5))
    page = exposition.depth_page(
        DatabaseSnapshot([], [], [], None, [], [], [shown]), exposition.requested(frozenset())
    )
    labels = '{account="1",queue="q",region="r"}'
    for name, value in (
        ("noisy_groups", "2.0"),
        ("quiet_groups_messages_visible", "3.0"),
        ("quiet_groups_messages_not_visible", "4.0"),
        ("quiet_groups_messages_delayed", "5.0"),
        ("quiet_groups_oldest_age_seconds", "6.5"),
    ):
        assert f"queuegate_{name}{labels} {value}".encode() in page
