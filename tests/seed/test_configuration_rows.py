"""Every row of the seed's settings (docs/seeds.md 1.5): what each does, and what it does unset.

Defaults that are not the seed's: ADR 0037.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import asyncpg
import pytest

from queuegate.storage.model import NewDelivery
from queuegate.storage.topics import web_hook_deliveries
from tests.cli.processes import PATIENCE_SECONDS, environment, run
from tests.databases import Databases
from tests.faces.clients import Sqs
from tests.faces.connections import Connection, fetch
from tests.faces.rest.client import Rest
from tests.faces.rest.schedule_client import Scheduling, to_queue
from tests.faces.servers import Background
from tests.faces.web_hooks import WebHook
from tests.seed.gateways import LoggedServer, SharedServer, locked
from tests.seed.hooks import silent_url
from tests.seed.rows import Table
from tests.tracing.collector import Collector
from tests.waiting import until

DEFAULTS = {
    "DATABASE_URL": "",  # without one Queuegate starts its own
    "QUEUE_ADDRESS": "localhost:9324",  # the seed: 0.0.0.0
    "QUEUE_DEFAULT_VISIBILITY_TIMEOUT": "30",
    "QUEUE_MAX_CONNECTIONS": "10",
    "LOG_LEVEL": "info",
    "OTLP_ENABLED": "false",
    "OTLP_ENDPOINT": "",  # http://localhost:4318, over gRPC 4317; the seed: 4317, gRPC
    "OTLP_SAMPLE_RATE": "0.1",
    "QUEUE_LINGER_MS": "0",
    "QUEUE_BASE_URL": "",  # scheme and host of each request; the seed: http://{QUEUE_ADDRESS}
    "QUEUE_HTTP_DELIVERY_ENABLED": "true",
    "QUEUE_HTTP_DELIVERY_POLL_MS": "1000",
    "QUEUE_HTTP_DELIVERY_TIMEOUT_SECS": "15",  # the seed: 5
    "QUEUE_HTTP_DELIVERY_BATCH_SIZE": "256",  # the seed: 50
    "QUEUE_SCHEDULE_ENABLED": "true",
    "QUEUE_SCHEDULE_POLL_MS": "1000",
    "QUEUE_SCHEDULE_BATCH_SIZE": "500",  # the seed: 32
    "QUEUE_SCHEDULE_PREVIEW_COUNT": "5",
    "QUEUE_SCHEDULE_LIST_MAX": "1000",
}
variable = Table(*DEFAULTS)

HOUR = 3600.0


class Pair(NamedTuple):
    """A gateway with settings, and the one where nothing is set."""

    changed: SharedServer
    plain: SharedServer


@pytest.fixture(scope="module")
def pair(databases: Databases, server: SharedServer) -> Iterator[Pair]:
    """Settings that do not get into each other's way."""
    settings = {
        "QUEUE_DEFAULT_VISIBILITY_TIMEOUT": "600",
        "QUEUE_MAX_CONNECTIONS": "2",
        "QUEUE_HTTP_DELIVERY_TIMEOUT_SECS": "1",
        "QUEUE_SCHEDULE_BATCH_SIZE": "2",
        "QUEUE_SCHEDULE_PREVIEW_COUNT": "3",
        "QUEUE_SCHEDULE_LIST_MAX": "2",
    }
    with SharedServer(databases.copy(), **settings) as changed:
        yield Pair(changed, server)


@pytest.fixture
def database(databases: Databases) -> str:
    """The DSN of a database."""
    return databases.copy()


@variable("DATABASE_URL")
def test_database_url(server: SharedServer) -> None:
    """Two gateways on one database show the same; it is that database which holds it."""
    with (
        SharedServer(server.dsn) as other,
        Rest(server.url) as rest,
        Rest(other.url, rest.account) as beside,
    ):
        rest.create("jobs")
        assert beside.send("jobs") in [message["id"] for message in rest.receive("jobs")]
        held = "SELECT queue_name FROM queues WHERE account_id = $1"
        assert [row[0] for row in server.rows(held, rest.account)] == ["jobs"]


