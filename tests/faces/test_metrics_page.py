"""/metrics: who sees what, how large it is, and how long it takes."""

from __future__ import annotations

import asyncio
import gzip
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from queuegate.gateway.metrics import old_names
from tests.faces.clients import Sqs
from tests.faces.connections import Answer, Connection, fetch, request_bytes
from tests.faces.servers import Server
from tests.faces.signing import Verifying
from tests.fuzz.loop_meter import MOST_MS, Metered
from tests.seed.pages import Page
from tests.waiting import until

_MOST_BYTES = 1_500_000
_PREFIXES = ("queuegate_", "simplemq_", "process_")
_TENANTS = {"account", "region", "queue", "topic", "log", "group", "key", "replica", "slot"}


def _scrape(url: str, **headers: str) -> Answer:
    with Connection(url) as connection:
        own = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.send(request_bytes("GET", "/metrics", {"Host": connection.host} | own))
        return connection.answer()


def test_strangers_see_totals(tmp_path: Path) -> None:
    """Of a gateway of two processes, which add up."""
    with Verifying(tmp_path, "--workers", "2") as gateway:
        owner = gateway.signer("111122223333")
        until(lambda: owner.sqs("CreateQueue", QueueName="jobs").status, lambda one: one == 200)
        owner.sqs("CreateQueue", QueueName="more")
        for name in ("jobs", "jobs", "more"):
            url = f"http://localhost/{owner.account}/{name}"
            assert owner.sqs("SendMessage", QueueUrl=url, MessageBody="x").status == 200
        shown = Page(gateway.first.ask("GET", "/metrics").text)
        assert shown.value("queue_messages_sent_total", queue="jobs") == 2
        strangers = [_scrape(gateway.url), _scrape(gateway.url, Authorization="any")]
        for answer in (*strangers, owner.ask("GET", "/metrics")):
            assert answer.status == 200
            assert owner.account not in answer.text
            page = Page(answer.text)
            assert page.types.keys() == shown.types.keys()
            for name in page.types:
                assert not any(labels & _TENANTS for labels in page.labels(name)), name
                assert not any(labels & _TENANTS for labels in page.labels(f"{name}_total")), name
            assert page.value("queue_messages_sent_total") == 3
            assert page.value("queue_depth") == 3
            assert page.value("queue_message_send_duration_seconds_count") == 3
        # A counter keeps its labels that tell nothing of anybody.
        assert page.value("http_requests_total", path="/metrics") > 0


def test_pages_are_packed_for_whoever_takes_that() -> None:
    """A gateway of its own: connections are counted."""
    with Server() as server:
        packed = _scrape(server.url, Accept_Encoding="deflate, gzip;q=0.8")
        assert packed.headers["content-encoding"] == "gzip"
        assert "queuegate_connections 1.0" in gzip.decompress(packed.body).decode()
        for accepted in ("", "identity", "gzip;q=0"):
            plain = _scrape(server.url, Accept_Encoding=accepted)
            assert "content-encoding" not in plain.headers
            assert "queuegate_connections 1.0" in plain.text


