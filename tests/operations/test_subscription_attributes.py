"""Attributes of subscriptions: values, texts, order, and what they do."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuegate.gateway.faces.aws.aws_refusals import InvalidParameter, ValidationFailed
from queuegate.storage.storage_errors import NotFound, Rejected, ReplayLimitExceeded
from tests.fuzz import drawing
from tests.operations.conftest import ACCOUNT, REGION, TestClock
from tests.operations.subscribers import WEB_HOOK, Subscriber

POLICY = '{"colour": ["blue"]}'
NESTED = '{"car": {"colour": ["blue"]}}'
DEAD = f"arn:aws:sqs:{REGION}:{ACCOUNT}:dead"
REDRIVE = json.dumps({"deadLetterTargetArn": DEAD})
FIFO_REDRIVE = json.dumps({"deadLetterTargetArn": DEAD + ".fifo"})
NAMES = (
    "DeliveryPolicy",
    "FilterPolicy",
    "FilterPolicyScope",
    "RawMessageDelivery",
    "RedrivePolicy",
    "ReplayPolicy",
    "SubscriptionRoleArn",
)
DELIVERY = json.dumps({"healthyRetryPolicy": {"numRetries": 5}})


@pytest.fixture
async def topic(subscriber: Subscriber) -> str:
    return await subscriber.topic()


@pytest.fixture
async def queue(subscriber: Subscriber, topic: str) -> str:
    """The subscription of a queue."""
    return await subscriber.subscribe(topic)


@pytest.fixture
async def hook(subscriber: Subscriber, topic: str) -> str:
    """The subscription of a web hook, not confirmed."""
    return await subscriber.subscribe(topic, "https", WEB_HOOK)


async def test_order_of_a_queues_attributes(subscriber: Subscriber, topic: str, queue: str) -> None:
    assert list((await subscriber.get(queue)).items()) == [
        ("SubscriptionPrincipal", f"arn:aws:iam::{ACCOUNT}:user/{ACCOUNT}"),
        ("Owner", ACCOUNT),
        ("RawMessageDelivery", "false"),
        ("TopicArn", topic),
        ("Endpoint", subscriber.queue_arn()),
        ("Protocol", "sqs"),
        ("PendingConfirmation", "false"),
        ("ConfirmationWasAuthenticated", "true"),
        ("SubscriptionArn", queue),
    ]


async def test_order_when_everything_is_set(subscriber: Subscriber, hook: str) -> None:
    for name, value in (
        ("RedrivePolicy", REDRIVE),
        ("DeliveryPolicy", DELIVERY),
        ("FilterPolicyScope", "MessageBody"),
        ("FilterPolicy", NESTED),
        ("RawMessageDelivery", "TRUE"),
    ):
        await subscriber.set(hook, name, value)

    found = await subscriber.get(hook)

    assert list(found) == [
        "SubscriptionPrincipal",
        "Owner",
        "RawMessageDelivery",
        "FilterPolicy",
        "TopicArn",
        "Endpoint",
        "EffectiveDeliveryPolicy",
        "DeliveryPolicy",
        "FilterPolicyScope",
        "Protocol",
        "PendingConfirmation",
        "ConfirmationWasAuthenticated",
        "SubscriptionArn",
        "RedrivePolicy",
    ]
    assert found["RawMessageDelivery"] == "true"
    assert found["FilterPolicy"] == NESTED
    assert found["RedrivePolicy"] == REDRIVE
    assert json.loads(found["DeliveryPolicy"])["guaranteed"] is False
    assert json.loads(found["EffectiveDeliveryPolicy"])["healthyRetryPolicy"]["numRetries"] == 5


async def test_effective_delivery_policy_follows_the_topic(subscriber: Subscriber) -> None:
    policy = {"http": {"defaultHealthyRetryPolicy": {"numRetries": 7}}}
    topic = await subscriber.topic("other", DeliveryPolicy=json.dumps(policy))

    found = await subscriber.get(await subscriber.subscribe(topic, "https", WEB_HOOK))

    assert "DeliveryPolicy" not in found
    assert json.loads(found["EffectiveDeliveryPolicy"])["healthyRetryPolicy"]["numRetries"] == 7


async def test_role_of_a_stream(subscriber: Subscriber, topic: str) -> None:
    stream = f"arn:aws:firehose:{REGION}:{ACCOUNT}:deliverystream/all"
    role = f"arn:aws:iam::{ACCOUNT}:role/firehose"

    with pytest.raises(InvalidParameter) as refusal:
        await subscriber.subscribe(topic, "firehose", stream)
    assert str(refusal.value) == (
        "Invalid parameter: Attributes Reason: SubscriptionRoleArn: firehose subscriptions need "
        "the ARN of a role"
    )
    arn = await subscriber.subscribe(topic, "firehose", stream, SubscriptionRoleArn=role)
    found = await subscriber.get(arn)
    assert list(found)[-1] == "SubscriptionRoleArn"
    assert found["SubscriptionRoleArn"] == role


async def test_scope_is_shown_only_together_with_a_policy(
    subscriber: Subscriber, queue: str
) -> None:
    await subscriber.set(queue, "FilterPolicyScope", "MessageBody")
    assert "FilterPolicyScope" not in await subscriber.get(queue)
    await subscriber.set(queue, "FilterPolicy", NESTED)
    assert (await subscriber.get(queue))["FilterPolicyScope"] == "MessageBody"


async def test_scope_is_by_attributes_unless_set(subscriber: Subscriber, queue: str) -> None:
    await subscriber.set(queue, "FilterPolicy", POLICY)
    assert (await subscriber.get(queue))["FilterPolicyScope"] == "MessageAttributes"


async def test_scope_must_fit_the_policy(subscriber: Subscriber, queue: str) -> None:
    await subscriber.set(queue, "FilterPolicyScope", "MessageBody")
    await subscriber.set(queue, "FilterPolicy", NESTED)

    with pytest.raises(InvalidParameter) as refusal:
        await subscriber.set(queue, "FilterPolicyScope", "MessageAttributes")

    assert str(refusal.value) == (
        "Invalid parameter: Filter policy scope MessageAttributes does not support nested filter "
        "policy"
    )
    assert (await subscriber.get(queue))["FilterPolicyScope"] == "MessageBody"


@pytest.mark.parametrize("nothing", ["", "{}", " { } ", None])
@pytest.mark.parametrize("name", ["FilterPolicy", "RedrivePolicy"])
async def test_nothing_takes_a_policy_away(
    subscriber: Subscriber, queue: str, name: str, nothing: str | None
) -> None:
    value = POLICY if name == "FilterPolicy" else REDRIVE
    await subscriber.set(queue, name, value)
    assert (await subscriber.get(queue))[name] == value

    await subscriber.set(queue, name, nothing)

    assert name not in await subscriber.get(queue)


async def test_nothing_takes_a_delivery_policy_away(subscriber: Subscriber, hook: str) -> None:
    await subscriber.set(hook, "DeliveryPolicy", DELIVERY)
    await subscriber.set(hook, "DeliveryPolicy", "")
    assert "DeliveryPolicy" not in await subscriber.get(hook)


REFUSED = [
    ("Colour", "blue", "AttributeName"),
    ("TopicArn", "arn", "AttributeName"),
    ("", "", "AttributeName"),
    (
        "RawMessageDelivery",
        "maybe",
        "RawMessageDelivery: Invalid value [maybe]. Must be true or false.",
    ),
    ("RawMessageDelivery", "", "RawMessageDelivery: Invalid value []. Must be true or false."),
    (
        "FilterPolicyScope",
        "Body",
        "FilterPolicyScope: Invalid value [Body]. Please use either MessageBody or "
        "MessageAttributes",
    ),
    (
        "FilterPolicyScope",
        "",
        "FilterPolicyScope: Invalid value []. Please use either MessageBody or MessageAttributes",
    ),
    (
        "FilterPolicy",
        "blue",
        "FilterPolicy: failed to parse JSON. Unrecognized token 'blue': was expecting (JSON "
        "String, Number, Array, Object or token 'null', 'true' or 'false')\n at [Source: REDACTED "
        "(`StreamReadFeature.INCLUDE_SOURCE_IN_LOCATION` disabled); line: 1, column: 5]",
    ),
    ("RedrivePolicy", "blue", "RedrivePolicy: failed to parse JSON."),
    ("RedrivePolicy", "[]", "RedrivePolicy: failed to parse JSON."),
    ("RedrivePolicy", "[" * 5000, "RedrivePolicy: failed to parse JSON."),
    ("RedrivePolicy", "{" + " " * 10_240, "RedrivePolicy: longer than 10240 characters"),
    ("RedrivePolicy", "{", "RedrivePolicy: failed to parse JSON."),
    ("ReplayPolicy", "{" + " " * 10_240, "ReplayPolicy: longer than 10240 characters"),
    (
        "RedrivePolicy",
        '{"deadLetterTargetArn": "dead"}',
        "RedrivePolicy: deadLetterTargetArn is an invalid arn",
    ),
    (
        "RedrivePolicy",
        '{"deadLetterTargetArn": 5}',
        "RedrivePolicy: deadLetterTargetArn is an invalid arn",
    ),
    ("RedrivePolicy", '{"a": 1}', "RedrivePolicy: deadLetterTargetArn is an invalid arn"),
    (
        "RedrivePolicy",
        FIFO_REDRIVE,
        "RedrivePolicy: must use a standard queue as DLQ for a Subscription to a standard Topic.",
    ),
    (
        "DeliveryPolicy",
        DELIVERY,
        "DeliveryPolicy: Delivery protocol [sqs] does not support a delivery policy.",
    ),
    (
        "SubscriptionRoleArn",
        f"arn:aws:iam::{ACCOUNT}:role/r",
        "SubscriptionRoleArn: only firehose subscriptions have a role",
    ),
    (
        "ReplayPolicy",
        "x",
        "ReplayPolicy: only subscriptions of queues to FIFO topics with an ArchivePolicy have one",
    ),
]


@pytest.mark.parametrize(("name", "value", "reason"), REFUSED)
async def test_refused_values(
    subscriber: Subscriber, topic: str, queue: str, name: str, value: str, reason: str
) -> None:
    before = await subscriber.get(queue)

    with pytest.raises(InvalidParameter) as refusal:
        await subscriber.set(queue, name, value)
    assert str(refusal.value) == f"Invalid parameter: {reason}"

    # In Subscribe the same text has a longer beginning.
    other = subscriber.queue_arn("other")
    with pytest.raises(InvalidParameter) as refusal:
        await subscriber.subscribe(topic, "sqs", other, **{name: value})
    assert str(refusal.value) == f"Invalid parameter: Attributes Reason: {reason}"
    assert await subscriber.get(queue) == before
    assert await subscriber.of_topic(topic) == [queue]


async def test_raw_delivery_is_not_for_all_protocols(subscriber: Subscriber, topic: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        await subscriber.subscribe(topic, "sms", "+15551234567", RawMessageDelivery="true")
    assert str(refusal.value) == (
        "Invalid parameter: Attributes Reason: Delivery protocol [sms] does not support raw "
        "message delivery."
    )
    await subscriber.subscribe(topic, "sms", "+15551234567", RawMessageDelivery="false")


async def test_bad_delivery_policy_of_a_web_hook(subscriber: Subscriber, hook: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        await subscriber.set(hook, "DeliveryPolicy", '{"healthyRetryPolicy": {"numRetries": 101}}')
    assert str(refusal.value).startswith("Invalid parameter: DeliveryPolicy: ")


async def test_dead_letter_queues_of_a_fifo_topic(subscriber: Subscriber) -> None:
    topic = await subscriber.topic("news.fifo")
    fifo = await subscriber.subscribe(topic, "sqs", subscriber.queue_arn("orders.fifo"))
    standard = await subscriber.subscribe(topic, "sqs", subscriber.queue_arn("orders"))

    with pytest.raises(InvalidParameter) as refusal:
        await subscriber.set(fifo, "RedrivePolicy", REDRIVE)
    assert str(refusal.value) == (
        "Invalid parameter: RedrivePolicy: must use a FIFO queue as DLQ for a FIFO Subscription "
        "to a FIFO Topic."
    )
    await subscriber.set(fifo, "RedrivePolicy", FIFO_REDRIVE)
    await subscriber.set(standard, "RedrivePolicy", REDRIVE)


MALFORMED = [
    (
        "orders",
        "Invalid parameter: SubscriptionArn Reason: An ARN must have at least 6 elements, not 1",
    ),
    (
        "arn:aws:sns:us-east-1:news",
        "Invalid parameter: SubscriptionArn Reason: An ARN must have at least 6 elements, not 5",
    ),
    (f"arn:aws:sns:{REGION}:{ACCOUNT}:news", "Invalid parameter: SubscriptionId"),
    (f"arn:aws:sns:{REGION}:{ACCOUNT}:news:one", "Invalid parameter: SubscriptionId"),
    ("::::::\x00", "Invalid parameter: SubscriptionId"),
]


@pytest.mark.parametrize(("arn", "text"), MALFORMED)
async def test_malformed_arns(subscriber: Subscriber, arn: str, text: str) -> None:
    for call in (
        subscriber.get(arn),
        subscriber.set(arn, "RawMessageDelivery", "true"),
        subscriber.unsubscribe(arn),
    ):
        with pytest.raises(InvalidParameter) as refusal:
            await call
        assert str(refusal.value) == text


async def test_missing_subscription(subscriber: Subscriber, topic: str, queue: str) -> None:
    other = await subscriber.topic("other")
    elsewhere = queue.replace(topic, other)
    for arn in (f"{topic}:11111111-2222-3333-4444-555555555555", elsewhere):
        for call in (subscriber.get(arn), subscriber.set(arn, "RawMessageDelivery", "true")):
            with pytest.raises(NotFound) as refusal:
                await call
            assert str(refusal.value) == "Subscription does not exist"


@pytest.mark.parametrize("name", [None, ""])
async def test_attribute_name_is_required(
    subscriber: Subscriber, queue: str, name: str | None
) -> None:
    with pytest.raises((ValidationFailed, InvalidParameter)):
        await subscriber.set(queue, name, "x")


# Replays


def replay(**changes: Any) -> str:
    point = {"PointType": "Timestamp", "StartingPoint": "2026-11-20T12:00:00.000Z"}
    return json.dumps({name: v for name, v in (point | changes).items() if v is not None})


@pytest.fixture
async def archived(subscriber: Subscriber) -> str:
    """The subscription of a queue to a FIFO topic that keeps its messages for ten days."""
    archive = '{"MessageRetentionPeriod": "10"}'
    topic = await subscriber.topic("news.fifo", ArchivePolicy=archive)
    return await subscriber.subscribe(topic, "sqs", subscriber.queue_arn("orders.fifo"))


async def test_replay_policy_asks_for_a_replay(subscriber: Subscriber, archived: str) -> None:
    policy = replay(EndingPoint="2026-11-20T15:00:00+02:00")

    await subscriber.set(archived, "ReplayPolicy", policy)

    found = await subscriber.get(archived)
    assert list(found)[-2:] == ["ReplayPolicy", "ReplayStatus"]
    assert (found["ReplayPolicy"], found["ReplayStatus"]) == (policy, "Pending")
    [row] = await subscriber.rows("replays")
    assert row["starting_at"].isoformat() == "2026-11-20T12:00:00+00:00"
    assert row["ending_at"].isoformat() == "2026-11-20T13:00:00+00:00"


async def test_replay_policy_in_subscribe(subscriber: Subscriber, archived: str) -> None:
    topic = archived.rpartition(":")[0]
    queue = subscriber.queue_arn("later.fifo")

    arn = await subscriber.subscribe(topic, "sqs", queue, ReplayPolicy=replay())
    again = await subscriber.subscribe(topic, "sqs", queue, ReplayPolicy=replay())

    assert arn == again
    assert (await subscriber.get(arn))["ReplayStatus"] == "Pending"
    [row] = await subscriber.rows("replays")
    assert row["ending_at"] is None


async def test_second_replay_waits_for_the_end_of_the_first(
    subscriber: Subscriber, archived: str
) -> None:
    await subscriber.set(archived, "ReplayPolicy", replay())

    with pytest.raises(ReplayLimitExceeded):
        await subscriber.set(archived, "ReplayPolicy", replay())

    async with subscriber.engine.database.transaction() as tx:
        await tx.execute("UPDATE replays SET status = 'Completed'")
    assert (await subscriber.get(archived))["ReplayStatus"] == "Completed"
    await subscriber.set(archived, "ReplayPolicy", replay())
    assert (await subscriber.get(archived))["ReplayStatus"] == "Pending"


@pytest.mark.parametrize("nothing", ["", "{}"])
async def test_nothing_ends_a_replay(subscriber: Subscriber, archived: str, nothing: str) -> None:
    await subscriber.set(archived, "ReplayPolicy", replay())

    await subscriber.set(archived, "ReplayPolicy", nothing)

    assert "ReplayStatus" not in await subscriber.get(archived)
    assert "ReplayPolicy" not in await subscriber.get(archived)
    assert await subscriber.rows("replays") == []


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ("x", "failed to parse JSON."),
        ("[]", "failed to parse JSON."),
        (replay(Colour="blue"), "only PointType, StartingPoint and EndingPoint are supported"),
        (replay(PointType="Offset"), "PointType must be Timestamp"),
        (replay(PointType=None), "PointType must be Timestamp"),
        (replay(StartingPoint=None), "StartingPoint must be a time in ISO 8601"),
        (replay(StartingPoint="yesterday"), "StartingPoint must be a time in ISO 8601"),
        (replay(StartingPoint=1_700_000_000), "StartingPoint must be a time in ISO 8601"),
        (
            replay(StartingPoint="0001-01-01T00:00:00+14:00"),
            "StartingPoint must be a time in ISO 8601",
        ),
        (
            replay(EndingPoint="9999-12-31T23:59:59-14:00"),
            "EndingPoint must be a time in ISO 8601",
        ),
        (
            replay(EndingPoint="2026-11-20T12:00:00Z"),
            "StartingPoint must be before EndingPoint",
        ),
        (
            replay(StartingPoint="2026-11-11T11:59:59Z"),
            "StartingPoint is before the archive's retention period",
        ),
    ],
)
async def test_refused_replay_policies(
    subscriber: Subscriber, archived: str, policy: str, reason: str
) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        await subscriber.set(archived, "ReplayPolicy", policy)

    assert str(refusal.value) == f"Invalid parameter: ReplayPolicy: {reason}"
    assert await subscriber.rows("replays") == []


async def test_retention_is_that_of_the_moment(
    subscriber: Subscriber, archived: str, clock: TestClock
) -> None:
    await subscriber.set(archived, "ReplayPolicy", replay())
    await subscriber.set(archived, "ReplayPolicy", "")
    assert clock.fixed is not None
    clock.fixed += timedelta(days=9, seconds=1)

    with pytest.raises(InvalidParameter):
        await subscriber.set(archived, "ReplayPolicy", replay())


# Anything

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.sampled_from([DEAD, "Timestamp", "2026-11-20T12:00:00Z", "linear"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "deadLetterTargetArn",
                    "healthyRetryPolicy",
                    "numRetries",
                    "throttlePolicy",
                    "PointType",
                    "StartingPoint",
                    "EndingPoint",
                    "$or",
                    "prefix",
                    "a",
                    "\x00",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)
VALUES = st.text(max_size=30) | JSON.map(json.dumps) | st.sampled_from(["[" * 3000, "\ud800", ""])


@drawing.few()
@given(name=st.sampled_from(NAMES) | st.text(max_size=5), value=VALUES, which=st.integers(0, 2))
async def test_any_value_is_taken_or_refused(
    subscriber: Subscriber, name: str, value: str, which: int
) -> None:
    fifo = await subscriber.topic("any.fifo", ArchivePolicy='{"MessageRetentionPeriod":"9"}')
    topic = await subscriber.topic("any")
    arn = (
        await subscriber.subscribe(topic, "https", WEB_HOOK),
        await subscriber.subscribe(topic),
        await subscriber.subscribe(fifo),
    )[which]
    before = await subscriber.get(arn)
    try:
        await subscriber.set(arn, name, value)
    except Rejected:
        assert await subscriber.get(arn) == before
    else:
        assert next(iter(await subscriber.get(arn))) == "SubscriptionPrincipal"
        await subscriber.engine.topics.find(ACCOUNT, REGION, "any")
        await subscriber.engine.topics.find(ACCOUNT, REGION, "any.fifo")
