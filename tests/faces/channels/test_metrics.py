"""The numbers of channels."""

from __future__ import annotations

from typing import Any

from tests.faces.channels.client import Channels
from tests.faces.servers import Server


def _numbers(channels: Channels, query: str = "?channel=alerts") -> Any:
    [found] = channels.call("GET", f"/v1/metrics{query}")["channels"]
    return found


def test_they_say_what_a_channel_holds(channels: Channels, server: Server) -> None:
    channels.bulk(*[{"channel": "alerts", "payload": 1}] * 4)
    channels.publish(delay=100)
    server.advance(7)
    [one, _] = channels.poll(max=2)
    channels.ack(one)
    found = _numbers(channels)
    assert (found["depth"], found["in_flight"], found["delayed"]) == (2, 1, 1)
    assert (found["published_total"], found["finished_total"]) == (5, 1)
    assert 7 <= found["oldest_age_seconds"] <= 60
    assert [(one["priority"], one["depth"]) for one in found["priorities"]] == [(0, 2)]
    assert (found["dead_letters"], found["dead_letters_total"], found["error_rate"]) == (0, 0, 0)


def test_they_tell_priorities_apart(channels: Channels, server: Server) -> None:
    channels.publish(priority=9)
    server.advance(30)
    channels.bulk(*[{"channel": "alerts", "payload": 1, "priority": one} for one in (2, 9, 9, 0)])
    found = {one["priority"]: one for one in _numbers(channels)["priorities"]}
    assert {name: one["depth"] for name, one in found.items()} == {9: 3, 2: 1, 0: 1}
    assert found[9]["oldest_age_seconds"] >= 30 > found[2]["oldest_age_seconds"]


def test_rates_are_those_of_the_last_minute(channels: Channels, server: Server) -> None:
    channels.bulk(*[{"channel": "alerts", "payload": 1}] * 60)
    server.advance(3600)
    assert _numbers(channels)["rates"]["published"] < 0.1
    assert _numbers(channels)["error_rate"] is None
    channels.bulk(*[{"channel": "alerts", "payload": 1}] * 30)
    channels.ack(*channels.poll(max=15))
    server.advance(30)
    rates = _numbers(channels)["rates"]
    assert 30 <= rates["over_seconds"] < 60
    assert 0.5 < rates["published"] <= 1
    assert 0.25 < rates["finished"] <= 0.5


def test_all_channels_are_listed_in_pages(channels: Channels) -> None:
    assert channels.call("GET", "/v1/metrics") == {"channels": []}
    for name in ("b", "a"):
        channels.publish(name)
    answer = channels.ask("GET", "/v1/metrics?limit=1")
    link = answer.headers["link"].partition(">")[0].removeprefix("<")
    assert _numbers(channels, link.removeprefix("/v1/metrics"))["channel"] == "b"


def test_a_channel_that_is_not_there_has_none(channels: Channels) -> None:
    channels.refusal("GET", "/v1/metrics?channel=nowhere", status=404)
    channels.refusal("GET", "/v1/metrics?channel=", status=400)
