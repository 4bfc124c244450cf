"""Events while patterns come and go, and what the cache of patterns asks the database."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from uuid import uuid4

import pytest

from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.topics.topic_cache import Audience
from queuegate.storage.model import TopicSubscription
from queuegate.storage.notifications import namespace_number
from queuegate.storage.storage_errors import NotFound
from queuegate.storage.topics import stored_topics, subscriptions
from tests.operations.conftest import ACCOUNT, REGION, MakeQueue
from tests.operations.events import Events
from tests.operations.topics_and_subscriptions import Sns
from tests.operations.world import World
from tests.waiting import yield_turns


class Count:
    """Of transactions."""

    def __init__(self) -> None:
        self.value = 0


@contextmanager
def counted(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Count]:
    """Counts the transactions of the engine."""
    count, begin = Count(), engine.database.transaction

    def counting() -> object:
        count.value += 1
        return begin()

    with monkeypatch.context() as patch:
        patch.setattr(engine.database, "transaction", counting)
        yield count


async def audience(engine: Engine, key: str) -> Audience:
    return await engine.topics.event_audience(ACCOUNT, REGION, key)


async def test_a_million_keys_cost_neither_queries_nor_memory(
    events: Events, engine: Engine, make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await make_queue()
    await events.subscribe("order.*.created", queue.name)
    await events.subscribe("#", queue.name)
    with counted(engine, monkeypatch) as count:
        first = await audience(engine, "order.0.created")
        assert count.value == 1
        for number in range(1, 5_000):
            found = await audience(engine, f"order.{number}.created")
            assert found.targets is first.targets
            assert found.topic.name == f"order.{number}.created"
            await audience(engine, f"order.{number}.paid")
        assert count.value == 1
    [patterns] = engine.topics._patterns.values()
    assert len(patterns._together) == 2
    assert (len(engine.topics.by_arn), len(engine.topics._absent)) == (0, 0)


async def test_an_event_that_nobody_wants_costs_no_query(
    events: Events, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("order.created", "plain"):
        await events.publish(key)
    with counted(engine, monkeypatch) as count:
        for key in ("order.created", "another.one", "plain"):
            await events.publish(key)
        assert count.value == 0
        # What could be the name of a topic has to be looked up, once.
        for _ in range(3):
            await events.publish("unheard-of")
        assert count.value == 1


async def test_many_publishers_load_the_patterns_once(
    events: Events, engine: Engine, make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await make_queue()
    await events.subscribe("#", queue.name)
    with counted(engine, monkeypatch) as count:
        found = await asyncio.gather(*[audience(engine, f"a.{n}") for n in range(50)])
    assert count.value == 1
    assert {len(one.targets) for one in found} == {1}


async def test_an_event_makes_no_topic_for_sns(events: Events) -> None:
    queue = await events.make_queue()
    await events.subscribe("#", queue.name)
    assert await events.reached("orders") == ([queue.name], 0)
    assert events.engine.topics.by_arn == {}
    with pytest.raises(NotFound):
        await events.engine.topics.find(ACCOUNT, REGION, "orders")


async def test_a_topic_that_is_created_later_is_found(world: World, events: Events) -> None:
    """Another process creates it: here only the notification is heard."""
    queue, sns = await world.make_queue(), Sns(world.engine, world.caller)
    assert await events.reached("orders") == ([], 0)
    topic = await sns.topic("orders")
    assert await events.reached("orders") == ([], 0)
    world.engine.topics.forget(topic.topic_id)
    await sns.subscribe(topic, queue.arn)
    assert await events.reached("orders") == ([queue.name], 0)


async def test_a_new_pattern_drops_the_audiences_of_its_namespace_only(events: Events) -> None:
    queue = await events.make_queue()
    other = Events(events.engine, replace(events.caller, account_id="444455556666"))
    for who in (events, other):
        await Sns(events.engine, who.caller).topic("orders")
    kept = await events.engine.topics.find("444455556666", REGION, "orders")
    before = await events.engine.topics.find(ACCOUNT, REGION, "orders")
    made = await events.subscribe("#", queue.name)
    assert await events.engine.topics.find("444455556666", REGION, "orders") is kept
    after = await events.engine.topics.find(ACCOUNT, REGION, "orders")
    assert after is not before
    assert [target.subscription_id for target in after.targets] == [str(made.subscription_id)]
    # The id of a pattern that is cached stands for its namespace, too.
    for number in (made.topic_id, namespace_number(ACCOUNT, REGION)):
        before = await events.engine.topics.find(ACCOUNT, REGION, "orders")
        events.engine.topics.forget(number)
        assert await events.engine.topics.find(ACCOUNT, REGION, "orders") is not before
        assert await events.engine.topics.find("444455556666", REGION, "orders") is kept


async def test_a_change_during_a_load_is_not_overlooked(events: Events) -> None:
    """A publish after a subscription uses no load of patterns that began before it."""
    for turns in range(0, 40, 3):
        events.engine.topics.clear()
        before = asyncio.ensure_future(audience(events.engine, "a.b"))
        await yield_turns(turns)
        await events.subscribe("a.#", endpoint=f"https://hooks.example/{turns}")
        found = [len((await audience(events.engine, "a.b")).targets) for _ in range(2)]
        await before
        found.append(len((await audience(events.engine, "a.b")).targets))
        assert found == [turns // 3 + 1] * 3


async def test_whoever_subscribes_while_the_last_one_leaves_is_not_lost(events: Events) -> None:
    """The pattern is about to go: its row is held, its last subscription is deleted."""
    await events.make_queue("leaving")
    await events.make_queue("coming")
    leaving = await events.subscribe("a.#", "leaving")
    async with events.engine.database.transaction() as tx:
        await stored_topics.lock(tx, leaving.topic_id)
        coming = asyncio.ensure_future(events.subscribe("a.#", "coming"))
        await until_somebody_waits(events.engine)
        await subscriptions.delete(tx, leaving)
    made = await coming
    assert made.topic_id != leaving.topic_id
    assert await events.of_pattern("a.#") == [made]
    assert (await events.reached("a.b"))[0] == ["coming"]


async def test_a_pattern_that_somebody_joins_meanwhile_stays(events: Events) -> None:
    """The other way around: the newcomer holds the row when the last one wants to leave."""
    await events.make_queue("leaving")
    leaving = await events.subscribe("a.#", "leaving")
    new = subscriptions.NewSubscription(
        subscription_id=uuid4(),
        topic_id=leaving.topic_id,
        protocol="https",
        endpoint="https://hooks.example/",
        account_id=ACCOUNT,
        region=REGION,
        attributes={},
        token=None,
        gets_events=True,
    )
    async with events.engine.database.transaction() as tx:
        await stored_topics.lock(tx, leaving.topic_id)
        going = asyncio.ensure_future(events.unsubscribe("a.#", leaving))
        await until_somebody_waits(events.engine)
        await subscriptions.create(tx, events.engine.clock.now(), new, token_seconds=0)
    await going
    assert await events.patterns() == ["a.#"]
    assert [one.subscription_id for one in await events.of_pattern("a.#")] == [new.subscription_id]


async def until_somebody_waits(engine: Engine) -> None:
    """Look until a transaction waits for a lock."""
    for _ in range(20_000):
        async with engine.database.transaction() as tx:
            if await tx.fetchval(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event_type = 'Lock'"
            ):
                return
    raise AssertionError("nobody waits")


async def test_nothing_acknowledged_is_lost_when_all_happens_at_once(events: Events) -> None:
    """Eight come and go on one pattern, others publish: who stays gets what is published then."""
    names = [f"q{number}" for number in range(8)]
    for name in names:
        await events.make_queue(name)
    staying: dict[str, TopicSubscription] = {}

    async def come_and_go(name: str) -> None:
        for turn in range(6):
            made = await events.subscribe("a.#", name)
            # From the moment that this is acknowledged it gets events, whatever the others do.
            assert name in (await events.reached("a.b"))[0]
            if turn < 5 or name in names[:4]:
                await events.unsubscribe("a.#", made)
                assert name not in (await events.reached("a.b"))[0]
            else:
                staying[name] = made

    await asyncio.gather(*[come_and_go(name) for name in names])
    assert sorted(staying) == names[4:]
    found = await events.of_pattern("a.#")
    assert {one.subscription_id for one in found} == {
        one.subscription_id for one in staying.values()
    }
    assert sorted((await events.reached("a.b"))[0]) == names[4:]
