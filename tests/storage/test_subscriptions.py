"""Subscriptions in the database: pages, tokens and their ends, what a link ended."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from queuegate.storage.database import Database
from queuegate.storage.model import TopicSubscription
from queuegate.storage.topics import replays, stored_topics, subscriptions
from queuegate.storage.topics.replays import ReplayRequest
from queuegate.storage.topics.stored_topics import NewTopic
from queuegate.storage.topics.subscriptions import NewSubscription

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
ACCOUNT, REGION = "111122223333", "eu-west-1"
SECONDS = 60


@pytest.fixture
async def topic_id(database: Database) -> int:
    return await make_topic(database)


async def make_topic(database: Database, name: str = "news") -> int:
    async with database.transaction() as tx:
        new = NewTopic(ACCOUNT, REGION, name, name.endswith(".fifo"), {}, {}, None)
        topic = await stored_topics.create(tx, NOON, new)
    assert topic is not None
    return topic.topic_id


async def make(database: Database, topic_id: int, **changes: Any) -> TopicSubscription:
    """A confirmed subscription of a queue, unless told otherwise."""
    members: dict[str, Any] = {
        "subscription_id": uuid4(),
        "topic_id": topic_id,
        "protocol": "sqs",
        "endpoint": f"arn:aws:sqs:{REGION}:{ACCOUNT}:orders",
        "account_id": ACCOUNT,
        "region": REGION,
        "attributes": {},
        "token": None,
    }
    new = NewSubscription(**(members | changes))
    async with database.transaction() as tx:
        await subscriptions.create(tx, NOON, new, token_seconds=SECONDS)
        found = await subscriptions.find_by_endpoint(tx, topic_id, new.protocol, new.endpoint)
    assert found is not None
    return found


async def test_confirmed_subscription_keeps_its_token_for_ever(
    database: Database, topic_id: int
) -> None:
    pending = await make(database, topic_id, token="aa")

    async with database.transaction() as tx:
        await subscriptions.confirm(
            tx, pending, was_authenticated=True, authenticate_on_unsubscribe=False
        )
        # The second changes nothing.
        await subscriptions.confirm(
            tx, pending, was_authenticated=False, authenticate_on_unsubscribe=True
        )
        found = await subscriptions.find_by_token(tx, "aa", NOON + timedelta(days=400))
        gone = await subscriptions.delete_expired(tx, NOON + timedelta(days=400), 10)

    assert found is not None
    assert found.is_confirmed
    assert found.was_authenticated
    assert not found.authenticate_on_unsubscribe
    assert gone == 0


async def test_only_an_overdue_subscription_makes_room(database: Database, topic_id: int) -> None:
    await make(database, topic_id, token="aa", endpoint="e")
    await make(database, topic_id, endpoint="confirmed")
    end = NOON + timedelta(seconds=SECONDS)
    endpoint = (topic_id, "sqs", "e")

    async with database.transaction() as tx:
        await subscriptions.delete_expired_of_endpoint(tx, NOON, *endpoint)
        assert await subscriptions.find_by_endpoint(tx, *endpoint) is not None
        await subscriptions.delete_expired_of_endpoint(tx, end, *endpoint)
        assert await subscriptions.find_by_endpoint(tx, *endpoint) is None
        await subscriptions.delete_expired_of_endpoint(tx, end, topic_id, "sqs", "confirmed")
        assert len(await subscriptions.of_topics(tx, [topic_id])) == 1


async def end(database: Database, subscription: TopicSubscription, token: str) -> None:
    async with database.transaction() as tx:
        await subscriptions.remember_ended(
            tx, NOON, subscription.subscription_id, token=token, token_seconds=SECONDS
        )
        await subscriptions.delete(tx, subscription)


async def restore(database: Database, token: str, now: datetime = NOON) -> UUID | None:
    async with database.transaction() as tx:
        ended = await subscriptions.find_ended(tx, now, token)
        if ended is None:
            return None
        return await subscriptions.restore(
            tx,
            now,
            ended,
            token=token,
            was_authenticated=False,
            authenticate_on_unsubscribe=False,
        )


async def test_endpoint_that_was_subscribed_again_keeps_the_new_subscription(
    database: Database, topic_id: int
) -> None:
    ended = await make(database, topic_id)
    await end(database, ended, "bb")
    pending = await make(database, topic_id, token="aa")

    assert await restore(database, "bb") == pending.subscription_id

    async with database.transaction() as tx:
        [found] = await subscriptions.of_topics(tx, [topic_id])
        assert await subscriptions.find_by_token(tx, "bb", NOON) == found
    assert found.is_confirmed


async def test_ended_subscriptions_are_forgotten_when_their_tokens_end(
    database: Database, topic_id: int
) -> None:
    await end(database, await make(database, topic_id), "bb")

    async with database.transaction() as tx:
        assert await subscriptions.delete_expired(tx, NOON, 10) == 0
        late = NOON + timedelta(seconds=SECONDS)
        assert await subscriptions.delete_expired(tx, late, 10) == 1
        assert await subscriptions.delete_expired(tx, late, 10) == 0


async def test_counts_stop_at_their_limits(database: Database, topic_id: int) -> None:
    other_id = await make_topic(database, "other")
    for number in range(4):
        attributes = {"FilterPolicy": '{"a":["b"]}'} if number else {}
        await make(database, topic_id, endpoint=f"queue-{number}", attributes=attributes)
    await make(database, other_id, attributes={"FilterPolicy": '{"a":["b"]}'})
    keys: dict[str, Any] = {"topic_id": topic_id, "account_id": ACCOUNT, "region": REGION}

    async with database.transaction() as tx:
        assert await subscriptions.count_of_topic(tx, topic_id, limit=100) == 4
        assert await subscriptions.count_of_topic(tx, topic_id, limit=3) == 3
        assert await subscriptions.count_filter_policies(
            tx, **keys, topic_limit=100, account_limit=100
        ) == (3, 4)
        assert await subscriptions.count_filter_policies(
            tx, **keys, topic_limit=2, account_limit=1
        ) == (2, 1)


async def test_topic_takes_its_subscriptions_with_it(database: Database, topic_id: int) -> None:
    created = await make(database, topic_id)
    await end(database, await make(database, topic_id, endpoint="ended"), "bb")

    async with database.transaction() as tx:
        await stored_topics.delete(tx, topic_id)
        assert await subscriptions.find(tx, created.subscription_id) is None
        assert await subscriptions.find_ended(tx, NOON, "bb") is None


async def test_one_replay_at_a_time(database: Database, topic_id: int) -> None:
    created = await make(database, topic_id)

    async def begin() -> bool:
        asked = ReplayRequest(NOON, None, "http://gateway.example")
        return await replays.start(tx, NOON, created, asked)

    async with database.transaction() as tx:
        assert await replays.status(tx, created) is None
        assert await begin()
        assert not await begin()
        assert await replays.status(tx, created) == "Pending"
        await tx.execute("UPDATE replays SET status = 'Completed', last_sequence = 7")
        assert await begin()
        assert await tx.fetchval("SELECT last_sequence FROM replays") == 0
        await replays.remove(tx, created)
        assert await replays.status(tx, created) is None


async def test_changes_of_one_topic_take_turns(database: Database, topic_id: int) -> None:
    async def add(number: int) -> int:
        async with database.transaction() as tx:
            await stored_topics.lock(tx, topic_id)
            count = await subscriptions.count_of_topic(tx, topic_id, limit=100)
            new = NewSubscription(
                uuid4(), topic_id, "sqs", f"queue-{number}", ACCOUNT, REGION, {}, None
            )
            await subscriptions.create(tx, NOON, new, token_seconds=SECONDS)
            return count

    assert sorted(await asyncio.gather(*map(add, range(8)))) == list(range(8))
