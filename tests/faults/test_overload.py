"""Twice the load that a slow database can take: what is admitted is answered in time."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import AsyncIterator
from itertools import cycle, pairwise, repeat
from pathlib import Path

import pytest

from tests.bench.client import Pool
from tests.bench.overload import CONNECTIONS, best_rate, by_account, open_loop
from tests.bench.rendering import Renderer
from tests.bench.stage import percentile, plain
from tests.faults.gateways import Server, serving
from tests.faults.load import make_queue
from tests.waiting import yield_turns

_BODY_BYTES = 16_384
"""64 of them fill a flush: all connections together wait for 30 flushes."""
_RUN_SECONDS = 6.0
_QUIET, _NOISY = "111122223333", "444455556666"
_SLOW_CLIENTS = 150
_FLUSHES = 'queuegate_lane_flush_duration_seconds_count{lane="send"}'


@pytest.fixture
def many_files() -> None:
    """Open files for all connections, here and in the gateway."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * CONNECTIONS)), hard))


class _Slow:
    """A gateway on a database whose commits take 0.1 s longer, and a send to it."""

    def __init__(self, server: Server, queue_url: str) -> None:
        self.server = server
        self.address = "127.0.0.1", server.port
        self.renderer = Renderer(*self.address)
        members = {"QueueUrl": queue_url, "MessageBody": "b" * _BODY_BYTES}
        self.request = self.renderer.request("SendMessage", members)

    def of_quiet(self, action: str, **members: str) -> bytes:
        """Return a request of another account."""
        return by_account(self.renderer.request(action, members), _QUIET)

    @contextlib.asynccontextmanager
    async def pool(self, count: int) -> AsyncIterator[Pool]:
        """Open connections, and close them at the end."""
        pool = await Pool.open(self.address, count)
        try:
            yield pool
        finally:
            pool.close()


@contextlib.asynccontextmanager
async def _slow(data: Path) -> AsyncIterator[_Slow]:
    async with serving(data) as server:
        connection = await server.connect()
        await connection.execute("ALTER SYSTEM SET commit_delay = 100000")
        await connection.execute("ALTER SYSTEM SET commit_siblings = 0")
        await connection.execute("SELECT pg_reload_conf()")
        await connection.close()
        yield _Slow(server, await make_queue(server.port))


@pytest.mark.usefixtures("many_files")
async def test_twice_the_load_is_refused_by_half(
    data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Takes 15 s: the best rate, then twice that rate by 2,000 connections."""
    async with _slow(data) as slow, slow.pool(200) as few, slow.pool(CONNECTIONS) as many:
        flushes = [await slow.server.metric(_FLUSHES)]
        best = await best_rate(few, slow.request, _RUN_SECONDS)
        flushes.append(await slow.server.metric(_FLUSHES))
        load = await open_loop(many, slow.request, 2 * best, _RUN_SECONDS)
        flushes.append(await slow.server.metric(_FLUSHES))
        refused = await slow.server.metric("queuegate_requests_refused_total")
    figures = load.figures(best)
    # On a machine with other work, rates of two runs differ: flushes have to be as full.
    at_best, in_excess = (after - before for before, after in pairwise(flushes))
    fill = (len(load.admitted) + load.late) / in_excess / (best * _RUN_SECONDS / at_best)
    assert fill >= 0.8, (fill, figures)
    # If nobody were refused, each would wait until all others are served.
    of_all = CONNECTIONS * load.elapsed_seconds / len(load.admitted)
    assert figures["p99_ms"] < 600 * of_all, (of_all, figures)
    for said in ("503 Service Unavailable", "RequestThrottled", "retry-after: 1"):
        assert all(said in text for text in load.refusals)
    assert refused >= figures["refused"] > 0
    lines = [line for line in capfd.readouterr().err.splitlines() if "Too many requests" in line]
    assert 1 <= len(lines) <= 2


@pytest.mark.usefixtures("many_files")
async def test_another_account_does_not_wait_and_is_not_refused(data: Path) -> None:
    """Takes 10 s beside a load that does not fit."""
    async with _slow(data) as slow, slow.pool(1) as quiet, slow.pool(CONNECTIONS) as many:
        await quiet.exchange(slow.of_quiet("CreateQueue", QueueName="quiet"))
        url = f"http://localhost/{_QUIET}/quiet"
        send = slow.of_quiet("SendMessage", QueueUrl=url, MessageBody="b")
        noise = asyncio.create_task(open_loop(many, slow.request, CONNECTIONS, _RUN_SECONDS))
        # A refusal ends this with an error.
        load = await quiet.run(lambda _: plain(repeat(send)), _RUN_SECONDS - 1.0)
        noisy = await noise
    assert noisy.refused
    assert percentile(sorted(load.request_seconds), 90) < percentile(sorted(noisy.admitted), 50)


@contextlib.asynccontextmanager
async def _silent(address: tuple[str, int], requests: list[bytes]) -> AsyncIterator[None]:
    """Write a request on a connection each, and read no more than a stream buffers."""
    opened = [await asyncio.open_connection(*address) for _ in requests]
    for (_, writer), request in zip(opened, requests, strict=True):
        writer.write(request)
    try:
        yield
    finally:
        for _, writer in opened:
            writer.transport.abort()
        # The transports let go of their sockets in the next turn of the loop.
        await yield_turns()


async def test_slow_readers_and_writers_take_nothing_from_another_account(data: Path) -> None:
    """Takes 10 s: 150 unfinished bodies and 150 answers that nobody reads, of one account."""

    def names(account_id: str) -> dict[str, str]:
        return {"QueueUrl": f"http://localhost/{account_id}/slow"}

    def of_noisy(action: str, **members: object) -> bytes:
        return by_account(slow.renderer.request(action, names(_NOISY) | members), _NOISY)

    async with serving(data) as server:
        slow = _Slow(server, await make_queue(server.port))
        write = of_noisy("SendMessage", MessageBody="b" * 1_000_000)
        read = of_noisy("ReceiveMessage", MaxNumberOfMessages=10, VisibilityTimeout=0)
        send = slow.of_quiet("SendMessage", **names(_QUIET), MessageBody="b" * 200_000)
        async with slow.pool(1) as quiet:
            await quiet.exchange(slow.of_quiet("CreateQueue", QueueName="slow"))
            await quiet.exchange(of_noisy("CreateQueue", QueueName="slow"))
            for _ in range(10):
                await quiet.exchange(write)
            async with _silent(slow.address, [write[:-1], read] * _SLOW_CLIENTS):
                # A refusal ends this with an error.
                receive = slow.of_quiet("ReceiveMessage", **names(_QUIET))
                load = await quiet.run(lambda _: plain(cycle([send, receive])), 5.0)
                assert await server.metric("queuegate_buffered_bytes") < 256 << 20
        assert load.operations > 20
