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
from tests.faces.simple.test_queues import NOWHERE
from tests.seed.gateways import SharedServer
from tests.seed.rows import Table, rows_between
from tests.waiting import until

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
        "at-least-once delivery": _AGAIN,
        "visibility timeout": _AGAIN,
    },
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


def _wear_out(simple: Simple, server: SharedServer, queue_id: str, data: str = "poison") -> str:
    """Deliver a message as often as it may be; its id."""
    message_id = simple.enqueue(queue_id, data)
    for _ in range(simple.describe(queue_id)["max_deliveries"]):
        assert simple.dequeue(queue_id)["message_id"] == message_id
        server.advance(31)
    return message_id


@shows("POST /api/queues/{queue_id}/messages")
def test_enqueue(simple: Simple) -> None:
    queue_id = simple.create(queue_size=1)
    path = f"/api/queues/{queue_id}/messages"
    assert list(simple.call("POST", path, {"data": "{not: looked into"}, status=201)) == [
        "message_id"
    ]
    simple.refusal("POST", path, {"data": "x"}, status=429)
    simple.refusal("POST", f"/api/queues/{NOWHERE}/messages", {"data": "x"}, status=404)


@shows(
    "POST /api/queues/{dlq_id}/messages/{message_id}/requeue",
    "delivery_count",
    "lazy dead-letter queue",
    "no DLQ polling",
)
def test_there_and_back(simple: Simple, server: SharedServer) -> None:
    queue_id = simple.create(max_deliveries=2)
    message_id = _wear_out(simple, server, queue_id)
    assert simple.dequeue(queue_id) == {"message": None}
    dlq_id = simple.describe(queue_id)["dlq_id"]
    [letter] = simple.dequeue(dlq_id, "?limit=2")["messages"]
    assert (letter["message_id"], letter["delivery_count"]) == (message_id, 3)
    back = simple.call("POST", f"/api/queues/{dlq_id}/messages/{message_id}/requeue")
    assert back == {"message_id": message_id, "requeued_to": queue_id}
    [message] = simple.dequeue(queue_id, "?limit=2")["messages"]
    assert (message["message_id"], message["delivery_count"]) == (message_id, 1)
    simple.refusal("POST", f"/api/queues/{dlq_id}/messages/{message_id}/requeue", status=404)


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


@shows("full dead-letter queue")
def test_without_room_they_stay(simple: Simple, server: SharedServer) -> None:
    queue_id = simple.create(queue_size=1, max_deliveries=1)
    for _ in range(2):
        _wear_out(simple, server, queue_id)
        assert simple.dequeue(queue_id) == {"message": None}
    found = simple.describe(queue_id)
    assert found["current_message_count"] == 1
    assert simple.describe(found["dlq_id"])["current_message_count"] == 1


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


@shows(
    "simplemq.enqueue.total",
    "simplemq.dequeue.total",
    "simplemq.ack.total",
    "simplemq.requeue.total",
)
def test_counters(simple: Simple, server: SharedServer, row: str) -> None:
    queue_id = simple.create(max_deliveries=1, queue_size=1)
    message_id = _wear_out(simple, server, queue_id)
    simple.dequeue(queue_id)
    dlq_id = simple.describe(queue_id)["dlq_id"]
    simple.call("POST", f"/api/queues/{dlq_id}/messages/{message_id}/requeue")
    path = f"/api/queues/{queue_id}/messages"
    simple.refusal("POST", path, {"data": "x"}, status=429)
    simple.acknowledge(queue_id, message_id)
    name = row.replace(".", "_")
    labels = f'account="{simple.account}"'
    assert server.metric(f'{name}{{{labels},outcome="success"}}') >= 1
    if row == "simplemq.enqueue.total":
        assert server.metric(f'{name}{{{labels},outcome="queue_full"}}') == 1
        simple.refusal("POST", f"/api/queues/{NOWHERE}/messages", {"data": "x"}, status=404)
        assert server.metric(f'{name}{{outcome="queue_not_found"}}') >= 1