@variable("QUEUE_ADDRESS")
def test_address(database: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "queuegate", "serve"],
        env=environment(DATABASE_URL=database, QUEUE_ADDRESS="127.0.0.2:0"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout as printed:
        while "ready: " not in (line := printed.readline()):
            assert line
        found = re.search(r"ready: http://(127\.0\.0\.2:\d+)", line)
        assert found is not None
        address = found[1]
        assert fetch(f"http://{address}", "/livez").status == 200
        with pytest.raises(ConnectionRefusedError):
            fetch(f"http://{address.replace('127.0.0.2', '127.0.0.1')}", "/livez")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0


@variable("QUEUE_DEFAULT_VISIBILITY_TIMEOUT")
def test_default_visibility_timeout(pair: Pair) -> None:
    """A receive that names none hides for so long."""
    for server, seconds in zip(pair, (600, 30), strict=True):
        with Sqs("json", server.url) as sqs:
            url = sqs.create()
            sqs.send(url)
            assert len(sqs.receive(url)) == 1
            server.advance(seconds / 2)
            assert sqs.receive(url) == []
            server.advance(seconds / 2 + 1)
            assert len(sqs.receive(url)) == 1


@variable("QUEUE_MAX_CONNECTIONS")
@pytest.mark.parametrize(("place", "most"), [(0, 2), (1, 10)])
def test_max_connections(pair: Pair, place: int, most: int) -> None:
    """So many requests wait for the database at most, the others wait for them."""
    server = pair[place]
    with Rest(server.url) as rest:
        server.metrics()
        with locked(server.dsn, "queues"):
            callers = [Background(rest.call, "GET", "/v1/queues") for _ in range(most + 3)]
            until(lambda: server.metric("http_connections_active"), lambda value: value >= most + 3)
            server.until("db_pool_active", most)
            assert server.metric("db_pool_size") == most
        assert [caller.result() for caller in callers] == [[]] * (most + 3)


@variable("LOG_LEVEL")
@pytest.mark.parametrize(("level", "is_told"), [(None, True), ("debug", True), ("warn", False)])
def test_log_level(database: str, tmp_path: Path, level: str | None, is_told: bool) -> None:
    """Each line is a JSON object; those of less than the level are missing."""
    log = tmp_path / "log"
    settings = {} if level is None else {"LOG_LEVEL": level}
    with log.open("w") as file, LoggedServer(database, file, **settings) as server:
        assert server.stop(signal.SIGTERM) == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert any(line["message"] == "draining" for line in lines) == is_told
    ranks = ("debug", "info", "warning", "error")
    least = {None: "info", "debug": "debug", "warn": "warning"}[level]
    assert {line["level"] for line in lines} <= set(ranks[ranks.index(least) :])


def asked(dsn: str, times: int, collector: Collector, least: int, **settings: str) -> None:
    """A gateway with these settings, asked so often, and stopped.

    At its end it exports what is left, for two seconds at most: so many spans come before that.
    """
    settings = {"OTLP_ENDPOINT": collector.url} | settings
    with SharedServer(dsn, **settings) as server, Connection(server.url) as connection:
        request = f"GET /livez HTTP/1.1\r\nHost: {connection.host}\r\n\r\n".encode()
        for _ in range(times):
            connection.send(request)
            assert connection.answer().status == 200
        collector.until(lambda it: livez_spans(it) >= least)
        assert server.stop(signal.SIGTERM) == 0


def livez_spans(collector: Collector) -> int:
    return [span.name for span in collector.spans].count("GET /livez")


class Traced(NamedTuple):
    """Spans of 200 requests, all of which are traced: what came where they should go, and what came
    elsewhere."""

    there: int
    elsewhere: int


@pytest.fixture(scope="module")
def traced(databases: Databases) -> Traced:
    with Collector() as named, Collector() as other:
        asked(databases.copy(), 200, named, 200, OTLP_ENABLED="true", OTLP_SAMPLE_RATE="1")
        return Traced(livez_spans(named), livez_spans(other))


@variable("OTLP_ENABLED")
def test_otlp_enabled(traced: Traced) -> None:
    assert traced.there == 200


@variable("OTLP_ENABLED")
@pytest.mark.parametrize("enabled", ["false", ""])
def test_otlp_not_enabled(database: str, enabled: str) -> None:
    with Collector() as collector:
        asked(database, 3, collector, 0, OTLP_ENABLED=enabled, OTLP_SAMPLE_RATE="1")
        assert livez_spans(collector) == 0


@variable("OTLP_ENDPOINT")
def test_otlp_endpoint(traced: Traced) -> None:
    assert (traced.there, traced.elsewhere) == (200, 0)


@variable("OTLP_SAMPLE_RATE")
def test_otlp_sample_rate_of_all(traced: Traced) -> None:
    assert traced.there == 200


@variable("OTLP_SAMPLE_RATE")
@pytest.mark.parametrize(
    ("rate", "traced"), [("0", {0}), ("0.5", range(1, 200)), ("", range(1, 200))]
)
def test_otlp_sample_rate(database: str, rate: str, traced: Any) -> None:
    with Collector() as collector:
        settings = {"OTLP_ENABLED": "true", "OTLP_SAMPLE_RATE": rate}
        asked(database, 200, collector, min(traced), **settings)
        assert livez_spans(collector) in traced


@variable("QUEUE_LINGER_MS")
def test_linger(database: str, server: SharedServer) -> None:
    """Sends that come within that time are one flush; without it one that comes alone is one."""
    flushes = [f'queue_coalescer_flush_batch_size_{end}{{lane="send"}}' for end in ("count", "sum")]
    with SharedServer(database, QUEUE_LINGER_MS="1000") as lingering:
        with Rest(lingering.url) as rest:
            rest.create("jobs")
            send = rest.encode("POST", "/v1/queues/jobs/messages", {"message": 1})
            connections = [Connection(rest.url) for _ in range(8)]
            for connection in connections:
                connection.send(send)
            assert [connection.answer().status for connection in connections] == [201] * 8
            for connection in connections:
                connection.close()
        assert [lingering.metric(name) for name in flushes] == [1, 8]
    with Rest(server.url) as rest:
        rest.create("jobs")
        before = [server.metric(name) for name in flushes]
        for _ in range(3):
            rest.send("jobs")
        assert [server.metric(name) for name in flushes] == [before[0] + 3, before[1] + 3]


@variable("QUEUE_BASE_URL")
def test_base_url(database: str, server: SharedServer) -> None:
    base = "http://localhost:9324"
    with (
        SharedServer(database, QUEUE_BASE_URL=base) as based,
        Sqs("json", based.listens_at, "000000000000") as sqs,
    ):
        assert sqs.create("jobs") == f"{base}/000000000000/jobs"
        assert sqs.send(f"{base}/000000000000/jobs")["MessageId"]
    with Sqs("json", server.url) as sqs:
        assert sqs.create("jobs") == f"{server.url}/{sqs.account}/jobs"


def subscribed(rest: Rest, *urls: str) -> None:
    for url in urls:
        body = {"endpoint": url}
        rest.call("POST", "/v1/events/order.*/subscriptions", body, status=201)


def publish(rest: Rest) -> None:
    rest.call("POST", "/v1/events/order.late", {"message": "hello"}, status=201)


def attempts(server: SharedServer) -> float:
    """Requests to web hooks that this gateway has made."""
    name = "queue_delivery_attempts_total"
    return sum(
        server.metric(f'{name}{{outcome="{outcome}"}}') for outcome in ("success", "failure")
    )


def fires(server: SharedServer) -> float:
    """Schedules that this gateway has fired."""
    return server.metric('queue_schedule_fires_total{outcome="success"}')


class Idle(NamedTuple):
    """The results of a gateway that neither delivers nor fires, and of one beside it that does."""

    delivered: int
    """Attempts of a delivery before there was the other."""
    attempts: tuple[float, float]
    """Of the one and the other, at the end; and times that they fired a schedule."""
    fires: tuple[float, float]
    by_hand: list[Any]
    """Messages of the schedule that was run, and that was due; what a web hook got."""
    due: list[Any]
    hooked: list[bytes]


@pytest.fixture(scope="module")
def idle(databases: Databases) -> Idle:
    """Two gateways on one database."""
    database = databases.copy()
    disabled = {"QUEUE_HTTP_DELIVERY_ENABLED": "false", "QUEUE_SCHEDULE_ENABLED": "false"}
    with (
        WebHook() as hook,
        SharedServer(database, **disabled) as one,
        Scheduling(one.url) as rest,
    ):
        rest.create("jobs")
        rest.schedule("hourly", to_queue())
        one.advance(HOUR)
        subscribed(rest, hook.url)
        publish(rest)
        assert rest.call("POST", "/v1/schedules/hourly/runs", status=202)["out_of_band"]
        by_hand = rest.fired("jobs", 1)
        [[delivered]] = one.rows("SELECT attempt_count FROM deliveries")
        assert fires(one) == 1
        with SharedServer(database) as other:
            hooked = [hook.next().body]
            due = rest.fired("jobs", 1)
            until(lambda: attempts(other), lambda value: value == 1)
            until(lambda: fires(other))
            counted = (attempts(one), attempts(other)), (fires(one), fires(other))
        return Idle(delivered, *counted, by_hand, due, hooked)


@variable("QUEUE_HTTP_DELIVERY_ENABLED")
def test_delivery_enabled(idle: Idle) -> None:
    """One that does not deliver leaves it to one that does."""
    assert idle.delivered == 0
    assert idle.hooked == [b'"hello"']
    assert idle.attempts == (0, 1)


@variable("QUEUE_SCHEDULE_ENABLED")
def test_schedule_enabled(idle: Idle) -> None:
    """One that does not fire runs by hand, and leaves what is due to one that does."""
    [by_hand], [due] = idle.by_hand, idle.due
    assert by_hand["headers"]["_schedule"]["out_of_band"]
    assert not due["headers"]["_schedule"]["out_of_band"]
    assert idle.fires == (1, 1)


async def _add_delivery(dsn: str, url: str) -> None:
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "queuegate"})
    names = ("SubscriptionConfirmation", True, str(uuid4()), "000000000000", "us-east-1", "t")
    try:
        await web_hook_deliveries.insert(
            connection, None, [NewDelivery(str(uuid4()), *names, url, "{}")]
        )
    finally:
        await connection.close()


