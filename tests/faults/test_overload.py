"""Twice the load that a slow database can take: what is admitted is answered in time."""

from __future__ import annotations

import resource
from itertools import pairwise
from pathlib import Path

import pytest

from tests.bench.client import Pool
from tests.bench.overload import CONNECTIONS, best_rate, open_loop
from tests.bench.rendering import Renderer
from tests.faults.gateways import Server, serving
from tests.faults.load import make_queue

_BODY_BYTES = 16_384
"""64 of them fill a flush: all connections together wait for 30 flushes."""
_RUN_SECONDS = 6.0
_FLUSHES = 'queuegate_lane_flush_duration_seconds_count{lane="send"}'


@pytest.fixture
def many_files() -> None:
    """Open files for all connections, here and in the gateway."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * CONNECTIONS)), hard))


async def _slow_down(server: Server) -> None:
    """Every commit takes 0.1 s longer."""
    connection = await server.connect()
    await connection.execute("ALTER SYSTEM SET commit_delay = 100000")
    await connection.execute("ALTER SYSTEM SET commit_siblings = 0")
    await connection.execute("SELECT pg_reload_conf()")
    await connection.close()


@pytest.mark.usefixtures("many_files")
async def test_twice_the_load_is_refused_by_half(
    data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Takes 20 s: the best rate, then twice that rate by 2,000 connections."""
    async with serving(data) as server:
        await _slow_down(server)
        address = "127.0.0.1", server.port
        members = {"QueueUrl": await make_queue(server.port), "MessageBody": "b" * _BODY_BYTES}
        request = Renderer(*address).request("SendMessage", members)
        few, many = await Pool.open(address, 200), await Pool.open(address, CONNECTIONS)
        flushes = [await server.metric(_FLUSHES)]
        try:
            best = await best_rate(few, request, _RUN_SECONDS)
            flushes.append(await server.metric(_FLUSHES))
            load = await open_loop(many, request, 2 * best, _RUN_SECONDS)
            flushes.append(await server.metric(_FLUSHES))
        finally:
            few.close()
            many.close()
        figures = load.figures(best)
        # On a machine with other work, rates of two runs differ: flushes have to be as full.
        at_best, in_excess = (after - before for before, after in pairwise(flushes))
        fill = (len(load.admitted) + load.late) / in_excess / (best * _RUN_SECONDS / at_best)
        assert fill >= 0.8, (fill, figures)
        # If nobody were refused, each would wait until all others are served.
        of_all = CONNECTIONS * load.elapsed_seconds / len(load.admitted)
        assert figures["p99_ms"] < 600 * of_all, (of_all, figures)
        assert all("503 Service Unavailable" in text for text in load.refusals)
        assert all("RequestThrottled" in text for text in load.refusals)
        assert all("retry-after: 1" in text for text in load.refusals)
        refused = await server.metric("queuegate_requests_refused_total")
        assert refused >= figures["refused"] > 0
    lines = [line for line in capfd.readouterr().err.splitlines() if "Too many requests" in line]
    assert 1 <= len(lines) <= 2