@shows(
    "simplemq.queue.depth",
    "simplemq.queue.inflight",
    "simplemq.queue.oldest_message_age_seconds",
    "no phantom gauges",
    "OTLP every 60 seconds",
)
def test_gauges_and_the_push_have_tests_of_their_own(row: str) -> None:
    """Gauges by tests/operations/test_series.py, with a page that is never ten seconds old; the
    push by tests/tracing/test_metrics_pushed.py, with collectors."""
    name = row.replace(".", "_")
    gauges = (ROOT / "tests" / "operations" / "test_series.py").read_text("utf-8")
    pushed = (ROOT / "tests" / "tracing" / "test_metrics_pushed.py").read_text("utf-8")
    shown = {
        "no phantom gauges": "test_gauges_say_how_full_a_queue_with_a_title_is_and_go_with_it",
        "OTLP every 60 seconds": "test_what_is_counted_is_pushed_again_and_again",
    }
    wanted = shown.get(row, name.removeprefix("simplemq_queue_"))
    assert wanted in gauges + pushed
    settings = (ROOT / "docs" / "reference" / "settings.md").read_text("utf-8")
    assert "| `QUEUEGATE_OTLP_METRICS_SECONDS` | `60` |" in settings


@shows("four golden signals")
def test_every_signal_names_metrics_that_there_are(simple: Simple, server: SharedServer) -> None:
    queue_id = simple.create(max_deliveries=1)
    message_id = _wear_out(simple, server, queue_id)
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


@shows("happy-path.js")
def test_happy_path(simple: Simple) -> None:
    queue_id = simple.call("POST", "/api/queues", {"queueName": "probe"}, status=201)["queue_id"]
    message_id = simple.enqueue(queue_id, "probe")
    assert simple.dequeue(queue_id)["message_id"] == message_id
    assert simple.acknowledge(queue_id, message_id)["deleted"] is True
    simple.call("DELETE", f"/api/queues/{queue_id}")


@shows("dlq.js", "DLQ only updated on active polling")
def test_dead_letter_probe(simple: Simple, server: SharedServer) -> None:
    body = {"queueName": "probe", "maxDeliveries": 1, "visibilityTimeout": 1}
    queue_id = simple.call("POST", "/api/queues", body, status=201)["queue_id"]
    message_id = simple.enqueue(queue_id)
    assert simple.dequeue(queue_id)["message_id"] == message_id
    server.advance(2)
    dlq_id = until(lambda: simple.describe(queue_id)["dlq_id"])
    assert simple.dequeue(dlq_id)["message_id"] == message_id
    simple.acknowledge(dlq_id, message_id)
    for one in (dlq_id, queue_id):
        simple.call("DELETE", f"/api/queues/{one}")


@shows("load test")
def test_ten_users_over_fifteen_queues(simple: Simple) -> None:
    queue_ids = [simple.create() for _ in range(15)]

    def user(number: int) -> int:
        done = 0
        for turn in range(15):
            queue_id = queue_ids[(number * 7 + turn * 4) % 15]
            simple.enqueue(queue_id)
            found = simple.dequeue(queue_id)
            # Others take what is here, too: whoever finds nothing left theirs to somebody.
            if "message_id" in found:
                simple.acknowledge(queue_id, found["message_id"])
                done += 1
        return done

    with ThreadPoolExecutor(10) as pool:
        done = sum(pool.map(user, range(10)))
    left = sum(simple.describe(queue_id)["current_message_count"] for queue_id in queue_ids)
    assert done + left == 150


@shows("no ordering guarantees")
def test_one_consumer_sees_the_order_of_sending(simple: Simple) -> None:
    queue_id = simple.create()
    sent = [simple.enqueue(queue_id) for _ in range(20)]
    assert [simple.dequeue(queue_id)["message_id"] for _ in sent] == sent


@shows("no batching")
def test_batches(simple: Simple) -> None:
    queue_id = simple.create()
    sent = [simple.enqueue(queue_id) for _ in range(12)]
    found: list[Any] = simple.dequeue(queue_id, "?limit=100")["messages"]
    assert [one["message_id"] for one in found] == sent


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