SLOW, QUICK = "60000", "20"
"""Milliseconds. Of what nobody announced, whoever looks next hears first. The slow one may happen
to look in one round, not in most of them."""
ROUNDS = 5


def mostly_found_by_the_quick(found: Callable[[SharedServer], float], pair: Pair) -> bool:
    slow, quick = pair
    until(lambda: found(slow) + found(quick), lambda total: total == ROUNDS)
    return bool(found(quick) > found(slow))


@pytest.fixture(scope="module")
def polling(databases: Databases) -> Iterator[Pair]:
    """A slow and a quick one on one database."""
    database = databases.copy()
    names = ("QUEUE_HTTP_DELIVERY_POLL_MS", "QUEUE_SCHEDULE_POLL_MS")
    with (
        SharedServer(database, **dict.fromkeys(names, SLOW)) as slow,
        SharedServer(database, **dict.fromkeys(names, QUICK)) as quick,
    ):
        yield Pair(slow, quick)


@variable("QUEUE_HTTP_DELIVERY_POLL_MS")
def test_delivery_poll(polling: Pair, hook: WebHook) -> None:
    """Several deliveries that wait for the next poll of either."""
    for _ in range(ROUNDS):
        asyncio.run(_add_delivery(polling.plain.dsn, hook.url))
        hook.next()
    assert mostly_found_by_the_quick(attempts, polling)


