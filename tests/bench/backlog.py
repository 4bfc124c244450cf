"""Receives with many stored rows: depth, dead rows, snapshots, queues."""

import itertools
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg

from tests.bench.client import HANDLE, Load, Script
from tests.bench.hot import cycles, line, receive_request
from tests.bench.servers import database_url
from tests.bench.stage import FILL_CONNECTIONS, FILL_SECONDS_MAX, Bench, Scenario, Stage, plain, say

BODY_BYTES = 100
PROBES = 400
PROBES_TOGETHER = 2_000
CYCLES_TOGETHER = 64
DEPTHS = (10_000, 100_000, 1_000_000)
TENS = 1_000
TEN_BYTES = 1_024
_URL = re.compile(rb'"QueueUrl": ?"([^"]+)"')
_HOLD_SNAPSHOT = Path(__file__).with_name("sql") / "hold_snapshot.sql"


def scenarios() -> list[Scenario]:
    """Return the scenarios of this file, the one that leaves most behind last."""
    return [
        Scenario("depth", "receive from a deep queue against a short one", _depth),
        Scenario("depths", "receives of ten from a queue of 1 KB messages, by its depth", _depths),
        Scenario("churn", "receive after many messages came and went, against a new queue", _churn),
        Scenario("idle-transaction", "the same with a transaction open meanwhile", _idle),
        Scenario("queues", "cycles over many queues against one queue", _queues),
    ]


async def _depth(bench: Bench) -> None:
    stage = bench.queuegate
    async with _two_queues(stage) as (deep, short):
        await stage.fill(deep, bench.options.depth, BODY_BYTES)
        await _compare(stage, "depth", deep, short)


async def _depths(bench: Bench) -> None:
    """At each depth as many messages lie behind those that the receives take."""
    stage = bench.queuegate
    for depth in (0, *(most for most in DEPTHS if most <= bench.options.depth)):
        for connections in (16, 64):
            pool = await stage.pool(connections)
            queue_url = await stage.create_queue(pool)
            try:
                await stage.fill(queue_url, depth + (TENS + connections) * 10, TEN_BYTES)
                requests = itertools.repeat(receive_request(stage, queue_url, 10), TENS)
                run = await stage.measure(pool, _shared(requests))
                stage.figures.note(f"depths/{depth}/{connections}", **run)
                say(line(stage.server.name, f"depth {depth}/{connections}", run))
                await stage.delete_queue(pool, queue_url)
            finally:
                pool.close()


async def _churn(bench: Bench) -> None:
    stage = bench.queuegate
    async with _two_queues(stage) as (used, new):
        await churn(stage, used, bench.options.churn)
        await _compare(stage, "churn", used, new)


async def _idle(bench: Bench) -> None:
    stage = bench.queuegate
    hold_snapshot = _HOLD_SNAPSHOT.read_text(encoding="utf-8")
    connection = await asyncpg.connect(database_url(stage.server))
    try:
        async with (
            _two_queues(stage) as (used, new),
            connection.transaction(isolation="repeatable_read"),
        ):
            await connection.fetchval(hold_snapshot)
            await churn(stage, used, bench.options.churn)
            await _compare(stage, "idle-transaction", used, new)
    finally:
        await connection.close()


