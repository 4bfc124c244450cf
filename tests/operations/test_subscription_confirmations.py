"""ConfirmSubscription and Unsubscribe, signed and by link, and the way back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from queuegate.gateway.faces.aws.aws_refusals import InvalidParameter
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.topics import topic_subscriptions
from queuegate.storage.storage_errors import (
    AuthorizationError,
    NotFound,
    SubscriptionPending,
    TokenRefused,
)
from tests.operations.conftest import ACCOUNT, REGION
from tests.operations.sns_actions import delete_topic
from tests.operations.subscribers import BASE_URL, WEB_HOOK, Subscriber

SOME_TOKEN = "0123456789abcdef" * 16


@dataclass(frozen=True)
class Hook:
    """A pending web hook with an attribute of its own."""

    owner: Subscriber
    topic: str
    arn: str
    token: str

    @property
    def anonymous(self) -> Subscriber:
        """Somebody who follows a link."""
        return self.owner.anonymous()

    async def last_token(self) -> str:
        return (await self.owner.envelopes())[-1]["Token"]

    async def listed(self) -> list[str]:
        return await self.owner.of_topic(self.topic)


@pytest.fixture
async def hook(subscriber: Subscriber) -> Hook:
    topic = await subscriber.topic()
    arn = await subscriber.subscribe(topic, "https", WEB_HOOK, RawMessageDelivery="true")
    [envelope] = await subscriber.envelopes()
    return Hook(subscriber, topic, arn, envelope["Token"])


async def test_link_confirms_and_repeats_itself(hook: Hook) -> None:
    assert await hook.anonymous.confirm(hook.topic, hook.token) == hook.arn
    assert await hook.anonymous.confirm(hook.topic, hook.token) == hook.arn
    assert await hook.owner.confirm(hook.topic, hook.token, "true") == hook.arn

    found = await hook.owner.get(hook.arn)
    assert found["PendingConfirmation"] == "false"
    assert found["ConfirmationWasAuthenticated"] == "false"
    assert not (await hook.owner.stored(hook.arn)).authenticate_on_unsubscribe


async def test_many_confirm_at_once(hook: Hook) -> None:
    answers = await asyncio.gather(
        *[hook.anonymous.confirm(hook.topic, hook.token) for _ in range(10)]
    )
    assert set(answers) == {hook.arn}


async def test_token_of_a_deleted_topic(hook: Hook) -> None:
    await delete_topic(hook.owner.engine, hook.owner.caller, hook.topic)
    with pytest.raises(InvalidParameter) as refusal:
        await hook.anonymous.confirm(hook.topic, hook.token)
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


async def test_what_waits_cannot_be_ended(hook: Hook) -> None:
    engine, caller = hook.owner.engine, hook.owner.caller
    with pytest.raises(SubscriptionPending):
        await topic_subscriptions.end(engine, caller, hook.arn, base_url=BASE_URL)


async def test_owner_unsubscribes_without_a_word(hook: Hook) -> None:
    await hook.owner.confirm(hook.topic, hook.token)

    await hook.owner.unsubscribe(hook.arn)
    await hook.owner.unsubscribe(hook.arn)

    assert await hook.listed() == []
    with pytest.raises(NotFound):
        await hook.owner.get(hook.arn)
    assert len(await hook.owner.envelopes()) == 1
    assert await hook.owner.rows("ended_subscriptions") == []


async def test_link_tells_the_web_hook(hook: Hook) -> None:
    await hook.anonymous.confirm(hook.topic, hook.token)
    told: list[str] = []
    hook.owner.engine.wakeups.on["deliveries"] = lambda: told.append("delivery")

    await hook.anonymous.unsubscribe(hook.arn)

    [_, row] = await hook.owner.rows("deliveries")
    assert (row["kind"], row["endpoint"]) == ("UnsubscribeConfirmation", WEB_HOOK)
    assert row["is_raw"] is False
    assert told == ["delivery"]


async def test_web_hook_finds_its_way_back(hook: Hook) -> None:
    await hook.owner.confirm(hook.topic, hook.token)
    await hook.owner.set(hook.arn, "FilterPolicy", '{"a": ["b"]}')
    await hook.anonymous.unsubscribe(hook.arn)
    back = await hook.last_token()

    answers = [await hook.anonymous.confirm(hook.topic, back) for _ in range(3)]

    assert set(answers) == {hook.arn}
    assert await hook.listed() == [hook.arn]
    found = await hook.owner.get(hook.arn)
    assert (found["RawMessageDelivery"], found["FilterPolicy"]) == ("true", '{"a": ["b"]}')
    assert found["PendingConfirmation"] == "false"
    # The first link belonged to the subscription as it was before.
    with pytest.raises(InvalidParameter):
        await hook.anonymous.confirm(hook.topic, hook.token)
    await hook.anonymous.unsubscribe(hook.arn)
    assert await hook.listed() == []


async def test_many_find_the_way_back_at_once(hook: Hook) -> None:
    await hook.anonymous.confirm(hook.topic, hook.token)
    await asyncio.gather(*[hook.anonymous.unsubscribe(hook.arn) for _ in range(5)])
    assert len(await hook.owner.envelopes()) == 2
    back = await hook.last_token()

    answers = await asyncio.gather(*[hook.anonymous.confirm(hook.topic, back) for _ in range(5)])

    assert set(answers) == {hook.arn}


async def test_way_back_is_open_for_two_days_in_its_region(hook: Hook) -> None:
    await hook.anonymous.confirm(hook.topic, hook.token)
    await hook.anonymous.unsubscribe(hook.arn)
    back = await hook.last_token()

    with pytest.raises(InvalidParameter) as refusal:
        await hook.anonymous.confirm(hook.topic.replace(REGION, "us-west-2"), back)
    assert str(refusal.value) == "Invalid parameter: Topic"
    hook.owner.clock.move_on(days=2)
    with pytest.raises(InvalidParameter) as refusal:
        await hook.anonymous.confirm(hook.topic, back)
    assert str(refusal.value) == "Invalid parameter: Token"


async def test_stranger_who_signs_counts_as_a_link(hook: Hook) -> None:
    await hook.owner.confirm(hook.topic, hook.token)
    await hook.owner.of_account("999988887777").unsubscribe(hook.arn)
    assert (await hook.owner.envelopes())[-1]["Type"] == "UnsubscribeConfirmation"


async def test_mail_address_is_told_in_the_outbox(subscriber: Subscriber) -> None:
    arn = await subscriber.subscribe(await subscriber.topic(), "email", "reader@example.com")
    [row] = await subscriber.rows("outbox")
    token = row["body"].partition('"Token" : "')[2].partition('"')[0]
    await subscriber.anonymous().confirm(arn.rpartition(":")[0], token)

    await subscriber.anonymous().unsubscribe(arn)

    [_, row] = await subscriber.rows("outbox")
    assert row["kind"] == "UnsubscribeConfirmation"
    assert await subscriber.rows("deliveries") == []


async def test_stranger_does_not_end_what_needs_authentication(hook: Hook) -> None:
    await hook.owner.confirm(hook.topic, hook.token, "true")

    with pytest.raises(AuthorizationError):
        await hook.owner.of_account("999988887777").unsubscribe(hook.arn)

    assert await hook.listed() == [hook.arn]
