"""Rate limits: exact on a clock that stands, across processes, and cheap for the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from queuegate.gateway.operations.access.caller import Caller, Producer
from queuegate.gateway.operations.access.rates import Rates
from queuegate.gateway.operations.telemetry.series import Series
from queuegate.storage import stored_keys
from queuegate.storage.database import Database
from queuegate.storage.model import RateLimit
from queuegate.storage.storage_errors import TooManyRequests
from tests.operations.world import TestClock, World
from tests.waiting import until_so

MakeGateways = Callable[[int], list[Rates]]


@pytest.fixture
async def gateways(database: Database, clock: TestClock) -> AsyncIterator[MakeGateways]:
    """The limits of so many processes."""
    made: list[Rates] = []

    def make(count: int) -> list[Rates]:
        made.extend([Rates(database, clock, Series()) for _ in range(count)])
        return made

    yield make
    for rates in made:
        await rates.close()


def of(caller: Caller, requests: int, seconds: int, name: str = "ours") -> Caller:
    """The caller with a key of that limit."""
    return replace(caller, producer=Producer(name, name, RateLimit(requests, seconds)))


async def tried(rates: Rates, caller: Caller, times: int, count: int = 1) -> int:
    """Return how many of so many simultaneous requests were admitted."""

    async def one() -> bool:
        try:
            await rates.take(caller, count)
        except TooManyRequests:
            return False
        return True

    return sum(await asyncio.gather(*[one() for _ in range(times)]))


async def flood(gateways: list[Rates], caller: Caller, times: int) -> int:
    """Return how many requests are admitted when each gateway gets so many."""
    return sum(await asyncio.gather(*[tried(rates, caller, times) for rates in gateways]))


@pytest.mark.parametrize(("requests", "seconds"), [(3, 1), (50, 1), (100, 60), (500, 1), (1000, 1)])
async def test_four_gateways_let_through_as_many_as_the_limit_says(
    gateways: MakeGateways, caller: Caller, clock: TestClock, requests: int, seconds: int
) -> None:
    four = gateways(4)
    limited = of(caller, requests, seconds)
    for _ in range(3):
        assert await flood(four, limited, requests) == requests
        assert await flood(four, limited, 10) == 0
        # All of it was spent in one slot, which leaves the window with its end.
        clock.move_on(seconds * 1.02)


async def test_the_window_slides(gateways: MakeGateways, caller: Caller, clock: TestClock) -> None:
    """In no window is there more than the limit, in the long run hardly less."""
    four = gateways(4)
    limited = of(caller, 500, 1)
    passed: list[int] = []
    for _ in range(300):
        passed.append(await flood(four, limited, 8))
        clock.move_on(0.01)
    assert max(sum(passed[place : place + 100]) for place in range(200)) <= 500
    assert 490 <= sum(passed[100:200]) <= 500
    assert 490 <= sum(passed[200:]) <= 500


async def test_a_batch_that_is_refused_takes_nothing_from_smaller_ones(
    gateways: MakeGateways, caller: Caller, clock: TestClock
) -> None:
    [rates] = gateways(1)
    limited = of(caller, 10, 60)
    assert [await tried(rates, limited, 1, 8) for _ in range(3)] == [1, 0, 0]
    clock.move_on(1)
    assert [await tried(rates, limited, 1) for _ in range(3)] == [1, 1, 0]


async def test_two_bursts_across_the_end_of_a_window_are_not_twice_the_limit(
    gateways: MakeGateways, caller: Caller, clock: TestClock
) -> None:
    [rates] = gateways(1)
    limited = of(caller, 200, 10)
    clock.move_on(9.9)
    assert await tried(rates, limited, 300) == 200
    clock.move_on(9.95)
    assert await tried(rates, limited, 300) == 0
    clock.move_on(0.2)
    assert await tried(rates, limited, 300) == 200


async def test_what_one_process_did_not_spend_others_may(
    gateways: MakeGateways, caller: Caller, clock: TestClock
) -> None:
    """Below its limit nobody is refused, however unevenly the requests come."""
    one, other = gateways(2)
    limited = of(caller, 500, 1)
    for number in range(200):
        assert await tried(one, limited, 4 + number % 2) == 4 + number % 2 or number > 110
        if number % 10 == 0:
            await tried(other, limited, 1)
        clock.move_on(0.0125)


async def test_a_refusal_says_when_to_come_back(world: World, gateways: MakeGateways) -> None:
    [rates] = gateways(1)
    limited = of(world.caller, 2, 60)
    assert await tried(rates, limited, 2) == 2
    world.clock.move_on(20)
    with pytest.raises(TooManyRequests) as refused:
        await rates.take(limited)
    seconds = refused.value.retry_after_seconds
    assert seconds == pytest.approx(41, abs=1)
    assert rates._series.throttled_requests == {(world.caller.account_id, "ours"): 1}
    assert seconds is not None
    world.clock.move_on(seconds)
    assert await tried(rates, limited, 2) == 2


async def test_many_at_once_are_all_or_none(gateways: MakeGateways, caller: Caller) -> None:
    [rates] = gateways(1)
    limited = of(caller, 250, 60)
    assert await tried(rates, limited, 3, count=100) == 2
    assert await tried(rates, limited, 1, count=50) == 1
    with pytest.raises(TooManyRequests):
        await rates.take(limited, 251)


async def test_keys_and_accounts_count_apart(gateways: MakeGateways, caller: Caller) -> None:
    [rates] = gateways(1)
    for account in ("1", "2"):
        for name in ("a", "b"):
            mine = of(replace(caller, account_id=account), 5, 1, name)
            assert await tried(rates, mine, 10) == 5


async def test_who_has_no_key_has_the_limit_of_all_such(
    gateways: MakeGateways, caller: Caller
) -> None:
    [rates] = gateways(1)
    nobody = replace(caller, producer=Producer("#1"))
    unlimited = replace(caller, producer=Producer("7", "ours"))
    assert await tried(rates, nobody, 10) == 10
    rates.default = RateLimit(3, 1)
    assert await tried(rates, nobody, 10) == 3
    assert await tried(rates, unlimited, 10) == await tried(rates, caller, 10) == 10
    assert rates._series.throttled_requests == {(caller.account_id, ""): 7}


async def test_the_database_is_asked_for_many_requests_at_once(
    gateways: MakeGateways, caller: Caller, clock: TestClock
) -> None:
    [rates] = gateways(1)
    asked: list[int] = []
    rates.lane.observe = asked.append
    limited = of(caller, 5000, 1)
    for _ in range(200):
        for _ in range(20):
            await tried(rates, limited, 2)
        clock.move_on(0.01)
    assert len(asked) < 8000 / 20


async def test_a_new_limit_counts_anew(gateways: MakeGateways, caller: Caller) -> None:
    [rates] = gateways(1)
    assert await tried(rates, of(caller, 2, 1), 5) == 2
    assert await tried(rates, of(caller, 4, 1), 5) == 2
    assert await tried(rates, of(caller, 4, 60), 5) == 4


async def test_a_clock_that_goes_back_locks_nobody_out(
    gateways: MakeGateways, caller: Caller, clock: TestClock
) -> None:
    [rates] = gateways(1)
    limited = of(caller, 5, 60)
    assert await tried(rates, limited, 9) == 5
    clock.move_on(-86_400)
    assert await tried(rates, limited, 9) == 5


async def test_permits_end_with_their_lease(world: World, gateways: MakeGateways) -> None:
    """Others may have them from then on."""
    one, other = gateways(2)
    limited = of(world.caller, 500, 1)
    # A process that had many requests gets some for the next ones.
    assert await tried(one, limited, 100) == 100
    world.clock.move_on(0.01)
    await one.take(limited)
    assert limited.producer is not None
    assert limited.producer.limit is not None
    held = one.limited(world.caller.account_id, "ours", limited.producer.limit)
    assert held.has(1)
    left = held._granted.lease_seconds - held._since(held._asked_at)
    world.clock.move_on(left - 0.001)
    assert held.has(1)
    world.clock.move_on(0.002)
    assert not held.has(1)
    assert not one.take_at_once(limited)
    assert await flood([one, other], limited, 500) <= 500


async def test_windows_that_are_over_are_forgotten(
    gateways: MakeGateways, caller: Caller, clock: TestClock, database: Database
) -> None:
    [rates] = gateways(1)
    for name in ("a", "b", "c"):
        await rates.take(of(caller, 5, 1, name))
    async with database.transaction() as tx:
        assert await stored_keys.forget_windows(tx, clock.now(), 100) == 0
        assert await stored_keys.forget_windows(tx, clock.instant() + timedelta(seconds=5), 2) == 2


async def test_gone_clients_spend_nothing(world: World, gateways: MakeGateways) -> None:
    [rates] = gateways(1)
    limited = of(world.caller, 3, 60)
    gone = [asyncio.create_task(rates.take(limited)) for _ in range(3)]
    await until_so(lambda: rates._producers)
    for task in gone:
        task.cancel()
    await asyncio.gather(*gone, return_exceptions=True)
    assert await tried(rates, limited, 5) == 3
