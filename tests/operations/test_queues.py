"""Creating, changing and deleting queues: many callers at once, and who is told of it."""

from __future__ import annotations

import asyncio
import json

import pytest

from queuegate.gateway.faces.aws.aws_rules import AWS
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.storage.queue_model import Queue
from queuegate.storage.storage_errors import (
    InvalidAttributeValue,
    OverLimit,
    QueueDoesNotExist,
    QueueNameExists,
)
from tests.operations.conftest import RecordingWakeups, find_again
from tests.operations.sqs import (
    add_permission,
    create_queue,
    delete_queue,
    get_queue_attributes,
    set_queue_attributes,
    tag_queue,
    untag_queue,
)
from tests.operations.world import World


class Queues(World):
    """Reads and writes the attributes of queues."""

    async def get(self, queue: Queue, *names: str) -> dict[str, str]:
        return await get_queue_attributes(self.engine, self.caller, queue, names or ("All",))

    async def set(self, queue: Queue, **attributes: str) -> None:
        await set_queue_attributes(self.engine, self.caller, queue, attributes)

    async def permit(self, queue: Queue, label: str, *accounts: str) -> None:
        await add_permission(
            self.engine, self.caller, queue, label, accounts or ["1" * 12], ["SendMessage"]
        )


@pytest.fixture
def queues(engine: Engine, caller: Caller) -> Queues:
    return Queues(engine, caller)


async def test_two_hundred_creators_of_one_name_get_one_queue(queues: Queues) -> None:
    created = await asyncio.gather(*[queues.make_queue("orders") for _ in range(200)])
    assert len({queue.queue_id for queue in created}) == 1


async def test_creators_that_differ_are_refused_and_never_fail(queues: Queues) -> None:
    results = await asyncio.gather(
        *[queues.make_queue("orders", DelaySeconds=str(i % 4)) for i in range(40)],
        return_exceptions=True,
    )
    refused = [result for result in results if isinstance(result, BaseException)]
    assert len(refused) == 30
    assert all(isinstance(result, QueueNameExists) for result in refused)


async def test_other_default_visibility_timeout_is_the_testers(queues: Queues) -> None:
    queues.engine.rules.default_visibility_timeout_seconds = 5
    assert (await queues.make_queue("a")).visibility_timeout_seconds == 5
    assert (await queues.make_queue("b", VisibilityTimeout="30")).visibility_timeout_seconds == 30


async def test_each_change_of_a_queue_is_told(queues: Queues, wakeups: RecordingWakeups) -> None:
    engine, caller = queues.engine, queues.caller
    queue = await create_queue(engine, caller, "orders", {}, {"team": "a"})
    await tag_queue(engine, caller, queue, {"team": "b"})
    await untag_queue(engine, caller, queue, ["team"])
    await queues.set(queue, DelaySeconds="1")
    assert wakeups.changed == [queue.queue_id] * 4
    wakeups.changed.clear()
    await asyncio.gather(*[queues.permit(queue, f"l{i}") for i in range(12)])
    found = json.loads((await queues.get(queue, "Policy"))["Policy"])["Statement"]
    assert {statement["Sid"] for statement in found} == {f"l{i}" for i in range(12)}
    assert wakeups.changed == [queue.queue_id] * 12


async def test_delete_wakes_who_waits(queues: Queues, wakeups: RecordingWakeups) -> None:
    queue = await queues.make_queue("orders")
    wakeups.changed.clear()
    await delete_queue(queues.engine, queues.caller, queue)

    assert queue.queue_id in wakeups.changed
    assert queue.queue_id in [told for told, _ in wakeups.arrivals_told]
    with pytest.raises(QueueDoesNotExist):
        await queues.send(queue)


async def test_typed_fields_follow_the_attributes(queues: Queues) -> None:
    dead = await queues.make_queue("dead.fifo")
    made = await queues.make_queue("orders.fifo")
    await queues.set(
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
    queue = await find_again(queues.engine, made)

    assert queue.visibility_timeout_seconds == 1
    assert queue.delay_seconds == 2
    assert queue.maximum_message_size_bytes == 1025
    assert queue.retention_seconds == 61
    assert queue.receive_wait_seconds == 3
    assert queue.content_based_deduplication
    assert queue.deduplication_per_group
    assert queue.dead_letter_arn == dead.arn
    assert queue.max_receive_count == 4


async def test_many_delayed_messages_are_counted_exactly(
    queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuegate.storage.queues.standard_queues._MOST_HIDDEN_COUNTED", 5)
    queue = await queues.make_queue("orders")
    for i in range(12):
        await queues.send(queue, delay_seconds=60 if i < 9 else 0)

    everything = await queues.get(queue)
    assert everything["ApproximateNumberOfMessages"] == "3"
    assert everything["ApproximateNumberOfMessagesDelayed"] == "9"


async def test_delay_of_a_fifo_queue_holds_for_what_was_sent_before(
    queues: Queues, wakeups: RecordingWakeups
) -> None:
    queue = await queues.make_queue(
        "orders.fifo", ContentBasedDeduplication="true", DelaySeconds="60"
    )
    await queues.send(queue, group_id="g")
    assert await queues.receive(queue) == []

    wakeups.arrivals_told.clear()
    await queues.set(queue, DelaySeconds="0")
    assert [told for told, _ in wakeups.arrivals_told] == [queue.queue_id]
    assert len(await queues.receive(queue)) == 1


async def test_policies_have_a_limit(queues: Queues) -> None:
    """Permissions do not go beyond it, either."""
    queue = await queues.make_queue("orders")
    empty = len('{"Id":"","Statement":[]}')
    document = {"Id": "x" * (AWS.policy_bytes - empty), "Statement": []}
    largest = json.dumps(document, separators=(",", ":"))

    await queues.set(queue, Policy=largest)
    assert await queues.get(queue, "Policy") == {"Policy": largest}
    # White space does not count, what is written in several bytes does.
    await queues.set(queue, Policy=largest.replace(":", ":   "))
    for text in (largest.replace("x", "xx", 1), largest.replace("x", "\u00e9", 1)):
        with pytest.raises(InvalidAttributeValue) as refusal:
            await queues.set(queue, Policy=text)
        assert str(refusal.value) == "Invalid value for the parameter Policy."
    await queues.set(queue, Policy="")
    accounts = [f"{number:012}" for number in range(AWS.policy_bytes // 12)]
    with pytest.raises(OverLimit):
        await queues.permit(queue, "many", *accounts)
