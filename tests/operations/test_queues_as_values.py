"""Queues as every face may ask for them: values in, values or refusals out."""

from __future__ import annotations

from typing import Any

import pytest

from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.queues.dead_letter_moves import (
    cancel_move,
    list_moves,
    start_move,
)
from queuegate.gateway.operations.queues.queues import (
    CreateQueue,
    change_attributes,
    create_queue,
    delete_queue,
    purge_queue,
)
from queuegate.storage.storage_errors import (
    DeadLetterQueueUnfit,
    MoveQueueAbsent,
    MoveRefused,
    PurgeQueueInProgress,
    QueueDeletedRecently,
    QueueNameInvalid,
)
from tests.operations.world import World


def refused(refusal: type[Exception], text: str) -> Any:
    return pytest.raises(refusal, match=f"^{text}$")


async def test_kind_is_in_the_name_and_creating_again_says_so(world: World) -> None:
    for name in ("orders", "orders.fifo"):
        queue, is_new = await create_queue(world.engine, world.caller, CreateQueue(name))
        assert (queue.is_fifo, is_new) == (name == "orders.fifo", True)
        again = CreateQueue(name, {"DelaySeconds": "5"}, {"team": "a"})
        assert await create_queue(world.engine, world.caller, again) == (queue, False)


@pytest.mark.parametrize(("name", "most"), [("a b", 80), ("a" * 81, 80), ("a b.fifo", 75)])
async def test_names_that_no_queue_can_have(world: World, name: str, most: int) -> None:
    text = rf"A queue cannot be called '{name}'\..* at most {most} of them, .*"
    with refused(QueueNameInvalid, text):
        await create_queue(world.engine, world.caller, CreateQueue(name))


async def test_name_of_a_deleted_queue_is_blocked_for_who_wants_that(world: World) -> None:
    queue, _ = await create_queue(world.engine, world.caller, CreateQueue("orders"))
    await delete_queue(world.engine, world.caller, queue)
    with refused(QueueDeletedRecently, "You must wait 60 seconds .*"):
        request = CreateQueue("orders", blocked_seconds=60)
        await create_queue(world.engine, world.caller, request)
    assert (await create_queue(world.engine, world.caller, CreateQueue("orders"))).is_new


async def test_purges_may_follow_each_other_unless_somebody_minds(world: World) -> None:
    queue, _ = await create_queue(world.engine, world.caller, CreateQueue("orders"))
    for bodies in (["a", "b"], []):
        for body in bodies:
            await world.send(queue, body)
        assert await purge_queue(world.engine, world.caller, queue) == len(bodies)
    await purge_queue(world.engine, world.caller, queue, interval_seconds=9)
    with refused(PurgeQueueInProgress, "Queue orders was purged less than 9 seconds ago."):
        await purge_queue(world.engine, world.caller, queue, interval_seconds=9)


@pytest.mark.parametrize("reason", ["account", "region", "absent", "kind"])
async def test_dead_letter_queues_that_are_unfit(world: World, reason: str) -> None:
    caller = world.caller
    if reason == "account":
        caller = Caller("999988887777", caller.region, "other")
    elif reason == "region":
        caller = Caller(caller.account_id, "us-west-2", "other")
    dead, _ = await create_queue(
        world.engine, caller, CreateQueue("dead.fifo" if reason == "kind" else "dead")
    )
    if reason == "absent":
        await delete_queue(world.engine, caller, dead)
    queue, _ = await create_queue(world.engine, world.caller, CreateQueue("orders"))
    with pytest.raises(DeadLetterQueueUnfit) as refusal:
        await change_attributes(world.engine, world.caller, queue, dict, dead_letter_arn=dead.arn)
    assert refusal.value.reason == reason


async def test_messages_that_cannot_be_moved(world: World) -> None:
    engine, caller = world.engine, world.caller
    dead, _ = await create_queue(engine, caller, CreateQueue("dead"))
    with refused(MoveQueueAbsent, "The source of the messages to move does not exist."):
        await start_move(engine, caller, dead.arn + "er")
    with refused(MoveRefused, "Messages cannot be moved so: not dead letters."):
        await start_move(engine, caller, dead.arn)
    policy = f'{{"deadLetterTargetArn":"{dead.arn}","maxReceiveCount":1}}'
    await create_queue(engine, caller, CreateQueue("orders", {"RedrivePolicy": policy}))
    with refused(MoveQueueAbsent, "The destination of the messages to move does not exist."):
        await start_move(engine, caller, dead.arn, dead.arn + "er")
    with refused(MoveRefused, "Messages cannot be moved so: same queue."):
        await start_move(engine, caller, dead.arn, dead.arn)
    task = await start_move(engine, caller, dead.arn)
    with refused(MoveRefused, "Messages cannot be moved so: runs already."):
        await start_move(engine, caller, dead.arn)
    assert await list_moves(engine, caller, dead.arn, 10) == [task]
    await cancel_move(engine, caller, dead.arn, task.task_id)
    with refused(MoveRefused, "Messages cannot be moved so: not running."):
        await cancel_move(engine, caller, dead.arn, task.task_id)
