"""Messages pushed over WebSockets and as events: the same promises on both wires."""

from __future__ import annotations

import pytest

from tests.faces.channels.client import Channels
from tests.faces.channels.pushing import Consumer, Socket, Stream, plain_answer
from tests.faces.clients import Sqs
from tests.faces.connections import Answer
from tests.faces.servers import Server
from tests.waiting import until

WIRES = [Socket, Stream]


@pytest.fixture(params=WIRES, ids=["websocket", "sse"])
def wire(request: pytest.FixtureRequest) -> type[Consumer]:
    kind: type[Consumer] = request.param
    return kind


def test_a_message_is_what_a_poll_shows(channels: Channels, wire: type[Consumer]) -> None:
    with wire(channels) as consumer:
        channels.publish(payload={"a": ["é", "\n"]}, headers={"tenant": "acme"})
        pushed = consumer.message()
    assert (pushed["payload"], pushed["headers"]) == ({"a": ["é", "\n"]}, {"tenant": "acme"})
    assert pushed["deliveries"] == 1
    assert channels.nack(pushed) == ["returned"]
    [polled] = channels.poll()
    assert pushed.keys() - polled.keys() == {"event"}
    assert channels.ack(pushed) == ["received_again"]
    assert channels.ack(polled) == ["acknowledged"]


def test_whatever_was_sent_fits_into_one_event(
    channels: Channels, sqs_beside: Sqs, wire: type[Consumer]
) -> None:
    """JSON over several lines as its producer wrote it, and what is no JSON at all."""
    queue = sqs_beside.create("alerts")
    with wire(channels) as consumer:
        sqs_beside.send(queue, '{\n "a":\r\n 1}')
        sqs_beside.send(queue, "data: x\n\nid: 7\n\n")
        assert consumer.payloads(2) == [{"a": 1}, "data: x\n\nid: 7\n\n"]


def test_no_more_than_the_credit_is_out(channels: Channels, wire: type[Consumer]) -> None:
    channels.bulk(*[{"channel": "alerts", "payload": number} for number in range(5)])
    with wire(channels, credit=2) as consumer:
        first, second = consumer.messages(2)
        # What else there is, others get.
        assert channels.payloads(max=1) == [2]
        assert channels.ack(second) == ["acknowledged"]
        third = consumer.message()
        assert third["payload"] == 3
        assert channels.nack(first, delay=600) == ["returned"]
        assert consumer.message()["payload"] == 4


def test_a_window_that_ends_brings_the_message_again(
    channels: Channels, server: Server, wire: type[Consumer]
) -> None:
    channels.publish(payload=1)
    with wire(channels, credit=1, window=5) as consumer:
        first = consumer.message()
        server.advance(6)
        again = consumer.message()
        assert (again["id"], again["deliveries"]) == (first["id"], 2)
        assert channels.ack(first) == ["received_again"]
        assert channels.ack(again) == ["acknowledged"]


def test_who_comes_back_gets_at_once_what_came_after(
    channels: Channels, wire: type[Consumer]
) -> None:
    channels.bulk(*[{"channel": "alerts", "payload": number} for number in range(4)])
    with wire(channels) as consumer:
        messages = consumer.messages(4)
    channels.ack(messages[3])
    with wire(channels, last_event_id=messages[0]["event"]) as again:
        found = again.messages(2)
        assert [one["payload"] for one in found] == [1, 2]
        assert [one["deliveries"] for one in found] == [2, 2]
        assert channels.poll() == []
        assert channels.ack(messages[0], messages[1]) == ["acknowledged", "received_again"]
        assert channels.ack(*found) == ["acknowledged", "acknowledged"]


def test_event_source_says_it_in_a_header(channels: Channels) -> None:
    channels.publish(payload=1)
    with Stream(channels) as consumer:
        event = consumer.message()["event"]
    before = event.rpartition("~")[0] + "~0"
    with Stream(channels, headers={"Last-Event-ID": before}) as again:
        assert again.message()["payload"] == 1


def test_heads_say_what_proxies_need_to_know(channels: Channels) -> None:
    with Stream(channels) as consumer:
        head = consumer.head.lower()
        assert "content-type: text/event-stream" in head
        assert "cache-control: no-store" in head
        assert "x-accel-buffering: no" in head
        assert "transfer-encoding" not in head
        assert consumer.block() == {"retry": "1000"}


def test_a_deleted_channel_ends_them(
    channels: Channels, sqs_beside: Sqs, wire: type[Consumer]
) -> None:
    queue = sqs_beside.create("alerts")
    with wire(channels) as consumer:
        sqs_beside.call("DeleteQueue", QueueUrl=queue)
        if isinstance(consumer, Socket):
            assert consumer.close_code() == 1008
        else:
            assert b"id:" not in consumer.connection.rest()


