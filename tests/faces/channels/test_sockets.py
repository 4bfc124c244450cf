"""Features of WebSockets alone: commands, invalid frames, closing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.faces.channels.client import Channels
from tests.faces.channels.pushing import CLOSE, PING, PONG, TEXT, UPGRADE, Socket, plain_answer
from tests.faces.clients import Sqs
from tests.faces.servers import Server
from tests.waiting import until
from tests.websockets import masked

PATH = "/v1/messages/socket?channel=alerts"


def test_acknowledging_gives_the_credit_back(channels: Channels) -> None:
    channels.bulk(*[{"channel": "alerts", "payload": number} for number in range(4)])
    with Socket(channels, credit=1) as socket:
        for number in range(3):
            message = socket.message()
            assert message["payload"] == number
            socket.say(ack=[message["ack"]])
            assert socket.results() == ["acknowledged"]
        message = socket.message()
        socket.say(ack=[message["ack"]])
        socket.say(ack=[message["ack"]])
        assert [socket.results(), socket.results()] == [["acknowledged"], ["gone"]]


def test_what_a_policy_denies_is_denied_on_a_connection_that_lasts() -> None:
    with Server(QUEUEGATE_POLICIES="enforce") as server, Channels(server.url) as channels:

        def deny(sqs: Sqs, action: str) -> None:
            statement = {"Effect": "Deny", "Principal": "*", "Action": action}
            policy = json.dumps({"Statement": statement})
            sqs.call("SetQueueAttributes", QueueUrl="alerts", Attributes={"Policy": policy})

        def acknowledge() -> dict[str, Any]:
            channels.publish()
            socket.say(ack=[socket.message()["ack"]])
            return socket.said()

        def next_frame() -> tuple[int, bytes]:
            channels.publish()
            return socket.frame()

        channels.publish("alerts")
        with (
            Sqs("json", server.url, channels.account) as sqs,
            Socket(channels, credit=99) as socket,
        ):
            socket.message()
            deny(sqs, "sqs:DeleteMessage")
            # What the process had heard of the queue before may count for a moment.
            refused = until(acknowledge, lambda said: said["type"] == "error")
            assert "explicit deny" in refused["error"]
            deny(sqs, "sqs:ReceiveMessage")
            _, payload = until(next_frame, lambda frame: frame[0] == CLOSE)
            assert int.from_bytes(payload[:2], "big") == 1008


def test_giving_back_brings_it_to_others(channels: Channels) -> None:
    channels.publish(payload=1)
    with Socket(channels, credit=1) as first:
        message = first.message()
        first.say(credit=0)
        first.say(nack=[message["ack"]])
        assert first.results() == ["returned"]
        with Socket(channels) as second:
            assert second.message()["deliveries"] == 2
        first.say(ack=[message["ack"]])
        assert first.results() == ["received_again"]


def test_credit_may_change(channels: Channels) -> None:
    channels.bulk(*[{"channel": "alerts", "payload": number} for number in range(5)])
    with Socket(channels, credit=1) as socket:
        assert socket.payloads(1) == [0]
        socket.say(credit=3)
        assert socket.payloads(2) == [1, 2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "must be a JSON object"),
        (b"nonsense", "must be a JSON object"),
        (b"[" * 60_000, "an object"),
        (b"[]", "object"),
        (b'{"acks": []}', "`acks` is not known"),
        (b'{"ack": []}', "ack"),
        (b'{"ack": "x"}', "ack"),
        (b'{"ack": [1]}', "ack"),
        (b'{"credit": 1001}', "credit"),
        (b'{"credit": -1}', "credit"),
        (b'{"nack": ["x"], "delay": 43201}', "delay"),
        (b'{"ack": ["QGS2"]}', "is no `ack`"),
        (b'{"ack": ["~"]}', "is no `ack`"),
        (json.dumps({"ack": ["x" * 300]}).encode(), "is no `ack`"),
        ('{"nack": ["\u00fc\\u0000"]}'.encode(), "is no `ack`"),
    ],
)
def test_what_is_refused_in_words(channels: Channels, text: bytes, words: str) -> None:
    with Socket(channels) as socket:
        socket.send(TEXT, text)
        status, error = socket.refusal()
        assert status == 400
        assert words in error
        channels.publish(payload=1)
        assert socket.message()["payload"] == 1


def test_tokens_of_other_channels_and_forged_ones_do_nothing(channels: Channels) -> None:
    channels.publish("others")
    [other] = channels.poll("others")
    channels.publish()
    with Socket(channels) as socket:
        mine = socket.message()
        handle = mine["ack"].partition("~")[0]
        flipped = ("A" if handle[-1] != "A" else "B").join([handle[:-1], ""])
        for token in (other["ack"], flipped, handle[:-4]):
            socket.say(ack=[token])
            assert socket.refusal()[0] == 400
        # Which process hears of it is no part of the right.
        socket.say(ack=[handle + "~somebody"])
        assert socket.results() == ["acknowledged"]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (masked(2, b"\x00"), 1003),
        (masked(TEXT, b"\xff\xfe"), 1007),
        (masked(TEXT, b"x" * 65_537)[:20], 1009),
        (masked(TEXT, b"x" * 65_000, final=False) + masked(0, b"x" * 65_000)[:20], 1009),
        (b"\x81\x02{}", 1002),
        (masked(3, b""), 1002),
        (masked(0, b"{}"), 1002),
        (masked(CLOSE, b"\x03\xe8"), 1000),
        (masked(CLOSE, b""), 1000),
        (masked(CLOSE, b"\x0f\xa0bye"), 4000),
        (masked(CLOSE, b"\x00\x01"), 1002),
        (b"GET / HTTP/1.1\r\n\r\n", 1002),
    ],
)
def test_what_ends_the_connection(channels: Channels, data: bytes, code: int) -> None:
    with Socket(channels) as socket:
        socket.connection.send(data)
        assert socket.close_code() == code


def test_fragments_and_pings_in_any_pieces(channels: Channels) -> None:
    channels.publish()
    with Socket(channels) as socket:
        text = json.dumps({"ack": [socket.message()["ack"]]}).encode()
        data = masked(TEXT, text[:20], final=False) + masked(PING, b"there?") + masked(0, text[20:])
        socket.connection.send_pieces(data[place : place + 1] for place in range(len(data)))
        assert socket.frame() == (PONG, b"there?")
        assert socket.results() == ["acknowledged"]


def test_many_acknowledgements_at_once_are_all_answered(channels: Channels) -> None:
    """More than are taken at a time, in one write."""
    channels.publish()
    with Socket(channels) as socket:
        token = socket.message()["ack"]
        one = masked(TEXT, json.dumps({"ack": [token] * 100}).encode())
        socket.connection.send(one * 300)
        outcomes = [outcome for _ in range(300) for outcome in socket.results()]
        assert outcomes.count("acknowledged") >= 1
        assert set(outcomes) == {"acknowledged", "gone"}
        channels.publish(payload=2)
        assert socket.message()["payload"] == 2


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"Upgrade": "h2c"}, 426),
        ({"Connection": "keep-alive"}, 426),
        ({"Sec-WebSocket-Version": "8"}, 426),
        ({"Sec-WebSocket-Key": "short"}, 400),
    ],
)
def test_handshakes_that_are_none(channels: Channels, changes: dict[str, str], status: int) -> None:
    answer = channels.ask("GET", PATH, headers={**UPGRADE, **changes})
    assert answer.status == status
    if status == 426:
        assert answer.headers["sec-websocket-version"] == "13"


def test_a_subprotocol_is_agreed_on_if_it_is_ours(channels: Channels) -> None:
    offer = {"Sec-WebSocket-Protocol": "queuegate, key.anything"}
    with Socket(channels, headers=offer) as socket:
        assert "sec-websocket-protocol: queuegate\r\n" in socket.head + "\r\n"
        assert "anything" not in socket.head
    # A list may be spread over several headers.
    apart = {"Connection": "keep-alive", "connection": "Upgrade"} | {
        "Sec-WebSocket-Protocol": "queuegate, mqtt",
        "sec-websocket-protocol": "key.anything",
    }
    with Socket(channels, headers=apart) as socket:
        assert "sec-websocket-protocol: queuegate\r\n" in socket.head + "\r\n"
    with Socket(channels, headers={"Sec-WebSocket-Protocol": "mqtt"}) as socket:
        assert "sec-websocket-protocol" not in socket.head
    assert plain_answer(channels, PATH, **UPGRADE) == 101


def test_who_answers_no_ping_is_hung_up_on() -> None:
    """Hearts beat once a second at most, and two may be missed."""
    with Server(QUEUEGATE_PUSH_HEARTBEAT_SECONDS="1") as server:
        client = Channels(server.url)
        with Socket(client) as silent, Socket(client) as alive:
            for _ in range(4):
                assert alive.frame() == (PING, b"")
                alive.send(PONG, b"")
            server.until('queuegate_push_connections{kind="websocket"}', 1)
            assert silent.frame() == (PING, b"")
            silent.frame()
            assert silent.connection.ends()
