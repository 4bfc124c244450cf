"""Consumers of two gateways on one database."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.faces.channels.client import Channels
from tests.faces.clients import new_account
from tests.faces.servers import Background, Server

MESSAGES = 100


@pytest.fixture(scope="module")
def gateways() -> Iterator[tuple[Server, Server]]:
    with Server() as one, Server(dsn=one.dsn) as other:
        yield one, other


def _consume(url: str, account: str, seed: int) -> Counter[int]:
    """Take messages until there are none, and acknowledge some, give some back, keep some too long;
    how often each was acknowledged."""
    drawn = random.Random(seed)
    done: Counter[int] = Counter()
    with Channels(url, account) as channels:
        late: list[dict[str, Any]] = []
        while messages := channels.poll(max=drawn.randint(1, 10), window=1, wait=2):
            now: list[dict[str, Any]] = []
            back: list[dict[str, Any]] = []
            for message in messages:
                drawn.choice((now, now, back, late)).append(message)
            if back:
                channels.nack(*back)
            if drawn.random() < 0.2:
                now, late = now + late, []
            if now:
                outcomes = zip(now, channels.ack(*now), strict=True)
                done.update(one["id"] for one, result in outcomes if result == "acknowledged")
    return done


def test_each_message_is_acknowledged_once(gateways: tuple[Server, Server]) -> None:
    """Windows of a second run out while consumers hold messages, so it takes some."""
    account = new_account()
    with Channels(gateways[0].url, account) as channels:
        channels.call("PUT", "/v1/channels/alerts", {"max_deliveries": None}, status=201)
        ids: list[int] = []
        while len(ids) < MESSAGES:
            bulk = [{"channel": "alerts", "payload": 1, "priority": one % 11} for one in range(100)]
            ids += [one["id"] for one in channels.bulk(*bulk)]
        consumers = [
            Background(_consume, gateways[number % 2].url, account, number) for number in range(6)
        ]
        done: Counter[int] = Counter()
        for consumer in consumers:
            done += consumer.result()
        assert done == Counter(ids)
        [found] = channels.call("GET", "/v1/metrics?channel=alerts")["channels"]
        assert (found["depth"], found["in_flight"], found["finished_total"]) == (0, 0, MESSAGES)


def test_a_poll_hears_of_what_the_other_gateway_takes(gateways: tuple[Server, Server]) -> None:
    """The channel is made by the poll, and its settings are changed meanwhile."""
    account = new_account()
    with Channels(gateways[0].url, account) as here, Channels(gateways[1].url, account) as there:
        waiting = Background(here.poll, "fresh", wait=20)
        gateways[0].until_parked()
        there.call("PUT", "/v1/channels/fresh", {"ack_window": 500})
        there.publish("fresh", "x", priority=3)
        [message] = waiting.result()
        assert message["priority"] == 3
        assert there.ack(message, channel="fresh") == ["acknowledged"]
        assert here.ack(message, channel="fresh") == ["gone"]
