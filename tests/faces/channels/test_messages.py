"""Publishing, polling, acknowledging and giving back over HTTP."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from tests.faces.channels.client import Channels
from tests.faces.clients import Sqs
from tests.faces.rest.client import ABSENT
from tests.faces.servers import Background, Server


def _seconds(message: dict[str, Any], since: str, until: str) -> float:
    """From one instant of a message to another; 0 where it does not say."""
    ends = datetime.fromisoformat(message[until] or message[since])
    return (ends - datetime.fromisoformat(message[since])).total_seconds()


def test_a_message_there_and_back(channels: Channels) -> None:
    headers = {"tenant": "acme", "tries": 3}
    published = channels.publish(payload={"a": [1, "é"]}, headers=headers)
    [message] = channels.poll(window=60)
    assert message["id"] == published
    assert (message["payload"], message["headers"]) == ({"a": [1, "é"]}, headers)
    assert (message["deliveries"], message["priority"], message["expires_at"]) == (1, 0, None)
    assert 59 < _seconds(message, "published_at", "ack_by") < 120
    assert channels.poll() == []
    assert channels.ack(message, message) == ["acknowledged", "gone"]
    assert channels.ack(message) == ["gone"]


def test_one_ack_needs_no_list(channels: Channels) -> None:
    channels.publish()
    [message] = channels.poll()
    body = {"channel": "alerts", "acks": message["ack"]}
    found = channels.call("POST", "/v1/messages/ack", body)
    assert found == {"results": [{"ack": message["ack"], "result": "acknowledged"}]}


def test_a_poll_waits_for_what_is_published(channels: Channels, server: Server) -> None:
    """Before the channel is there, too."""
    waiting = Background(channels.payloads, "fresh", wait=20)
    server.until_parked()
    channels.publish("fresh", 7)
    assert waiting.result() == [7]


def test_who_is_late_acknowledges_until_somebody_else_has_it(
    channels: Channels, server: Server
) -> None:
    channels.bulk({"channel": "late", "payload": 1}, {"channel": "late", "payload": 2})
    first = channels.poll("late", window=5)
    server.advance(6)
    assert channels.ack(first[0], channel="late") == ["acknowledged"]
    [again] = channels.poll("late")
    assert (again["payload"], again["deliveries"]) == (2, 2)
    assert channels.ack(first[1], channel="late") == ["received_again"]
    assert channels.nack(first[1], channel="late") == ["received_again"]
    assert channels.poll("late") == []
    assert channels.ack(again, channel="late") == ["acknowledged"]


def test_what_is_given_back_comes_at_once_or_later(channels: Channels, server: Server) -> None:
    channels.publish("back")
    [message] = channels.poll("back")
    assert channels.nack(message, channel="back", delay=30) == ["returned"]
    server.advance(29)
    assert channels.poll("back") == []
    assert channels.nack(message, channel="back") == ["returned"]
    [message] = channels.poll("back")
    assert message["deliveries"] == 2


def test_urgent_messages_come_first_whoever_sent_them(channels: Channels, sqs_beside: Sqs) -> None:
    """A queue that was there before has priorities from the first message with one on."""
    url = sqs_beside.create("alerts")
    sqs_beside.send(url, "1")
    channels.publish(payload=2, priority=1)
    channels.bulk(
        {"channel": "alerts", "payload": 3, "priority": 10},
        {"channel": "alerts", "payload": 4, "priority": 10},
        {"channel": "alerts", "payload": 5},
    )
    sqs_beside.send(url, "6")
    found = channels.poll()
    assert [one["payload"] for one in found] == [3, 4, 2, 1, 5, 6]
    assert [one["priority"] for one in found] == [10, 10, 1, 0, 0, 0]


def test_what_comes_again_keeps_its_place(channels: Channels, server: Server) -> None:
    channels.bulk(*[{"channel": "again", "payload": one, "priority": one} for one in (3, 5, 5)])
    first, *_ = channels.poll("again", window=5)
    assert (first["payload"], first["deliveries"]) == (5, 1)
    channels.publish("again", "new", priority=5)
    server.advance(6)
    found = channels.poll("again")
    assert [one["payload"] for one in found] == [5, 5, "new", 3]
    assert [one["deliveries"] for one in found] == [2, 2, 1, 2]


def test_what_has_expired_is_nowhere(channels: Channels, server: Server) -> None:
    channels.create("ordered", fifo=True)
    members = {"group_id": "g", "deduplication_id": "d"}
    for channel, more in (("short", {"priority": 5}), ("plain", {}), ("ordered.fifo", members)):
        published = channels.publish(channel, "held", ttl=5, **more)
        [held] = channels.poll(channel, window=60)
        assert held["id"] == published
        assert _seconds(held, "published_at", "expires_at") == (0 if "group_id" in more else 5)
        again = more | {"deduplication_id": "e"} if "group_id" in more else more
        channels.publish(channel, "waits", ttl=5, **again)
        server.advance(6)
        channels.finish("nack", channel, held["ack"])
        assert channels.poll(channel) == []
        [found] = channels.call("GET", f"/v1/metrics?channel={channel}")["channels"]
        assert (found["depth"], found["in_flight"], found["priorities"]) == (0, 0, [])


def test_a_bulk_says_what_became_of_each(channels: Channels, sqs_beside: Sqs) -> None:
    small = sqs_beside.create("small", MaximumMessageSize="1024")
    results = channels.bulk(
        {"channel": "alerts", "payload": 1},
        {"channel": "small", "payload": "x" * 2000},
        {"channel": "small", "payload": 2},
        status=207,
    )
    assert [one.get("status") for one in results] == [None, 400, None]
    assert "queue 'small' takes 1024" in results[1]["error"]
    assert set(results[1]) == {"channel", "error", "status"}
    assert channels.payloads() == [1]
    assert [one["Body"] for one in sqs_beside.receive(small)] == ["2"]


def test_a_channel_is_a_queue_for_sqs(channels: Channels, sqs_beside: Sqs) -> None:
    channels.publish(payload={"a": 1}, headers={"tenant": "acme"})
    url = sqs_beside.url_of("alerts")
    [received] = sqs_beside.receive(url, MessageAttributeNames=["All"])
    assert json.loads(received["Body"]) == {"a": 1}
    assert received["MessageAttributes"]["tenant"]["StringValue"] == "acme"
    for body in ("no JSON", '{"b": 2}'):
        sqs_beside.send(url, body)
    assert channels.payloads() == ["no JSON", {"b": 2}]


def test_a_fifo_queue_is_a_channel_in_order(channels: Channels) -> None:
    channels.create("orders", fifo=True)
    one = {"channel": "orders.fifo", "payload": 1}
    assert "group_id" in channels.refusal("POST", "/v1/messages", one)
    for number in (1, 2):
        channels.publish("orders.fifo", number, group_id="g", deduplication_id=str(number))
    first, second = channels.poll("orders.fifo")
    assert channels.nack(first, channel="orders.fifo") == ["returned"]
    assert channels.ack(second, channel="orders.fifo") == ["acknowledged"]
    assert channels.payloads("orders.fifo") == [1]


def test_a_text_queue_is_a_channel_of_groups(channels: Channels, server: Server) -> None:
    """One of a group is out at a time, and late is late only when somebody else has it."""
    for text in (b"one", b"two"):
        assert channels.ask("POST", "/queue?group-id=g", raw=text).status == 200
    [first] = channels.poll("default", window=5)
    assert (first["payload"], first["priority"]) == ("one", 0)
    server.advance(6)
    assert channels.ack(first, channel="default") == ["acknowledged"]
    [second] = channels.poll("default", window=5)
    server.advance(6)
    [again] = channels.poll("default")
    assert channels.ack(second, channel="default") == ["received_again"]
    assert channels.nack(again, channel="default") == ["returned"]
    channels.publish("default", 3, group_id="h")
    assert sorted(map(str, channels.payloads("default"))) == ["3", "two"]
    urgent = {"channel": "default", "payload": 1, "group_id": "g", "priority": 1}
    assert "priority" in channels.refusal("POST", "/v1/messages", urgent)


NEW = {"channel": "alerts", "payload": 1}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"channel": "a b"}, "The name of a channel is invalid."),
        ({"channel": "a\x00"}, "The name of a channel is invalid."),
        ({"priority": 11}, "priority"),
        ({"priority": -1}, "priority"),
        ({"ttl": 0}, "ttl"),
        ({"ttl": 1_209_601}, "ttl"),
        ({"delay": 901}, "delay"),
        ({"colour": "red"}, "colour"),
        ({"headers": {"AWS.x": 1}}, "AWS.x"),
        ({"deduplication_id": "d"}, "FIFO"),
        ({"channel": "ordered.fifo", "group_id": "g", "priority": 1}, "priority"),
        ({"payload": "x" * 1_100_000}, "1048576"),
    ],
)
def test_what_cannot_be_published(channels: Channels, change: dict[str, Any], said: str) -> None:
    channels.create("ordered", fifo=True)
    assert said in channels.refusal("POST", "/v1/messages", NEW | change)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"channel": "a", "payload": \xff}', b"[]"])
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/bulk", "/v1/messages/ack"])
def test_bodies_that_cannot_be_read(channels: Channels, path: str, body: bytes) -> None:
    assert channels.ask("POST", path, ABSENT, raw=body).status == 400


def test_a_bulk_is_a_hundred_at_most(channels: Channels) -> None:
    assert "<= 100" in channels.refusal("POST", "/v1/messages/bulk", [NEW] * 101)
    assert len(channels.bulk(*[NEW] * 100)) == 100


@pytest.mark.parametrize("verb", ["ack", "nack"])
def test_what_cannot_be_acknowledged(channels: Channels, verb: str) -> None:
    path = f"/v1/messages/{verb}"
    body = {"channel": "nowhere", "acks": "x"}
    said = channels.refusal("POST", path, body, status=404)
    assert said == "Channel 'nowhere' does not exist"
    channels.publish()
    [message] = channels.poll()
    for wrong in ("", "x" * 300, "\x00", message["ack"][:-1], message["ack"].lower()):
        acks = [message["ack"], wrong]
        assert "no `ack`" in channels.refusal("POST", path, {"channel": "alerts", "acks": acks})
    assert channels.refusal("POST", path, {"channel": "alerts", "acks": []})
    assert channels.ack(message) == ["acknowledged"]


@pytest.mark.parametrize(
    "query",
    ["", "channel=", "channel=a%00", "channel=%ff", "channel=a&max=0", "channel=a&max=101",
     "channel=a&wait=21", "channel=a&window=0", "channel=a&window=43201", "channel=a&x=1"],
)  # fmt: skip
def test_what_cannot_be_polled(channels: Channels, query: str) -> None:
    assert channels.refusal("GET", f"/v1/messages/poll?{query}")


def test_nobody_needs_credentials(channels: Channels) -> None:
    answer = channels.ask("POST", "/v1/messages", NEW, headers={"Authorization": ""})
    assert answer.status == 201, answer.text


def test_paths_of_the_native_api_stay_its_own(channels: Channels) -> None:
    assert channels.call("GET", "/v1/queues") == []
    assert "/v1/openapi.json" in channels.refusal("GET", "/v1/messagesx", status=404)
    assert "/v1/channels/openapi.json" in channels.refusal("GET", "/v1/messages/x", status=404)


def test_what_is_acknowledged_goes_to_the_archive_of_a_queue_that_keeps_it(
    channels: Channels,
) -> None:
    channels.create("kept", archive=True)
    channels.bulk(*[{"channel": "kept", "payload": one, "priority": one} for one in (1, 2)])
    first, second = channels.poll("kept", window=1)
    assert channels.ack(first, channel="kept") == ["acknowledged"]
    assert channels.nack(second, channel="kept") == ["returned"]
    assert channels.ack(first, second, channel="kept") == ["gone", "acknowledged"]
    archived = channels.call("GET", "/v1/queues/kept/archive")
    assert [one["message"] for one in archived] == [1, 2]
