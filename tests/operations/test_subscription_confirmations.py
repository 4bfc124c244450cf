"""ConfirmSubscription and Unsubscribe, signed and by link, and the way back."""

from __future__ import annotations

import asyncio

import pytest

from queuegate.gateway.faces.aws.aws_refusals import InvalidParameter
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.topics import topic_subscriptions
from queuegate.storage.storage_errors import (
    AuthorizationError,
    NotFound,
    SubscriptionPending,
    TokenRefused,
)
from queuegate.storage.topics import stored_topics
from tests.operations.conftest import ACCOUNT, REGION, RecordingWakeups
from tests.operations.sns_actions import delete_topic
from tests.operations.subscribers import BASE_URL, WEB_HOOK, Subscriber

SOME_TOKEN = "0123456789abcdef" * 16


@pytest.fixture
def anonymous(subscriber: Subscriber) -> Subscriber:
    """Somebody who follows a link."""
    return subscriber.anonymous()


@pytest.fixture
async def topic(subscriber: Subscriber) -> str:
    return await subscriber.topic()


@pytest.fixture
async def hook(subscriber: Subscriber, topic: str) -> str:
    """A pending web hook with attributes of its own."""
    return await subscriber.subscribe(topic, "https", WEB_HOOK, RawMessageDelivery="true")


@pytest.fixture
async def token(subscriber: Subscriber, hook: str) -> str:
    [envelope] = await subscriber.envelopes()
    return envelope["Token"]


async def test_link_confirms_and_repeats_itself(
    subscriber: Subscriber, anonymous: Subscriber, topic: str, hook: str, token: str
) -> None:
    assert await anonymous.confirm(topic, token) == hook
    assert await anonymous.confirm(topic, token) == hook
    assert await subscriber.confirm(topic, token, "true") == hook

    found = await subscriber.get(hook)
    assert found["PendingConfirmation"] == "false"
    assert found["ConfirmationWasAuthenticated"] == "false"
    assert not (await subscriber.stored(hook)).authenticate_on_unsubscribe


@pytest.mark.parametrize(
    ("asked", "is_needed"), [(None, False), ("false", False), ("true", True), ("True", True)]
)
async def test_signed_call_may_ask_for_authentication(
    subscriber: Subscriber,
    anonymous: Subscriber,
    *,
    topic: str,
    hook: str,
    token: str,
    asked: str | None,
    is_needed: bool,
) -> None:
    await subscriber.confirm(topic, token, asked)

    assert (await subscriber.get(hook))["ConfirmationWasAuthenticated"] == "true"
    if is_needed:
        with pytest.raises(AuthorizationError):
            await anonymous.unsubscribe(hook)
        assert await subscriber.of_topic(topic) == [hook]
    else:
        await anonymous.unsubscribe(hook)
        assert await subscriber.of_topic(topic) == []


async def test_link_cannot_ask_for_authentication(
    anonymous: Subscriber, topic: str, hook: str, token: str
) -> None:
    await anonymous.confirm(topic, token, "true")
    await anonymous.unsubscribe(hook)
    assert await anonymous.of_topic(topic) == []


async def test_many_confirm_at_once(
    anonymous: Subscriber, topic: str, hook: str, token: str
) -> None:
    answers = await asyncio.gather(*[anonymous.confirm(topic, token) for _ in range(10)])
    assert set(answers) == {hook}


