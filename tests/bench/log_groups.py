"""Groups of logs: what a record costs that groups consume, a cycle beside that of a queue, and how
fast a record reaches who waits for it."""

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter

from tests.bench.client import Load, Pool, Script
from tests.bench.faces import BODY_BYTES, json_request
from tests.bench.hot import cycles, receive_request
from tests.bench.logs import PARTITIONS, Publishing
from tests.bench.servers import CannotMeasure, database_url
from tests.bench.stage import Bench, Scenario, Stage, elapse, percentile, plain, say

BATCH = 100
_GROUPS = (1, 3)
_SUBSCRIBERS = 4
_RECORDS = 20_000
_CYCLES = 2_400
_CONNECTIONS = 64
_LEAST_ROUNDS = 5
_LATENCIES = 300
_PARKED_SECONDS = 0.02
_TAIL_SECONDS = 0.5
SETTINGS: Mapping[str, object] = {"batch_size": BATCH, "lease": 300, "visibility_timeout": 300}
RECEIPT = re.compile(rb'"receipt":"([0-9.]+)"')
_NUMBERS = itertools.count(1)


@dataclass
class Subscriber:
    """One of a group, with the session that its first heartbeat began."""

    stage: Stage
    log: str
    group: str
    name: str
    session: int = 0
    partitions: list[int] = field(default_factory=list)

    def heartbeat(self) -> bytes:
        """Join, or stay."""
        body = {"session": self.session} if self.session else {}
        return self._request("PUT", f"/subscribers/{self.name}", body)

    def stands(self, answer: dict[str, object]) -> float:
        """Take what a heartbeat answered. When the next one is due, in seconds."""
        session, seconds = answer["session"], answer["heartbeat_seconds"]
        partitions = answer["partitions"]
        assert isinstance(session, int)
        assert isinstance(seconds, int | float)
        assert isinstance(partitions, list)
        self.session = session
        self.partitions = [one["partition"] for one in partitions]
        return seconds

    def fetch(self, most: int = BATCH, wait: float = 0) -> bytes:
        """Records of what it holds."""
        body = {"session": self.session, "max": most, "wait": wait}
        return self._request("POST", f"/subscribers/{self.name}/fetch", body)

    def ack(self, receipts: list[bytes]) -> bytes:
        """All of these are done."""
        deliveries = [{"receipt": one.decode(), "do": "ack"} for one in receipts]
        return self._request("POST", "/deliveries", {"deliveries": deliveries})

    def _request(self, method: str, path: str, body: object) -> bytes:
        return json_request(
            self.stage, method, f"/v1/logs/{self.log}/groups/{self.group}{path}", body
        )


def scenarios() -> list[Scenario]:
    """Return what can be measured of groups."""
    return [
        Scenario(
            "log-consume",
            f"records of 500 bytes consumed {BATCH} at a time, by 1 and 3 groups, per delivery",
            _consume,
        ),
        Scenario(
            "log-cycle",
            "a record of 1 KB published and consumed by one group, CPU beside a cycle of SQS",
            _cycle,
        ),
        Scenario("log-wake", "from a publish to who waits in a fetch, in one process", _wake_same),
        Scenario("log-wake-other", "the same between two gateways on one database", _wake_other),
    ]


@asynccontextmanager
async def new_log(stage: Stage, settings: Mapping[str, object], *groups: str) -> AsyncIterator[str]:
    """A log with groups of these settings, while the block lasts."""
    log = f"bench-group-{next(_NUMBERS)}"
    pool = await stage.pool(1)
    try:
        await pool.exchange(json_request(stage, "POST", "/v1/logs", {"log": log}))
        for group in groups:
            path = f"/v1/logs/{log}/groups/{group}"
            await pool.exchange(json_request(stage, "PUT", path, settings))
        yield log
        await pool.exchange(json_request(stage, "DELETE", f"/v1/logs/{log}"))
    finally:
        pool.close()


async def join(pool: Pool, subscribers: list[Subscriber]) -> None:
    """Let all of them join, and hold their shares: whoever came first gives something up."""
    for _ in range(3):
        for one in subscribers:
            one.stands(await pool.call(one.heartbeat()))


