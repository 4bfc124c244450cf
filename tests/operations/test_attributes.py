"""Effects of queue attributes on stored queues, counters and caches."""

from __future__ import annotations

import asyncio
import json
from functools import partial

import pytest

from queuegate.gateway.faces.aws.aws_rules import AWS
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.storage.queue_model import Queue
from queuegate.storage.storage_errors import (
    InvalidAttributeValue,
    OverLimit,
)
from tests.operations.conftest import (
    ACCOUNT,
    REGION,
    MakeQueue,
    RecordingWakeups,
)
from tests.operations.sqs import add_permission, get_queue_attributes, set_queue_attributes
from tests.operations.world import World


class Attributes(World):
    """Reads and writes the attributes of queues."""

    async def get(self, queue: Queue, *names: str) -> dict[str, str]:
        return await get_queue_attributes(self.engine, self.caller, queue, names or ("All",))

    async def set(self, queue: Queue, **attributes: str) -> None:
        await set_queue_attributes(self.engine, self.caller, queue, attributes)


@pytest.fixture
def attributes(engine: Engine, caller: Caller) -> Attributes:
    return Attributes(engine, caller)


async def test_typed_fields_follow_the_attributes(world: World, attributes: Attributes) -> None:
    dead = await world.make_queue("dead.fifo")
    made = await world.make_queue("orders.fifo")
    await attributes.set(
        made,
        VisibilityTimeout="1",
        DelaySeconds="2",
        MaximumMessageSize="1025",
        MessageRetentionPeriod="61",
        ReceiveMessageWaitTimeSeconds="3",
        ContentBasedDeduplication="true",
        DeduplicationScope="messageGroup",
        RedrivePolicy=f'{{"deadLetterTargetArn":"{dead.arn}","maxReceiveCount":"4"}}',
    )
    queue = await world.engine.queues.find(ACCOUNT, REGION, "orders.fifo")

    assert queue.visibility_timeout_seconds == 1
    assert queue.delay_seconds == 2
    assert queue.maximum_message_size_bytes == 1025
    assert queue.retention_seconds == 61
    assert queue.receive_wait_seconds == 3
    assert queue.content_based_deduplication
    assert queue.deduplication_per_group
    assert queue.dead_letter_arn == dead.arn
    assert queue.max_receive_count == 4


async def test_change_is_told_and_dated(attributes: Attributes, wakeups: RecordingWakeups) -> None:
    queue = await attributes.make_queue("orders")
    wakeups.changed.clear()
    attributes.clock.move_on(90)

    await attributes.set(queue, DelaySeconds="1")
    everything = await attributes.get(queue)
    assert wakeups.changed == [queue.queue_id]
    assert int(everything["LastModifiedTimestamp"]) - int(everything["CreatedTimestamp"]) == 90


async def test_many_delayed_messages_are_counted_exactly(
    attributes: Attributes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuegate.storage.queues.standard_queues._MOST_HIDDEN_COUNTED", 5)
    queue = await attributes.make_queue("orders")
    for i in range(12):
        await attributes.send(queue, delay_seconds=60 if i < 9 else 0)

    everything = await attributes.get(queue)
    assert everything["ApproximateNumberOfMessages"] == "3"
    assert everything["ApproximateNumberOfMessagesDelayed"] == "9"


async def test_delay_of_a_fifo_queue_holds_for_what_was_sent_before(
    world: World, attributes: Attributes, wakeups: RecordingWakeups
) -> None:
    queue = await world.make_queue(
        "orders.fifo", ContentBasedDeduplication="true", DelaySeconds="60"
    )
    await world.send(queue, group_id="g")
    assert await world.receive(queue) == []

    wakeups.arrivals_told.clear()
    await attributes.set(queue, DelaySeconds="0")
    assert [told for told, _ in wakeups.arrivals_told] == [queue.queue_id]
    assert len(await world.receive(queue)) == 1


async def test_policies_have_a_limit(attributes: Attributes, make_queue: MakeQueue) -> None:
    queue = await make_queue("orders")
    empty = len('{"Id":"","Statement":[]}')
    document = {"Id": "x" * (AWS.policy_bytes - empty), "Statement": []}
    largest = json.dumps(document, separators=(",", ":"))

    await attributes.set(queue, Policy=largest)
    assert await attributes.get(queue, "Policy") == {"Policy": largest}
    # White space does not count, what is written in several bytes does.
    await attributes.set(queue, Policy=largest.replace(":", ":   "))
    for text in (largest.replace("x", "xx", 1), largest.replace("x", "\u00e9", 1)):
        with pytest.raises(InvalidAttributeValue) as refusal:
            await attributes.set(queue, Policy=text)
        assert str(refusal.value) == "Invalid value for the parameter Policy."


async def test_permissions_do_not_go_beyond_the_limit_of_policies(
    engine: Engine, caller: Caller, make_queue: MakeQueue
) -> None:
    queue = await make_queue("orders")
    accounts = [f"{number:012}" for number in range(AWS.policy_bytes // 12)]
    with pytest.raises(OverLimit):
        await add_permission(engine, caller, queue, "many", accounts, ["*"])


async def test_permissions_that_are_added_at_once_are_all_there(
    world: World, attributes: Attributes, wakeups: RecordingWakeups
) -> None:
    queue = await world.make_queue("orders")
    wakeups.changed.clear()
    add = partial(add_permission, world.engine, world.caller, queue)
    await asyncio.gather(*[add(f"l{i}", ["1" * 12], ["SendMessage"]) for i in range(12)])
    found = json.loads((await attributes.get(queue, "Policy"))["Policy"])["Statement"]
    assert {statement["Sid"] for statement in found} == {f"l{i}" for i in range(12)}
    assert wakeups.changed == [queue.queue_id] * 12
