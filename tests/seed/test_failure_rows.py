"""Every row of the seed's table of failures (docs/seeds.md 1.5), provoked with real processes."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from queuegate.storage.embedded.embedded_server import EmbeddedPostgres
from tests import clusters
from tests.cli.processes import run
from tests.databases import Databases
from tests.faces.clients import Sqs, new_account
from tests.faces.connections import Answer, Closed, Connection
from tests.faces.rest.client import ABSENT, Rest
from tests.faces.servers import Background
from tests.faces.web_hooks import WebHook
from tests.seed.exhaustion import Exhausted
from tests.seed.gateways import SharedServer, locked, somebody_waits
from tests.seed.hooks import HeldHook, closed_url, silent_url
from tests.seed.rows import Table
from tests.waiting import until

failure = Table(
    "Consumer crashes before deleting message",
    "PostgreSQL connection pool exhausted",
    "PostgreSQL unavailable at startup",
    "PostgreSQL unavailable mid-flight",
    "Queue name injection attempt",
    "Mismatched headers array in send_batch",
    "HTTP endpoint returns non-2xx",
    "HTTP endpoint unreachable / timeout",
    "Delivery worker restart mid-batch",
    "Process killed while coalescer has pending sends",
    "SIGTERM received",
    "HTTP request exceeds 30s",
)

WITHOUT_COUNTERPART = (
    ("Extension not in shared_preload_libraries", "there is no extension to load"),
    ("Postmaster death during WaitLatch", "long polls wait in the gateway, not in PostgreSQL"),
)

ROWS_OF_THE_SEED = 14
CALLS = (
    ("POST", "/v1/queues", {"name": "more"}),
    ("GET", "/v1/queues", ABSENT),
    ("GET", "/v1/queues/jobs", ABSENT),
    ("POST", "/v1/queues/jobs/messages", {"message": "refused"}),
    ("GET", "/v1/queues/jobs/messages?wait=20", ABSENT),
    ("DELETE", "/v1/queues/jobs/messages/1", ABSENT),
    ("PATCH", "/v1/queues/jobs/messages/1", {"vt": 0}),
)
LINGERING = {"QUEUE_LINGER_MS": "1000"}


def refused_for_now(answer: Answer) -> None:
    """503 where the seed has 500 and 408: ADR 0037."""
    assert answer.status == 503, answer.text
    assert answer.headers["retry-after"] == "1"
    assert list(json.loads(answer.body)) == ["error"]


@failure("Consumer crashes before deleting message")
def test_consumer_crashes(rest: Rest, server: SharedServer) -> None:
    queue = rest.create(f"q-{rest.account}")
    number = rest.send(queue)
    for count in (1, 2, 3):
        [message] = rest.receive(queue, vt=600)
        assert (message["id"], message["read_ct"]) == (number, count)
        assert rest.receive(queue) == []
        # Whoever received it is heard of no more.
        server.advance(601)
    assert server.metric(f'queue_messages_redelivered_total{{queue="{queue}"}}') == 2


@failure("PostgreSQL connection pool exhausted")
def test_pool_exhausted(exhausted: Exhausted) -> None:
    refused_for_now(exhausted.refusal)
    assert exhausted.later.status == 200


@failure("PostgreSQL unavailable at startup")
def test_unavailable_at_startup() -> None:
    done = run("serve", "--port", "0", DATABASE_URL="postgresql://nobody@127.0.0.1:1/x")
    assert done.returncode == 1
    assert done.stderr.startswith("queuegate: no PostgreSQL answers at 127.0.0.1:1/x")
    assert done.stderr.count("\n") == 1
    assert "ready" not in done.stdout


@pytest.fixture
def postgres(data: Path) -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL of one's own, which may be stopped and started."""
    clusters.copy(data)
    server = EmbeddedPostgres(data)
    server.start()
    server.wait_ready()
    yield server
    server.stop()


