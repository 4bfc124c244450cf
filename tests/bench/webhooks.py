"""Deliveries to web hooks: how many a second, what each costs, how soon it is there."""

import asyncio
import itertools
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

from tests.bench.client import Pool
from tests.bench.endpoint import HOST
from tests.bench.publishing import publish_batch_request, publish_request
from tests.bench.rendering import message_body
from tests.bench.servers import ROOT, CannotMeasure
from tests.bench.stage import Bench, Scenario, Stage, elapse, percentile, say
from tests.bench.topics import RAW, create_topic, delete_topic, subscribe

ENDPOINTS = 100
BODY_BYTES = 1024
DELIVERIES = 6_000
LATENCIES = 400
_BETWEEN_SECONDS = 0.02
_LOOK_SECONDS = 0.02
_SECONDS_MAX = 120.0
_WARM_SHARE = 0.1
_STATE = b"GET / HTTP/1.1\r\nHost: endpoint\r\n\r\n"


def scenarios() -> list[Scenario]:
    """Return the scenarios of this file."""
    return [Scenario("webhooks", "deliveries to 1 and to 100 HTTP endpoints", _web_hooks)]


@dataclass(frozen=True)
class Hooks:
    """The endpoint process, and a connection on which it tells what it saw."""

    ports: list[int]
    control: Pool

    async def state(self) -> dict[str, Any]:
        return await self.control.call(_STATE)

    async def wait(self, is_enough: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the first state that is enough; raises CannotMeasure when it does not come."""
        deadline = perf_counter() + _SECONDS_MAX
        state = await self.state()
        while not is_enough(state):
            if perf_counter() > deadline:
                raise CannotMeasure(
                    f"the web hooks have {state['deliveries']} deliveries after "
                    f"{_SECONDS_MAX:.0f} s"
                )
            await elapse(_LOOK_SECONDS)
            state = await self.state()
        return state


async def _web_hooks(bench: Bench) -> None:
    stage, rounds = bench.queuegate, bench.options.rounds
    async with _hooks() as hooks:
        for _ in range(rounds):
            await _throughput(stage, hooks, "webhooks/1", 1, attributes={})
            await _throughput(stage, hooks, "webhooks-raw/1", 1, attributes=RAW)
            await _throughput(stage, hooks, f"webhooks/{ENDPOINTS}", ENDPOINTS, attributes={})
            await _latency(stage, hooks)


async def _throughput(
    stage: Stage, hooks: Hooks, key: str, endpoints: int, *, attributes: Mapping[str, str]
) -> None:
    """Publish as fast as it goes; CPU and time until the last delivery is there and recorded."""
    pool = await stage.pool(16)
    tree = stage.server.tree
    try:
        topic_arn = await _confirmed(stage, pool, hooks, hooks.ports[:endpoints], attributes)
        if endpoints == 1:
            request, each = publish_batch_request(stage, topic_arn, BODY_BYTES), 10
        else:
            request, each = publish_request(stage, topic_arn, BODY_BYTES), endpoints
        count = max(1, int(DELIVERIES * stage.options.scale / each))
        warm = max(1, int(count * _WARM_SHARE))
        await _publish_all(stage, hooks, itertools.repeat(request, warm), warm * each)
        tree.settle()
        before, earlier, started = tree.usage(), await hooks.state(), perf_counter()
        state = await _publish_all(stage, hooks, itertools.repeat(request, count), count * each)
        tree.settle()
        spent, deliveries = tree.usage() - before, count * each
        state["requests"] = (await hooks.state())["requests"]
        await delete_topic(stage, pool, topic_arn)
    finally:
        pool.close()
    values = {
        "gateway_us": spent.gateway_seconds / deliveries * 1e6,
        "database_us": spent.database_seconds / deliveries * 1e6,
        "total_us": (spent.gateway_seconds + spent.database_seconds) / deliveries * 1e6,
        "per_second": deliveries / (state["last_at"] - started),
        "deliveries": deliveries,
        "repeated": state["requests"] - earlier["requests"] - deliveries,
    }
    stage.figures.note(key, **values)
    say(
        f"  {key}: {values['gateway_us']:.0f} + {values['database_us']:.0f} us a delivery, "
        f"{values['per_second']:.0f}/s, {values['repeated']:.0f} of {deliveries} made again"
    )


async def _publish_all(
    stage: Stage, hooks: Hooks, requests: Iterable[bytes], deliveries: int
) -> dict[str, Any]:
    """Publish, and return what the web hooks say once all of it is there."""
    wanted = (await hooks.state())["deliveries"] + deliveries
    await stage.drain(requests)
    return await hooks.wait(lambda state: state["deliveries"] >= wanted)


async def _latency(stage: Stage, hooks: Hooks) -> None:
    """Publish now and then; the time from the publish to its POST, read to the end."""
    pool = await stage.pool(1)
    count = max(40, int(LATENCIES * stage.options.scale))
    sent: dict[int, float] = {}
    arrived: dict[int, float] = {}
    try:
        topic_arn = await _confirmed(stage, pool, hooks, hooks.ports[:1], {})
        text = "number-{n}" + message_body(BODY_BYTES - len("number-") - 12)
        members = {"TopicArn": topic_arn, "Message": text}
        render = stage.renderer.numbered_form("Publish", members, fields=("{n}",))
        for number in range(count + 1):
            sent[number] = perf_counter()
            await pool.exchange(render(number))
            await elapse(_BETWEEN_SECONDS)

        def are_all(state: dict[str, Any]) -> bool:
            for number, seconds in state["arrivals"]:
                arrived.setdefault(number, seconds)
            return len(arrived) > count

        await hooks.wait(are_all)
        await delete_topic(stage, pool, topic_arn)
    finally:
        pool.close()
    # The first one finds no connection and no plan.
    seconds = sorted(arrived[number] - sent[number] for number in range(1, count + 1))
    p50, p99 = (percentile(seconds, percent) * 1000 for percent in (50, 99))
    stage.figures.note("webhook-latency", p50_ms=p50, p99_ms=p99, operations=count)
    say(f"  webhook-latency: p50 {p50:.2f} ms, p99 {p99:.2f} ms, {count} deliveries")


async def _confirmed(
    stage: Stage, pool: Pool, hooks: Hooks, ports: list[int], attributes: Mapping[str, str]
) -> str:
    """Create a topic, subscribe those ports, and follow the links that they are sent."""
    topic_arn = await create_topic(stage, pool)
    for port in ports:
        endpoint = ("http", f"http://{HOST}:{port}/hook")
        await subscribe(stage, pool, topic_arn, endpoint, attributes=attributes)
    urls: list[str] = []

    def are_all(state: dict[str, Any]) -> bool:
        urls.extend(state["confirm_urls"])
        return len(urls) >= len(ports)

    await hooks.wait(are_all)
    for url in urls:
        parts = urlsplit(url)
        line = f"GET {parts.path or '/'}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n"
        await pool.exchange(line.encode())
    return topic_arn


@asynccontextmanager
async def _hooks() -> AsyncIterator[Hooks]:
    with _process() as process:
        assert process.stdout is not None
        line = await asyncio.to_thread(process.stdout.readline)
        if not line:
            raise CannotMeasure("the process with the web hooks ended")
        ports: list[int] = json.loads(line)
        control = await Pool.open((HOST, ports[0]), 1)
        try:
            yield Hooks(ports, control)
        finally:
            control.close()


@contextmanager
def _process() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.bench.endpoint", str(ENDPOINTS)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    ) as process:
        try:
            yield process
        finally:
            process.kill()
