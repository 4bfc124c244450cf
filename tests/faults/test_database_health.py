"""/metrics of a gateway whose database hangs: an answer at once, and what was known before."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.faces.clients import Sqs
from tests.faces.connections import fetch
from tests.faces.servers import Server
from tests.faults.faked_postgres import FakedPostgres, faked_postgres
from tests.seed.pages import Page

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def postgres() -> Iterator[FakedPostgres]:
    with faked_postgres(None) as running:
        yield running


def _scrape(server: Server) -> tuple[Page, float]:
    began = time.monotonic()
    answer = fetch(server.url, "/metrics")
    assert answer.status == 200
    return Page(answer.text), time.monotonic() - began


def test_a_database_that_hangs_is_down_at_once(postgres: FakedPostgres) -> None:
    """The first scrape of a hanging database waits a second for it; later ones wait for nothing."""
    with Server("--workers", "2", dsn=postgres.dsn) as server, Sqs("json", server.url) as sqs:
        queue = sqs.create()
        sqs.send(queue)
        page, _ = _scrape(server)
        assert page.value("queuegate_database_up") == 1
        size = page.value("queuegate_database_size_bytes")
        assert size > 0
        with postgres.stopped():
            server.until("queuegate_database_up", 0)
            lasted = []
            for _ in range(4):
                page, seconds = _scrape(server)
                lasted.append(seconds)
                assert page.value("queuegate_database_up") == 0
                assert page.value("queuegate_database_size_bytes") >= size
                assert page.value("queuegate_queue_messages_sent_total") == 1
            print(lasted)
            assert min(lasted) < 1
            assert max(lasted) < 3
        server.until("queuegate_database_up", 1)
        sqs.send(queue)
