"""Quotas: what accounts may have holds when many make it at once; requests are counted apart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from queuegate.gateway.operations.access.api_keys import list_quotas, put_quota, remove_quota
from queuegate.gateway.operations.access.caller import Caller, Producer
from queuegate.gateway.operations.logs.logs import create_log
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.topics.events import SubscribeToEvents, subscribe
from queuegate.gateway.operations.topics.topics import CreateTopic, create
from queuegate.storage.model import UNLIMITED, LogRetention, Quota, RateLimit
from queuegate.storage.storage_errors import (
    AuthorizationError,
    InvalidParameterValue,
    OverLimit,
    QuotaReached,
    Rejected,
    SubscriptionLimitExceeded,
    TooManyRequests,
    TopicLimitExceeded,
)
from tests.operations.sqs import create_queue
from tests.operations.world import World

Make = Callable[[Engine, Caller, str], Awaitable[object]]


@pytest.fixture
def administrator(caller: Caller) -> Caller:
    return replace(caller, account_id="000000000001", is_administrator=True)


async def a_queue(engine: Engine, caller: Caller, name: str) -> object:
    return await create_queue(engine, caller, name)


async def a_topic(engine: Engine, caller: Caller, name: str) -> object:
    return await create(engine, caller, CreateTopic(name, False, {}))


async def a_subscription(engine: Engine, caller: Caller, name: str) -> object:
    # Of patterns, which are no topics.
    return await subscribe(engine, caller, SubscribeToEvents(f"{name}.#", queue_name="taker"))


async def a_log(engine: Engine, caller: Caller, name: str) -> object:
    return await create_log(engine, caller, name, 2, LogRetention())


@pytest.mark.parametrize(
    ("make", "quota", "refusal"),
    [
        (a_queue, Quota(queues=5), QuotaReached),
        (a_topic, Quota(topics=5), TopicLimitExceeded),
        (a_subscription, Quota(subscriptions=5), SubscriptionLimitExceeded),
        (a_log, Quota(logs=5), QuotaReached),
    ],
)
async def test_creators_at_once_make_no_more_than_there_may_be(
    world: World, other: Engine, make: Make, quota: Quota, refusal: type[Rejected]
) -> None:
    if make is not a_queue:
        await world.make_queue("taker")
    for one in (world.engine, other):
        one.quotas.use(quota, None)
    made = await asyncio.gather(
        *[make((world.engine, other)[n % 2], world.caller, f"n{n}") for n in range(16)],
        return_exceptions=True,
    )
    refused = [one for one in made if isinstance(one, BaseException)]
    assert {type(one) for one in refused} == {refusal}
    assert len(refused) == 11
    refusals = [one.series.quota_refusals for one in (world.engine, other)]
    assert sum(sum(one.values()) for one in refusals) == 11
    # What is there is not made again, and others have room of their own.
    there = next(n for n, one in enumerate(made) if not isinstance(one, BaseException))
    await make(world.engine, world.caller, f"n{there}")
    stranger = replace(world.caller, account_id="999988887777")
    if make is a_subscription:
        await create_queue(world.engine, stranger, "taker")
    await make(world.engine, stranger, "one")


async def test_an_account_has_what_was_said_of_it(
    engine: Engine, caller: Caller, administrator: Caller
) -> None:
    engine.quotas.use(Quota(queues=1), None)
    await a_queue(engine, caller, "one")
    with pytest.raises(QuotaReached):
        await a_queue(engine, caller, "two")
    await put_quota(engine, administrator, caller.account_id, Quota(queues=2))
    await a_queue(engine, caller, "two")
    await put_quota(engine, administrator, caller.account_id, Quota(queues=-1))
    await a_queue(engine, caller, "three")
    await put_quota(engine, administrator, caller.account_id, Quota(queues=0))
    with pytest.raises(QuotaReached):
        await a_queue(engine, caller, "four")
    assert await list_quotas(engine, administrator) == {caller.account_id: Quota(queues=0)}
    await remove_quota(engine, administrator, caller.account_id)
    assert await list_quotas(engine, administrator) == {}


async def admitted(engine: Engine, caller: Caller, times: int) -> int:
    """Return how many of so many requests were admitted."""

    async def one() -> bool:
        if engine.quotas.passes(caller):
            return True
        try:
            await engine.quotas.admit(caller)
        except TooManyRequests:
            return False
        return True

    return sum(await asyncio.gather(*[one() for _ in range(times)]))


async def test_who_floods_takes_nothing_from_others(
    engine: Engine, other: Engine, caller: Caller, administrator: Caller
) -> None:
    for one in (engine, other):
        one.quotas.use(Quota(RateLimit(100, 60)), None)
    neighbour = replace(caller, account_id="999988887777")
    floods = [admitted(one, caller, 500) for one in (engine, other)]
    first, second, theirs = await asyncio.gather(*floods, admitted(engine, neighbour, 100))
    assert (first + second, theirs) == (100, 100)
    assert await admitted(engine, administrator, 200) == 200
    refusals = engine.series.quota_refusals
    assert refusals == {(caller.account_id, "requests of account"): 500 - first}


async def test_refusals_of_who_floods_wait_for_their_turn(engine: Engine, caller: Caller) -> None:
    """So a flood of refused requests leaves the process to others."""
    engine.quotas.use(Quota(RateLimit(1, 60)), None)
    assert await admitted(engine, caller, 2) == 1
    floods = [asyncio.create_task(engine.quotas.admit(caller)) for _ in range(1_000)]
    try:
        # Together after a second, they would hold the loop.
        refused, waiting = await asyncio.wait(floods, timeout=1.2)
    finally:
        for flood in floods:
            flood.cancel()
    assert {type(one.exception()) for one in refused} == {TooManyRequests}
    assert len(waiting) > 300


async def test_keys_have_requests_of_their_own_within_those_of_the_account(
    engine: Engine, caller: Caller, administrator: Caller
) -> None:
    engine.quotas.use(Quota(), RateLimit(3, 60))
    one, two = (replace(caller, producer=Producer(n, n)) for n in ("17", "18"))
    assert engine.quotas.limits_requests
    assert await admitted(engine, caller, 9) == 9
    assert (await admitted(engine, one, 9), await admitted(engine, two, 2)) == (3, 2)
    await put_quota(engine, administrator, "key-17", Quota(UNLIMITED))
    await put_quota(engine, administrator, caller.account_id, Quota(RateLimit(10, 60)))
    assert await admitted(engine, one, 20) == 10
    # What its key is refused does not count for the account, and the other way round.
    assert await admitted(engine, two, 2) == 0


async def test_nobody_is_limited_until_somebody_is(engine: Engine, administrator: Caller) -> None:
    assert not engine.quotas.limits_requests
    await put_quota(engine, administrator, "111122223333", Quota(queues=3))
    assert not engine.quotas.limits_requests
    await put_quota(engine, administrator, "111122223333", Quota(RateLimit(1, 1)))
    assert engine.quotas.limits_requests


@pytest.mark.parametrize(
    ("subject", "quota"),
    [
        ("shop", Quota(queues=1)),
        ("key-0", Quota(RateLimit(1, 1))),
        ("key-17", Quota(queues=1)),
        ("111122223333", Quota()),
    ],
)
async def test_what_is_no_quota(
    engine: Engine, administrator: Caller, subject: str, quota: Quota
) -> None:
    with pytest.raises(InvalidParameterValue):
        await put_quota(engine, administrator, subject, quota)


async def test_there_are_only_so_many(
    engine: Engine, administrator: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "queuegate.gateway.operations.access.api_keys.LIMITS",
        replace(engine.limits, quotas=1),
    )
    await put_quota(engine, administrator, "key-1", Quota(RateLimit(1, 1)))
    await put_quota(engine, administrator, "key-1", Quota(RateLimit(2, 1)))
    with pytest.raises(OverLimit):
        await put_quota(engine, administrator, "key-2", Quota(RateLimit(1, 1)))


async def test_quotas_are_for_administrators(engine: Engine, caller: Caller) -> None:
    with pytest.raises(AuthorizationError):
        await put_quota(engine, caller, caller.account_id, Quota(queues=9))
    with pytest.raises(AuthorizationError):
        await list_quotas(engine, caller)
    with pytest.raises(AuthorizationError):
        await remove_quota(engine, caller, caller.account_id)