async def _consume(bench: Bench) -> None:
    stage = bench.queuegate
    for partitions in PARTITIONS:
        for groups in _GROUPS:
            for _ in range(max(2, stage.options.rounds)):
                await _consume_once(stage, partitions, groups)
            key = f"log-consume/{partitions}-{groups}"
            found = stage.figures.summary()[key]
            say(
                f"  {key}: {found['gateway_us']:.1f} + {found['database_us']:.1f} us a delivery, "
                f"{found['per_second']:.0f}/s; published at {found['publish_us']:.1f} us, "
                f"{found['published_per_second']:.0f}/s"
            )


async def _consume_once(stage: Stage, partitions: int, groups: int) -> None:
    names = [f"g{number}" for number in range(groups)]
    count = max(BATCH * 20, int(_RECORDS * stage.options.scale)) // groups // BATCH * BATCH
    pool = await stage.pool(min(partitions, _SUBSCRIBERS) * groups)
    publishers = await stage.pool(8)
    async with new_log(stage, SETTINGS, *names) as log:
        supply = Publishing(partitions, BATCH).requests(stage, log)
        requests = itertools.islice(supply, count // BATCH)
        published = await stage.measure(publishers, lambda _: plain(requests))
        # What was not published in time is not waited for.
        count = int(published["operations"]) * BATCH
        subscribers = [
            Subscriber(stage, log, name, f"s{number}")
            for number in range(min(partitions, _SUBSCRIBERS))
            for name in names
        ]
        await join(pool, subscribers)
        values = await stage.measure(pool, _each(subscribers, _drain))
        if values["messages"] < count * groups:
            raise CannotMeasure(f"{values['messages']:.0f} of {count * groups} were consumed")
    each = values["operations"] / values["messages"]
    stage.figures.note(
        f"log-consume/{partitions}-{groups}",
        **{name: values[name] * each for name in ("gateway_us", "database_us", "total_us")},
        per_second=values["per_second"] / each,
        publish_us=published["total_us"] / BATCH,
        published_per_second=published["per_second"] * BATCH,
    )
    pool.close()
    publishers.close()


def _drain(subscriber: Subscriber, load: Load) -> Script:
    """Fetch and acknowledge until nothing is left."""
    fetch = subscriber.fetch()
    while receipts := RECEIPT.findall((yield fetch)):
        yield subscriber.ack(receipts)
        load.messages += len(receipts)


@dataclass
class _Stream:
    """Records published one by one, and consumed meanwhile by a group."""

    at_once: int
    """Records of a fetch, and of what is acknowledged together."""
    left: int = 0
    ended_at: float = 0.0

    def consuming(self, subscriber: Subscriber, load: Load) -> Script:
        """Until all are consumed, whoever of the group does it."""
        fetch = subscriber.fetch(self.at_once, _TAIL_SECONDS)
        while self.left > 0:
            receipts = RECEIPT.findall((yield fetch))
            if receipts:
                yield subscriber.ack(receipts)
                load.messages += len(receipts)
                self.left -= len(receipts)
                self.ended_at = perf_counter()


async def _cycle(bench: Bench) -> None:
    """As many publish at once as there are cycles of SQS; the group consumes what has come."""
    for partitions in PARTITIONS:
        await _cycles(bench.queuegate, f"log-cycle/{partitions}", partitions, BATCH)
    await _cycles(bench.queuegate, "log-cycle/64-singly", 64, 1)


async def _cycles(stage: Stage, key: str, partitions: int, at_once: int) -> None:
    subscriber_count = min(partitions, _SUBSCRIBERS if at_once > 1 else _CONNECTIONS)
    count = max(_CONNECTIONS * 4, int(_CYCLES * stage.options.scale))
    queue_pool = await stage.pool(_CONNECTIONS)
    pool = await stage.pool(subscriber_count + _CONNECTIONS)
    queue_url = await stage.create_queue(queue_pool)
    await stage.fill(queue_url, 2 * _CONNECTIONS, BODY_BYTES)
    steps = (
        stage.send_request(queue_url, BODY_BYTES),
        receive_request(stage, queue_url, 1),
        stage.renderer.deletion(queue_url),
    )
    async with new_log(stage, SETTINGS, "g") as log:
        supply = Publishing(partitions, 1).requests(stage, log)
        await stage.drain(itertools.islice(supply, partitions))
        subscribers = [Subscriber(stage, log, "g", f"s{n}") for n in range(subscriber_count)]
        await join(pool, subscribers)
        await pool.run(_each(subscribers, _drain), stage.options.run_seconds)
        for _ in range(max(_LEAST_ROUNDS, stage.options.rounds)):
            wanted = itertools.repeat(steps, count)
            beside = await stage.measure(queue_pool, partial(cycles, wanted))
            values = await _stream(stage, pool, subscribers, at_once, supply, count)
            stage.figures.note(
                key,
                **values,
                base_total_us=beside["total_us"],
                base_per_second=beside["per_second"],
                ratio=values["total_us"] / beside["total_us"],
            )
    await stage.delete_queue(queue_pool, queue_url)
    queue_pool.close()
    pool.close()
    found = stage.figures.summary()[key]
    say(
        f"  {key}: {found['gateway_us']:.1f} + {found['database_us']:.1f} us a record against "
        f"{found['base_total_us']:.1f}, ratio {found['ratio']:.2f}; {found['per_second']:.0f}/s"
    )


async def _stream(
    stage: Stage,
    pool: Pool,
    subscribers: list[Subscriber],
    at_once: int,
    supply: Iterator[bytes],
    count: int,
) -> dict[str, float]:
    """Publish so many records and consume them; the figures of one."""
    stream = _Stream(at_once, count)
    # Made before: the client's part is not measured, but shares the machine.
    made = iter([*itertools.islice(supply, count)])
    started = 0.0

    def publishing(_: Load) -> Script:
        nonlocal started
        started = started or perf_counter()
        return plain(made)

    scripts = _each(subscribers, stream.consuming, publishing)
    values = await stage.measure(pool, scripts)
    if stream.left:
        raise CannotMeasure(f"{stream.left} of {count} records were not consumed in time")
    each = values["operations"] / count
    return {
        **{name: values[name] * each for name in ("gateway_us", "database_us", "total_us")},
        "per_second": count / (stream.ended_at - started),
        "requests": each,
    }


def _each(
    subscribers: list[Subscriber],
    consume: Callable[[Subscriber, Load], Script],
    others: Callable[[Load], Script] = lambda _: plain(iter(())),
) -> Callable[[Load], Script]:
    """One script for each subscriber, and the other one for all further connections."""
    waiting = iter(subscribers)

    def script(load: Load) -> Script:
        subscriber = next(waiting, None)
        return others(load) if subscriber is None else consume(subscriber, load)

    return script


async def _wake_same(bench: Bench) -> None:
    await _measure_wakes(bench.queuegate, "log-wake", bench.queuegate.server.address)


async def _wake_other(bench: Bench) -> None:
    second = bench.workshop.start_second_gateway(database_url(bench.queuegate.server))
    try:
        await _measure_wakes(bench.queuegate, "log-wake-other", second.address)
    finally:
        second.stop()


async def _measure_wakes(stage: Stage, key: str, waiter: tuple[str, int]) -> None:
    """Wait there, publish here: from before a publish is written until the record is there."""
    count = max(20, int(_LATENCIES * stage.options.scale))
    waiting = await Pool.open(waiter, 1)
    publishing = await stage.pool(1)
    seconds = []
    async with new_log(stage, SETTINGS, "g") as log:
        supply = Publishing(1, 1).requests(stage, log)
        await publishing.exchange(next(supply))
        subscriber = Subscriber(stage, log, "g", "s")
        await join(waiting, [subscriber])
        first = RECEIPT.findall(await waiting.exchange(subscriber.fetch()))
        await waiting.exchange(subscriber.ack(first))
        for request in itertools.islice(supply, count):
            fetch = asyncio.create_task(waiting.exchange(subscriber.fetch(BATCH, 20)))
            await elapse(_PARKED_SECONDS)
            started = perf_counter()
            published = asyncio.create_task(publishing.exchange(request))
            receipts = RECEIPT.findall(await fetch)
            seconds.append(perf_counter() - started)
            await published
            await waiting.exchange(subscriber.ack(receipts))
    waiting.close()
    publishing.close()
    seconds.sort()
    p50, p99 = (percentile(seconds, percent) * 1000 for percent in (50, 99))
    stage.figures.note(key, p50_ms=p50, p99_ms=p99, operations=len(seconds))
    say(f"  {key}: p50 {p50:.2f} ms, p99 {p99:.2f} ms, {len(seconds)} records")
