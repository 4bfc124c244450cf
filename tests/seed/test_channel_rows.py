"""Every row of BlinkQ (docs/seeds.md 4): problems, structures, innovations, endpoints."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.pasting.pages import blocks_of
from tests.cli.processes import run
from tests.databases import Databases
from tests.faces.channels.client import Channels
from tests.faces.channels.pushing import Socket, Stream
from tests.faces.connections import Answer, Connection, request_bytes
from tests.faces.servers import Background
from tests.seed.gateways import SharedServer
from tests.seed.rows import Table, rows_between
from tests.waiting import until

shows = Table(
    # 4.1
    "polling hammers the server",
    "an alert behind analytics",
    "a consumer reads and crashes",
    "one producer exhausts the queue",
    # 4.2
    "Sorted Sets",
    "Pub/Sub",
    "Strings / INCR",
    "Key Expiry (TTL)",
    "Lists",
    # 4.3
    "push or long poll",
    "priority 0 to 10",
    "TTL on every message",
    "acknowledge within a window",
    "a rate for each key",
    "first message in two minutes",
    # 4.4
    "POST /v1/messages",
    "POST /v1/messages/bulk",
    "GET /v1/messages/poll",
    "POST /v1/messages/ack",
    "GET /v1/metrics",
    "GET /v1/dead-letter",
)
shows.linked(
    "tests/faces/channels/test_messages.py",
    {
        "POST /v1/messages/bulk": "test_a_bulk_is_a_hundred_at_most",
        "POST /v1/messages/ack": "test_one_ack_needs_no_list",
    },
)
shows.linked(
    "tests/faces/channels/test_metrics.py", {"GET /v1/metrics": "test_they_tell_priorities_apart"}
)
ROOT = Path(__file__).parents[2]


@pytest.fixture
def channels(server: SharedServer) -> Iterator[Channels]:
    """A client in an account of its own."""
    with Channels(server.url) as client:
        yield client


@pytest.fixture(scope="module")
def limited(databases: Databases) -> Iterator[SharedServer]:
    """A gateway that takes ten requests in a minute of each producer."""
    with SharedServer(databases.copy(), QUEUEGATE_CHANNEL_RATE_LIMIT="10/60s") as running:
        yield running


def _numbers(channels: Channels) -> dict[str, object]:
    [found] = channels.call("GET", "/v1/metrics?channel=alerts")["channels"]
    return dict(found)


@shows("polling hammers the server", "GET /v1/messages/poll")
def test_who_waits_costs_nothing(channels: Channels, server: SharedServer) -> None:
    waiting = Background(channels.payloads, "alerts", wait=20)
    server.until_parked()
    asked = server.metric("queue_coalescer_flush_batch_size_count")
    assert asked > 0
    server.read_on()
    assert server.metric("queue_coalescer_flush_batch_size_count") == asked
    channels.publish(payload="now")
    assert waiting.result() == ["now"]


@shows(
    "an alert behind analytics",
    "Sorted Sets",
    "priority 0 to 10",
)
def test_urgent_messages_come_first(channels: Channels) -> None:
    for _ in range(5):
        channels.bulk(*[{"channel": "alerts", "payload": "page seen", "priority": 0}] * 100)
    channels.publish(payload="first", priority=10)
    channels.publish(payload="second", priority=10)
    for priority in (3, 7):
        channels.publish(payload=priority, priority=priority)
    assert channels.payloads(max=5) == ["first", "second", 7, 3, "page seen"]


@shows("Sorted Sets")
def test_whoever_takes_a_message_has_it_alone(channels: Channels) -> None:
    channels.bulk(
        *[{"channel": "alerts", "payload": one, "priority": one % 11} for one in range(60)]
    )
    polls = [Background(channels.payloads, max=10) for _ in range(6)]
    found = [one for poll in polls for one in poll.result()]
    assert sorted(found) == [*range(60)]


@shows(
    "a consumer reads and crashes",
    "acknowledge within a window",
    "Lists",
    "GET /v1/dead-letter",
)
def test_what_is_not_acknowledged_comes_again_and_dies(
    channels: Channels, server: SharedServer
) -> None:
    settings = {"ack_window": 5, "max_deliveries": 2}
    channels.call("PUT", "/v1/channels/alerts", settings, status=201)
    channels.publish(payload="poison", priority=7)
    for delivery in (1, 2):
        [message] = channels.poll()
        assert message["deliveries"] == delivery
        assert channels.poll() == []
        server.advance(6)
    assert channels.poll() == []
    [letter] = channels.call("GET", "/v1/dead-letter?channel=alerts")["messages"]
    assert (letter["payload"], letter["deliveries"], letter["priority"]) == ("poison", 2, 7)
    assert channels.ack(message) == ["gone"]


@shows(
    "one producer exhausts the queue",
    "Strings / INCR",
    "a rate for each key",
)
def test_producers_are_limited(limited: SharedServer) -> None:
    with Channels(limited.url) as channels:
        message = {"channel": "alerts", "payload": 1}
        channels.bulk(*[message] * 10)
        answer = channels.ask("POST", "/v1/messages", message)
        assert answer.status == 429, answer.text
        assert 0 < int(answer.headers["retry-after"]) <= 61
        channels.refusal("POST", "/v1/messages/bulk", [message], status=429)
        assert len(channels.poll()) == 10
        with Channels(limited.url) as other:
            other.publish()
        limited.advance(62)
        channels.publish()


@shows(
    "Pub/Sub",
    "push or long poll",
    "POST /v1/messages",
)
def test_the_producer_does_not_know_how_it_is_consumed(
    channels: Channels, server: SharedServer
) -> None:
    with Socket(channels, credit=1) as socket:
        channels.publish(payload="pushed")
        assert socket.message()["payload"] == "pushed"
    with Stream(channels, credit=1) as stream:
        channels.publish(payload="event")
        assert stream.message()["payload"] == "event"
    waiting = Background(channels.payloads, "alerts", wait=20)
    server.until_parked()
    channels.publish(payload="polled")
    assert waiting.result() == ["polled"]


@shows("Key Expiry (TTL)", "TTL on every message")
def test_what_is_stale_is_never_delivered(channels: Channels, server: SharedServer) -> None:
    channels.bulk(
        {"channel": "alerts", "payload": "stale", "ttl": 5, "priority": 9},
        {"channel": "alerts", "payload": "held", "ttl": 5, "priority": 10},
        {"channel": "alerts", "payload": "stays"},
    )
    [held] = channels.poll(max=1)
    assert held["expires_at"] > held["published_at"]
    server.advance(6)
    found = _numbers(channels)
    assert (found["depth"], found["in_flight"]) == (1, 0)
    assert channels.nack(held) in (["returned"], ["gone"])
    assert channels.payloads() == ["stays"]
    sweep = "SELECT count(*) FROM messages AS m JOIN queues AS q USING (queue_id)"
    own = f"{sweep} WHERE q.account_id = $1 AND m.expires_at IS NOT NULL"
    until(lambda: server.rows(own, channels.account)[0][0], lambda count: count == 0)


@shows("first message in two minutes")
def test_the_front_page_leads_to_a_first_message(server: SharedServer) -> None:
    """Its commands, in their order, but for who runs them: `make docs-check` pastes them."""
    [block] = [
        one
        for one in blocks_of(ROOT / "README.md", "First message")
        if "/v1/messages/poll" in one.text
    ]
    first, *others = block.text.splitlines()
    program, *arguments = shlex.split(first.removeprefix("key=$(").removesuffix(")"))
    assert program == ".venv/bin/queuegate"
    key = run(*arguments, DATABASE_URL=server.dsn).stdout.strip()
    answers = [_curl(server.url, shlex.split(line.replace("$key", key))) for line in others]
    assert [one.status for one in answers] == [201, 200]
    assert '"payload":"disk full"' in answers[1].text


def _curl(url: str, words: list[str]) -> Answer:
    """Send the request of a curl command and return its answer."""
    options = argparse.ArgumentParser()
    options.add_argument("target")
    options.add_argument("-H")
    options.add_argument("-d", default="")
    assert words[0] == "curl"
    given = options.parse_args(words[1:])
    name, _, value = given.H.partition(": ")
    target = given.target.removeprefix("$q")
    with Connection(url) as connection:
        headers = {"Host": connection.host, name: value}
        method = "POST" if given.d else "GET"
        connection.send(request_bytes(method, target, headers, given.d.encode()))
        return connection.answer()


def test_every_row_is_shown() -> None:
    assert shows.missing == []


def test_the_page_has_the_same_rows() -> None:
    assert rows_between("## 4. BlinkQ", "### 4.5") == [*shows.rows]