@failure("PostgreSQL unavailable mid-flight")
def test_unavailable_mid_flight(postgres: EmbeddedPostgres, data: Path) -> None:
    """A PostgreSQL that is stopped and started again."""
    with SharedServer(postgres.dsn) as gateway, Rest(gateway.url) as rest:
        rest.create("jobs")
        rest.send("jobs", "kept")
        postgres.stop()
        for method, path, body in CALLS:
            answer = rest.ask(method, path, body)
            refused_for_now(answer)
            assert json.loads(answer.body)["error"].endswith("Try again in a moment.")
        assert rest.ask("GET", "/v1/openapi.json").status == 200
        assert gateway.get("/readyz")[0] == 503
        assert gateway.get("/livez")[0] == 200
        again = EmbeddedPostgres(data)
        again.start()
        again.wait_ready()
        try:
            assert again.dsn == postgres.dsn
            until(lambda: gateway.get("/readyz")[0], lambda status: status == 200)
            rest.send("jobs", "sent again")
            assert sorted(rest.messages("jobs")) == ["kept", "sent again"]
        finally:
            gateway.stop(signal.SIGTERM)
            again.stop()


INJECTIONS = (
    "x'; DROP TABLE messages; --",
    'x"; DROP TABLE messages; --',
    "x\\'",
    "$1",
    "../x",
    "x\0",
    "Ünsafe",
    "q" * 81,
    "",
)


@failure("Queue name injection attempt")
def test_queue_name_injection(rest: Rest) -> None:
    rest.create("jobs")
    rest.send("jobs")
    for name in INJECTIONS:
        assert rest.refusal("POST", "/v1/queues", {"name": name})
        place = quote(name, safe="") or "%20"
        answer = rest.ask("POST", f"/v1/queues/{place}/messages", {"message": 1})
        assert answer.status in {400, 404}, answer.text
        rest.call("DELETE", f"/v1/queues/{place}", status=answer.status)
    with Sqs("query", rest.url, rest.account) as sqs:
        for name in INJECTIONS:
            if "\0" not in name:
                assert sqs.refusal("CreateQueue", QueueName=name).status == 400
    assert [queue["name"] for queue in rest.call("GET", "/v1/queues")] == ["jobs"]
    assert len(rest.receive("jobs")) == 1


@failure("Mismatched headers array in send_batch")
@pytest.mark.parametrize("headers", [["k"], "k", {"": 1}, {"k.": 1}, 7])
def test_mismatched_headers(rest: Rest, headers: Any) -> None:
    """Each message has headers of its own here; 400 where the seed has 500: ADR 0037."""
    rest.create("jobs")
    batch = [{"message": 1, "headers": {"k": 1}}, {"message": 2, "headers": headers}]
    assert rest.refusal("POST", "/v1/queues/jobs/messages", batch)
    assert rest.call("GET", "/v1/queues/jobs")["total_messages"] == 0


def subscribed(rest: Rest, url: str) -> None:
    body = {"protocol": "http", "endpoint": url}
    rest.call("POST", "/v1/events/order.*/subscriptions", body, status=201)


def publish(rest: Rest, message: str = "hello") -> str:
    """The id of a message for one web hook."""
    sent = rest.call("POST", "/v1/events/order.late", {"message": message}, status=201)
    assert sent["deliveries"] == 1
    message_id: str = sent["message_id"]
    return message_id


def published(rest: Rest, server: SharedServer) -> int:
    """The id of the delivery that an event became; for web hooks that do not take it."""
    by_message = "SELECT delivery_id FROM deliveries WHERE message_id = $1"
    [[number]] = server.rows(by_message, publish(rest))
    return int(number)


def failed(server: SharedServer, number: int, count: int) -> dict[str, Any]:
    """The delivery, once it has failed so often."""
    until(
        lambda: server.rows("SELECT * FROM deliveries WHERE delivery_id = $1", number)[0],
        lambda row: row["attempt_count"] == count and not row["is_leased"],
    )
    return server.delivery(number)


