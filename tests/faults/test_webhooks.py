"""Web hooks that misbehave, and workers that die between a request and its record.

No delivery is lost; what may have been delivered twice is counted, and shown.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from queuegate.storage.embedded.embedded_server import running_dsn
from tests.cli.processes import Watch, environment, postmaster, run
from tests.faces.connections import fetch
from tests.faces.sns_client import Sns
from tests.faults.gateways import Server, serving
from tests.scheduler.endpoints import (
    Endpoint,
    answer,
    close_at_once,
    close_mid_answer,
    close_mid_chunk,
    endless_headers,
    hang,
    in_turn,
)
from tests.waiting import until_async, until_so

pytestmark = pytest.mark.timeout(180)

# A lease is the timeout and five seconds more, or twice as long if that is more.
QUICK = {"QUEUE_HTTP_DELIVERY_TIMEOUT_SECS": "1", "QUEUE_HTTP_DELIVERY_POLL_MS": "100"}
# For requests that are held: they must not run into their timeout before the kill.
HELD = QUICK | {"QUEUE_HTTP_DELIVERY_TIMEOUT_SECS": "5"}
# For requests that are answered, however slow this machine is.
PATIENT = QUICK | {"QUEUE_HTTP_DELIVERY_TIMEOUT_SECS": "30"}
POLICY = {"numRetries": 20, "minDelayTarget": 1, "maxDelayTarget": 1}
COUNT = 60


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with Endpoint(answer(200)).listening() as endpoint:
        yield endpoint


async def subscribe(server: Server, endpoint: Endpoint, **policy: int) -> str:
    """A topic with this web hook, confirmed."""
    url = f"http://127.0.0.1:{server.port}"
    with Sns("query", url) as sns:
        retry = json.dumps({"healthyRetryPolicy": POLICY | policy})
        attributes = {"DeliveryPolicy": retry, "RawMessageDelivery": "true"}
        topic = await asyncio.to_thread(sns.create)
        await asyncio.to_thread(sns.subscribe, topic, "http", endpoint.url, **attributes)
        await endpoint.reached(1)
        link = json.loads(endpoint.requests[0].body)["SubscribeURL"]
        await asyncio.to_thread(fetch, url, link.removeprefix(url))
    endpoint.requests.clear()
    return topic


async def publish(server: Server, topic: str, *messages: str) -> None:
    def act() -> None:
        account = topic.split(":")[4]
        with Sns("query", f"http://127.0.0.1:{server.port}", account) as sns:
            for message in messages:
                sns.publish(topic, message)

    await asyncio.to_thread(act)


def received(endpoint: Endpoint) -> Counter[str]:
    return Counter(request.body.decode() for request in endpoint.requests)


async def lost_leases(server: Server) -> int:
    connection = await server.connect()
    found: int = await connection.fetchval("SELECT sum(lost_count)::int FROM deliveries")
    await connection.close()
    return found


async def until_empty(server: Server) -> None:
    connection = await server.connect()
    count = "SELECT count(*) FROM deliveries"
    await until_async(lambda: connection.fetchval(count), lambda found: not found)
    await connection.close()


def lost_in_summary(data: Path) -> int:
    done = run("deliveries", "summary", "--json", "--data", str(data))
    assert done.returncode == 0, done.stderr
    return sum(json.loads(line)["lost"] for line in done.stdout.splitlines())


async def test_kill_between_request_and_record_loses_nothing_and_counts_what_is_repeated(
    data: Path, endpoint: Endpoint
) -> None:
    messages = [str(number) for number in range(COUNT)]
    async with serving(data, **HELD) as server:
        topic = await subscribe(server, endpoint)
        endpoint.behaviour = in_turn(*[answer(200)] * 10, hang)
        await publish(server, topic, *messages)
        await endpoint.reached(12)
        await server.kill()
        before = received(endpoint)
        endpoint.behaviour = answer(500)
        await server.start()
        # What died is due again after its lease; the others at once.
        await server.until_metric("queuegate_delivery_leases_lost_total")
        await until_so(lambda: len(received(endpoint)) >= COUNT)

        # Three ways to see them: the rows, the metric and the command.
        async def shown() -> list[int]:
            return [
                await lost_leases(server),
                int(await server.metric("queuegate_delivery_leases_lost_total")),
                await asyncio.to_thread(lost_in_summary, data),
            ]

        found = await until_async(shown, lambda found: 0 < found[0] == found[1] == found[2])
        assert found[0] <= len(before)
        endpoint.behaviour = answer(200)
        await until_empty(server)
        assert received(endpoint).keys() == set(messages)


async def test_worker_that_is_killed_is_followed_by_another(data: Path, endpoint: Endpoint) -> None:
    """The gateway lives on: its deliveries are made elsewhere. Each is made twice at most."""
    messages = [str(number) for number in range(COUNT)]
    async with serving(data, QUEUE_HTTP_DELIVERY_ENABLED="false") as server:
        with working(data) as worker:
            topic = await subscribe(server, endpoint)
            endpoint.behaviour = in_turn(*[answer(200)] * 10, hang)
            await publish(server, topic, *messages)
            await endpoint.reached(12)
            worker.send_signal(signal.SIGKILL)
            await asyncio.to_thread(worker.wait, 30)
        before = received(endpoint)
        endpoint.behaviour = answer(200)
        with working(data) as worker:
            await until_empty(server)
            after = received(endpoint)
            worker.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(worker.wait, 30) == 0
        assert after.keys() == set(messages)
        repeated = [message for message, count in after.items() if count > 1]
        assert set(repeated) <= set(before)
        assert max(after.values()) <= 2


def working(data: Path) -> subprocess.Popen[bytes]:
    """`queuegate worker` on the database of a gateway."""
    dsn = running_dsn(data)
    assert dsn is not None
    more = HELD | {"DATABASE_URL": dsn, "QUEUEGATE_PRIVATE_WEBHOOKS": "true"}
    return subprocess.Popen(
        [sys.executable, "-m", "queuegate", "worker"],
        env=environment(**more),
        stdout=subprocess.DEVNULL,
    )


async def test_stop_repeats_nothing_that_was_answered(data: Path, endpoint: Endpoint) -> None:
    messages = [str(number) for number in range(COUNT)]
    async with serving(data, **PATIENT) as server:
        topic = await subscribe(server, endpoint)
        await publish(server, topic, *messages[:30])
        await endpoint.reached(3)
        assert await asyncio.to_thread(server.gateway.stop, signal.SIGTERM) == 0
        await server.close()
        await server.start()
        await publish(server, topic, *messages[30:])
        await until_empty(server)
        assert received(endpoint) == Counter(messages)
        assert await server.metric("queuegate_delivery_leases_lost_total") == 0


async def test_stop_does_not_wait_for_a_web_hook_that_hangs(data: Path, endpoint: Endpoint) -> None:
    """Two starts of a gateway, and a lease that runs out."""
    async with serving(data, QUEUEGATE_SHUTDOWN_DEADLINE="1") as server:
        topic = await subscribe(server, endpoint)
        endpoint.behaviour = hang
        await publish(server, topic, "a")
        await endpoint.reached(1)
        assert await asyncio.to_thread(server.gateway.stop, signal.SIGTERM) == 0
        await server.close()
        assert await asyncio.to_thread(lost_in_summary, data) == 1
        endpoint.behaviour = answer(200)
        await server.start()
        await until_empty(server)
        assert received(endpoint) == Counter({"a": 2})


async def test_every_kind_of_bad_answer_is_overcome(data: Path, endpoint: Endpoint) -> None:
    bad = [close_at_once, close_mid_answer, close_mid_chunk, endless_headers, hang]
    async with serving(data, **QUICK) as server:
        topic = await subscribe(server, endpoint, numNoDelayRetries=20)
        endpoint.behaviour = in_turn(*bad, answer(500), answer(429), answer(200))
        await publish(server, topic, "a")
        await until_empty(server)
        # Once more for each answer that was too slow for the timeout that `hang` needs.
        assert received(endpoint).keys() == {"a"}
        assert len(endpoint.requests) >= len(bad) + 3


async def test_endpoint_that_is_away_gets_everything_when_it_is_back(data: Path) -> None:
    endpoint = Endpoint(answer(200))
    async with serving(data, **PATIENT) as server:
        async with endpoint.listening():
            topic = await subscribe(server, endpoint)
        await publish(server, topic, *map(str, range(20)))
        await server.until_metric('queue_delivery_attempts_total{outcome="failure"}')
        async with endpoint.listening():
            await until_empty(server)
        assert received(endpoint) == Counter(map(str, range(20)))


async def test_postgres_that_dies_loses_no_delivery(data: Path, endpoint: Endpoint) -> None:
    messages = [str(number) for number in range(COUNT)]
    async with serving(data, **QUICK) as server:
        topic = await subscribe(server, endpoint)
        endpoint.behaviour = in_turn(*[answer(200)] * 10, hang)
        await publish(server, topic, *messages)
        await endpoint.reached(12)
        before = postmaster(data)
        watch = Watch(before)
        os.kill(before, signal.SIGKILL)
        assert await asyncio.to_thread(watch.wait)
        endpoint.behaviour = answer(200)
        await server.until_ready()
        await until_empty(server)
        assert received(endpoint).keys() == set(messages)