def test_promtool_finds_nothing_wrong() -> None:
    """Neither with the old names of metrics nor without them, of two processes."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    with Server("--workers", "2") as server, Sqs("json", server.url) as sqs:
        sqs.send(sqs.create())
        for query in ("old", "new"):
            page = fetch(server.url, f"/metrics?names={query}").body
            assert (b"\nqueue_depth{" in page) is (query == "old")
            assert b"\nqueuegate_queue_depth{" in page
            done = subprocess.run(
                [promtool, "check", "metrics"], input=page, capture_output=True, check=False
            )
            assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_old_names_are_repeated_as_long_as_there_is_room() -> None:
    with Server() as server, Sqs("json", server.url) as sqs:
        sqs.send(sqs.create())
        both, new = server.metrics(), fetch(server.url, "/metrics?names=new").text
        assert {*Page(both).types} - {*Page(new).types} == {
            name.removeprefix("queuegate_") for name in Page(new).types if not _is_new(name)
        }
        assert not [name for name in Page(new).types if not name.startswith(_PREFIXES)]
        for name in ("queue_depth", "queuegate_queue_depth"):
            assert [*Page(server.metrics(name)).types] == [name]
        one = fetch(server.url, "/metrics?names=old&name[]=queuegate_queue_depth").text
        assert [*Page(one).types] == ["queuegate_queue_depth", "queue_depth"]


def _is_new(name: str) -> bool:
    return old_names._OLD_NAME.match(name.removeprefix("queuegate_")) is None


def test_processes_do_not_add_up_what_is_not_theirs() -> None:
    """Of three: each is asked until every one has answered once."""
    with Server("--workers", "3") as server:
        for _ in range(12):
            page = Page(server.metrics())
            assert page.value("queuegate_database_up") == 1
            assert page.value("queuegate_build_info") == 1
            assert 0 <= page.value("queuegate_event_loop_lag_seconds") < 60
            rounds = page.value("queuegate_worker_last_round_timestamp_seconds", worker="keep time")
            assert abs(rounds - time.time()) < 60
            states = page.value("queuegate_database_connections")
            assert 0 < states <= page.value("queuegate_database_connections_limit")
        health = json.loads(fetch(server.url, "/_admin/health").body)
        assert (health["processes"], health["database"]["is_up"]) == (3, True)


def test_flushes_have_times() -> None:
    with Server() as server, Sqs("json", server.url) as sqs:
        sqs.send(sqs.create())
        page = Page(server.metrics())
        for name in ("queuegate_lane_flush_duration_seconds", "queuegate_lane_waiting_seconds"):
            assert page.value(f"{name}_count", lane="send") == 1
            assert 0 < page.value(f"{name}_sum", lane="send") < 60


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metered]:
    """A gateway with 10,000 queues, of which 1,000 were used."""
    with Metered(tmp_path_factory.mktemp("loop")) as gateway, Sqs("json", gateway.url) as sqs:
        asyncio.run(_made(gateway.dsn, sqs.account))
        for number in range(1000):
            queue = f"{gateway.url}/{sqs.account}/queue-{number:04}"
            sqs.send(queue)
            [message] = sqs.receive(queue, 1)
            sqs.call("DeleteMessage", QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
        yield gateway


async def _made(dsn: str, account: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(
            "INSERT INTO queues (account_id, region, queue_name, is_fifo, created_at, modified_at)"
            " SELECT $1, 'us-east-1', 'queue-' || to_char(n, 'FM0000'), false, now(), now()"
            " FROM generate_series(0, 9999) AS n",
            account,
        )
    finally:
        await connection.close()


def test_a_thousand_used_queues_are_small(busy: Metered) -> None:
    began = time.perf_counter()
    page = fetch(busy.url, "/metrics")
    print(f"{time.perf_counter() - began:.3f} s, {len(page.body)} bytes")
    assert len(page.body) <= _MOST_BYTES
    assert page.text.count("\nqueuegate_queue_messages_sent_total{") == 1000


def test_a_scrape_of_ten_thousand_queues_holds_nobody_up(busy: Metered) -> None:
    longest, where = busy.longest_turn(lambda: fetch(busy.url, "/metrics"))
    print(f"{longest:.1f} ms")
    assert longest < MOST_MS, where


def test_latencies_begin_at_a_quarter_of_a_millisecond(busy: Metered) -> None:
    page = Page(busy.metrics())
    names = [name for name, kind in page.types.items() if kind == "histogram"]
    quick = {name for name in names if page.bounds(name)[:1] == [0.00025]}
    assert {"queuegate_http_request_duration_seconds", "queuegate_action_duration_seconds"} <= quick
    assert "queuegate_queue_message_send_duration_seconds" in quick
