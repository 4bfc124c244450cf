"""Queues of the simple face."""

from __future__ import annotations

import json
import re
from typing import Any
from uuid import UUID

import pytest

from tests.faces.clients import Sqs
from tests.faces.connections import fetch
from tests.faces.rest.client import Rest
from tests.faces.servers import Server
from tests.faces.simple.client import Simple

NOWHERE = "00000001-0000-8000-8000-000000000000"


def test_a_new_queue_is_as_it_was_asked_for(simple: Simple) -> None:
    asked = {"queue_size": 1000, "visibility_timeout": 7, "max_deliveries": 5}
    queue_id = simple.create("orders", **asked)
    assert UUID(queue_id).version == 8
    assert simple.describe(queue_id) == asked | {
        "queue_id": queue_id,
        "queue_name": "orders",
        "current_message_count": 0,
        "dlq_id": None,
        "sqs_name": "orders",
    }


def test_camel_case_is_the_same(simple: Simple) -> None:
    body = {"queueName": "a", "queueSize": 9, "visibilityTimeout": 0, "maxDeliveries": 1}
    answer = simple.ask("POST", "/api/queues", body)
    queue_id = json.loads(answer.body)["queue_id"]
    assert (answer.status, answer.headers["location"]) == (201, f"/api/queues/{queue_id}")
    found = simple.describe(queue_id)
    assert (found["queue_name"], found["queue_size"]) == ("a", 9)
    assert (found["visibility_timeout"], found["max_deliveries"]) == (0, 1)


def test_what_is_not_said_is_sensible(simple: Simple) -> None:
    found = simple.describe(simple.create())
    assert (found["queue_size"], found["visibility_timeout"], found["max_deliveries"]) == (
        None,
        30,
        3,
    )
    found = simple.describe(simple.create(queue_size=None, max_deliveries=None))
    assert (found["queue_size"], found["max_deliveries"]) == (None, None)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "The field `queue_name` is missing."),
        ({"queue_name": ""}, "The field `queue_name` is refused: expected a string"),
        ({"queue_name": "x" * 201}, "The field `queue_name` is refused: expected a string"),
        ({"queue_name": " "}, "The name of a queue is 1 to 200 printable characters."),
        ({"queue_name": "a\0b"}, "The name of a queue is 1 to 200 printable characters."),
        ({"queue_name": 7}, "The field `queue_name` is refused: "),
        ({"queue_name": "a", "queueName": "a"}, "The field `queue_name` is given in two"),
        ({"queue_name": "a", "queue_size": 0}, "The field `queue_size` is refused: allowed"),
        ({"queue_name": "a", "queueSize": "9"}, "The field `queueSize` is refused: "),
        ({"queue_name": "a", "queue_size": 1 << 31}, "The field `queue_size` is refused: allowed"),
        ({"queue_name": "a", "visibility_timeout": -1}, "The field `visibility_timeout` is"),
        ({"queue_name": "a", "visibility_timeout": None}, "The field `visibility_timeout` is"),
        ({"queue_name": "a", "max_deliveries": 0}, "The field `max_deliveries` is refused:"),
        ({"queue_name": "a", "max_delivery": 1}, "The field `max_delivery` is not known."),
        ([], "The body is refused: expected an object"),
    ],
)  # fmt: skip
def test_what_no_queue_can_be_is_refused(simple: Simple, body: Any, text: str) -> None:
    assert text in simple.refusal("POST", "/api/queues", body)


@pytest.mark.parametrize(
    "raw", [b"", b"{", b'{"queue_name": "\xff"}', b'{"queue_name": "\\ud800"}']
)
def test_what_is_no_json_is_refused(simple: Simple, raw: bytes) -> None:
    answer = simple.ask("POST", "/api/queues", raw=raw)
    assert answer.status == 400, answer.text
    assert [*json.loads(answer.body)] == ["status", "error", "message"]


def test_queues_may_be_called_the_same_and_whatever_people_like(simple: Simple) -> None:
    names = ["orders", "orders", "Größe: 10 / Tag.fifo", "日本", "x" * 200]
    found = [simple.describe(simple.create(name)) for name in names]
    assert [one["queue_name"] for one in found] == names
    called = [one["sqs_name"] for one in found]
    assert called[0] == "orders"
    assert re.fullmatch(r"orders-[0-9a-f]{8}", called[1])
    assert re.fullmatch(r"Gr-e-10-Tag-fifo-[0-9a-f]{8}", called[2])
    assert re.fullmatch(r"[0-9a-f]{8}", called[3])
    assert re.fullmatch(r"x{71}-[0-9a-f]{8}", called[4])


