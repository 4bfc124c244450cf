"""An open loop: requests come at a rate, however long their answers take."""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter

from tests.bench.client import BadAnswer, Connection, Pool
from tests.bench.rendering import message_body
from tests.bench.stage import Bench, Scenario, Stage, elapse, percentile, plain, say

CONNECTIONS = 2_000
BEST_CONNECTIONS = 64
BODY_BYTES = 1_024
_TICK_SECONDS = 0.01
_PATIENCE_SECONDS = 30.0


def scenarios() -> list[Scenario]:
    """Return the scenario of this file."""
    return [Scenario("overload", "sends at twice the best rate by 2,000 connections", _run)]


@dataclass(slots=True)
class OpenLoad:
    """The result of an open loop: seconds of admitted and of refused requests. ``unsent`` came
    while every connection waited for an answer."""

    admitted: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    refusals: set[str] = field(default_factory=set)
    """Their texts."""
    late: int = 0
    """Requests that were admitted in time and answered after the end."""
    unsent: int = 0
    elapsed_seconds: float = 0.0

    def figures(self, best: float) -> dict[str, float]:
        """Return the figures of this load, beside the best rate."""
        seconds = sorted(self.admitted)
        return {
            "goodput": len(seconds) / self.elapsed_seconds / best,
            "best_per_second": best,
            "p50_ms": percentile(seconds, 50) * 1000,
            "p99_ms": percentile(seconds, 99) * 1000,
            "refused": len(self.refused),
            "unsent": self.unsent,
        }


async def open_loop(pool: Pool, request: bytes, per_second: float, seconds: float) -> OpenLoad:
    """Send the request at this rate, each time by a connection without a request under way, then
    wait for the last answers. Only what is answered in time counts."""
    load = OpenLoad()
    free = deque(pool.connections)
    began = perf_counter()
    ends = began + seconds

    def send(connection: Connection) -> None:
        sent = perf_counter()

        def answered(times: list[float], answer: object) -> None:
            free.append(connection)
            if isinstance(answer, BadAnswer):
                load.refusals.add(str(answer))
            if perf_counter() <= ends:
                times.append(perf_counter() - sent)
            elif times is load.admitted:
                load.late += 1

        connection.listen(partial(answered, load.admitted), partial(answered, load.refused))
        connection.send(request)

    issued = 0
    while (now := perf_counter()) < ends:
        due = int((now - began) * per_second)
        for _ in range(due - issued):
            if free:
                send(free.popleft())
            else:
                load.unsent += 1
        issued = due
        await elapse(_TICK_SECONDS)
    load.elapsed_seconds = perf_counter() - began
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while len(free) < len(pool.connections):
            await elapse(_TICK_SECONDS)
    return load


def by_account(request: bytes, account_id: str) -> bytes:
    """Return the same request of another account."""
    before, _, after = request.partition(b"Credential=")
    return b"%bCredential=%b/%b" % (before, account_id.encode(), after.partition(b"/")[2])


async def best_rate(pool: Pool, request: bytes, seconds: float) -> float:
    """Return the requests per second that are answered when each connection sends its next request
    after an answer."""
    load = await pool.run(lambda _: plain(iter(lambda: request, b"")), seconds)
    return len(load.request_seconds) / load.elapsed_seconds


async def _run(bench: Bench) -> None:
    stage: Stage = bench.queuegate
    control, many = await stage.pool(BEST_CONNECTIONS), await stage.pool(CONNECTIONS)
    queue_url = await stage.create_queue(control)
    members = {"QueueUrl": queue_url, "MessageBody": message_body(BODY_BYTES)}
    request = stage.renderer.request("SendMessage", members)
    try:
        best = await best_rate(control, request, stage.options.run_seconds)
        load = await open_loop(many, request, 2 * best, stage.options.run_seconds)
        figures = load.figures(best)
        stage.figures.note("overload", **figures)
        said = ", ".join(f"{name} {value:.2f}" for name, value in figures.items())
        say(f"  overload: {said}")
    finally:
        await stage.delete_queue(control, queue_url)
        control.close()
        many.close()
