"""Queues as every face may ask for them: values in, values or refusals out."""

from __future__ import annotations

import asyncio
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
from tests.operations.sqs import get_queue_attributes
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
    request = CreateQueue("orders", blocked_seconds=60)
    world.clock.move_on(59)
    with refused(QueueDeletedRecently, "You must wait 60 seconds .*"):
        await create_queue(world.engine, world.caller, request)
    world.clock.move_on(1)
    queue, is_new = await create_queue(world.engine, world.caller, request)
    assert is_new
    await delete_queue(world.engine, world.caller, queue)
    assert (await create_queue(world.engine, world.caller, CreateQueue("orders"))).is_new


async def test_purges_may_follow_each_other_unless_somebody_minds(world: World) -> None:
    queue, _ = await create_queue(world.engine, world.caller, CreateQueue("orders"))
    for bodies in (["a", "b"], []):
        for body in bodies:
            await world.send(queue, body)
        assert await purge_queue(world.engine, world.caller, queue) == len(bodies)
    await purge_queue(world.engine, world.caller, queue, interval_seconds=9)
    world.clock.move_on(8)
    with refused(PurgeQueueInProgress, "Queue orders was purged less than 9 seconds ago."):
        await purge_queue(world.engine, world.caller, queue, interval_seconds=9)
    world.clock.move_on(1)
    await purge_queue(world.engine, world.caller, queue, interval_seconds=9)
    # A clock that was moved back does not block them.
    world.clock.move_on(days=-3)
    await purge_queue(world.engine, world.caller, queue, interval_seconds=9)


async def test_a_purge_that_breaks_off_refuses_the_next_for_ten_seconds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuegate.gateway.operations.queues.queues._PURGED_PER_BATCH", 1)
    queue = await world.make_queue()
    for _ in range(60):
        await world.send(queue, "before")
    engine, caller = world.engine, world.caller
    purge = asyncio.create_task(purge_queue(engine, caller, queue, interval_seconds=60))
    total = ["ApproximateNumberOfMessages"]
    while (await get_queue_attributes(engine, caller, queue, total))[total[0]] == "60":
        assert not purge.done()
    purge.cancel()
    with pytest.raises(asyncio.CancelledError):
        await purge
    world.clock.move_on(9)
    with refused(PurgeQueueInProgress, "Queue orders was purged less than 60 seconds ago."):
        await purge_queue(engine, caller, queue, interval_seconds=60)
    world.clock.move_on(1)
    assert await purge_queue(engine, caller, queue, interval_seconds=60)
    # The 60 s count from its start, and on a busy machine it takes seconds of the real clock.
    world.clock.move_on(30)
    with refused(PurgeQueueInProgress, "Queue orders was purged less than 60 seconds ago."):
        await purge_queue(engine, caller, queue, interval_seconds=60)


async def test_of_many_purges_at_once_one_is_done(world: World) -> None:
    queue = await world.make_queue()
    purges = [purge_queue(world.engine, world.caller, queue, interval_seconds=60) for _ in range(8)]
    results = await asyncio.gather(*purges, return_exceptions=True)
    assert results.count(0) == 1
    assert sum(isinstance(result, PurgeQueueInProgress) for result in results) == 7


async def test_a_purge_in_many_batches_keeps_what_is_sent_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuegate.gateway.operations.queues.queues._PURGED_PER_BATCH", 3)
    queue = await world.make_queue()
    for _ in range(20):
        await world.send(queue, "before")
    purging = asyncio.create_task(purge_queue(world.engine, world.caller, queue))
    await asyncio.gather(*[world.send(queue, "meanwhile") for _ in range(20)])
    await purging
    await world.send(queue, "after")
    seen = []
    while received := await world.receive(queue):
        seen += [message.body for message in received]
    assert "before" not in seen
    assert "after" in seen
    names = [f"ApproximateNumberOfMessages{kind}" for kind in ("", "NotVisible", "Delayed")]
    found = await get_queue_attributes(world.engine, world.caller, queue, names)
    assert [found[name] for name in names] == ["0", str(len(seen)), "0"]


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