@variable("QUEUE_HTTP_DELIVERY_TIMEOUT_SECS")
def test_delivery_timeout(pair: Pair) -> None:
    lasted = 'queue_delivery_attempt_duration_seconds_bucket{le="0.5",outcome="failure"}'
    with silent_url() as url, Rest(pair.changed.url) as rest:
        before = pair.changed.metric(lasted)
        subscribed(rest, url)
        publish(rest)
        last = "SELECT last_error FROM deliveries WHERE endpoint = $1"
        [[error]] = until(
            lambda: pair.changed.rows(last, url), lambda found: found[0]["last_error"] is not None
        )
        assert "within 1 s" in error
        # It did wait.
        assert pair.changed.metric(lasted) == before


@variable("QUEUE_HTTP_DELIVERY_BATCH_SIZE")
@pytest.mark.parametrize(("size", "claims"), [("2", [2, 2, 2]), ("", [6])])
def test_delivery_batch_size(database: str, size: str, claims: list[int]) -> None:
    """Each row carries the number of the transaction that claimed it."""
    settings = {"QUEUE_HTTP_DELIVERY_BATCH_SIZE": size, "QUEUEGATE_SHUTDOWN_DEADLINE": "0"}
    with (
        silent_url() as url,
        SharedServer(database, **settings) as server,
        Rest(server.url) as rest,
    ):
        subscribed(rest, *[f"{url}/{number}" for number in range(6)])
        publish(rest)
        leased = "SELECT xmin::text AS claim FROM deliveries WHERE is_leased"
        found = until(lambda: server.rows(leased), lambda rows: len(rows) == 6)
        assert sorted(Counter(row["claim"] for row in found).values()) == claims


