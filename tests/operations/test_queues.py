"""Creating, finding, listing and deleting queues."""

from __future__ import annotations

import asyncio

import pytest

from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.storage.storage_errors import (
    InvalidParameterValue,
    QueueDeletedRecently,
    QueueDoesNotExist,
    QueueNameExists,
)
from tests.operations.conftest import ACCOUNT, REGION, MakeQueue, RecordingWakeups
from tests.operations.sqs import (
    create_queue,
    delete_queue,
    list_queue_tags,
    tag_queue,
    untag_queue,
)
from tests.operations.world import World


async def test_created_queue_has_the_callers_namespace_and_all_defaults(
    make_queue: MakeQueue, wakeups: RecordingWakeups
) -> None:
    queue = await make_queue("orders")

    assert queue.arn == f"arn:aws:sqs:{REGION}:{ACCOUNT}:orders"
    assert not queue.is_fifo
    assert queue.attributes == {}
    assert queue.visibility_timeout_seconds == 30
    assert queue.delay_seconds == 0
    assert queue.maximum_message_size_bytes == 1_048_576
    assert queue.retention_seconds == 345_600
    assert queue.receive_wait_seconds == 0
    assert queue.max_receive_count == 0
    assert queue.dead_letter_arn is None
    assert wakeups.changed == [queue.queue_id]


async def test_two_hundred_creators_of_one_name_get_one_queue(
    engine: Engine, caller: Caller
) -> None:
    created = await asyncio.gather(*[create_queue(engine, caller, "orders") for _ in range(200)])

    assert len({queue.queue_id for queue in created}) == 1


async def test_creators_that_differ_are_refused_and_never_fail(
    engine: Engine, caller: Caller
) -> None:
    results = await asyncio.gather(
        *[create_queue(engine, caller, "orders", {"DelaySeconds": str(i % 4)}) for i in range(40)],
        return_exceptions=True,
    )

    refused = [result for result in results if isinstance(result, BaseException)]
    assert len(refused) == 30
    assert all(isinstance(result, QueueNameExists) for result in refused)


async def test_name_is_blocked_for_sixty_seconds_after_delete(world: World) -> None:
    queue = await world.make_queue("orders")
    await delete_queue(world.engine, world.caller, queue)

    world.clock.move_on(59)
    with pytest.raises(QueueDeletedRecently) as refusal:
        await world.make_queue("orders")
    assert str(refusal.value) == (
        "You must wait 60 seconds after deleting a queue before you can create another with "
        "the same name."
    )

    world.clock.move_on(1)
    assert (await world.make_queue("orders")).queue_id != queue.queue_id


async def test_waiting_time_after_delete_can_be_switched_off(world: World) -> None:
    world.engine.rules.queue_recreate_seconds = 0
    queue = await world.make_queue("orders")
    await delete_queue(world.engine, world.caller, queue)

    assert (await world.make_queue("orders")).queue_id != queue.queue_id


async def test_other_default_visibility_timeout_is_the_testers(world: World) -> None:
    world.engine.rules.default_visibility_timeout_seconds = 5

    assert (await world.make_queue("a")).visibility_timeout_seconds == 5
    assert (await world.make_queue("b", VisibilityTimeout="30")).visibility_timeout_seconds == 30


async def test_delete_wakes_who_waits(world: World, wakeups: RecordingWakeups) -> None:
    queue = await world.make_queue("orders")
    await delete_queue(world.engine, world.caller, queue)

    assert queue.queue_id in wakeups.changed
    assert queue.queue_id in [told for told, _ in wakeups.arrivals_told]
    with pytest.raises(QueueDoesNotExist):
        await world.send(queue)


async def test_tags_are_added_overwritten_and_removed(
    engine: Engine, caller: Caller, wakeups: RecordingWakeups
) -> None:
    queue = await create_queue(engine, caller, "orders", {}, {"Team": "a"})

    await tag_queue(engine, caller, queue, {"team": "b", "empty": "", "Team": "c"})
    assert await list_queue_tags(engine, caller, queue) == {
        "Team": "c",
        "team": "b",
        "empty": "",
    }

    await untag_queue(engine, caller, queue, ["Team", "unknown"])
    assert await list_queue_tags(engine, caller, queue) == {"team": "b", "empty": ""}
    assert wakeups.changed == [queue.queue_id] * 3


@pytest.mark.parametrize(
    "tags",
    [
        {"": "v"},
        {"k" * 129: "v"},
        {"k": "v" * 257},
        {"k\x00": "v"},
        {"k": "v\x00"},
        {f"k{i}": "v" for i in range(51)},
    ],
)
async def test_tags_out_of_bounds_are_refused(world: World, tags: dict[str, str]) -> None:
    queue = await world.make_queue("orders")

    with pytest.raises(InvalidParameterValue):
        await tag_queue(world.engine, world.caller, queue, tags)
    with pytest.raises(InvalidParameterValue):
        await create_queue(world.engine, world.caller, "tagged", {}, tags)


async def test_fifty_tags_in_all(engine: Engine, caller: Caller, make_queue: MakeQueue) -> None:
    queue = await make_queue("orders")
    await tag_queue(engine, caller, queue, {f"k{i}": "v" for i in range(50)})

    await tag_queue(engine, caller, queue, {"k0": "w"})
    with pytest.raises(InvalidParameterValue):
        await tag_queue(engine, caller, queue, {"one more": "v"})
