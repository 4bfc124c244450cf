"""Dead letters of channels."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faces.channels.client import Channels
from tests.faces.clients import Sqs
from tests.waiting import until


def _exhaust(channels: Channels, channel: str, *payloads: Any, deliveries: int = 2) -> None:
    """Publish messages that become dead letters."""
    channels.call("PUT", f"/v1/channels/{channel}", {"max_deliveries": deliveries}, status=201)
    channels.bulk(*[{"channel": channel, "payload": one} for one in payloads])
    for _ in range(deliveries):
        messages = channels.poll(channel)
        assert len(messages) == len(payloads)
        channels.nack(*messages, channel=channel)
    assert channels.poll(channel) == []
    # A worker may be moving them at this moment.
    everything = f"channel={channel}&limit=100"
    until(lambda: len(_letters(channels, everything)) >= len(payloads))


def _letters(channels: Channels, query: str = "channel=jobs") -> list[Any]:
    found: list[Any] = channels.call("GET", f"/v1/dead-letter?{query}")["messages"]
    return found


def _requeue(channels: Channels, ids: Any, channel: str = "jobs") -> Any:
    return channels.call("POST", "/v1/dead-letter/requeue", {"channel": channel, "ids": ids})


def test_what_nobody_acknowledges_can_be_looked_at(channels: Channels) -> None:
    _exhaust(channels, "jobs", {"a": 1}, "b")
    for _ in range(2):
        first, second = _letters(channels)
        assert (first["payload"], second["payload"]) == ({"a": 1}, "b")
        assert (first["channel"], first["deliveries"]) == ("jobs", 2)
    name = channels.call("GET", "/v1/channels/jobs")["dead_letter_queue"]
    assert channels.payloads(name) == [{"a": 1}, "b"]
    [found] = channels.call("GET", "/v1/metrics?channel=jobs")["channels"]
    assert (found["depth"], found["dead_letters"], found["dead_letters_total"]) == (0, 2, 2)
    assert found["error_rate"] == 1


def test_pages_lead_on(channels: Channels) -> None:
    _exhaust(channels, "jobs", *range(5))
    page = channels.call("GET", "/v1/dead-letter?channel=jobs&limit=3")
    assert [one["payload"] for one in page["messages"]] == [0, 1, 2]
    rest = _letters(channels, f"channel=jobs&limit=3&after={page['next']}")
    assert [one["payload"] for one in rest] == [3, 4]


def test_chosen_ones_are_requeued(channels: Channels) -> None:
    _exhaust(channels, "jobs", *range(4))
    ids = [one["id"] for one in _letters(channels)]
    asked = [ids[1], ids[3], ids[1], 1 << 50]
    assert _requeue(channels, asked) == {"requeued": 2, "has_more": False}
    assert [one["payload"] for one in _letters(channels)] == [0, 2]
    again = channels.poll("jobs")
    assert [(one["payload"], one["deliveries"]) for one in again] == [(1, 1), (3, 1)]
    assert [one["id"] for one in again] == [ids[1], ids[3]]


def test_all_are_requeued_and_only_this_channels(channels: Channels, sqs_beside: Sqs) -> None:
    dead = sqs_beside.create("dead")
    policy = f'{{"deadLetterTargetArn":"{sqs_beside.arn(dead)}","maxReceiveCount":1}}'
    for name in ("jobs", "others"):
        sqs_beside.create(name, RedrivePolicy=policy)
    for number in range(3):
        for name in ("jobs", "others"):
            channels.publish(name, number)
    sqs_beside.send(dead, "stray")
    for name in ("jobs", "others"):
        channels.nack(*channels.poll(name), channel=name)
        assert channels.poll(name) == []
    letters = _letters(channels)
    assert len([one for one in letters if one["channel"] == "jobs"]) == 3
    assert [one["payload"] for one in letters if one["channel"] is None] == ["stray"]
    assert _requeue(channels, "all") == {"requeued": 3, "has_more": False}
    assert [one["channel"] for one in _letters(channels)].count("others") == 3
    assert len(channels.poll("jobs")) == 3


def test_there_is_only_so_much_room(channels: Channels) -> None:
    channels.call("PUT", "/v1/channels/jobs", {"max_deliveries": 1, "size": 2}, status=201)
    channels.bulk(*[{"channel": "jobs", "payload": one} for one in (1, 2)])
    channels.nack(*channels.poll("jobs"), channel="jobs")
    assert channels.poll("jobs") == []
    # A worker may be moving them at this moment.
    ids = [one["id"] for one in until(lambda: _letters(channels), lambda found: len(found) == 2)]
    channels.publish("jobs", 3)
    assert _requeue(channels, ids) == {"requeued": 1, "has_more": True}
    body = {"channel": "jobs", "ids": "all"}
    assert "full" in channels.refusal("POST", "/v1/dead-letter/requeue", body, status=429)
    assert len(_letters(channels)) == 1


def test_messages_in_order_are_requeued_all_or_none(channels: Channels) -> None:
    channels.create("jobs", fifo=True)
    path = "/v1/channels/jobs.fifo"
    channels.call("PUT", path, {"max_deliveries": 1})
    for number in range(3):
        channels.publish("jobs.fifo", number, group_id="g", deduplication_id=str(number))
    channels.nack(*channels.poll("jobs.fifo"), channel="jobs.fifo")
    assert channels.poll("jobs.fifo") == []
    letters = _letters(channels, "channel=jobs.fifo")
    assert [one["payload"] for one in letters] == [0, 1, 2]
    body = {"channel": "jobs.fifo", "ids": [letters[0]["id"]]}
    assert "order" in channels.refusal("POST", "/v1/dead-letter/requeue", body)
    assert _requeue(channels, "all", "jobs.fifo")["requeued"] == 3
    assert channels.payloads("jobs.fifo") == [0, 1, 2]


def test_a_channel_without_any(channels: Channels) -> None:
    channels.publish("jobs")
    assert channels.call("GET", "/v1/dead-letter?channel=jobs") == {"messages": [], "next": None}
    assert _requeue(channels, "all") == {"requeued": 0, "has_more": False}


@pytest.mark.parametrize(
    ("query", "status"),
    [("channel=nowhere", 404), ("", 400), ("channel=jobs&limit=0", 400),
     ("channel=jobs&limit=1001", 400), ("channel=jobs&after=x", 400), ("channel=a%00", 400)],
)  # fmt: skip
def test_what_cannot_be_looked_at(channels: Channels, query: str, status: int) -> None:
    channels.publish("jobs")
    channels.refusal("GET", f"/v1/dead-letter?{query}", status=status)


@pytest.mark.parametrize("ids", ["some", [], [0], [-1], [1 << 63], ["1"], None, [1] * 101])
def test_what_cannot_be_requeued(channels: Channels, ids: Any) -> None:
    channels.publish("jobs")
    channels.refusal("POST", "/v1/dead-letter/requeue", {"channel": "jobs", "ids": ids})
