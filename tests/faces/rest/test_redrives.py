"""Redrives over the native API: dead letters back to where they came from, all or some."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.faces.clients import Sqs
from tests.faces.rest.client import Rest
from tests.waiting import until

pytestmark = pytest.mark.parametrize("sqs_beside", ["json"], indirect=True)
FIFO = pytest.mark.parametrize("suffix", ["", ".fifo"])


def make(sqs: Sqs, *sources: str, suffix: str = "") -> str:
    """A dead-letter queue of these queues, whose messages die of the first receive."""
    fifo = {"FifoQueue": "true"} if suffix else {}
    dead = f"dead{suffix}"
    url = sqs.call("CreateQueue", QueueName=dead, Attributes=fifo)["QueueUrl"]
    arn = sqs.call("GetQueueAttributes", QueueUrl=url, AttributeNames=["QueueArn"])
    policy = {"deadLetterTargetArn": arn["Attributes"]["QueueArn"], "maxReceiveCount": 1}
    for source in sources:
        attributes = {**fifo, "VisibilityTimeout": "0", "RedrivePolicy": json.dumps(policy)}
        sqs.call("CreateQueue", QueueName=source + suffix, Attributes=attributes)
    return dead


def drain(sqs: Sqs, url: str) -> None:
    """Receive until nothing is there: what was received before is a dead letter."""
    until(
        lambda: sqs.call("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10).get("Messages"),
        lambda found: not found,
    )


def kill(sqs: Sqs, name: str, *bodies: str, group: str = "g", **attributes: str) -> None:
    """Send messages and receive them until they are dead letters."""
    url = sqs.url_of(name)
    for body in bodies:
        members: dict[str, Any] = {}
        if name.endswith(".fifo"):
            members = {"MessageGroupId": group, "MessageDeduplicationId": body.replace(" ", "-")}
        members["MessageAttributes"] = {
            key: {"DataType": "String", "StringValue": value} for key, value in attributes.items()
        }
        sqs.call("SendMessage", QueueUrl=url, MessageBody=body, **members)
    drain(sqs, url)


def redrive(rest: Rest, name: str, **members: Any) -> dict[str, Any]:
    found: dict[str, Any] = rest.call("POST", f"/v1/queues/{name}/redrives", members)
    return found


def counts(found: dict[str, Any]) -> tuple[int, int, int]:
    return found["matched"], found["moved"], found["without_source"]


@FIFO
def test_all_go_back_to_where_they_came_from(rest: Rest, sqs_beside: Sqs, suffix: str) -> None:
    dead = make(sqs_beside, "orders", "bills", suffix=suffix)
    kill(sqs_beside, f"orders{suffix}", "1", "2")
    kill(sqs_beside, f"bills{suffix}", "3", group="other")
    counted = redrive(rest, dead, dry_run=True)
    assert (counts(counted), len(rest.bodies(dead))) == ((3, 0, 0), 3)
    moved = redrive(rest, dead)
    assert (counts(moved), moved["next"]) == ((3, 3, 0), None)
    assert (rest.bodies(f"orders{suffix}"), rest.bodies(f"bills{suffix}")) == (["1", "2"], ["3"])
    assert rest.bodies(dead) == []
    [first, *_] = rest.call("GET", f"/v1/queues/orders{suffix}/browse")["messages"]
    assert first["attributes"]["ApproximateReceiveCount"] == "0"
    assert "DeadLetterQueueSourceArn" not in first["attributes"]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"source": "bills"}, ["c"]),
        ({"attributes": {"ErrorCode": "Timeout"}}, ["a"]),
        ({"attributes": {"ErrorCode": "Timeout*"}}, ["a", "b refused"]),
        ({"attributes": {"ErrorCode": "*", "Tenant": "acme"}}, []),
        ({"text": "refused"}, ["b refused"]),
        ({"text": "refused", "source": "bills"}, []),
        ({"sent_until": "2020-01-01T00:00:00Z"}, []),
        ({"sent_since": "2020-01-01T00:00:00Z"}, ["a", "b refused", "c"]),
        ({"min_receives": 2}, []),
        ({"group_ids": ["nobody's"]}, []),
        ({"message_ids": []}, []),
    ],
)
def test_those_that_match_go(
    rest: Rest, sqs_beside: Sqs, wanted: dict[str, Any], found: list[str]
) -> None:
    dead = make(sqs_beside, "orders", "bills")
    make(sqs_beside, "elsewhere")
    kill(sqs_beside, "orders", "a", ErrorCode="Timeout")
    kill(sqs_beside, "orders", "b refused", ErrorCode="Timeout of the shop")
    kill(sqs_beside, "bills", "c")
    moved = redrive(rest, dead, to="elsewhere", **wanted)
    assert counts(moved) == (len(found), len(found), 0)
    assert rest.bodies("elsewhere") == found
    assert sorted(rest.bodies(dead) + found) == ["a", "b refused", "c"]


def test_messages_are_named_by_their_ids(rest: Rest, sqs_beside: Sqs) -> None:
    dead = make(sqs_beside, "orders")
    kill(sqs_beside, "orders", "1", "2", "3")
    messages = rest.call("GET", f"/v1/queues/{dead}/browse")["messages"]
    wanted = [one["message_id"] for one in messages if one["body"] != "2"]
    assert counts(redrive(rest, dead, message_ids=wanted)) == (2, 2, 0)
    assert (rest.bodies(dead), rest.bodies("orders")) == (["2"], ["1", "3"])


@FIFO
def test_pages_go_on_to_the_end(rest: Rest, sqs_beside: Sqs, suffix: str) -> None:
    dead = make(sqs_beside, "orders", suffix=suffix)
    sent = [f"{number} {'even' if number % 2 == 0 else 'odd'}" for number in range(12)]
    for number, body in enumerate(sent):
        # Each group has one kind, so that none of them waits for a message that stays.
        kill(sqs_beside, f"orders{suffix}", body, group=f"g{number % 4}")
    members: dict[str, Any] = {"text": "even", "limit": 2}
    seen = []
    while True:
        found = redrive(rest, dead, **members)
        seen.append(counts(found))
        if found["next"] is None:
            break
        members |= {"after": found["next"], "as_of": found["as_of"]}
    assert [sum(column) for column in zip(*seen, strict=True)] == [6, 6, 0]
    assert max(matched for matched, _, _ in seen) == 2
    assert sorted(rest.bodies(f"orders{suffix}")) == sorted(sent[::2])
    assert sorted(rest.bodies(dead)) == sorted(sent[1::2])


def test_in_a_group_nothing_overtakes_a_message_that_stays(rest: Rest, sqs_beside: Sqs) -> None:
    dead = make(sqs_beside, "orders", suffix=".fifo")
    for body in ("good 1", "bad", "good 2"):
        kill(sqs_beside, "orders.fifo", body)
    kill(sqs_beside, "orders.fifo", "good 3", group="other")
    assert counts(redrive(rest, dead, text="good")) == (3, 2, 0)
    assert rest.bodies(dead) == ["bad", "good 2"]
    assert counts(redrive(rest, dead, text="good")) == (1, 0, 0)
    assert counts(redrive(rest, dead, group_ids=["g"])) == (2, 2, 0)
    assert rest.bodies("orders.fifo") == ["good 1", "bad", "good 2", "good 3"]


def test_what_somebody_has_stays(rest: Rest, sqs_beside: Sqs) -> None:
    dead = make(sqs_beside, "orders")
    kill(sqs_beside, "orders", "1", "2")
    [held] = sqs_beside.call("ReceiveMessage", QueueUrl=sqs_beside.url_of(dead))["Messages"]
    assert counts(redrive(rest, dead)) == (2, 1, 0)
    assert rest.bodies(dead) == [held["Body"]]


def test_what_came_from_nowhere_stays_unless_it_is_said_where_to(
    rest: Rest, sqs_beside: Sqs
) -> None:
    dead = make(sqs_beside, "orders")
    rest.send(dead, "sent here")
    assert counts(redrive(rest, dead, dry_run=True)) == (1, 0, 1)
    assert counts(redrive(rest, dead)) == (1, 0, 1)
    assert counts(redrive(rest, dead, to="orders")) == (1, 1, 0)


def test_a_queue_of_a_size_takes_what_it_has_room_for(rest: Rest, sqs_beside: Sqs) -> None:
    dead = make(sqs_beside, "orders")
    rest.create("small", max_messages=1)
    kill(sqs_beside, "orders", "1", "2", "3")
    assert counts(redrive(rest, dead, to="small")) == (3, 1, 0)
    assert len(rest.bodies(dead)) == 2


def test_what_cannot_be(rest: Rest, sqs_beside: Sqs) -> None:
    dead = make(sqs_beside, "orders")
    rest.create("ordered.fifo")
    path = f"/v1/queues/{dead}/redrives"
    assert "other kind" in rest.refusal("POST", path, {"to": "ordered.fifo"})
    assert "same queue" in rest.refusal("POST", path, {"to": dead})
    assert "nobody" in rest.refusal("POST", path, {"to": "nobody"}, status=404)
    rest.refusal("POST", path, {"limit": 0})
    rest.refusal("POST", path, {"after": "7.group"})
    rest.refusal("POST", "/v1/queues/nobody/redrives", {}, status=404)
