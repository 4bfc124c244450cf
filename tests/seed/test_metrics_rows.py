"""Every row of the seed's metrics (docs/seeds.md 1.5): type, labels, buckets, what moves it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.databases import Databases
from tests.faces.rest.client import Rest
from tests.faces.servers import Background
from tests.faces.web_hooks import WebHook
from tests.seed.exhaustion import Exhausted
from tests.seed.gateways import SharedServer, locked
from tests.seed.pages import Page
from tests.seed.rows import Table
from tests.waiting import until


class Facts(NamedTuple):
    """The claims of a row. ``bounds`` are those of the first and the last bucket."""

    type: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, float] | None = None


# The seed's has no accounts and no regions.
_OF_QUEUE = ("account", "region", "queue")
_DATABASE = Facts("histogram", _OF_QUEUE, (0.001, 1.0))
_MESSAGES = Facts("counter", _OF_QUEUE)
FACTS = {
    "http_requests_total": Facts("counter", ("method", "path", "status")),
    "http_request_duration_seconds": Facts("histogram", ("method", "path"), (0.005, 2.5)),
    "http_connections_active": Facts("gauge"),
    "queue_messages_sent_total": _MESSAGES,
    "queue_messages_received_total": _MESSAGES,
    "queue_messages_deleted_total": _MESSAGES,
    "queue_messages_redelivered_total": _MESSAGES,
    "queue_message_send_duration_seconds": _DATABASE,
    "queue_message_receive_duration_seconds": _DATABASE,
    "queue_message_delete_duration_seconds": _DATABASE,
    "queue_message_age_at_receive_seconds": Facts("histogram", _OF_QUEUE, (0.1, 3600.0)),
    "queue_delivery_attempts_total": Facts("counter", ("outcome",)),
    "queue_delivery_attempt_duration_seconds": Facts("histogram", ("outcome",), (0.05, 10.0)),
    "queue_delivery_exhausted_total": Facts("counter"),
    # The seed's has no label: it has one coalescer, we have a lane for each kind of statement.
    "queue_coalescer_flush_batch_size": Facts("histogram", ("lane",), (1.0, 1000.0)),
    "queue_depth": Facts("gauge", _OF_QUEUE),
    "queue_in_flight": Facts("gauge", _OF_QUEUE),
    "db_pool_size": Facts("gauge"),
    "db_pool_idle": Facts("gauge"),
    "db_pool_active": Facts("gauge"),
    "db_pool_acquire_timeouts_total": Facts("counter"),
}
metric = Table(*FACTS)

_MOST_CONNECTIONS = 3


@pytest.fixture(scope="module")
def server(databases: Databases) -> Iterator[SharedServer]:
    """A gateway of its own: only the first fifty queues of a process have histograms."""
    with SharedServer(databases.copy()) as running:
        yield running


def look(server: SharedServer) -> Page:
    return Page(server.metrics())


def check(page: Page, name: str) -> None:
    """Type and labels are those of the row. Its buckets are there; there may be finer ones."""
    facts = FACTS[name]
    assert page.types[name] == facts.type
    assert page.labels(name) == {frozenset(facts.labels)}
    bounds = page.bounds(name)
    assert bool(bounds) is bool(facts.bounds)
    if facts.bounds:
        assert facts.bounds[0] in bounds
        assert facts.bounds[1] == bounds[-1]


@pytest.fixture
def queue(rest: Rest) -> str:
    """A queue whose name no other test has."""
    return rest.create(f"q-{rest.account}")


def post(rest: Rest, queue: str, *messages: Any) -> list[int]:
    body = [{"message": message} for message in messages]
    ids: list[int] = rest.call("POST", f"/v1/queues/{queue}/messages", body, status=201)["ids"]
    return ids


@metric("http_requests_total", "http_request_duration_seconds")
def test_requests(rest: Rest, server: SharedServer, row: str) -> None:
    name = row if row.endswith("_total") else f"{row}_count"
    labels = {"method": "GET", "path": "/v1/queues/{name}"}
    if row.endswith("_total"):
        labels["status"] = "404"
    before = look(server)
    for _ in range(3):
        rest.call("GET", "/v1/queues/nowhere", status=404)
    after = look(server)
    check(after, row)
    assert after.value(name, **labels) == before.value(name, **labels) + 3


@metric("http_connections_active")
def test_requests_in_flight(rest: Rest, server: SharedServer, queue: str, row: str) -> None:
    before = look(server)
    check(before, row)
    poll = Background(rest.receive, queue, wait=20)
    server.until_parked()
    assert look(server).value(row) == before.value(row) + 1
    rest.send(queue)
    assert len(poll.result()) == 1
    server.until(row, before.value(row))


@metric(
    "queue_messages_sent_total",
    "queue_messages_received_total",
    "queue_messages_deleted_total",
    "queue_messages_redelivered_total",
)
def test_messages(rest: Rest, server: SharedServer, queue: str, row: str) -> None:
    """Five are sent, three of them received, of these two deleted and one received again."""
    expected = {"sent": 5.0, "received": 4.0, "deleted": 2.0, "redelivered": 1.0}
    assert look(server).value(row, queue=queue) == 0
    post(rest, queue, *range(4))
    rest.send(queue)
    first, second, third = rest.receive(queue, max=3)
    path = f"/v1/queues/{queue}/messages"
    rest.call("DELETE", f"{path}/{first['id']}", status=204)
    rest.call("DELETE", path, {"ids": [second["id"]]})
    rest.call("PATCH", f"{path}/{third['id']}", {"vt": 0})
    found: set[int] = set()
    while third["id"] not in found:
        # Those that are seen first are shown again, so that the order does not matter.
        [one] = rest.receive(queue, max=1)
        if one["id"] != third["id"]:
            expected["received"] += 1
        found.add(one["id"])
    page = look(server)
    check(page, row)
    assert page.value(row, queue=queue) == expected[row.split("_")[2]]


@metric(
    "queue_message_send_duration_seconds",
    "queue_message_receive_duration_seconds",
    "queue_message_delete_duration_seconds",
)
def test_durations(rest: Rest, server: SharedServer, queue: str, row: str) -> None:
    for number in range(2):
        rest.send(queue, number)
    [one] = rest.receive(queue, max=1)
    rest.receive(queue, max=1)
    rest.call("DELETE", f"/v1/queues/{queue}/messages/{one['id']}", status=204)
    page = look(server)
    check(page, row)
    count = 1 if "delete" in row else 2
    assert page.value(f"{row}_count", queue=queue) == count
    assert page.value(f"{row}_sum", queue=queue) > 0


@metric("queue_message_age_at_receive_seconds")
def test_age(rest: Rest, server: SharedServer, queue: str, row: str) -> None:
    """The first delivery counts, later ones do not."""
    rest.send(queue)
    server.advance(40)
    for _ in range(2):
        assert len(rest.receive(queue, vt=0)) == 1
    page = look(server)
    check(page, row)
    counted = [page.value(f"{row}_bucket", queue=queue, le=le) for le in ("30.0", "3600.0")]
    assert counted == [0, 1]
    assert page.value(f"{row}_count", queue=queue) == 1


@pytest.fixture(scope="module")
def delivering(databases: Databases) -> Iterator[SharedServer]:
    """A gateway that has no deliveries but those of one test."""
    with SharedServer(databases.copy()) as running:
        yield running


def deliver(rest: Rest, hook: WebHook, **retry: int) -> None:
    """An event for a web hook with this policy."""
    body = {"endpoint": hook.url, "delivery_policy": {"healthyRetryPolicy": retry}}
    rest.call("POST", "/v1/events/order/subscriptions", body, status=201)
    rest.call("POST", "/v1/events/order", {"message": 1}, status=201)


@metric("queue_delivery_attempts_total", "queue_delivery_attempt_duration_seconds")
def test_attempts(delivering: SharedServer, hook: WebHook, row: str) -> None:
    name = row if row.endswith("_total") else f"{row}_count"
    before = look(delivering)
    hook.statuses.append(500)
    with Rest(delivering.url) as rest:
        deliver(rest, hook, numRetries=1, numNoDelayRetries=1, minDelayTarget=1, maxDelayTarget=1)
    for outcome in ("failure", "success"):
        hook.next()
        wanted = before.value(name, outcome=outcome) + 1
        delivering.until(f'{name}{{outcome="{outcome}"}}', wanted)
    after = look(delivering)
    check(after, row)
    if row.endswith("_seconds"):
        assert after.value(f"{row}_sum") > before.value(f"{row}_sum")


@metric("queue_delivery_exhausted_total")
def test_exhausted(delivering: SharedServer, hook: WebHook, row: str) -> None:
    before = look(delivering)
    check(before, row)
    hook.statuses.append(500)
    with Rest(delivering.url) as rest:
        deliver(rest, hook, numRetries=0)
    delivering.until(row, before.value(row) + 1)


@metric("queue_coalescer_flush_batch_size")
def test_flushes(rest: Rest, server: SharedServer, queue: str, row: str) -> None:
    before = look(server)
    rest.send(queue)
    after = look(server)
    check(after, row)
    for end in ("_count", "_sum"):
        moved = [page.value(row + end, lane="send") for page in (before, after)]
        assert moved[1] == moved[0] + 1


class Gauged(NamedTuple):
    """A page with the depths of a queue that has two visible, one delayed, one in flight."""

    queue: str
    page: Page


@pytest.fixture(scope="module")
def gauged(databases: Databases) -> Iterator[Gauged]:
    with SharedServer(databases.copy()) as running, Rest(running.url) as rest:
        queue = rest.create("gauged")
        rest.send(queue)
        assert len(rest.receive(queue)) == 1
        rest.send(queue, delay=600)
        post(rest, queue, 1, 2)
        # The first scrape asks the database; the numbers of later ones may be ten seconds old.
        yield Gauged(queue, look(running))


@metric("queue_depth", "queue_in_flight")
def test_depths(gauged: Gauged, row: str) -> None:
    check(gauged.page, row)
    assert gauged.page.value(row, queue=gauged.queue) == 2


@pytest.fixture(scope="module")
def pools(databases: Databases) -> Iterator[tuple[Page, Page]]:
    """Pages of an idle gateway, and of one that has no connection left."""
    dsn = databases.copy()
    with (
        SharedServer(dsn, QUEUE_MAX_CONNECTIONS=str(_MOST_CONNECTIONS)) as running,
        Rest(running.url) as rest,
    ):
        idle = until(lambda: look(running), lambda page: page.value("db_pool_active") == 0)
        with locked(dsn, "queues"):
            waiting = [Background(rest.call, "GET", "/v1/queues") for _ in range(5)]
            busy = until(
                lambda: look(running),
                lambda page: page.value("db_pool_active") == _MOST_CONNECTIONS,
            )
        assert [one.result() for one in waiting] == [[]] * 5
        yield idle, busy


@metric("db_pool_size", "db_pool_idle", "db_pool_active")
def test_pool(pools: tuple[Page, Page], row: str) -> None:
    idle, busy = pools
    check(idle, row)
    size = idle.value("db_pool_size")
    assert 1 <= size <= _MOST_CONNECTIONS
    most = float(_MOST_CONNECTIONS)
    expected = {
        "db_pool_size": (size, most),
        "db_pool_idle": (size, 0.0),
        "db_pool_active": (0.0, most),
    }
    assert (idle.value(row), busy.value(row)) == expected[row]


@metric("db_pool_acquire_timeouts_total")
def test_acquire_timeouts(exhausted: Exhausted, row: str) -> None:
    before, after = Page(exhausted.before), Page(exhausted.after)
    check(after, row)
    assert before.value(row) == 0
    assert after.value(row) >= 1
    assert json.loads(exhausted.refusal.body)["error"]


def test_every_row_is_shown() -> None:
    assert metric.missing == []
