"""The settings of channels."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faces.channels.client import Channels
from tests.faces.clients import Sqs
from tests.faces.servers import Server

NEW = {
    "name": "alerts",
    "ack_window": 30,
    "max_deliveries": 5,
    "size": None,
    "dead_letter_queue": None,
    "fifo": False,
}


def test_first_use_makes_a_channel_with_the_settings_of_the_gateway(channels: Channels) -> None:
    assert channels.poll() == []
    assert channels.call("GET", "/v1/channels/alerts") == NEW
    assert channels.call("GET", "/v1/channels") == {"channels": [NEW]}


def test_a_channel_can_be_made_with_settings(channels: Channels) -> None:
    path = "/v1/channels/alerts"
    made = channels.call("PUT", path, {"max_deliveries": None, "size": 2}, status=201)
    assert made == NEW | {"max_deliveries": None, "size": 2}
    assert channels.call("PUT", path, {"size": 2, "ack_window": 5}) == made | {"ack_window": 5}
    assert "size" in channels.refusal("PUT", path, {"size": 3}, status=409)
    assert channels.call("GET", path)["size"] == 2
    results = channels.bulk(*[{"channel": "alerts", "payload": 1}] * 2)
    assert all("id" in one for one in results)
    full = channels.refusal("POST", "/v1/messages", {"channel": "alerts", "payload": 1}, status=429)
    assert "2" in full


def test_a_new_window_holds_for_what_is_handed_out_then(channels: Channels, server: Server) -> None:
    channels.bulk(*[{"channel": "alerts", "payload": number} for number in (1, 2)])
    channels.call("PUT", "/v1/channels/alerts", {"ack_window": 100})
    channels.poll(max=1)
    channels.call("PUT", "/v1/channels/alerts", {"ack_window": 5})
    channels.poll(max=1)
    server.advance(6)
    assert channels.payloads() == [2]
    server.advance(100)
    assert channels.payloads() == [1, 2]


def test_the_redrive_policy_of_a_queue_follows(channels: Channels, sqs_beside: Sqs) -> None:
    dead = sqs_beside.create("dead")
    policy = f'{{"deadLetterTargetArn":"{sqs_beside.arn(dead)}","maxReceiveCount":3}}'
    url = sqs_beside.create("orders", RedrivePolicy=policy)
    path = "/v1/channels/orders"
    shown = channels.call("GET", path)
    assert (shown["max_deliveries"], shown["dead_letter_queue"]) == (3, "dead")
    channels.call("PUT", path, {"max_deliveries": 7})
    asked = {"QueueUrl": url, "AttributeNames": ["RedrivePolicy"]}
    assert '"maxReceiveCount":7' in str(sqs_beside.call("GetQueueAttributes", **asked))
    assert channels.call("PUT", path, {"max_deliveries": None})["dead_letter_queue"] is None
    assert "Attributes" not in sqs_beside.call("GetQueueAttributes", **asked)


def test_channels_are_listed_in_pages(channels: Channels) -> None:
    for name in ("c", "a", "b"):
        channels.publish(name)
    answer = channels.ask("GET", "/v1/channels?limit=2")
    link = answer.headers["link"].partition(">")[0].removeprefix("<")
    assert [one["name"] for one in channels.call("GET", link)["channels"]] == ["c"]


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("alerts", {"ack_window": 0}, 400),
        ("alerts", {"ack_window": 43_201}, 400),
        ("alerts", {"max_deliveries": 0}, 400),
        ("alerts", {"max_deliveries": 1_001}, 400),
        ("alerts", {"size": 0}, 400),
        ("alerts", {"window": 5}, 400),
        ("a%20b", {}, 400),
        ("a%00b", {}, 400),
        ("orders.fifo", {}, 404),
    ],
)
def test_what_cannot_be_set(
    channels: Channels, name: str, body: dict[str, Any], status: int
) -> None:
    channels.refusal("PUT", f"/v1/channels/{name}", body, status=status)
    assert channels.call("GET", "/v1/channels") == {"channels": []}
