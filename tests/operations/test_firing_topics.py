"""Schedules whose targets are topics, and events."""

from __future__ import annotations

import json

import pytest

from queuegate.gateway.operations.schedules import dispatch
from queuegate.gateway.operations.schedules.dispatch import run_now
from tests.operations.conftest import MakeQueue, ReceiveFrom, RecordingWakeups
from tests.operations.schedule_store import BASE_URL, ScheduleStore, after, topic_target
from tests.operations.topics_and_subscriptions import Sns

RAW = {"RawMessageDelivery": "true"}


async def test_everybody_who_subscribed_gets_a_copy(
    store: ScheduleStore,
    sns: Sns,
    make_queue: MakeQueue,
    receive: ReceiveFrom,
    wakeups: RecordingWakeups,
) -> None:
    topic, raw, wrapped = await sns.topic(), await make_queue("raw"), await make_queue("wrapped")
    await sns.subscribe(topic, raw.arn, **RAW)
    await sns.subscribe(topic, wrapped.arn)
    await sns.subscribe(topic, "http://hook.test/", "http")
    told = []
    wakeups.on["deliveries"] = lambda: told.append(1)
    attributes = (
        '{"n":{"DataType":"Number","StringValue":"1"},'
        '"b":{"DataType":"Binary","BinaryValue":"AP8="}}'
    )
    target = topic_target(store.caller, "news", "hi", subject="S", attributes=attributes)
    await store.add("s", target)
    assert await store.fire(60) == 1

    [message] = await receive(raw)
    assert message.body == "hi"
    assert json.loads(message.attributes or "") == json.loads(attributes)
    [envelope] = await receive(wrapped)
    document = json.loads(envelope.body)
    assert (document["Message"], document["Subject"]) == ("hi", "S")
    assert document["UnsubscribeURL"].startswith(BASE_URL)
    assert document["MessageAttributes"]["b"] == {"Type": "Binary", "Value": "AP8="}
    assert len(await store.rows("deliveries")) == 1
    assert told == [1]
    assert {(raw.queue_id, 1), (wrapped.queue_id, 1)} <= set(wakeups.arrivals_told)


async def test_filters_see_the_header_of_the_schedule(
    store: ScheduleStore, sns: Sns, make_queue: MakeQueue, receive: ReceiveFrom
) -> None:
    topic, queue, other = await sns.topic(), await make_queue(), await make_queue("other")
    await sns.subscribe(topic, queue.arn, FilterPolicy='{"_schedule":[{"exists":true}]}', **RAW)
    await sns.subscribe(topic, other.arn, FilterPolicy='{"_schedule":[{"exists":false}]}', **RAW)
    await store.add("s", topic_target(store.caller, "news", schedule_header=True))
    await store.fire(60)
    [message] = await receive(queue)
    header = json.loads(json.loads(message.attributes or "")["_schedule"]["StringValue"])
    assert header["scheduled_for"] == "2026-11-21T12:01:00Z"
    assert await receive(other) == []


async def test_texts_by_protocol_are_told_apart(store: ScheduleStore, sns: Sns) -> None:
    topic, queue = await sns.topic(), await store.make_queue()
    await sns.subscribe(topic, queue.arn, **RAW)
    text = '{"default":"d","sqs":"q"}'
    await store.add("s", topic_target(store.caller, "news", text, structure="json"))
    await store.fire(60)
    assert [message.body for message in await store.receive(queue)] == ["q"]


async def test_a_fifo_topic_gets_one_message_for_a_time(store: ScheduleStore, sns: Sns) -> None:
    topic, queue = await sns.topic("news.fifo"), await store.make_queue("orders.fifo")
    await sns.subscribe(topic, queue.arn, **RAW)
    made = await store.add("s", topic_target(store.caller, "news.fifo", group_id="g"))
    await store.fire(60)
    await store.fire(120)
    assert [message.deduplication_id for message in await store.receive(queue)] == [
        f"schedule-{made.schedule_id}-20261121T120100.000000Z",
        f"schedule-{made.schedule_id}-20261121T120200.000000Z",
    ]


async def test_a_fifo_topic_without_a_group_id_is_a_failure(store: ScheduleStore, sns: Sns) -> None:
    await sns.topic("news.fifo")
    await store.add("s", topic_target(store.caller, "news.fifo"))
    await store.fire(60)
    assert (await store.get("s")).last_error == (
        "Invalid parameter: The MessageGroupId parameter is required for FIFO topics"
    )


async def test_an_event_needs_no_topic(store: ScheduleStore, sns: Sns) -> None:
    """Nobody listens: that is no failure."""
    await store.add("s", topic_target(store.caller, "order.created", is_event=True))
    await store.fire(60)
    assert (await store.get("s")).fired_count == 1


async def test_an_event_reaches_the_topic_of_its_key(store: ScheduleStore, sns: Sns) -> None:
    topic, queue = await sns.topic("orders"), await store.make_queue()
    await sns.subscribe(topic, queue.arn, **RAW)
    await store.add("s", topic_target(store.caller, "orders", is_event=True))
    await store.fire(60)
    assert [message.body for message in await store.receive(queue)] == ["hello"]


async def test_a_run_of_a_topic_tells_where_its_copies_went(
    store: ScheduleStore, sns: Sns, make_queue: MakeQueue, receive: ReceiveFrom
) -> None:
    topic, first, second = await sns.topic(), await make_queue("first"), await make_queue("second")
    for queue in (first, second):
        await sns.subscribe(topic, queue.arn, **RAW)
    schedule = await store.add("s", topic_target(store.caller, "news"))
    run = await run_now(store.engine, store.caller, schedule, base_url=BASE_URL)
    found = {
        (queue.name, message.sequence)
        for queue in (first, second)
        for message in await receive(queue)
    }
    assert {(one.queue_name, one.sequence) for one in run.messages} == found
    assert len(found) == 2


async def test_a_catch_up_that_is_too_much_for_a_transaction_holds_up_nobody(
    store: ScheduleStore, sns: Sns, make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "_MOST_COPIES", 5)
    topic = await sns.topic()
    for name in ("a", "b"):
        await sns.subscribe(topic, (await make_queue(name)).arn, **RAW)
    target = topic_target(store.caller, "news")
    await store.add("two", target, catchup=True, catchup_limit=2)
    await store.add("many", target, catchup=True)
    await store.add("once", target)
    assert await store.fire(60 * 50) == 3
    assert len(await store.bodies()) == (2 + 1) * 2
    failed = await store.get("many")
    assert (failed.failure_count, failed.next_fire_at) == (1, after(60 * 51))
    assert failed.last_error is not None
    assert failed.last_error.endswith("lower catchup_limit.")
