"""Fair queues: what receives cost beside a noisy message group, and how long quiet ones wait."""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator
from time import time
from typing import Any

from tests.bench.client import Load, Pool, Script
from tests.bench.hot import receive_request
from tests.bench.rendering import message_body
from tests.bench.stage import Bench, Scenario, Stage, elapse, percentile, plain, say

GROUPS = 1_000
BACKLOG = 10_000
RECEIVES = 400
_IN_FLIGHT = 10
_BODY_BYTES = 100
_SAMPLED_SECONDS = 1.0
TENANTS = 50
CONSUMERS = 8
PROCESSING_SECONDS = 0.05


def scenarios() -> list[Scenario]:
    """Return the scenarios of this file."""
    return [
        Scenario("fair-queue", "receives of ten beside a noisy group, 1,000 groups", _run),
        Scenario("fair-dwell", "dwell time of fifty quiet groups beside a noisy one", _dwell),
    ]


async def _run(bench: Bench) -> None:
    """Receive of both queues in turn; a receive of the fair one finds quiet groups only."""
    stage = bench.queuegate
    pool = await stage.pool(1)
    fair, base_queue = await stage.create_queue(pool), await stage.create_queue(pool)
    try:
        await stage.drain(_sends(stage, fair, itertools.repeat("busy", BACKLOG)))
        await stage.fill(base_queue, BACKLOG, _BODY_BYTES)
        request = receive_request(stage, fair, 10)
        for _ in range(_IN_FLIGHT):
            await pool.call(request)
        # Until the gateway has sampled the queue.
        await elapse(_SAMPLED_SECONDS)
        for _ in range(max(3, stage.options.rounds)):
            groups = [f"quiet{number % GROUPS}" for number in range(RECEIVES * 10)]
            await stage.drain(_sends(stage, fair, iter(groups)))
            await stage.fill(base_queue, len(groups), _BODY_BYTES)
            base = await stage.measure(pool, _receives(stage, base_queue))
            values = await stage.measure(pool, _receives(stage, fair))
            stage.figures.note(
                "fair-queue",
                p50_ms=values["p50_ms"],
                total_us=values["total_us"],
                base_p50_ms=base["p50_ms"],
                base_total_us=base["total_us"],
                ratio=values["p50_ms"] / base["p50_ms"],
                cpu_ratio=values["total_us"] / base["total_us"],
                noisy_share=await _noisy_share(stage, pool, fair),
            )
    finally:
        for queue_url in (fair, base_queue):
            await stage.delete_queue(pool, queue_url)
        pool.close()
    _report(stage, "fair-queue")


def _report(stage: Stage, key: str) -> None:
    figures = stage.figures.summary()[key]
    say(f"  {key}: " + ", ".join(f"{name} {value:.2f}" for name, value in figures.items()))


def _sends(
    stage: Stage, queue_url: str, groups: Iterable[str], *, has_groups: bool = True
) -> Iterator[bytes]:
    """Batches of ten messages of these groups, which their bodies name, too."""
    rest = iter(groups)
    while some := list(itertools.islice(rest, 10)):
        entries = [
            {"Id": str(place), "MessageBody": f"{group} {message_body(_BODY_BYTES, 0)}"}
            | ({"MessageGroupId": group} if has_groups else {})
            for place, group in enumerate(some)
        ]
        members = {"QueueUrl": queue_url, "Entries": entries}
        yield stage.renderer.request("SendMessageBatch", members)


def _receives(stage: Stage, queue_url: str) -> Callable[[Load], Script]:
    supply = itertools.repeat(receive_request(stage, queue_url, 10), RECEIVES)
    return lambda _: plain(supply)


async def _noisy_share(stage: Stage, pool: Pool, queue_url: str) -> float:
    """The share of the noisy group among the next ten messages; 1 without quiet ones."""
    members = {
        "QueueUrl": queue_url,
        "MaxNumberOfMessages": 10,
        "MessageSystemAttributeNames": ["MessageGroupId"],
    }
    answer = await pool.exchange(stage.renderer.request("ReceiveMessage", members))
    return answer.count(b'"busy"') / 10


async def _dwell(bench: Bench) -> None:
    """Dwell of 500 messages of fifty tenants: in an empty queue, behind 10,000 messages of another
    tenant, and behind these where no message has a group."""
    stage = bench.queuegate
    pool = await stage.pool(CONSUMERS)
    try:
        for _ in range(max(3, stage.options.rounds)):
            base = await _dwell_seconds(stage, pool, 0)
            fair = await _dwell_seconds(stage, pool, BACKLOG)
            unfair = await _dwell_seconds(stage, pool, BACKLOG, has_groups=False)
            stage.figures.note(
                "fair-dwell",
                p50_s=percentile(fair, 50),
                p99_s=percentile(fair, 99),
                base_p50_s=percentile(base, 50),
                base_p99_s=percentile(base, 99),
                unfair_p50_s=percentile(unfair, 50),
                ratio=percentile(fair, 50) / percentile(base, 50),
            )
    finally:
        pool.close()
    _report(stage, "fair-dwell")


async def _dwell_seconds(
    stage: Stage, pool: Pool, backlog: int, *, has_groups: bool = True
) -> list[float]:
    """From the send to the receipt of each message, by consumers that take 50 ms for ten."""
    queue_url = await stage.create_queue(pool)
    tenants = [f"quiet{number}" for number in range(TENANTS)]
    seconds: list[float] = []
    busy = itertools.repeat("busy", backlog)
    await stage.drain(_sends(stage, queue_url, busy, has_groups=has_groups))
    consumers = [
        asyncio.create_task(_consume(stage, pool, place, queue_url, seconds))
        for place in range(CONSUMERS)
    ]
    try:
        # Until the gateway has sampled the queue.
        await elapse(_SAMPLED_SECONDS)
        await stage.drain(_sends(stage, queue_url, tenants * 10, has_groups=has_groups))
        await asyncio.gather(*consumers)
    finally:
        for consumer in consumers:
            consumer.cancel()
    await stage.delete_queue(pool, queue_url)
    return sorted(seconds)


async def _consume(
    stage: Stage, pool: Pool, place: int, queue_url: str, seconds: list[float]
) -> None:
    """Receive, process and delete messages until all quiet ones have been received."""
    members: dict[str, Any] = {
        "QueueUrl": queue_url,
        "MaxNumberOfMessages": 10,
        "WaitTimeSeconds": 1,
        "MessageSystemAttributeNames": ["SentTimestamp"],
    }
    receive = stage.renderer.request("ReceiveMessage", members)
    while len(seconds) < TENANTS * 10:
        answer: dict[str, Any] = await pool.call(receive, place)
        received, now = answer.get("Messages", []), time()
        sent = [
            int(one["Attributes"]["SentTimestamp"]) / 1000
            for one in received
            if one["Body"].startswith("quiet")
        ]
        seconds += [now - instant for instant in sent]
        if received:
            await elapse(PROCESSING_SECONDS)
            entries = [
                {"Id": str(number), "ReceiptHandle": one["ReceiptHandle"]}
                for number, one in enumerate(received)
            ]
            deletes = {"QueueUrl": queue_url, "Entries": entries}
            await pool.call(stage.renderer.request("DeleteMessageBatch", deletes), place)
