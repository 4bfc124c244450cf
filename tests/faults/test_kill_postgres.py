"""PostgreSQL dies, loses connections or is restarted under load. The gateway recovers by itself."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from queuegate.storage.embedded.embedded_server import EmbeddedPostgres
from tests.cli.processes import Watch, postmaster
from tests.faults.client import Unanswered, clients
from tests.faults.gateways import kill_backend, loaded, serving
from tests.faults.load import times

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize("delete_commit", ["durable", "relaxed"])
async def test_kill_of_postgres_loses_nothing(data: Path, delete_commit: str) -> None:
    """A load, kills, recoveries, and the wait for visibility timeouts.

    PostgreSQL is killed until a request got no answer, too: backends finish their statements
    when the postmaster dies, and requests wait for it while it starts, so a kill may fail none.
    """
    async with (
        serving(data, QUEUEGATE_DELETE_COMMIT=delete_commit) as server,
        loaded(server.port) as loads,
    ):
        loads.standard.may_come_again = delete_commit == "relaxed"
        process_id = server.gateway.process.pid
        kills = 0
        while kills < len(times(2)) or not loads.unanswered:
            await loads.more(400)
            before = postmaster(data)
            watch = Watch(before)
            os.kill(before, signal.SIGKILL)
            assert await asyncio.to_thread(watch.wait)
            # The load goes on all the time: the gateway answers 503 until it is served again.
            await loads.more(200)
            assert postmaster(data) != before
            kills += 1
        assert server.gateway.process.pid == process_id
        assert server.gateway.process.poll() is None
        await loads.end_and_check()


async def test_kill_of_a_backend_loses_nothing(data: Path) -> None:
    """PostgreSQL ends every connection when one backend dies hard, and reads its log again."""
    async with serving(data) as server, loaded(server.port) as loads:
        for query in ("Inserts the entries", "fifo_send"):
            await loads.more(200)
            await kill_backend(server, query)
        await loads.more(200)
        await loads.end_and_check()


async def test_ended_connections_lose_nothing(data: Path) -> None:
    async with serving(data) as server, loaded(server.port) as loads:
        connection = await server.connect()
        for _ in range(8):
            await loads.more(100)
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
        await connection.close()
        await loads.more(100)
        await loads.end_and_check()


@pytest.fixture
async def external(data: Path) -> AsyncIterator[list[EmbeddedPostgres]]:
    """A PostgreSQL that is not the gateway's; the list is for putting in its successor."""
    servers = [await asyncio.to_thread(_started, data)]
    yield servers
    await asyncio.to_thread(servers[-1].stop)


def _started(data: Path) -> EmbeddedPostgres:
    server = EmbeddedPostgres(data)
    server.start()
    server.wait_ready()
    return server


async def test_a_database_of_your_own_may_be_restarted(
    data: Path, external: list[EmbeddedPostgres]
) -> None:
    dsn = external[0].dsn
    async with (
        serving(data.with_name("own"), DATABASE_URL=dsn) as server,
        loaded(server.port) as loads,
        clients(server.port, 1) as [client],
    ):
        for _ in times(2):
            await loads.more(400)
            await asyncio.to_thread(external[-1].stop)
            with pytest.raises(Unanswered, match="503"):
                await client.call("ListQueues")
            status, _ = await asyncio.to_thread(server.gateway.get, "/readyz")
            assert status == 503
            status, _ = await asyncio.to_thread(server.gateway.get, "/livez")
            assert status == 200
            external.append(await asyncio.to_thread(_started, data))
            assert external[-1].dsn == dsn
            await server.until_ready()
            await client.call("ListQueues")
        await loads.more(200)
        assert loads.unanswered > 0
        await loads.end_and_check()


async def test_the_count_of_the_load_can_fail(data: Path) -> None:
    """A message that was promised and is not there is missed."""
    async with serving(data) as server, loaded(server.port) as loads:
        await loads.more(200)
        for load in loads.both:
            await load.end()
        loads.standard.sent.add("9.9")
        with pytest.raises(AssertionError, match=r"9\.9"):
            await loads.standard.check()
        await loads.ordered.check()
