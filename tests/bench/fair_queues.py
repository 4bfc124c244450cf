"""Receives from a queue with 1,000 message groups and a noisy one, against a plain queue."""

import itertools
from collections.abc import Callable, Iterator

from tests.bench.client import Load, Pool, Script
from tests.bench.hot import receive_request
from tests.bench.rendering import message_body
from tests.bench.stage import Bench, Scenario, Stage, elapse, plain, say

GROUPS = 1_000
BACKLOG = 10_000
RECEIVES = 400
_IN_FLIGHT = 10
_BODY_BYTES = 100
_SAMPLED_SECONDS = 1.0


def scenarios() -> list[Scenario]:
    """Return the scenario of this file."""
    return [Scenario("fair-queue", "receives of ten beside a noisy group, 1,000 groups", _run)]


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
    figures = stage.figures.summary()["fair-queue"]
    say("  fair-queue: " + ", ".join(f"{name} {value:.2f}" for name, value in figures.items()))


def _sends(stage: Stage, queue_url: str, groups: Iterator[str]) -> Iterator[bytes]:
    """Batches of ten messages of these groups."""
    body = message_body(_BODY_BYTES, 0)
    while some := list(itertools.islice(groups, 10)):
        entries = [
            {"Id": str(place), "MessageBody": body, "MessageGroupId": group}
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
