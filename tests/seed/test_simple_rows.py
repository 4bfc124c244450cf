"""Every row of simple-mq (docs/seeds.md 2): endpoints, guarantees, metrics, probes, limitations."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from tests.databases import Databases
from tests.faces.clients import Sqs
from tests.faces.rest.client import Rest
from tests.faces.simple.client import Simple
from tests.faces.simple.test_dead_letters import wear_out
from tests.seed.gateways import SharedServer
from tests.seed.rows import Table, rows_between

shows = Table(
    # 2.1
    "POST /api/queues",
    "GET /api/queues/{queue_id}",
    "DELETE /api/queues/{queue_id}",
    "POST /api/queues/{queue_id}/messages",
    "GET /api/queues/{queue_id}/messages",
    "DELETE /api/queues/{queue_id}/messages/{message_id}",
    "POST /api/queues/{dlq_id}/messages/{message_id}/requeue",
    # 2.2
    "durability",
    "at-least-once delivery",
    "competing consumers",
    "visibility timeout",
    "delivery_count",
    "lazy dead-letter queue",
    "full dead-letter queue",
    "queue_size",
    "flat polls",
    "high availability",
    # 2.3
    "simplemq.enqueue.total",
    "simplemq.dequeue.total",
    "simplemq.ack.total",
    "simplemq.requeue.total",
    "simplemq.queue.depth",
    "simplemq.queue.inflight",
    "simplemq.queue.oldest_message_age_seconds",
    "OTLP every 60 seconds",
    "no phantom gauges",
    "four golden signals",
    # 2.4
    "happy-path.js",
    "dlq.js",
    "load test",
    # 2.5
    "single PostgreSQL instance",
    "single VM, no load balancer",
    "no DLQ polling",
    "no ordering guarantees",
    "DLQ only updated on active polling",
    "no batching",
    "no queue limits per operator",
)
shows.linked(
    "tests/faces/simple/test_queues.py",
    {
        "POST /api/queues": "test_camel_case_is_the_same",
        "GET /api/queues/{queue_id}": "test_a_new_queue_is_as_it_was_asked_for",
        "DELETE /api/queues/{queue_id}": "test_a_deleted_queue_is_gone",
    },
)
_ONCE = "test_a_message_comes_once_and_is_acknowledged_once"
_AGAIN = "test_what_is_not_acknowledged_comes_again"
shows.linked(
    "tests/faces/simple/test_messages.py",
    {
        "GET /api/queues/{queue_id}/messages": _ONCE,
        "DELETE /api/queues/{queue_id}/messages/{message_id}": _ONCE,
        "POST /api/queues/{queue_id}/messages": "test_what_is_no_message_is_refused",
        "at-least-once delivery": _AGAIN,
        "visibility timeout": _AGAIN,
        "delivery_count": "test_a_batch_says_how_often_each_was_delivered",
        "no ordering guarantees": "test_a_batch_says_how_often_each_was_delivered",
        "no batching": "test_a_batch_says_how_often_each_was_delivered",
    },
)
shows.linked(
    "tests/faces/simple/test_dead_letters.py",
    {
        "POST /api/queues/{dlq_id}/messages/{message_id}/requeue": (
            "test_a_requeued_message_begins_anew"
        ),
        "no DLQ polling": "test_a_message_goes_there_after_so_many_deliveries",
        "full dead-letter queue": "test_a_full_dead_letter_queue_leaves_them_where_they_are",
        "DLQ only updated on active polling": "test_nobody_needs_to_poll",
    },
)
shows.linked(
    "tests/faces/simple/test_metrics.py",
    dict.fromkeys(
        (
            "simplemq.enqueue.total",
            "simplemq.dequeue.total",
            "simplemq.ack.total",
            "simplemq.requeue.total",
        ),
        "test_requests_are_counted_by_queue_and_outcome",
    ),
)
shows.linked(
    "tests/faces/simple/test_load.py",
    dict.fromkeys(
        ("happy-path.js", "dlq.js", "load test"), "test_the_probes_and_a_short_load_find_nothing"
    ),
)
shows.linked(
    "tests/operations/test_series.py",
    dict.fromkeys(
        (
            "simplemq.queue.depth",
            "simplemq.queue.inflight",
            "simplemq.queue.oldest_message_age_seconds",
            "no phantom gauges",
        ),
        "test_gauges_say_how_full_a_queue_with_a_title_is_and_go_with_it",
    ),
)
ROOT = Path(__file__).parents[2]
_NAMES = re.compile(r"`([a-z]+_[a-z_]+)`")


@pytest.fixture
def simple(server: SharedServer) -> Iterator[Simple]:
    """A client in an account of its own."""
    with Simple(server.url) as client:
        yield client


@pytest.fixture(scope="module")
def pair(databases: Databases) -> Iterator[tuple[SharedServer, SharedServer]]:
    """Two gateways on one database, where an account may have three queues."""
    dsn = databases.copy()
    limit = {"QUEUEGATE_QUEUES_PER_ACCOUNT": "3"}
    with SharedServer(dsn, **limit) as one, SharedServer(dsn, **limit) as other:
        yield one, other


@pytest.fixture(scope="module")
def survivor(databases: Databases) -> tuple[str, Any]:
    """The id of a message that one gateway took before it was killed, and what another one, which
    was there beside it, answers then."""
    dsn = databases.copy()
    with (
        SharedServer(dsn) as first,
        SharedServer(dsn) as second,
        Simple(first.url) as simple,
        Simple(second.url, simple.account) as other,
    ):
        queue_id = simple.create()
        message_id = simple.enqueue(queue_id)
        first.stop(signal.SIGKILL)
        return message_id, other.dequeue(queue_id)


@shows("durability", "high availability")
def test_what_was_answered_survives_the_gateway(survivor: tuple[str, Any]) -> None:
    message_id, message = survivor
    assert message["message_id"] == message_id


@shows("competing consumers")
def test_many_consumers_get_each_message_once(simple: Simple) -> None:
    queue_id = simple.create()
    sent = {simple.enqueue(queue_id) for _ in range(40)}
    with ThreadPoolExecutor(8) as pool:
        found = [*pool.map(lambda _: simple.dequeue(queue_id)["message_id"], range(40))]
    assert sorted(found) == sorted(sent)


@shows("queue_size", "single VM, no load balancer")
def test_200_producers_over_two_gateways_leave_exactly_100(
    pair: tuple[SharedServer, SharedServer],
) -> None:
    with Simple(pair[0].url) as one, Simple(pair[1].url, one.account) as other:
        queue_id = one.create(queue_size=100)
        path = f"/api/queues/{queue_id}/messages"

        def send(number: int) -> int:
            client = (one, other)[number % 2]
            return client.ask("POST", path, {"data": str(number)}).status

        with ThreadPoolExecutor(20) as pool:
            statuses = [*pool.map(send, range(200))]
        assert (statuses.count(201), statuses.count(429)) == (100, 100)
        assert other.describe(queue_id)["current_message_count"] == 100
        with Sqs("json", one.url, one.account) as sqs:
            url = sqs.url_of("orders")
            assert sqs.refusal("SendMessage", QueueUrl=url, MessageBody="x").code == "OverLimit"


@shows("lazy dead-letter queue")
def test_receivers_at_two_gateways_make_one(pair: tuple[SharedServer, SharedServer]) -> None:
    with Simple(pair[0].url) as one, Simple(pair[1].url, one.account) as other:
        queue_id = one.create(max_deliveries=1, visibility_timeout=0)
        for _ in range(8):
            one.enqueue(queue_id)
        assert len(one.dequeue(queue_id, "?limit=8")["messages"]) == 8

        def poll(number: int) -> Any:
            return (one, other)[number % 2].dequeue(queue_id)

        with ThreadPoolExecutor(8) as pool:
            assert [*pool.map(poll, range(8))] == [{"message": None}] * 8
        assert one.describe(queue_id)["dlq_id"] == other.describe(queue_id)["dlq_id"] is not None
        assert len(one.call("GET", "/api/queues")["queues"]) == 2
        found = other.describe(one.describe(queue_id)["dlq_id"])
        assert found["current_message_count"] == 8


@shows("flat polls")
def test_a_poll_of_a_deep_queue_takes_no_longer(simple: Simple) -> None:
    """The poll does not wait; tests/storage/test_queries.py bounds the rows that it reads."""
    queue_id = simple.create()
    with Rest(simple.url, simple.account) as rest:
        for _ in range(4):
            many = [{"message": number} for number in range(500)]
            rest.call("POST", "/v1/queues/orders/messages", many, status=201)
    started = perf_counter()
    for _ in range(10):
        assert "data" in simple.dequeue(queue_id)
    assert perf_counter() - started < 5


@shows("single PostgreSQL instance")
def test_one_of_several_databases_will_do(databases: Databases) -> None:
    """That what was answered survives their failures is shown by tests/faults."""
    dsn = databases.copy()
    several = dsn.replace("?host=", "?host=%2Fnowhere,")
    assert several != dsn
    with SharedServer(several) as server, Simple(server.url) as simple:
        simple.enqueue(simple.create())


@shows("OTLP every 60 seconds")
def test_the_push_has_tests_of_its_own() -> None:
    """With collectors, and other intervals."""
    pushed = (ROOT / "tests" / "tracing" / "test_metrics_pushed.py").read_text("utf-8")
    assert "def test_what_is_counted_is_pushed_again_and_again(" in pushed
    settings = (ROOT / "docs" / "reference" / "settings.md").read_text("utf-8")
    assert "| `QUEUEGATE_OTLP_METRICS_SECONDS` | `60` |" in settings


@shows("four golden signals")
def test_every_signal_names_metrics_that_there_are(simple: Simple, server: SharedServer) -> None:
    queue_id = simple.create(max_deliveries=1)
    message_id = wear_out(simple, server, queue_id)
    simple.dequeue(queue_id)
    dlq_id = simple.describe(queue_id)["dlq_id"]
    simple.call("POST", f"/api/queues/{dlq_id}/messages/{message_id}/requeue")
    simple.acknowledge(queue_id, message_id)
    page = (ROOT / "docs" / "reference" / "simple-queue.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if re.match(r"\| (Latency|Traffic|Err|Sat)", line)]
    assert len(rows) == 10
    text = server.metrics()
    for one in rows:
        names = [name for name in _NAMES.findall(one.split("|")[2]) if name != "queue_id"]
        assert names
        assert [name for name in names if f"# TYPE {name} " not in text] == []


@shows("no queue limits per operator")
def test_an_account_has_as_many_queues_as_it_may(pair: tuple[SharedServer, SharedServer]) -> None:
    text = "An account may have 3 queues here. Delete one to create another."
    with Simple(pair[0].url) as one, Simple(pair[1].url, one.account) as other:

        def create(number: int) -> int:
            client = (one, other)[number % 2]
            return client.ask("POST", "/api/queues", {"queue_name": "a"}).status

        with ThreadPoolExecutor(10) as pool:
            statuses = [*pool.map(create, range(10))]
        assert (statuses.count(201), statuses.count(409)) == (3, 7)
        assert one.refusal("POST", "/api/queues", {"queue_name": "a"}, status=409) == text
        with Rest(one.url, one.account) as rest, Sqs("json", one.url, one.account) as sqs:
            assert rest.refusal("POST", "/v1/queues", {"name": "b"}, status=409) == text
            assert sqs.refusal("CreateQueue", QueueName="c").code == "OverLimit"


def test_every_row_is_shown() -> None:
    assert shows.missing == []


def test_the_page_has_the_same_rows() -> None:
    assert rows_between("## 2. simple-mq", "### 2.6") == [*shows.rows]