def test_a_revoked_key_ends_them(channels: Channels, wire: type[Consumer]) -> None:
    made = channels.call("POST", "/v1/keys", {"name": "shop"}, status=201)
    with wire(channels, api_key=made["key"]) as consumer:
        channels.call("DELETE", f"/v1/keys/{made['id']}", status=204)
        if isinstance(consumer, Socket):
            assert consumer.close_code() == 1008
        else:
            assert b"id:" not in consumer.connection.rest()


def test_pages_of_other_sites_are_refused(channels: Channels, wire: type[Consumer]) -> None:
    answer = _ask(channels, wire, Origin="https://elsewhere.example")
    assert answer.status == 403
    assert _ask(channels, wire, Host="elsewhere.example").status == 403
    with wire(channels, headers={"Origin": channels.url}) as consumer:
        channels.publish(payload=1)
        assert consumer.message()["payload"] == 1


def _ask(channels: Channels, wire: type[Consumer], **headers: str) -> Answer:
    return channels.ask("GET", wire.path + "?channel=alerts", headers={**wire.headers, **headers})


@pytest.mark.parametrize(
    "query",
    ["", "channel=", "channel=a%20b", "channel=a&credit=0", "channel=a&credit=1001",
     "channel=a&window=0", "channel=a&x=1", "channel=a&last_event_id=" + "x" * 101],
)  # fmt: skip
def test_what_cannot_be_asked(channels: Channels, wire: type[Consumer], query: str) -> None:
    answer = channels.ask("GET", f"{wire.path}?{query}", headers=wire.headers)
    assert answer.status == 400, answer.text


def test_keys_may_come_where_a_browser_can_put_them(
    channels: Channels, wire: type[Consumer]
) -> None:
    """One that looks like ours and is none is refused, so it was seen."""
    path = wire.path + "?channel=alerts"
    assert plain_answer(channels, path + "&api_key=mine", **wire.headers) in (101, 200)
    assert plain_answer(channels, path + "&api_key=qg_no", **wire.headers) == 403
    if wire is Socket:
        one = {"Sec-WebSocket-Protocol": "queuegate, key.qg_no"}
        two = {"Sec-WebSocket-Protocol": "key.qg_no", "sec-websocket-protocol": "queuegate"}
        for offer in (one, two):
            assert plain_answer(channels, path, **wire.headers, **offer) == 403


def test_a_key_among_too_many_parameters_is_refused(
    channels: Channels, wire: type[Consumer]
) -> None:
    path = wire.path + "?channel=alerts&api_key=mine"
    assert plain_answer(channels, path + "&" * 20, **wire.headers) == 400


def test_metrics_count_them(channels: Channels, server: Server, wire: type[Consumer]) -> None:
    kind = "websocket" if wire is Socket else "sse"
    gauge = f'queuegate_push_connections{{kind="{kind}"}}'
    before = server.metric("queuegate_push_messages_total")
    open_before = server.metric(gauge)
    with wire(channels) as consumer:
        channels.publish()
        consumer.message()
        assert server.metric(gauge) == open_before + 1
        assert server.metric("queuegate_push_messages_total") == before + 1
    server.until(gauge, open_before)


def test_connections_show_their_credit(channels: Channels, wire: type[Consumer]) -> None:
    path = "/v1/channels/alerts/connections"
    assert channels.refusal("GET", path, status=404)
    channels.publish(payload=1)
    with wire(channels, credit=3) as consumer:
        message = consumer.message()
        found = channels.call("GET", path)
        assert found["processes"] == 1
        [one] = found["connections"]
        assert one.pop("process")
        assert one == {
            "kind": "sse" if wire is Stream else "websocket",
            "key": channels.account,
            "address": "127.0.0.1",
            "credit": 3,
            "unacknowledged": 1,
            "is_paused": False,
        }
        assert channels.ack(message) == ["acknowledged"]
        until(
            lambda: channels.call("GET", path)["connections"][0]["unacknowledged"],
            lambda count: count == 0,
        )
        with Channels(channels.url) as stranger:
            stranger.publish(payload=1)
            assert stranger.call("GET", path)["connections"] == []
    until(lambda: channels.call("GET", path)["connections"], lambda left: left == [])


def test_a_head_alone_is_refused(channels: Channels, wire: type[Consumer]) -> None:
    assert channels.ask("HEAD", wire.path + "?channel=alerts").status == 405
