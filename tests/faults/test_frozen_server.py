"""A primary that freezes: its kernel answers for it, and its standby is promoted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from tests.cli.processes import run
from tests.faults.client import Client, Unanswered, clients
from tests.faults.gateways import serving
from tests.faults.load import make_queue
from tests.standbys import Pair
from tests.waiting import until_async

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    found = await asyncio.to_thread(Pair)
    yield found
    await asyncio.to_thread(found.stop)


async def test_sends_go_to_the_promoted_server(pair: Pair, data: Path) -> None:
    async with (
        serving(data, "--workers", "2", DATABASE_URL=pair.url()) as server,
        clients(server.port, 4) as several,
    ):
        url = await make_queue(server.port, "orders")
        await asyncio.gather(*(_sent(client, url) for client in several))
        frozen_at = time.monotonic()
        await asyncio.to_thread(pair.freeze)
        # Some of them are under way when it freezes, and some come while it is frozen.
        sends = [asyncio.create_task(_sends_again(client, url)) for client in several]
        await asyncio.to_thread(pair.promote)
        promoted_at = time.monotonic()
        await asyncio.gather(*sends)
        latest = max(promoted_at + 5, frozen_at + 10)
        assert time.monotonic() < latest, f"{time.monotonic() - frozen_at:.1f} s after the freeze"
        await until_async(lambda: _listeners(pair), lambda count: count >= 2)
        assert time.monotonic() < latest + 5
        await server.until_ready()


async def test_a_gateway_starts_beside_a_frozen_host(pair: Pair, data: Path) -> None:
    async with serving(data, DATABASE_URL=pair.url()) as server:
        url = await make_queue(server.port, "orders")
    await asyncio.to_thread(pair.freeze)
    await asyncio.to_thread(pair.promote)
    began = time.monotonic()
    async with (
        serving(data.with_name("again"), DATABASE_URL=pair.url()) as server,
        clients(server.port, 1) as [client],
    ):
        await client.call("SendMessage", QueueUrl=url, MessageBody="a")
        assert time.monotonic() - began < 10
    silent = f"{pair.addresses[0]}:5432 did not answer within 1 s"
    for command, text in (("migrate", "nothing to do"), ("doctor", silent)):
        place = ["--port", "0"] if command == "doctor" else []
        url = pair.url(connect_timeout="1")
        done = await asyncio.to_thread(run, command, *place, DATABASE_URL=url)
        assert (done.returncode, text in done.stdout) == (0, True), done.stdout + done.stderr


async def _sent(client: Client, url: str) -> bool:
    try:
        await client.call("SendMessage", QueueUrl=url, MessageBody="a")
    except Unanswered:
        return False
    return True


async def _sends_again(client: Client, url: str) -> None:
    await until_async(lambda: _sent(client, url))


async def _listeners(pair: Pair) -> int:
    connection = await asyncpg.connect(pair.url(), host=pair.addresses[1])
    try:
        return int(
            await connection.fetchval(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE query ~ '^LISTEN|pg_notify' AND pid <> pg_backend_pid()"
            )
        )
    finally:
        await connection.close()