def waits(facts: dict[str, Any], seconds: int) -> bool:
    """Return True if the next attempt is so many seconds after the last, plus up to a tenth.

    The tenth spreads the retries of deliveries that failed together.
    """
    at = [datetime.fromisoformat(facts[name]) for name in ("attempted_at", "due_at")]
    return seconds <= (at[1] - at[0]).total_seconds() <= seconds * 1.1


@failure("HTTP endpoint returns non-2xx")
def test_endpoint_returns_non_2xx(rest: Rest, server: SharedServer, hook: WebHook) -> None:
    subscribed(rest, hook.url)
    hook.statuses += [500, 404, 503, 302, 500]
    number = published(rest, server)
    expected = zip((10, 30, 60, 300), (500, 404, 503, 302), strict=True)
    for count, (seconds, status) in enumerate(expected, 1):
        facts = failed(server, number, count)
        assert (facts["state"], facts["last_status"]) == ("pending", status)
        assert facts["last_error"] == f"HTTP {status}"
        assert waits(facts, seconds)
        server.advance(seconds * 1.1)
    # The fifth was the last. It stays to be looked at.
    facts = failed(server, number, 5)
    assert (facts["state"], facts["attempt_count"]) == ("exhausted", 5)
    assert [hook.next().body for _ in range(5)] == [b'"hello"'] * 5
    server.advance(3600)
    publish(rest, "next")
    assert hook.next().body == b'"next"'
    assert server.delivery(number)["state"] == "exhausted"


@failure("HTTP endpoint unreachable / timeout")
def test_endpoint_unreachable(rest: Rest, server: SharedServer) -> None:
    with closed_url() as url:
        subscribed(rest, url)
        number = published(rest, server)
        for count, seconds in ((1, 10), (2, 30)):
            facts = failed(server, number, count)
            assert (facts["state"], facts["last_status"]) == ("pending", None)
            assert "refused" in facts["last_error"].lower()
            assert waits(facts, seconds)
            server.advance(seconds * 1.1)


@failure("HTTP endpoint unreachable / timeout")
def test_endpoint_times_out(databases: Databases) -> None:
    quick = {"QUEUE_HTTP_DELIVERY_TIMEOUT_SECS": "1"}
    with (
        silent_url() as url,
        SharedServer(databases.copy(), **quick) as server,
        Rest(server.url) as rest,
    ):
        subscribed(rest, url)
        facts = failed(server, published(rest, server), 1)
        assert (facts["state"], facts["last_status"]) == ("pending", None)
        assert "within 1 s" in facts["last_error"]
        assert waits(facts, 10)


@failure("Delivery worker restart mid-batch")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_worker_restart_mid_batch(databases: Databases, number: signal.Signals) -> None:
    """The next worker makes claimed deliveries: at once, or after the lease if the first one died.
    Two workers at the same time make none twice."""
    dsn, account = databases.copy(), new_account()
    with HeldHook() as hook:
        with (
            SharedServer(dsn, QUEUEGATE_SHUTDOWN_DEADLINE="0") as first,
            Rest(first.url, account) as rest,
        ):
            subscribed(rest, hook.url)
            delivery = published(rest, first)
            assert hook.next().body == b'"hello"'
            first.stop(number)
        hook.gate.set()
        with SharedServer(dsn) as second, SharedServer(dsn), Rest(second.url, account) as rest:
            if number == signal.SIGKILL:
                # Not otherwise: whoever makes it now would lose the lease and make it twice.
                second.advance(60)
            assert hook.next().body == b'"hello"'
            left = "SELECT 1 FROM deliveries WHERE delivery_id = $1"
            until(lambda: second.rows(left, delivery), lambda found: not found)
            for message in range(10):
                publish(rest, str(message))
            bodies = sorted(hook.next().body for _ in range(10))
            assert bodies == [f'"{message}"'.encode() for message in range(10)]
            until(lambda: second.rows("SELECT 1 FROM deliveries"), lambda found: not found)
            assert hook.next_within(0) is None


