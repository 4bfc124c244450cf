"""Events: which subscriptions get them, and how routing keys and topics relate."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from queuegate.gateway.faces.aws.aws_refusals import InvalidParameter
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.protocol import sns_envelopes
from queuegate.storage.storage_errors import (
    AuthorizationError,
    InvalidParameterValue,
    NotFound,
    OverLimit,
    QueueDoesNotExist,
    SettingRefused,
    SubscriptionExists,
    WebHookRefused,
)
from queuegate.storage.topics import subscriptions
from tests.operations.conftest import ACCOUNT, REGION, MakeQueue, ReceiveFrom
from tests.operations.events import BASE_URL, WEB_HOOK, Events
from tests.operations.sns_actions import delete_topic, list_topics
from tests.operations.subscribers import Subscriber
from tests.operations.topics_and_subscriptions import Sns
from tests.operations.world import TestClock, World


def topic_arn(name: str) -> str:
    return f"arn:aws:sns:{REGION}:{ACCOUNT}:{name}"


async def test_an_event_reaches_every_pattern_that_matches(
    events: Events, make_queue: MakeQueue, receive: ReceiveFrom
) -> None:
    queues = {name: await make_queue(name) for name in ("one", "any", "all", "exact", "other")}
    for pattern, name in (
        ("order.*", "one"),
        ("order.#", "any"),
        ("#", "all"),
        ("order.created", "exact"),
        ("invoice.#", "other"),
    ):
        await events.subscribe(pattern, name)
    published = await events.publish("order.created", {"a": 1})
    assert [queue.name for queue, _ in published.places] == ["one", "any", "all", "exact"]
    assert published.delivery_count == 0
    for queue, sequence in published.places:
        [received] = await receive(queue)
        assert (received.body, received.sequence) == ('{"a":1}', sequence)
    assert await receive(queues["other"]) == []
    assert await events.reached("order") == (["any", "all"], 0)
    assert await events.reached("order.17.created") == (["any", "all"], 0)
    assert await events.reached("invoice") == (["all", "other"], 0)


async def test_queues_web_hooks_envelopes_and_topics_get_it_in_one_transaction(
    events: Events, sns: Sns, engine: Engine, make_queue: MakeQueue, receive: ReceiveFrom
) -> None:
    """Two patterns and a topic, raw and in envelopes, to queues and to web hooks."""
    raw, wrapped, of_sns = [await make_queue(name) for name in ("raw", "wrapped", "of-sns")]
    topic = await sns.topic("orders")
    await sns.subscribe(topic, of_sns.arn)
    await events.subscribe("orders", "raw")
    pattern = await events.subscribe("#", "wrapped", wants_envelope=True)
    hook = await events.subscribe("*")
    signed = await events.subscribe("#", endpoint=WEB_HOOK + "/2", wants_envelope=True)
    published = await events.publish("orders", {"n": 1}, color="red", size=3)
    assert [queue.name for queue, _ in published.places] == ["of-sns", "raw", "wrapped"]
    assert published.delivery_count == 2

    [received] = await receive(raw)
    assert received.body == '{"n":1}'
    assert json.loads(received.attributes or "") == {
        "color": {"DataType": "String", "StringValue": "red"},
        "size": {"DataType": "Number", "StringValue": "3"},
    }
    for queue, arn in ((wrapped, pattern.arn), (of_sns, None)):
        [received] = await receive(queue)
        envelope = json.loads(received.body)
        assert (envelope["TopicArn"], envelope["Message"]) == (topic.arn, '{"n":1}')
        assert envelope["MessageId"] == published.message_id
        assert envelope["MessageAttributes"]["size"] == {"Type": "Number", "Value": "3"}
        assert sns_envelopes.verify(engine.signer.certificate_pem, envelope)
        if arn is not None:
            assert envelope["UnsubscribeURL"] == (
                f"{BASE_URL}/?Action=Unsubscribe&SubscriptionArn={arn.replace('#', '%23')}"
            )
    async with engine.database.transaction() as tx:
        rows = await tx.fetch("SELECT * FROM deliveries ORDER BY delivery_id")
    assert [row["subscription_id"] for row in rows] == [
        one.subscription_id for one in sorted((hook, signed), key=lambda one: one.topic_id)
    ]
    by_subscription = {row["subscription_id"]: row for row in rows}
    assert by_subscription[hook.subscription_id]["body"] == '{"n":1}'
    assert by_subscription[hook.subscription_id]["topic_name"] == "orders"
    envelope = json.loads(by_subscription[signed.subscription_id]["body"])
    assert envelope["TopicArn"] == topic.arn


async def test_fifo_topics_take_no_part(events: Events, sns: Sns) -> None:
    queue, ordered = await events.make_queue(), await events.make_queue("ordered.fifo")
    topic = await sns.topic("orders.fifo", ContentBasedDeduplication="true")
    await sns.subscribe(topic, ordered.arn)
    await events.subscribe("#", queue.name)
    # The name of the FIFO topic, and yet another thing.
    await events.subscribe("orders.fifo", queue.name)
    await sns.publish(topic, "in order", group_id="g")
    assert await events.receive(queue) == []
    assert len(await events.receive(ordered)) == 1
    assert await events.reached("orders.fifo") == ([queue.name, queue.name], 0)
    assert await events.receive(ordered) == []


async def test_namespaces_do_not_see_each_other(
    events: Events, engine: Engine, caller: Caller, make_queue: MakeQueue
) -> None:
    await make_queue("jobs")
    await events.subscribe("#", "jobs")
    for other in (replace(caller, region="us-east-1"), replace(caller, account_id="444455556666")):
        assert await Events(engine, other).reached("order.created") == ([], 0)
        assert await Events(engine, other).of_pattern("#") == []
    assert await events.reached("order.created") == (["jobs"], 0)


async def test_filters_look_at_headers_or_at_the_message(events: Events) -> None:
    for name in ("by-header", "by-message"):
        await events.make_queue(name)
    await events.subscribe("#", "by-header", filter_policy='{"color":["red"]}')
    await events.subscribe(
        "#",
        "by-message",
        filter_policy='{"order":{"total":[{"numeric":[">",100]}]}}',
        filter_policy_scope="MessageBody",
    )
    await events.subscribe("#", filter_policy='{"color":["red","blue"]}')
    assert await events.reached("a.b", color="red") == (["by-header"], 1)
    assert await events.reached("a.b", color="blue") == ([], 1)
    assert await events.reached("a.b") == ([], 0)
    published = await events.publish("a.b", {"order": {"total": 101}})
    assert [queue.name for queue, _ in published.places] == ["by-message"]
    assert published.delivery_count == 0


async def test_a_delay_is_for_queues_only(world: World, events: Events) -> None:
    queue = await world.make_queue(DelaySeconds="5")
    await events.subscribe("#", queue.name)
    await events.subscribe("#")
    await events.publish("a.b", delay_seconds=60)
    assert world.clock.fixed is not None
    async with world.engine.database.transaction() as tx:
        assert await tx.fetchval("SELECT due_at FROM deliveries") == world.clock.fixed
    world.clock.move_on(59)
    assert await world.receive(queue) == []
    world.clock.move_on(1)
    assert len(await world.receive(queue)) == 1
    await events.publish("a.b", delay_seconds=0)
    assert len(await world.receive(queue)) == 1


async def test_a_deleted_queue_gets_nothing_and_keeps_its_subscription(events: Events) -> None:
    events.engine.rules.queue_recreate_seconds = 0
    for name in ("jobs", "others"):
        await events.make_queue(name)
        await events.subscribe("#", name)
    assert (await events.reached("a.b"))[0] == ["jobs", "others"]
    async with events.engine.database.transaction() as tx:
        await tx.execute("UPDATE queues SET deleted_at = now() WHERE queue_name = 'jobs'")
    events.engine.queues.clear()
    assert (await events.reached("a.b"))[0] == ["others"]
    await events.make_queue("jobs")
    assert (await events.reached("a.b"))[0] == ["jobs", "others"]


async def test_an_event_may_have_more_headers_than_sns_allows(
    events: Events, subscriber: Subscriber, make_queue: MakeQueue, receive: ReceiveFrom
) -> None:
    """Raw subscriptions of SNS refuse them, as on AWS; those of the native API take them."""
    native, of_sns = await make_queue("native"), await make_queue("of-sns")
    await events.subscribe("*", "native")
    await subscriber.subscribe(
        await subscriber.topic("a"), "sqs", of_sns.arn, RawMessageDelivery="true"
    )
    headers: dict[str, object] = {f"h{number}": number for number in range(30)}
    for _ in range(2):
        assert (await events.reached("a", **headers))[0] == ["native"]
        [received] = await receive(native)
        assert len(json.loads(received.attributes or "")) == 30


async def test_every_copy_is_measured_with_its_own_arn(events: Events) -> None:
    """Envelopes name the pattern: of two, the longer one may not fit."""
    longest = "#." * 110 + "#"
    for name in ("short", "long"):
        await events.make_queue(name, MaximumMessageSize="3000")
    await events.subscribe("#", "short", wants_envelope=True)
    await events.subscribe(longest, "long", wants_envelope=True)
    reached = [
        tuple((await events.reached("a.b", x="y" * size))[0]) for size in range(1_500, 2_500, 50)
    ]
    assert reached[0] == ("short", "long")
    assert reached[-1] == ()
    assert ("short",) in reached
    assert ("long",) not in reached


async def test_keys_that_are_no_topics_share_a_series(events: Events, engine: Engine) -> None:
    for number in range(3):
        await events.publish(f"order.{number}")
    shown = engine.series.topics.shown()
    assert [(one.name, one.published) for one in shown] == [("_events", 3)]


# Subscribing


async def test_a_subscription_of_sns_is_listed_and_ended_over_rest(
    events: Events, subscriber: Subscriber
) -> None:
    topic = await subscriber.topic("orders")
    await subscriber.subscribe(topic, "http", "http://hooks.example/pending")
    await subscriber.subscribe(topic, "sqs")
    pending, confirmed = await events.of_pattern("orders")
    assert (pending.is_confirmed, confirmed.is_confirmed) == (False, True)
    await events.unsubscribe("orders", confirmed)
    await events.unsubscribe("orders", pending)
    assert await subscriber.of_topic(topic) == []


async def test_sns_sees_no_patterns_but_knows_their_subscriptions_by_id(
    events: Events, subscriber: Subscriber, engine: Engine, caller: Caller, make_queue: MakeQueue
) -> None:
    queue = await make_queue()
    made = await events.subscribe("order.#", queue.name)
    assert made.arn == f"{topic_arn('order.#')}:{made.subscription_id}"
    assert (await list_topics(engine, caller))[0] == []
    page = await subscriber.of_topic(await subscriber.topic("order"))
    assert page == []
    with pytest.raises(InvalidParameter):
        await subscriber.of_topic(topic_arn("order.#"))
    with pytest.raises(NotFound):
        await subscriber.of_topic(topic_arn("order.fifo"))
    attributes = await subscriber.get(made.arn)
    assert (attributes["TopicArn"], attributes["SubscriptionArn"]) == (made.topic_arn, made.arn)
    await subscriber.set(made.arn, "RawMessageDelivery", "false")
    [changed] = await events.of_pattern("order.#")
    assert changed.attributes["RawMessageDelivery"] == "false"
    await subscriber.unsubscribe(made.arn)
    assert await events.of_pattern("order.#") == []
    assert await events.patterns() == []


async def test_to_subscribe_again_is_the_same_or_refused(events: Events) -> None:
    queue = await events.make_queue()
    for pattern in ("orders", "order.*"):
        made = await events.subscribe(pattern, queue.name, filter_policy='{"a":[1],"b":[2]}')
        same = await events.subscribe(pattern, queue.name, filter_policy='{ "b":[2], "a":[1] }')
        assert same == made
        for other in ({}, {"wants_envelope": True, "filter_policy": '{"a":[1],"b":[2]}'}):
            with pytest.raises(SubscriptionExists, match="with other settings"):
                await events.subscribe(pattern, queue.name, **other)
        assert await events.of_pattern(pattern) == [made]
        hook = await events.subscribe(pattern)
        assert await events.subscribe(pattern, protocol="https") == hook
        assert await events.of_pattern(pattern) == [made, hook]


async def test_a_subscription_that_sns_made_is_the_same_for_queues_only(
    events: Events, sns: Sns, make_queue: MakeQueue
) -> None:
    queue, topic = await make_queue(), await sns.topic("orders")
    made = await sns.subscribe(topic, queue.arn, RawMessageDelivery="true")
    assert await events.subscribe("orders", queue.name) == made
    await sns.subscribe(topic, WEB_HOOK, "https", RawMessageDelivery="true")
    with pytest.raises(SubscriptionExists):
        await events.subscribe("orders")


async def test_web_hooks_are_confirmed_at_once_and_know_their_origin(
    events: Events, subscriber: Subscriber
) -> None:
    made = await events.subscribe("a.b", delivery_policy='{"healthyRetryPolicy":{"numRetries":1}}')
    assert (made.is_confirmed, made.gets_events, made.protocol) == (True, True, "https")
    assert json.loads(made.attributes["DeliveryPolicy"])["healthyRetryPolicy"]["numRetries"] == 1
    assert await subscriber.rows("deliveries") == []
    plain = await events.subscribe("c")
    effective = json.loads((await subscriber.get(plain.arn))["EffectiveDeliveryPolicy"])
    assert effective["healthyRetryPolicy"]["minDelayTarget"] == 10
    assert effective["requestPolicy"] == {"headerContentType": "application/json"}


@pytest.mark.parametrize(
    ("members", "refusal", "text"),
    [
        ({"queue_name": None, "endpoint": None}, InvalidParameterValue, "Say either"),
        ({"queue_name": "jobs", "endpoint": WEB_HOOK}, InvalidParameterValue, "Say either"),
        ({"queue_name": "jobs", "protocol": "http"}, InvalidParameterValue, "protocol goes"),
        ({"queue_name": "gone"}, QueueDoesNotExist, "does not exist"),
        ({"queue_name": "lane"}, InvalidParameterValue, "'lane.fifo' is a FIFO queue"),
        ({"endpoint": "ftp://x.example"}, InvalidParameterValue, "a URL that begins with"),
        ({"endpoint": "x", "protocol": "email"}, InvalidParameterValue, "a URL that begins"),
        ({"endpoint": WEB_HOOK, "protocol": "http"}, WebHookRefused, "must match"),
        ({"endpoint": "http://10.0.0.1/"}, AuthorizationError, "internal endpoints"),
        ({"endpoint": "http://a b/"}, WebHookRefused, "Endpoint"),
        ({"endpoint": WEB_HOOK, "filter_policy": "{]"}, SettingRefused, "FilterPolicy"),
        ({"endpoint": WEB_HOOK, "delivery_policy": "1"}, SettingRefused, "DeliveryPolicy"),
        ({"queue_name": "jobs", "delivery_policy": "{}"}, SettingRefused, "DeliveryPolicy"),
        ({"queue_name": "jobs", "dead_letter_queue": "gone"}, QueueDoesNotExist, "not exist"),
        ({"queue_name": "jobs", "dead_letter_queue": "lane"}, SettingRefused, "standard"),
    ],
)
async def test_a_refused_subscription_leaves_nothing(
    events: Events,
    subscriber: Subscriber,
    members: dict[str, str | None],
    refusal: type[Exception],
    text: str,
) -> None:
    await events.make_queue("jobs")
    await events.make_queue("lane.fifo")
    for pattern in ("a", "a.#"):
        with pytest.raises(refusal, match=text):
            await events.subscribe(pattern, **({"endpoint": None} | members))
    with pytest.raises(InvalidParameterValue, match="The pattern is not valid"):
        await events.subscribe("a b", "jobs")
    assert await subscriber.rows("topics") == []
    assert await subscriber.rows("subscriptions") == []


async def test_a_dead_letter_queue_is_named_like_any_queue(events: Events) -> None:
    buried = await events.make_queue("buried")
    made = await events.subscribe("a.#", dead_letter_queue="buried")
    assert json.loads(made.attributes["RedrivePolicy"]) == {"deadLetterTargetArn": buried.arn}


async def test_there_is_a_limit_of_patterns(events: Events) -> None:
    queue = await events.make_queue()
    events.engine.limits = replace(events.engine.limits, event_patterns=2)
    for pattern in ("a.*", "b.*", "a.*", "plain"):
        await events.subscribe(pattern, queue.name)
    with pytest.raises(OverLimit, match="subscriptions to 2 patterns"):
        await events.subscribe("c.*", queue.name)
    assert await events.patterns() == ["a.*", "b.*"]


async def test_only_of_exactly_this_pattern(world: World, events: Events) -> None:
    queue = await world.make_queue()
    one = await events.subscribe("a.*", queue.name)
    other = await events.subscribe("a.#", queue.name)
    assert await events.of_pattern("a.*") == [one]
    assert await events.of_pattern("a.b") == []
    stranger = Events(world.engine, replace(world.caller, account_id="444455556666"))
    for who, pattern in ((events, "a.#"), (events, "a.b"), (events, "a"), (stranger, "a.*")):
        with pytest.raises(NotFound, match="Subscription does not exist"):
            await who.unsubscribe(pattern, one)
    assert (await events.reached("a.b"))[0] == [queue.name] * 2
    await events.unsubscribe("a.*", one)
    with pytest.raises(NotFound):
        await events.unsubscribe("a.*", one)
    assert await events.patterns() == ["a.#"]
    await events.unsubscribe("a.#", other)
    assert await events.patterns() == []


async def test_whoever_has_an_envelope_can_end_it_and_come_back(
    events: Events, subscriber: Subscriber, make_queue: MakeQueue
) -> None:
    """The last subscription of a pattern, without credentials: the pattern waits for it."""
    made = await events.subscribe("order.#")
    await subscriber.anonymous().unsubscribe(made.arn)
    assert await events.reached("order.x") == ([], 0)
    assert await events.of_pattern("order.#") == []
    assert await events.patterns() == ["order.#"]
    [told] = await subscriber.envelopes()
    assert told["Type"] == "UnsubscribeConfirmation"
    assert "&TopicArn=arn:aws:sns:eu-west-1:111122223333:order.%23&" in told["SubscribeURL"]
    assert await subscriber.confirm(told["TopicArn"], told["Token"]) == made.arn
    [restored] = await events.of_pattern("order.#")
    assert (restored.subscription_id, restored.gets_events) == (made.subscription_id, True)
    assert await events.reached("order.x") == ([], 1)
    queue = await make_queue()
    wrapped = await events.subscribe("order.#", queue.name, wants_envelope=True)
    await subscriber.anonymous().unsubscribe(wrapped.arn)
    assert await events.of_pattern("order.#") == [restored]


async def test_a_pattern_goes_when_nobody_can_come_back_to_it(
    events: Events, subscriber: Subscriber, engine: Engine, clock: TestClock
) -> None:
    for pattern in ("order.#", "kept.#"):
        made = await events.subscribe(pattern)
        await subscriber.anonymous().unsubscribe(made.arn)
    assert clock.fixed is not None
    clock.move_on(engine.limits.confirmation_seconds + 1)
    kept = await events.subscribe("kept.#")
    async with engine.database.transaction() as tx:
        assert await subscriptions.delete_expired(tx, clock.fixed, 10) == 2
    assert await events.patterns() == ["kept.#"]
    assert await events.of_pattern("kept.#") == [kept]


async def test_a_deleted_topic_is_a_key_again(world: World, events: Events) -> None:
    for name in ("own", "all"):
        await world.make_queue(name)
    await events.subscribe("orders", "own")
    await events.subscribe("#", "all")
    assert (await events.reached("orders"))[0] == ["own", "all"]
    await delete_topic(world.engine, world.caller, topic_arn("orders"))
    assert (await events.reached("orders"))[0] == ["all"]
    await events.subscribe("orders", "own")
    assert (await events.reached("orders"))[0] == ["own", "all"]
