"""Consumers of two gateways on one database, and of one that stops or dies."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests import databases
from tests.faces.channels.client import Channels
from tests.faces.channels.pushing import Consumer, Socket, Stream
from tests.faces.clients import new_account
from tests.faces.connections import Closed
from tests.faces.servers import Server

WIRES = [Socket, Stream]


class Pair(NamedTuple):
    """The same account through two gateways."""

    one: Channels
    other: Channels


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Server, Server]]:
    dsn = databases.of_this_process().copy()
    with Server(dsn=dsn) as one, Server(dsn=dsn) as other:
        yield one, other
    databases.of_this_process().drop(dsn)


@pytest.fixture
def pair(servers: tuple[Server, Server]) -> Iterator[Pair]:
    account = new_account()
    one, other = servers
    with Channels(one.url, account) as here, Channels(other.url, account) as there:
        yield Pair(here, there)


@pytest.fixture(params=WIRES, ids=["websocket", "sse"])
def wire(request: pytest.FixtureRequest) -> type[Consumer]:
    kind: type[Consumer] = request.param
    return kind


def test_what_the_other_publishes_is_pushed(pair: Pair, wire: type[Consumer]) -> None:
    with wire(pair.one) as consumer:
        for number in range(3):
            pair.other.publish(payload=number)
            assert consumer.message()["payload"] == number


def test_an_acknowledgement_there_gives_the_credit_back_here(
    pair: Pair, wire: type[Consumer]
) -> None:
    """Hours before the window ends."""
    pair.one.bulk(*[{"channel": "alerts", "payload": number} for number in range(3)])
    with wire(pair.one, credit=1, window=43_200) as consumer:
        first = consumer.message()
        assert pair.other.ack(first) == ["acknowledged"]
        second = consumer.message()
        assert pair.other.nack(second, delay=900) == ["returned"]
        assert consumer.message()["payload"] == 2


def test_who_comes_back_there_gets_what_came_after(pair: Pair, wire: type[Consumer]) -> None:
    pair.one.bulk(*[{"channel": "alerts", "payload": number} for number in range(3)])
    with wire(pair.one) as consumer:
        first, *rest = consumer.messages(3)
        # The connection that it left may still look alive.
        with wire(pair.other, last_event_id=first["event"]) as again:
            found = again.messages(2)
            assert [one["payload"] for one in found] == [1, 2]
            assert pair.other.ack(*rest) == ["received_again"] * 2
            assert pair.one.ack(first, *found) == ["acknowledged"] * 3
        if isinstance(consumer, Socket):
            assert consumer.close_code() == 1000
        else:
            assert b"id:" not in consumer.connection.rest()


def test_after_a_kill_the_window_decides(
    servers: tuple[Server, Server], wire: type[Consumer]
) -> None:
    """Nobody knows any more what was sent, and nothing is lost."""
    keeps = servers[0]
    with Server(dsn=keeps.dsn) as dies, Channels(dies.url) as channels:
        account = channels.account
        channels.publish(payload=1)
        with wire(channels, window=60) as consumer:
            first = consumer.message()
            assert dies.stop(signal.SIGKILL) == -signal.SIGKILL
            with pytest.raises(Closed):
                consumer.message()
    before = first["event"].rpartition("~")[0] + "~0"
    with Channels(keeps.url, account) as left, wire(left, last_event_id=before) as again:
        left.publish(payload=2)
        assert again.message()["payload"] == 2
        keeps.advance(61)
        assert (again.message()["payload"], left.ack(first)) == (1, ["received_again"])


def test_a_stop_says_so_and_keeps_nothing(servers: tuple[Server, Server]) -> None:
    keeps = servers[0]
    with Server(dsn=keeps.dsn) as stops, Channels(stops.url) as channels:
        account = channels.account
        with Socket(channels) as socket, Stream(channels, "others") as stream:
            channels.publish(payload=1)
            channels.publish("others", 2)
            events = {"alerts": socket.message()["event"], "others": stream.message()["event"]}
            assert stops.stop(signal.SIGTERM) == 0
            assert socket.close_code() == 1001
            assert 100 <= int(stream.block()["retry"]) <= 2000
            assert stream.connection.rest() == b""
    with Channels(keeps.url, account) as left:
        for channel, event in events.items():
            with Stream(left, channel, last_event_id=event) as again:
                left.publish(channel, 3)
                assert again.message()["payload"] == 3


def test_a_worker_pushes_what_another_one_is_told() -> None:
    """`--workers 2`: which process takes a connection is the system's to say."""
    with Server("--workers", "2") as server, Channels(server.url) as channels:
        consumers = [Stream(channels, credit=1, window=43_200) for _ in range(8)]
        channels.bulk(*[{"channel": "alerts", "payload": number} for number in range(16)])
        firsts = [consumer.message() for consumer in consumers]
        found = channels.call("GET", "/v1/channels/alerts/connections")
        assert (found["processes"], len(found["connections"])) == (2, len(consumers))
        assert len({one["process"] for one in found["connections"]}) in (1, 2)
        for message in firsts:
            # Each on a connection of its own.
            with Channels(server.url, channels.account) as other:
                assert other.ack(message) == ["acknowledged"]
        seconds = [consumer.message() for consumer in consumers]
        payloads = sorted(one["payload"] for one in firsts + seconds)
        assert payloads == [*range(16)]
        for consumer in consumers:
            consumer.connection.close()