async def churn(stage: Stage, queue_url: str, count: int) -> None:
    """Send, receive and delete so many messages, ten at a time."""
    send = stage.send_batch_request(queue_url, BODY_BYTES)
    members = {"QueueUrl": queue_url, "MaxNumberOfMessages": 10, "WaitTimeSeconds": 0}
    receive = stage.renderer.request("ReceiveMessage", members)
    turns = iter(range(-(-count // 10)))

    def script(load: Load) -> Script:
        for _ in turns:
            yield send
            handles = HANDLE.findall((yield receive))
            if handles:
                yield stage.renderer.batch_deletion(queue_url, handles)

    pool = await stage.pool(FILL_CONNECTIONS)
    try:
        load = await pool.run(script, FILL_SECONDS_MAX)
    finally:
        pool.close()
    say(f"  churned {count} messages in {load.elapsed_seconds:.0f} s")


async def _compare(stage: Stage, key: str, loaded: str, plain_queue: str) -> None:
    """Probe both queues in turn, round by round, and note the ratios of time and of CPU."""
    for _ in range(max(3, stage.options.rounds)):
        base = await _probe(stage, plain_queue)
        values = await _probe(stage, loaded)
        stage.figures.note(
            key,
            p50_ms=values["p50_ms"],
            p99_ms=values["p99_ms"],
            total_us=values["total_us"],
            base_p50_ms=base["p50_ms"],
            base_total_us=base["total_us"],
            ratio=values["p50_ms"] / base["p50_ms"],
            cpu_ratio=values["total_us"] / base["total_us"],
        )
    summary = stage.figures.summary()[key]
    say(
        f"  {key}: p50 {summary['p50_ms']:.2f} against {summary['base_p50_ms']:.2f} ms, "
        f"ratio {summary['ratio']:.2f}; CPU {summary['cpu_ratio']:.2f}"
    )


async def _probe(stage: Stage, queue_url: str) -> dict[str, float]:
    """Fill in what the probe takes, then receive one by one: time alone, CPU at 16 connections."""
    alone, together = (
        max(50, int(count * stage.options.scale)) for count in (PROBES, PROBES_TOGETHER)
    )
    await stage.fill(queue_url, alone + together + 100, BODY_BYTES)
    members = {"QueueUrl": queue_url, "MaxNumberOfMessages": 1, "WaitTimeSeconds": 0}
    request = stage.renderer.request("ReceiveMessage", members)
    values = {}
    for connections, count in ((1, alone), (16, together)):
        supply = itertools.repeat(request, count)
        pool = await stage.pool(connections)
        try:
            run = await stage.measure(pool, _shared(supply))
        finally:
            pool.close()
        if connections == 1:
            values = {"p50_ms": run["p50_ms"], "p99_ms": run["p99_ms"]}
        else:
            values["total_us"] = run["total_us"]
    return values


async def _queues(bench: Bench) -> None:
    stage, count = bench.queuegate, bench.options.queues
    many = await _create_queues(stage, count)
    one = await _create_queues(stage, 1)
    await stage.drain(stage.send_request(url, BODY_BYTES) for url in [*many, *one * 200])
    for _ in range(bench.options.rounds):
        base = await _cycle_over(stage, one)
        values = await _cycle_over(stage, many)
        stage.figures.note("queues/one", **base)
        stage.figures.note(
            "queues",
            **values,
            ratio=values["p50_ms"] / base["p50_ms"],
            cpu_ratio=values["total_us"] / base["total_us"],
        )
    memory = stage.server.tree.memory()
    stage.figures.note("queues/memory", gateway_rss=memory.gateway_rss)
    summary = stage.figures.summary()["queues"]
    say(
        f"  {count} queues: cycle {summary['total_us']:.0f} us, CPU ratio to one queue "
        f"{summary['cpu_ratio']:.2f}, gateway {memory.gateway_rss:.0f} MiB"
    )
    if not bench.owns_server:
        members = ({"QueueUrl": url} for url in [*many, *one])
        await stage.drain(stage.renderer.request("DeleteQueue", member) for member in members)


async def _create_queues(stage: Stage, count: int) -> list[str]:
    found: list[str] = []
    prefix = f"bench-many-{id(found):x}-{count}"
    requests = iter(
        [
            stage.renderer.request("CreateQueue", {"QueueName": f"{prefix}-{number}"})
            for number in range(count)
        ]
    )

    def script(load: Load) -> Script:
        for request in requests:
            answer = yield request
            found.extend(url.decode() for url in _URL.findall(answer))

    pool = await stage.pool(FILL_CONNECTIONS)
    try:
        load = await pool.run(script, FILL_SECONDS_MAX)
    finally:
        pool.close()
    say(f"  created {len(found)} queues in {load.elapsed_seconds:.1f} s")
    return found


async def _cycle_over(stage: Stage, queue_urls: list[str]) -> dict[str, float]:
    steps = []
    for queue_url in queue_urls:
        members = {"QueueUrl": queue_url, "MaxNumberOfMessages": 1, "WaitTimeSeconds": 0}
        receive = stage.renderer.request("ReceiveMessage", members)
        send = stage.send_request(queue_url, BODY_BYTES)
        steps.append((send, receive, stage.renderer.deletion(queue_url)))
    count = max(200, int(8_000 * stage.options.scale))
    supply = itertools.islice(itertools.cycle(steps), count)
    pool = await stage.pool(CYCLES_TOGETHER)
    try:
        return await stage.measure(pool, lambda load: cycles(supply, load))
    finally:
        pool.close()


@asynccontextmanager
async def _two_queues(stage: Stage) -> AsyncIterator[tuple[str, str]]:
    pool = await stage.pool(1)
    try:
        queue_urls = (await stage.create_queue(pool), await stage.create_queue(pool))
        yield queue_urls
        for queue_url in queue_urls:
            await stage.delete_queue(pool, queue_url)
    finally:
        pool.close()


def _shared(supply: Iterator[bytes]) -> Callable[[Load], Script]:
    return lambda _: plain(supply)
