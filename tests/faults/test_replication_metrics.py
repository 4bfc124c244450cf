"""Lag and slots on /metrics, of a primary with a real standby that freezes."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable

import asyncpg
import pytest

from tests.faces.clients import Sqs
from tests.faces.connections import fetch
from tests.faces.servers import Server
from tests.seed.pages import Page
from tests.standbys import Pair
from tests.waiting import until

pytestmark = pytest.mark.timeout(180)

_SLOT = "standby"


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """The standby uses a slot of the primary."""
    pair = await asyncio.to_thread(Pair)
    try:
        primary, standby = [await asyncpg.connect(pair.dsn(number)) for number in (0, 1)]
        await primary.execute(f"SELECT pg_create_physical_replication_slot('{_SLOT}', true)")
        await standby.execute(f"ALTER SYSTEM SET primary_slot_name = '{_SLOT}'")
        await standby.execute("SELECT pg_reload_conf()")
        await asyncio.gather(primary.close(), standby.close())
        yield pair
    finally:
        await asyncio.to_thread(pair.stop)


def _page(server: Server) -> Page:
    return Page(fetch(server.url, "/metrics").text)


def _until(server: Server, wanted: Callable[[Page], bool]) -> None:
    until(lambda: _page(server), wanted)


def _lag(page: Page, unit: str) -> float:
    return page.value(f"queuegate_replication_lag_{unit}", replica="walreceiver")


def _retained(page: Page) -> float:
    return page.value("queuegate_replication_slot_retained_bytes", slot=_SLOT)


def _is_active(page: Page) -> bool:
    return page.value("queuegate_replication_slot_active", slot=_SLOT) == 1


def _fall_behind_and_catch_up(pair: Pair) -> None:
    with Server(dsn=pair.url()) as server, Sqs("json", server.url) as sqs:
        queue = sqs.create()
        _until(server, lambda page: _is_active(page) and _lag(page, "bytes") == 0)
        assert _lag(_page(server), "seconds") < 5
        pair.freeze(1)
        for _ in range(20):
            sqs.send(queue, secrets.token_hex(50_000))
        _until(server, lambda page: _lag(page, "bytes") > 1_000_000)
        _until(server, lambda page: _retained(page) > 1_000_000)
        _until(server, lambda page: _lag(page, "seconds") > 1)
        pair.thaw(1)
        _until(server, lambda page: _lag(page, "bytes") == 0 and _is_active(page))
        # Nobody reads the slot of a server that is gone, and the WAL stays.
        pair.kill(1)
        _until(server, lambda page: not _is_active(page))
        assert "replica=" not in fetch(server.url, "/metrics").text
        for _ in range(20):
            sqs.send(queue, secrets.token_hex(50_000))
        _until(server, lambda page: _retained(page) > 1_000_000)


async def test_a_standby_falls_behind_catches_up_and_goes(pair: Pair) -> None:
    """The page reads the database at most every few seconds."""
    await asyncio.to_thread(_fall_behind_and_catch_up, pair)