@pytest.mark.parametrize("wrong", ["", "x", "abc", "g" * 288, "a" * 2000, "\x00" * 288, "é" * 288])
async def test_token_of_the_wrong_shape(anonymous: Subscriber, topic: str, wrong: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        await anonymous.confirm(topic, wrong)
    assert str(refusal.value) == "Invalid token"


async def test_unknown_token(anonymous: Subscriber, topic: str, token: str) -> None:
    for unknown in (SOME_TOKEN, token[:-1] + ("0" if token[-1] != "0" else "1"), token.upper()):
        with pytest.raises(InvalidParameter) as refusal:
            await anonymous.confirm(topic, unknown)
        assert str(refusal.value) == "Invalid parameter: Token"


async def test_token_of_a_deleted_topic(
    anonymous: Subscriber, engine: Engine, caller: Caller, topic: str, token: str
) -> None:
    await delete_topic(engine, caller, topic)
    with pytest.raises(InvalidParameter) as refusal:
        await anonymous.confirm(topic, token)
    assert str(refusal.value) == "Invalid parameter: Token"


async def test_a_token_of_nobody_is_refused(engine: Engine) -> None:
    with pytest.raises(TokenRefused):
        await topic_subscriptions.confirm(
            engine,
            ACCOUNT,
            SOME_TOKEN,
            region=REGION,
            is_signed=True,
            authenticate_on_unsubscribe=False,
        )


# Unsubscribe


async def test_what_waits_cannot_be_ended(subscriber: Subscriber, topic: str) -> None:
    arn = await subscriber.subscribe(topic, "https", WEB_HOOK)
    with pytest.raises(SubscriptionPending):
        await topic_subscriptions.end(subscriber.engine, subscriber.caller, arn, base_url=BASE_URL)


async def test_owner_unsubscribes_without_a_word(
    subscriber: Subscriber, topic: str, hook: str, token: str
) -> None:
    await subscriber.confirm(topic, token)

    await subscriber.unsubscribe(hook)
    await subscriber.unsubscribe(hook)

    assert await subscriber.of_topic(topic) == []
    with pytest.raises(NotFound):
        await subscriber.get(hook)
    assert len(await subscriber.envelopes()) == 1
    assert await subscriber.rows("ended_subscriptions") == []


async def test_topic_counts_what_was_deleted(
    subscriber: Subscriber, anonymous: Subscriber, topic: str, hook: str, token: str
) -> None:
    await subscriber.confirm(topic, token)
    queue = await subscriber.subscribe(topic)
    await subscriber.unsubscribe(queue)
    await subscriber.unsubscribe(queue)
    await anonymous.unsubscribe(hook)

    async with subscriber.engine.database.transaction() as tx:
        found = await stored_topics.find(tx, ACCOUNT, REGION, "news")
    assert found is not None
    assert found.subscriptions_deleted == 2


async def test_link_tells_the_web_hook(
    subscriber: Subscriber,
    anonymous: Subscriber,
    wakeups: RecordingWakeups,
    *,
    topic: str,
    hook: str,
    token: str,
) -> None:
    await anonymous.confirm(topic, token)
    told: list[str] = []
    wakeups.on["deliveries"] = lambda: told.append("delivery")

    await anonymous.unsubscribe(hook)

    assert await subscriber.of_topic(topic) == []
    with pytest.raises(NotFound):
        await subscriber.get(hook)
    _, envelope = await subscriber.envelopes()
    assert envelope["Type"] == "UnsubscribeConfirmation"
    assert envelope["Message"] == (
        f"You have chosen to deactivate subscription {hook}.\nTo cancel this operation and "
        "restore the subscription, visit the SubscribeURL included in this message."
    )
    assert envelope["Token"] != token
    assert envelope["SubscribeURL"] == (
        f"{BASE_URL}/?Action=ConfirmSubscription&TopicArn={topic}&Token={envelope['Token']}"
    )
    [_, row] = await subscriber.rows("deliveries")
    assert (row["kind"], row["endpoint"]) == ("UnsubscribeConfirmation", WEB_HOOK)
    assert row["is_raw"] is False
    assert told == ["delivery"]


async def test_web_hook_finds_its_way_back(
    subscriber: Subscriber, anonymous: Subscriber, topic: str, hook: str, token: str
) -> None:
    await subscriber.confirm(topic, token)
    await subscriber.set(hook, "FilterPolicy", '{"a": ["b"]}')
    await anonymous.unsubscribe(hook)
    back = (await subscriber.envelopes())[-1]["Token"]

    answers = [await anonymous.confirm(topic, back) for _ in range(3)]

    assert set(answers) == {hook}
    assert await subscriber.of_topic(topic) == [hook]
    found = await subscriber.get(hook)
    assert (found["RawMessageDelivery"], found["FilterPolicy"]) == ("true", '{"a": ["b"]}')
    assert found["PendingConfirmation"] == "false"
    # The first link belonged to the subscription as it was before.
    with pytest.raises(InvalidParameter):
        await anonymous.confirm(topic, token)
    await anonymous.unsubscribe(hook)
    assert await subscriber.of_topic(topic) == []


async def test_many_find_the_way_back_at_once(
    subscriber: Subscriber, anonymous: Subscriber, topic: str, hook: str, token: str
) -> None:
    await anonymous.confirm(topic, token)
    await asyncio.gather(*[anonymous.unsubscribe(hook) for _ in range(5)])
    assert len(await subscriber.envelopes()) == 2
    back = (await subscriber.envelopes())[-1]["Token"]

    answers = await asyncio.gather(*[anonymous.confirm(topic, back) for _ in range(5)])

    assert set(answers) == {hook}


async def test_way_back_is_open_for_two_days(
    subscriber: Subscriber, anonymous: Subscriber, *, topic: str, hook: str, token: str
) -> None:
    await anonymous.confirm(topic, token)
    await anonymous.unsubscribe(hook)
    back = (await subscriber.envelopes())[-1]["Token"]
    subscriber.clock.move_on(days=2)

    with pytest.raises(InvalidParameter) as refusal:
        await anonymous.confirm(topic, back)
    assert str(refusal.value) == "Invalid parameter: Token"


async def test_way_back_to_another_region(
    subscriber: Subscriber, anonymous: Subscriber, topic: str, hook: str, token: str
) -> None:
    await anonymous.confirm(topic, token)
    await anonymous.unsubscribe(hook)
    back = (await subscriber.envelopes())[-1]["Token"]

    with pytest.raises(InvalidParameter) as refusal:
        await anonymous.confirm(topic.replace(REGION, "us-west-2"), back)
    assert str(refusal.value) == "Invalid parameter: Topic"


async def test_stranger_who_signs_counts_as_a_link(
    subscriber: Subscriber, topic: str, hook: str, token: str
) -> None:
    await subscriber.confirm(topic, token)
    await subscriber.of_account("999988887777").unsubscribe(hook)
    assert (await subscriber.envelopes())[-1]["Type"] == "UnsubscribeConfirmation"


async def test_mail_address_is_told_in_the_outbox(
    subscriber: Subscriber, anonymous: Subscriber, topic: str
) -> None:
    arn = await subscriber.subscribe(topic, "email", "reader@example.com")
    [row] = await subscriber.rows("outbox")
    token = row["body"].partition('"Token" : "')[2].partition('"')[0]
    await anonymous.confirm(topic, token)

    await anonymous.unsubscribe(arn)

    [_, row] = await subscriber.rows("outbox")
    assert row["kind"] == "UnsubscribeConfirmation"
    assert await subscriber.rows("deliveries") == []


async def test_stranger_does_not_end_what_needs_authentication(
    subscriber: Subscriber, topic: str, hook: str, token: str
) -> None:
    await subscriber.confirm(topic, token, "true")

    with pytest.raises(AuthorizationError):
        await subscriber.of_account("999988887777").unsubscribe(hook)

    assert await subscriber.of_topic(topic) == [hook]
