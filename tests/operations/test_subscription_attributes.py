"""Attributes of subscriptions: values, texts, order, and what they do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from queuegate.gateway.faces.aws.aws_refusals import InvalidParameter
from queuegate.storage.storage_errors import ReplayLimitExceeded
from tests.operations.conftest import ACCOUNT, REGION
from tests.operations.subscribers import WEB_HOOK, Subscriber

POLICY = '{"colour": ["blue"]}'
NESTED = '{"car": {"colour": ["blue"]}}'


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


async def test_retention_is_that_of_the_moment(subscriber: Subscriber, archived: str) -> None:
    await subscriber.set(archived, "ReplayPolicy", replay())
    await subscriber.set(archived, "ReplayPolicy", "")
    subscriber.clock.move_on(days=9, seconds=1)

    with pytest.raises(InvalidParameter):
        await subscriber.set(archived, "ReplayPolicy", replay())