def test_a_queue_of_any_face_has_an_id(simple: Simple) -> None:
    with Sqs("json", simple.url, simple.account) as sqs, Rest(simple.url, simple.account) as rest:
        sqs.create("a")
        rest.create("b")
    simple.create("c!")
    listed = simple.call("GET", "/api/queues")["queues"]
    assert [one["queue_name"] for one in listed] == ["a", "b", "c!"]
    for one in listed:
        found = simple.describe(one["queue_id"])
        assert (found["queue_name"], found["sqs_name"]) == (one["queue_name"], one["sqs_name"])


def test_listings_have_pages(simple: Simple) -> None:
    for name in "abc":
        simple.create(name)
    answer = simple.ask("GET", "/api/queues?limit=2")
    assert [one["sqs_name"] for one in json.loads(answer.body)["queues"]] == ["a", "b"]
    target = answer.headers["link"].partition(">")[0][1:]
    answer = simple.ask("GET", target)
    assert [one["sqs_name"] for one in json.loads(answer.body)["queues"]] == ["c"]
    assert "link" not in answer.headers


def test_a_deleted_queue_is_gone(simple: Simple) -> None:
    queue_id = simple.create()
    deleted = simple.call("DELETE", f"/api/queues/{queue_id}")
    assert deleted == {"queue_id": queue_id, "deleted": True}
    text = f"No queue has the id '{queue_id}'."
    for method in ("GET", "DELETE"):
        assert simple.refusal(method, f"/api/queues/{queue_id}", status=404) == text
    assert simple.describe(simple.create())["sqs_name"] == "orders"


@pytest.mark.parametrize(
    "queue_id",
    [
        NOWHERE,
        "ffffffff-0000-8000-8000-000000000000",
        "7fffffff-0000-8000-8000-000000000000",
        "orders",
        "q_abc123",
        "%F0%9F%90%87",
        "1",
        "x" * 5000,
    ],
)
def test_an_id_of_nothing_is_404(simple: Simple, queue_id: str) -> None:
    assert "No queue has the id" in simple.refusal("GET", f"/api/queues/{queue_id}", status=404)


def test_nobody_finds_a_queue_by_its_number_or_in_another_account(simple: Simple) -> None:
    queue_id = simple.create()
    guess = queue_id[:-1] + ("0" if queue_id[-1] != "0" else "1")
    simple.refusal("GET", f"/api/queues/{guess}", status=404)
    with Simple(simple.url) as other:
        other.refusal("GET", f"/api/queues/{queue_id}", status=404)
    with Simple(simple.url, simple.account, "eu-west-1") as elsewhere:
        assert elsewhere.describe(queue_id)["queue_id"] == queue_id


def test_nobody_needs_credentials(server: Server) -> None:
    body = json.dumps({"queue_name": "open"}).encode()
    answer = fetch(server.url, "/api/queues", "POST", body)
    assert answer.status == 201, answer.text
    queue_id = json.loads(answer.body)["queue_id"]
    assert fetch(server.url, f"/api/queues/{queue_id}").status == 200
    with Simple(server.url, "000000000000") as signed:
        assert signed.describe(queue_id)["queue_name"] == "open"
        signed.call("DELETE", f"/api/queues/{queue_id}")


def test_other_paths_below_it_are_told_where_to_look(simple: Simple) -> None:
    text = "The path /api/queue does not exist. See /api/openapi.json."
    assert simple.refusal("GET", "/api/queue", status=404) == text
    text = simple.refusal("PUT", "/api/queues", {}, status=405)
    assert text == "PUT is not allowed here. Allowed are GET, HEAD, OPTIONS, POST."


def test_what_sqs_sets_is_shown(simple: Simple) -> None:
    queue_id = simple.create(queue_size=5, max_deliveries=2)
    with Sqs("json", simple.url, simple.account) as sqs:
        url = sqs.url_of("orders")
        dead = sqs.create("dead")
        policy = {"deadLetterTargetArn": sqs.arn(dead), "maxReceiveCount": 7}
        attributes = {"VisibilityTimeout": "9", "RedrivePolicy": json.dumps(policy)}
        sqs.call("SetQueueAttributes", QueueUrl=url, Attributes=attributes)
        found = simple.describe(queue_id)
        assert (found["visibility_timeout"], found["max_deliveries"]) == (9, 7)
        assert simple.describe(found["dlq_id"])["sqs_name"] == "dead"
        assert found["queue_size"] == 5
        sqs.call("SetQueueAttributes", QueueUrl=url, Attributes={"RedrivePolicy": ""})
        found = simple.describe(queue_id)
        assert (found["max_deliveries"], found["dlq_id"]) == (2, None)
