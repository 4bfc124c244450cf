"""A PostgreSQL that is stopped: the log says so in a few lines, however many calls fail."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from queuegate.gateway.configuration.settings import Settings
from queuegate.gateway.metrics import scraping as metrics_page
from queuegate.gateway.metrics.scraping import MetricsPage
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.process.assembly import open_engine
from queuegate.gateway.process.background import workers_for
from queuegate.storage.embedded.embedded_server import EmbeddedPostgres
from queuegate.storage.migrate import migrate
from queuegate.storage.queue_model import Queue
from queuegate.storage.storage_errors import Unavailable
from tests.faces.clients import Sqs
from tests.faces.rest.client import Rest
from tests.operations.sqs import create_queue
from tests.seed.gateways import LoggedServer
from tests.sqs_calls import ReceiveMessage, SendMessage, answered, receive_message, send_message
from tests.waiting import until, until_async, until_so

CALLER = Caller("111122223333", "us-east-1", "tester")


class Postgres:
    """One that may be stopped and started."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self.start()

    def start(self) -> None:
        self._server = EmbeddedPostgres(self._data)
        self._server.start()
        self._server.wait_ready()
        self.dsn = self._server.dsn

    def stop(self) -> None:
        self._server.stop()


@pytest.fixture
def postgres(data: Path) -> Iterator[Postgres]:
    server = Postgres(data)
    yield server
    server.stop()


@contextlib.asynccontextmanager
async def _gateway(dsn: str) -> AsyncIterator[Engine]:
    """An engine with its workers."""
    connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(dsn)
    await migrate(connection)
    await connection.close()
    settings = Settings.from_env({"DATABASE_URL": dsn})
    async with open_engine(settings, dsn) as engine:
        workers = workers_for(engine, settings)
        for worker in workers:
            worker.start()
        yield engine
        for worker in workers:
            await worker.stop()


async def _fails(call: Any) -> bool:
    try:
        await call
    except Unavailable:
        return True
    return False


async def _ask_everything(engine: Engine, queue: Queue) -> int:
    """Calls by lanes and by the pool, all of which fail; how many there were."""
    calls = [
        *[answered(send_message, engine, CALLER, queue, SendMessage("a")) for _ in range(50)],
        *[answered(receive_message, engine, CALLER, queue, ReceiveMessage()) for _ in range(20)],
        *[create_queue(engine, CALLER, f"q{number}", {}, {}) for number in range(20)],
    ]
    failed = await asyncio.gather(*[_fails(call) for call in calls])
    assert all(failed)
    await MetricsPage(engine, None, 0).render()
    return len(calls)


async def test_everything_that_fails_for_it_is_a_few_lines(
    postgres: Postgres, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lanes, workers, notifications, deliveries, schedules, metrics and requests; calls wait five
    seconds for a connection."""
    monkeypatch.setattr(metrics_page, "_REFRESH_SECONDS", -1.0)
    now = 1000.0
    async with _gateway(postgres.dsn) as engine:
        availability = engine.database.availability
        availability.clock = lambda: now
        queue = await create_queue(engine, CALLER, "orders", {}, {})
        with caplog.at_level(logging.WARNING):
            await asyncio.to_thread(postgres.stop)
            calls = await _ask_everything(engine, queue)
            # What listens notices by itself; workers come by every two seconds.
            await until_so(lambda: availability.is_away)
            [first] = _told(caplog)
            assert first.startswith("the database does not answer: ")
            now += 61
            calls += await _ask_everything(engine, queue)
            [_, second] = _told(caplog)
            words = second.split()
            assert second.startswith("the database has not answered for 61 s, ")
            assert 90 <= int(words[8]) <= calls + 100
            await asyncio.to_thread(postgres.start)

            async def is_back() -> bool:
                nonlocal now
                now += 1
                send = answered(send_message, engine, CALLER, queue, SendMessage("b"))
                return not await _fails(send) and not availability.is_away

            await until_async(is_back)
            [_, _, third] = _told(caplog)
            assert third.startswith("the database answers again after ")


def _told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the gateway's log lines. The log's set-up silences the pool of asyncpg."""
    return [one.getMessage() for one in caplog.records if one.name.startswith("queuegate.")]


def test_a_gateway_whose_requests_all_fail_says_it_once(postgres: Postgres, tmp_path: Path) -> None:
    """Its PostgreSQL is stopped and started, and a send waits for it for five seconds."""
    path = tmp_path / "log"
    with (
        path.open("w") as log,
        LoggedServer(postgres.dsn, log, QUEUEGATE_LOG_FORMAT="json") as gateway,
        Sqs("json", gateway.url) as sqs,
        Rest(gateway.url) as rest,
    ):
        url = sqs.create("orders")
        rest.create("jobs")
        sqs.send(url)
        postgres.stop()
        assert sqs.refusal("SendMessage", QueueUrl=url, MessageBody="a").status == 503
        for _ in range(30):
            assert sqs.refusal("ListQueues").status == 503
            assert rest.ask("GET", "/v1/queues").status == 503
            assert gateway.get("/readyz")[0] == 503
        postgres.start()
        until(lambda: gateway.get("/readyz")[0], lambda status: status == 200)
        sqs.send(url)
        # A worker asks the database every second.
        until(path.read_text, lambda text: "answers again" in text)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    told = [line["message"] for line in lines if line["level"] != "info"]
    assert [" ".join(message.split()[:4]) for message in told] == [
        "the database does not",
        "the database answers again",
    ]