@pytest.fixture
def scheduling(pair: Pair) -> Iterator[tuple[Scheduling, Scheduling]]:
    """Clients of both."""
    with Scheduling(pair.changed.url) as changed, Scheduling(pair.plain.url) as plain:
        yield changed, plain


@variable("QUEUE_SCHEDULE_POLL_MS")
def test_schedule_poll(polling: Pair) -> None:
    """Several times that wait for the next poll of either."""
    due = "UPDATE schedules SET next_fire_at = clock_timestamp(), due_at = clock_timestamp()"
    with Scheduling(polling.changed.url) as rest:
        rest.create("jobs")
        rest.schedule("yearly", to_queue(), cron="0 0 1 1 *")
        for _ in range(ROUNDS):
            polling.changed.rows(due)
            rest.fired("jobs", 1)
        assert mostly_found_by_the_quick(fires, polling)


@variable("QUEUE_SCHEDULE_BATCH_SIZE")
def test_schedule_batch_size(pair: Pair, scheduling: tuple[Scheduling, Scheduling]) -> None:
    """Each row carries the number of the transaction that advanced it."""
    for server, rest, sizes in zip(pair, scheduling, ([1, 2, 2], [5]), strict=True):
        rest.create("jobs")
        for number in range(5):
            rest.schedule(f"hourly-{number}", to_queue())
        server.advance(HOUR)
        rest.fired("jobs", 5)
        fired = "SELECT xmin::text AS round FROM schedules WHERE account_id = $1"
        rounds = Counter(row["round"] for row in server.rows(fired, rest.account))
        assert sorted(rounds.values()) == sizes


@variable("QUEUE_SCHEDULE_PREVIEW_COUNT")
def test_preview_count(scheduling: tuple[Scheduling, Scheduling]) -> None:
    for rest, count in zip(scheduling, (3, 5), strict=True):
        rest.create("jobs")
        rest.schedule("hourly", to_queue())
        assert len(rest.get("hourly")["next_fires"]) == count
        assert len(rest.preview(every="1 hour")["next_fires"]) == count


@variable("QUEUE_SCHEDULE_LIST_MAX")
def test_list_max(scheduling: tuple[Scheduling, Scheduling]) -> None:
    for rest, count in zip(scheduling, (2, 3), strict=True):
        rest.create("jobs")
        for name in "abc":
            rest.schedule(name, to_queue())
        assert [one["name"] for one in rest.listed(limit=100)] == list("abc"[:count])
        # The client deletes what is listed, and nobody else can see the rest.
        rest.call("DELETE", "/v1/schedules/c", status=204)


@pytest.fixture(scope="module")
def effective() -> dict[str, str]:
    """Return the effective settings when none is set."""
    done = run("config")
    assert done.returncode == 0, done.stderr
    pairs = [line.partition("=") for line in done.stdout.splitlines()]
    found = {name: value for name, _, value in pairs}
    found["QUEUEGATE_ADDRESS"] = f"{found['QUEUEGATE_HOST']}:{found['QUEUEGATE_PORT']}"
    return found


@variable.each()
def test_default(effective: dict[str, str], row: str) -> None:
    names = (row, f"QUEUEGATE_{row}", f"QUEUEGATE_{row.removeprefix('QUEUE_')}")
    [value] = {effective[name] for name in names if name in effective}
    assert value == DEFAULTS[row]


def test_every_row_is_shown() -> None:
    assert variable.missing == []