def send_requests(rest: Rest, count: int, first: int) -> list[Connection]:
    """Connections on each of which a send is under way."""
    connections = []
    for number in range(first, first + count):
        connection = Connection(rest.url)
        body = {"message": number}
        connection.send(rest.encode("POST", "/v1/queues/jobs/messages", body))
        connections.append(connection)
    return connections


def acknowledged(connections: list[Connection], first: int) -> list[int]:
    """The messages whose sends were answered with 201."""
    found = []
    for number, connection in enumerate(connections, first):
        with connection:
            try:
                status = connection.answer().status
            except Closed:
                continue
        assert status in {201, 503}
        if status == 201:
            found.append(number)
    return found


@failure("Process killed while coalescer has pending sends")
def test_killed_with_pending_sends(databases: Databases) -> None:
    """Every acknowledged message is there. The sender knows which ones were not acknowledged."""
    dsn = databases.copy()
    with SharedServer(dsn, **LINGERING) as first, Rest(first.url) as rest:
        rest.create("jobs")
        promised = acknowledged(send_requests(rest, 10, 0), 0)
        assert promised == list(range(10))
        pending = send_requests(rest, 10, 10)
        first.stop(signal.SIGKILL)
        promised += acknowledged(pending, 10)
        account = rest.account
    with SharedServer(dsn) as second, Rest(second.url, account) as rest:
        found = rest.messages("jobs", max=100)
        assert set(promised) <= set(found) <= set(range(20))
        assert len(found) == len(set(found))


@failure("SIGTERM received")
def test_sigterm(databases: Databases) -> None:
    """Sends that linger are written, a long poll ends, the process ends with 0."""
    dsn = databases.copy()
    with SharedServer(dsn, **LINGERING) as first, Rest(first.url) as rest:
        rest.create("jobs")
        rest.create("empty")
        answered = (
            'http_requests_total{method="POST",path="/v1/queues/{name}/messages",status="201"}'
        )
        idle = first.metric("http_connections_active")
        poll = Background(rest.receive, "empty", wait=20)
        first.until_parked()
        pending = send_requests(rest, 10, 0)
        until(
            lambda: first.metric("http_connections_active") + first.metric(answered),
            lambda count: count >= idle + 11,
        )
        assert first.stop(signal.SIGTERM) == 0
        assert acknowledged(pending, 0) == list(range(10))
        assert poll.result() == []
        with pytest.raises(ConnectionRefusedError):
            Connection(first.url)
        account = rest.account
    with SharedServer(dsn) as second, Rest(second.url, account) as rest:
        assert sorted(rest.messages("jobs", max=100)) == list(range(10))


@failure("HTTP request exceeds 30s")
def test_request_exceeds_30_seconds(databases: Databases) -> None:
    """No request lasts that long: a send that waits in line behind a flush that hangs is answered
    after five seconds, and was not sent."""
    dsn = databases.copy()
    with SharedServer(dsn) as server, Rest(server.url) as rest:
        rest.create("jobs")
        rest.send("jobs", "before")
        with locked(dsn, "messages"):
            stuck = Background(rest.send, "jobs", "stuck")
            until(lambda: somebody_waits(dsn, "messages"))
            refused_for_now(rest.ask("POST", "/v1/queues/jobs/messages", {"message": "late"}))
        stuck.result()
        rest.send("jobs", "after")
        assert sorted(rest.messages("jobs")) == ["after", "before", "stuck"]


def test_every_row_is_shown() -> None:
    assert failure.missing == []
    other = {row for row, _ in WITHOUT_COUNTERPART}
    assert not other & set(failure.rows)
    assert len(other) + len(failure.rows) == ROWS_OF_THE_SEED
