"""Leases, several workers, fair shares, throttles, and how the loop starts and stops."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from queuegate.scheduler.webhook_pacing import allowance
from queuegate.storage.database import probe_by_key
from queuegate.storage.model import NewDelivery
from queuegate.storage.topics import web_hook_deliveries
from tests.scheduler.conftest import ACCOUNT, REGION
from tests.scheduler.endpoints import Endpoint, answer, hang, unhurried
from tests.scheduler.webhook_store import WebHookStore
from tests.waiting import until_async, yield_turns


@pytest.fixture
async def hung() -> AsyncIterator[Endpoint]:
    async with Endpoint(hang).listening() as endpoint:
        yield endpoint


async def claim_all(
    hooks: WebHookStore, subscription_id: UUID
) -> list[web_hook_deliveries.ClaimedDelivery]:
    """Claim web_hook_deliveries like a worker that then dies."""
    async with hooks.database.transaction() as tx:
        await probe_by_key(tx)
        return await web_hook_deliveries.claim(
            tx, hooks.clock.now(), {subscription_id: 100}, held_ids=[], lease_seconds=30
        )


async def emptied(hooks: WebHookStore, count: int = 0) -> None:
    """Wait until so few deliveries are left."""
    await until_async(hooks.rows, lambda rows: len(rows) <= count)


async def test_crash_leaves_the_delivery_due_after_its_lease(
    hooks: WebHookStore, endpoint: Endpoint
) -> None:
    subscription_id = await hooks.subscribe(endpoint.url)
    await hooks.add(subscription_id, endpoint.url, "a", "b")
    assert len(await claim_all(hooks, subscription_id)) == 2
    worker = hooks.worker()
    hooks.later(29)
    assert await worker.run_once() == 0
    hooks.later(2)
    assert await worker.run_once() == 2
    await worker.stop()
    assert await hooks.rows() == []
    assert hooks.tally.lost_count == 2


async def test_lost_attempts_are_counted_and_use_up_no_retry(
    hooks: WebHookStore, endpoint: Endpoint
) -> None:
    endpoint.behaviour = answer(500)
    subscription_id = await hooks.subscribe(endpoint.url)
    await hooks.add(subscription_id, endpoint.url, "a")
    for _ in range(7):
        await claim_all(hooks, subscription_id)
        hooks.later(31)
    worker = hooks.worker()
    for attempt in range(1, 5):
        assert await worker.run_once() == 1
        row = await hooks.row()
        assert (row["lost_count"], row["attempt_count"]) == (7, 7 + attempt)
        hooks.later(23)
    assert (await hooks.row())["state"] == "exhausted"
    await worker.stop()


async def test_who_comes_too_late_changes_nothing(hooks: WebHookStore, endpoint: Endpoint) -> None:
    subscription_id = await hooks.subscribe(endpoint.url)
    await hooks.add(subscription_id, endpoint.url, "a")
    [early] = await claim_all(hooks, subscription_id)
    hooks.later(31)
    [late] = await claim_all(hooks, subscription_id)
    assert (early.was_lost, late.was_lost) == (False, True)
    lease = (early.delivery_id, early.attempt_count)
    failure = web_hook_deliveries.DeliveryFailure(*lease, None, 404, "HTTP 404")
    async with hooks.database.transaction() as tx:
        await web_hook_deliveries.remove(tx, [lease])
        await web_hook_deliveries.record_failures(tx, hooks.clock.now(), [failure])
        await web_hook_deliveries.release(tx, hooks.clock.now(), [lease])
        assert await web_hook_deliveries.lock_leases(tx, [lease]) == {}
    row = await hooks.row()
    assert (row["state"], row["is_leased"], row["attempt_count"]) == ("pending", True, 2)


async def test_what_this_process_works_on_is_not_claimed_again(
    hooks: WebHookStore, hung: Endpoint
) -> None:
    """Not even when the clock jumps over the lease."""
    await hooks.add(await hooks.subscribe(hung.url), hung.url, "a")
    worker = hooks.worker(stop_seconds=0.0)
    worker.start()
    await hung.reached(1)
    hooks.later(86_400)
    worker.wake()
    await hooks.add(await hooks.subscribe(hung.url), hung.url, "b")
    worker.wake()
    await hung.reached(2)
    assert [request.body for request in hung.requests] == [b"a", b"b"]
    await worker.stop()


async def test_two_workers_deliver_nothing_twice(hooks: WebHookStore, endpoint: Endpoint) -> None:
    ids = [await hooks.subscribe(endpoint.url) for _ in range(5)]
    for number, subscription_id in enumerate(ids):
        await hooks.add(subscription_id, endpoint.url, *(f"{number}.{i}" for i in range(100)))
    workers = [hooks.worker() for _ in range(2)]
    for worker in workers:
        worker.start()
    await emptied(hooks)
    for worker in workers:
        await worker.stop()
    bodies = [request.body for request in endpoint.requests]
    assert len(bodies) == len(set(bodies)) == 500
    assert (hooks.tally.succeeded, hooks.tally.lost_count) == (500, 0)


async def test_hung_endpoints_with_thousands_of_deliveries_delay_nobody(
    hooks: WebHookStore, endpoint: Endpoint, hung: Endpoint
) -> None:
    for _ in range(20):
        bad = await hooks.subscribe(hung.url)
        await hooks.add(bad, hung.url, *("x" for _ in range(200)))
    worker = hooks.worker(concurrency=16, batch_size=16, timeout_seconds=0.5, stop_seconds=0.0)
    worker.start()
    # All of them are known by now, or being asked.
    await hung.reached(40)
    good = await hooks.subscribe(endpoint.url)
    async with asyncio.timeout(20):
        await hooks.add(good, endpoint.url, *(str(i) for i in range(50)))
        worker.wake()
        await endpoint.reached(50)
    await worker.stop()
    assert {request.body for request in endpoint.requests} == {b"%d" % i for i in range(50)}
    # Three quarters of the places at first, half of them from then on.
    assert hung.most_busy <= 12
    assert all(not row["is_leased"] for row in await hooks.rows())


async def test_one_hung_endpoint_leaves_the_next_delivery_alone(
    hooks: WebHookStore, endpoint: Endpoint, hung: Endpoint
) -> None:
    await hooks.add(await hooks.subscribe(hung.url), hung.url, *("x" for _ in range(3_000)))
    worker = hooks.worker(timeout_seconds=60.0, stop_seconds=0.0)
    worker.start()
    await hung.reached(2)
    good = await hooks.subscribe(endpoint.url)
    loop = asyncio.get_running_loop()
    for number in range(10):
        began = loop.time()
        await hooks.add(good, endpoint.url, str(number))
        worker.wake()
        await endpoint.reached(number + 1)
        assert loop.time() - began < 30
    await worker.stop()
    assert len(hung.requests) == 2


async def test_silent_endpoint_gets_one_request_at_a_time(
    hooks: WebHookStore, hung: Endpoint
) -> None:
    await hooks.add(await hooks.subscribe(hung.url), hung.url, *(str(i) for i in range(40)))
    worker = hooks.worker(timeout_seconds=0.2, stop_seconds=0.0)
    worker.start()
    await hung.reached(6)
    await worker.stop()
    assert hung.most_busy == 2


async def test_good_endpoint_gets_up_to_32_at_a_time_over_kept_connections(
    hooks: WebHookStore, endpoint: Endpoint
) -> None:
    endpoint.behaviour = unhurried
    await hooks.add(
        await hooks.subscribe(endpoint.url), endpoint.url, *(str(i) for i in range(600))
    )
    worker = hooks.worker()
    worker.start()
    await emptied(hooks)
    await worker.stop()
    assert len(endpoint.requests) == 600
    assert 2 < endpoint.most_busy <= 32
    assert endpoint.connections <= 32


async def test_hundreds_of_subscriptions_all_get_their_turn(
    hooks: WebHookStore, endpoint: Endpoint
) -> None:
    """More than one look finds, or one claim takes."""
    ids = [await hooks.subscribe(endpoint.url) for _ in range(4)]
    rows = [
        NewDelivery(
            str(UUID(int=number + 1)),
            "UnsubscribeConfirmation",
            True,
            str(ids[0]),
            ACCOUNT,
            REGION,
            "news",
            endpoint.url,
            str(number),
        )
        for number in range(1_200)
    ]
    async with hooks.database.transaction() as tx:
        await web_hook_deliveries.insert(tx, hooks.clock.now(), rows)
    worker = hooks.worker(batch_size=50)
    worker.start()
    await emptied(hooks)
    await worker.stop()
    assert {int(request.body) for request in endpoint.requests} == set(range(1_200))
    assert len(endpoint.requests) == 1_200


@pytest.mark.parametrize("where", ["subscription", "topic"])
async def test_throttle_holds_across_workers(
    hooks: WebHookStore, endpoint: Endpoint, where: str
) -> None:
    hooks.clock.instant = None
    throttle = {"maxReceivesPerSecond": 20}
    policies = {}
    if where == "topic":
        policy = {"http": {"defaultThrottlePolicy": throttle}}
        await hooks.make_topic(DeliveryPolicy=json.dumps(policy))
    else:
        policies["DeliveryPolicy"] = json.dumps({"throttlePolicy": throttle})
    await hooks.add(
        await hooks.subscribe(endpoint.url, **policies), endpoint.url, *(str(i) for i in range(30))
    )
    workers = [hooks.worker() for _ in range(2)]
    loop = asyncio.get_running_loop()
    began = loop.time()
    for worker in workers:
        worker.start()
    await endpoint.reached(5)
    await endpoint.reached(30)
    took = loop.time() - began
    for worker in workers:
        await worker.stop()
    # 29 intervals of 50 ms; what was missed may be made up for, so not one of them less.
    assert 1.4 <= took < 10
    assert len(endpoint.requests) == 30


def test_allowance_keeps_the_rate_and_catches_up_a_little() -> None:
    assert allowance(-3600, 10).most == 1
    assert allowance(0.05, 10).most == 0
    assert allowance(-0.15, 10).most == 2
    assert allowance(-0.15, 10).free_in(2) == pytest.approx(0.05)
    assert allowance(-0.5, 10).most == 1
    # The clock was moved back.
    assert allowance(500, 10).most == 1
    assert allowance(-0.2, 1).most == 1
    assert allowance(-0.2, 1).free_in(1) == pytest.approx(0.8)


async def test_insert_wakes_nobody_but_a_look_finds_it(
    hooks: WebHookStore, endpoint: Endpoint
) -> None:
    hooks.clock.instant = None
    worker = hooks.worker(poll_seconds=0.05)
    worker.start()
    await hooks.add(await hooks.subscribe(endpoint.url), endpoint.url, "a")
    await endpoint.reached(1)
    await worker.stop()


async def test_retry_comes_when_it_is_due_not_at_the_next_look(
    hooks: WebHookStore, endpoint: Endpoint
) -> None:
    hooks.clock.instant = None
    endpoint.behaviour = answer(500)
    retry = {"numRetries": 1, "minDelayTarget": 1, "maxDelayTarget": 1}
    policy = json.dumps({"healthyRetryPolicy": retry})
    subscription_id = await hooks.subscribe(endpoint.url, DeliveryPolicy=policy)
    await hooks.add(subscription_id, endpoint.url, "a")
    worker = hooks.worker(poll_seconds=600.0)
    worker.start()
    worker.wake()
    async with asyncio.timeout(15):
        await endpoint.reached(1)
        worker.wake()
        await endpoint.reached(2)
    await worker.stop()


async def test_stop_finishes_what_is_in_flight(hooks: WebHookStore, endpoint: Endpoint) -> None:
    answered = asyncio.Event()

    async def slow(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answered.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    endpoint.behaviour = slow
    await hooks.add(await hooks.subscribe(endpoint.url), endpoint.url, *"abcdef")
    worker = hooks.worker()
    worker.start()
    await endpoint.reached(2)
    stopping = asyncio.create_task(worker.stop())
    await yield_turns()
    answered.set()
    await stopping
    rows = await hooks.rows()
    assert len(rows) == 4
    assert all(not row["is_leased"] and row["attempt_count"] == 0 for row in rows)
    assert hooks.tally.lost_count == 0


async def test_stop_gives_back_what_does_not_finish(hooks: WebHookStore, hung: Endpoint) -> None:
    await hooks.add(await hooks.subscribe(hung.url), hung.url, "a")
    worker = hooks.worker(stop_seconds=0.05)
    worker.start()
    await hung.reached(1)
    await worker.stop()
    row = await hooks.row()
    assert (row["is_leased"], row["due_at"], row["lost_count"]) == (False, hooks.clock.instant, 1)
    assert hooks.tally.lost_count == 1


async def test_database_that_goes_away_loses_and_repeats_nothing(
    hooks: WebHookStore, endpoint: Endpoint
) -> None:
    """The outcome waits for the database to come back."""
    release = asyncio.Event()

    async def late(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    endpoint.behaviour = late
    await hooks.add(await hooks.subscribe(endpoint.url), endpoint.url, "a")
    worker = hooks.worker()
    worker.start()
    await endpoint.reached(1)
    watcher = await hooks.database.connect()
    await watcher.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        " AND datname = current_database()"
    )
    release.set()
    left = "SELECT count(*) FROM deliveries"
    await until_async(lambda: watcher.fetchval(left), lambda found: not found)
    await watcher.close()
    await worker.stop()
    assert len(endpoint.requests) == 1


async def test_large_bodies_are_not_all_held_at_once(
    hooks: WebHookStore, endpoint: Endpoint, hung: Endpoint
) -> None:
    size = 2 << 20
    for _ in range(10):
        await hooks.add(await hooks.subscribe(hung.url), hung.url, *("x" * size for _ in range(3)))
    worker = hooks.worker(stop_seconds=0.0)
    worker.start()
    await hung.reached(8)
    worker.wake()
    await hooks.add(await hooks.subscribe(hung.url), hung.url, "small")
    await hung.reached(15)
    statement = "SELECT sum(length(body)) FROM deliveries WHERE is_leased"
    async with hooks.database.transaction() as tx:
        assert await tx.fetchval(statement) <= (32 << 20) + 8 * size
    await worker.stop()
