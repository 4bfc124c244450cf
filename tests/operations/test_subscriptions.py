"""Subscribe and its limits; who has to confirm, and who is asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import replace

import pytest

from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.storage.storage_errors import (
    FilterPolicyLimitExceeded,
    NotFound,
    SubscriptionLimitExceeded,
)
from tests.operations.conftest import ACCOUNT, REGION, RecordingWakeups
from tests.operations.sns_actions import delete_topic
from tests.operations.subscribers import BASE_URL, WEB_HOOK, Subscriber
from tests.operations.world import TestClock

FUNCTION = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:handle"
POLICY = '{"colour": ["blue"]}'


@pytest.fixture
async def topic(subscriber: Subscriber) -> str:
    return await subscriber.topic()


async def test_web_hook_is_asked_in_the_same_transaction(
    subscriber: Subscriber, topic: str, wakeups: RecordingWakeups
) -> None:
    told: list[str] = []
    wakeups.on["deliveries"] = lambda: told.append("delivery")

    arn = await subscriber.subscribe(topic, "https", WEB_HOOK)

    [row] = await subscriber.rows("deliveries")
    assert row["kind"] == "SubscriptionConfirmation"
    assert str(row["subscription_id"]) == arn.rpartition(":")[2]
    assert (row["account_id"], row["region"], row["topic_name"]) == (ACCOUNT, REGION, "news")
    assert (row["endpoint"], row["is_raw"]) == (WEB_HOOK, False)
    envelope = json.loads(row["body"])
    assert envelope["Type"] == "SubscriptionConfirmation"
    assert envelope["MessageId"] == str(row["message_id"])
    assert envelope["TopicArn"] == topic
    assert envelope["Timestamp"] == "2026-11-21T12:00:00.000Z"
    assert envelope["Signature"] == ""
    assert envelope["SigningCertURL"].startswith(f"{BASE_URL}/SimpleNotificationService-")
    token = envelope["Token"]
    assert len(token) == 288
    int(token, 16)
    link = f"{BASE_URL}/?Action=ConfirmSubscription&TopicArn={topic}&Token={token}"
    assert envelope["SubscribeURL"] == link
    assert told == ["delivery"]


async def test_certificate_may_be_elsewhere(subscriber: Subscriber, topic: str) -> None:
    subscriber.engine.rules.cert_url_base = "https://sns.eu-west-1.amazonaws.com"

    await subscriber.subscribe(topic, "https", WEB_HOOK)

    [envelope] = await subscriber.envelopes()
    assert envelope["SigningCertURL"].startswith("https://sns.eu-west-1.amazonaws.com/Simple")
    assert envelope["SubscribeURL"].startswith(BASE_URL)


async def test_pending_endpoint_is_asked_again_with_the_same_token(
    subscriber: Subscriber, topic: str, clock: TestClock
) -> None:
    arn = await subscriber.subscribe(topic, "https", WEB_HOOK)
    clock.move_on(days=1)

    again = await subscriber.subscribe(topic, "https", WEB_HOOK)

    first, second = await subscriber.envelopes()
    assert again == arn
    assert first["Token"] == second["Token"]
    assert first["MessageId"] != second["MessageId"]
    clock.move_on(days=1, hours=12)
    assert await subscriber.confirm(topic, first["Token"]) == arn


async def test_confirmed_endpoint_is_not_asked_again(subscriber: Subscriber, topic: str) -> None:
    arn = await subscriber.subscribe(topic, "https", WEB_HOOK)
    [envelope] = await subscriber.envelopes()
    await subscriber.confirm(topic, envelope["Token"])

    assert await subscriber.answer(topic, "https", WEB_HOOK) == arn
    assert len(await subscriber.envelopes()) == 1


@pytest.mark.parametrize("suffix", ["", ".fifo"])
async def test_queue_of_another_account_reads_its_confirmation(
    subscriber: Subscriber, suffix: str
) -> None:
    owner = subscriber.of_account("999988887777")
    topic = await owner.topic(f"news{suffix}")
    queue = await subscriber.make_queue(f"orders{suffix}")

    assert await owner.answer(topic, "sqs", queue.arn) == "pending confirmation"

    [message] = await subscriber.receive(queue)
    envelope = json.loads(message.body)
    assert envelope["Type"] == "SubscriptionConfirmation"
    assert envelope["Signature"]
    arn = await subscriber.confirm(topic, envelope["Token"])
    assert (await owner.get(arn))["PendingConfirmation"] == "false"


async def test_owner_of_a_pending_queue_confirms_by_subscribing(subscriber: Subscriber) -> None:
    owner = subscriber.of_account("999988887777")
    topic = await owner.topic()
    # The queue does not exist, so nobody reads a token.
    arn = await owner.subscribe(topic, "sqs", subscriber.queue_arn())
    assert (await owner.get(arn))["PendingConfirmation"] == "true"

    assert await subscriber.subscribe(topic, "sqs") == arn
    assert (await owner.get(arn))["PendingConfirmation"] == "false"


async def test_function_of_another_account_is_asked_in_the_outbox(
    subscriber: Subscriber,
) -> None:
    owner = subscriber.of_account("999988887777")

    await owner.subscribe(await owner.topic(), "lambda", FUNCTION)

    [row] = await subscriber.rows("outbox")
    assert (row["protocol"], row["kind"]) == ("lambda", "SubscriptionConfirmation")


async def test_twenty_subscribes_at_once_are_one_subscription(
    subscriber: Subscriber, topic: str
) -> None:
    queues = [subscriber.subscribe(topic) for _ in range(10)]
    hooks = [subscriber.subscribe(topic, "https", WEB_HOOK) for _ in range(10)]

    arns = await asyncio.gather(*queues, *hooks)

    assert len(set(arns[:10])) == len(set(arns[10:])) == 1
    assert len(await subscriber.of_topic(topic)) == 2


async def test_subscribe_meets_the_deletion_of_its_topic(subscriber: Subscriber) -> None:
    for number in range(5):
        topic = await subscriber.topic(f"news-{number}")

        async def attempt(count: int, topic: str = topic) -> None:
            with contextlib.suppress(NotFound):
                await subscriber.subscribe(topic, "sqs", subscriber.queue_arn(f"q{count}"))

        await asyncio.gather(
            *map(attempt, range(4)),
            delete_topic(subscriber.engine, subscriber.caller, topic),
            *map(attempt, range(4, 8)),
        )
        assert await subscriber.rows("subscriptions") == []


async def test_fifo_topic_takes_a_hundred_queues(subscriber: Subscriber) -> None:
    subscriber.engine.limits = replace(subscriber.engine.limits, subscriptions_of_fifo_topic=3)
    topic = await subscriber.topic("news.fifo")
    for number in range(3):
        await subscriber.subscribe(topic, "sqs", subscriber.queue_arn(f"q{number}"))

    with pytest.raises(SubscriptionLimitExceeded):
        await subscriber.subscribe(topic, "sqs", subscriber.queue_arn("one-more"))

    # One of those that are there is no new one.
    await subscriber.subscribe(topic, "sqs", subscriber.queue_arn("q0"))


async def test_filter_policies_of_topic_and_account_are_limited(subscriber: Subscriber) -> None:
    limits = subscriber.engine.limits
    subscriber.engine.limits = replace(
        limits, filter_policies_of_topic=2, filter_policies_of_account=3
    )
    topic, other = await subscriber.topic("news"), await subscriber.topic("other")
    queues = [subscriber.queue_arn(f"q{number}") for number in range(3)]
    arns = [
        await subscriber.subscribe(topic, "sqs", queue, FilterPolicy=POLICY) for queue in queues[:2]
    ]

    with pytest.raises(FilterPolicyLimitExceeded):
        await subscriber.subscribe(topic, "sqs", queues[2], FilterPolicy=POLICY)
    unfiltered = await subscriber.subscribe(topic, "sqs", queues[2])
    with pytest.raises(FilterPolicyLimitExceeded):
        await subscriber.set(unfiltered, "FilterPolicy", POLICY)
    # Another policy in the place of one is no further one.
    await subscriber.set(arns[0], "FilterPolicy", '{"colour": ["red"]}')
    await subscriber.subscribe(other, "sqs", queues[0], FilterPolicy=POLICY)
    with pytest.raises(FilterPolicyLimitExceeded):
        await subscriber.subscribe(other, "sqs", queues[1], FilterPolicy=POLICY)
    await subscriber.set(arns[0], "FilterPolicy", "")
    await subscriber.set(unfiltered, "FilterPolicy", POLICY)


async def test_each_change_drops_what_is_cached_of_the_topic(
    subscriber: Subscriber, engine: Engine, topic: str
) -> None:
    async def audience() -> list[tuple[str, bool]]:
        found = await engine.topics.find(ACCOUNT, REGION, "news")
        return [(target.arn, target.is_raw) for target in found.targets]

    assert await audience() == []
    arn = await subscriber.subscribe(topic)
    assert await audience() == [(arn, False)]
    await subscriber.set(arn, "RawMessageDelivery", "true")
    assert await audience() == [(arn, True)]
    await subscriber.subscribe(topic, "https", WEB_HOOK)
    assert len(await audience()) == 1
    [envelope] = await subscriber.envelopes()
    await subscriber.confirm(topic, envelope["Token"])
    assert len(await audience()) == 2
    await subscriber.unsubscribe(arn)
    assert len(await audience()) == 1
