"""Messages of the simple face."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.faces.clients import Sqs
from tests.faces.rest.client import Rest
from tests.faces.servers import Server
from tests.faces.simple.client import Simple


def test_a_message_comes_once_and_is_acknowledged_once(simple: Simple) -> None:
    queue_id = simple.create()
    message_id = simple.enqueue(queue_id, '{"any": "text"}')
    assert simple.describe(queue_id)["current_message_count"] == 1
    message = simple.dequeue(queue_id)
    until = datetime.fromisoformat(message.pop("invisible_until"))
    assert message == {"message_id": message_id, "data": '{"any": "text"}'}
    assert until.tzinfo == UTC
    assert timedelta(0) < until - datetime.now(UTC)
    assert simple.dequeue(queue_id) == {"message": None}
    assert simple.describe(queue_id)["current_message_count"] == 1
    done = simple.acknowledge(queue_id, message_id)
    assert done == {"message_id": message_id, "deleted": True}
    assert simple.describe(queue_id)["current_message_count"] == 0
    simple.acknowledge(queue_id, message_id, status=404)


def test_what_is_not_acknowledged_comes_again(simple: Simple, server: Server) -> None:
    queue_id = simple.create(visibility_timeout=30)
    message_id = simple.enqueue(queue_id)
    first = simple.dequeue(queue_id)
    server.advance(31)
    second = simple.dequeue(queue_id)
    assert first["message_id"] == second["message_id"] == message_id
    assert second["invisible_until"] > first["invisible_until"]


def test_a_batch_says_how_often_each_was_delivered(simple: Simple, server: Server) -> None:
    queue_id = simple.create()
    sent = [simple.enqueue(queue_id, str(number)) for number in range(3)]
    assert simple.dequeue(queue_id)["message_id"] == sent[0]
    server.advance(31)
    found = simple.dequeue(queue_id, "?limit=100")["messages"]
    assert [one["message_id"] for one in found] == sent
    assert [one["delivery_count"] for one in found] == [2, 1, 1]
    assert simple.dequeue(queue_id, "?limit=1") == {"messages": []}


def test_a_long_poll_ends_with_the_message(simple: Simple, server: Server) -> None:
    queue_id = simple.create()
    found: list[Any] = []
    with Simple(simple.url, simple.account) as waiting:
        thread = threading.Thread(
            target=lambda: found.append(waiting.dequeue(queue_id, "?wait=20"))
        )
        thread.start()
        server.until_parked()
        simple.enqueue(queue_id, "now")
        thread.join()
    assert found[0]["data"] == "now"


def test_messages_go_from_face_to_face(simple: Simple) -> None:
    queue_id = simple.create("shared")
    with Sqs("json", simple.url, simple.account) as sqs, Rest(simple.url, simple.account) as rest:
        url = sqs.url_of("shared")
        sqs.send(url, "from sqs")
        assert simple.dequeue(queue_id)["data"] == "from sqs"
        number = rest.send("shared", {"from": "rest"})
        found = simple.dequeue(queue_id)
        assert found["data"] == '{"from": "rest"}'
        assert found["message_id"] == str(number)
        simple.acknowledge(queue_id, found["message_id"])
        simple.enqueue(queue_id, "to sqs")
        [message] = sqs.receive(url, 1)
        assert message["Body"] == "to sqs"


@pytest.mark.parametrize(
    "message_id", ["1", "0", "-1", "9" * 19, "9" * 40, "msg_def456", "%00", "1%2F2", "%C2%B2"]
)
def test_an_id_of_no_message_is_refused(simple: Simple, message_id: str) -> None:
    queue_id = simple.create()
    status = 400 if message_id == "%00" else 404
    simple.refusal("DELETE", f"/api/queues/{queue_id}/messages/{message_id}", status=status)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "The field `data` is missing."),
        ({"data": ""}, "a message needs a body."),
        ({"data": None}, "The field `data` is refused: expected a string"),
        ({"data": {"a": 1}}, "The field `data` is refused: expected a string"),
        ({"data": "x", "more": 1}, "The field `more` is not known."),
        ({"data": "\0"}, "cannot express"),
        ({"data": "x" * 1_048_577}, "1048577 bytes"),
    ],
)
def test_what_is_no_message_is_refused(simple: Simple, body: Any, text: str) -> None:
    queue_id = simple.create()
    assert text in simple.refusal("POST", f"/api/queues/{queue_id}/messages", body)
    assert simple.describe(queue_id)["current_message_count"] == 0


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "wait=21", "wait=-1", "vt=1"])
def test_what_cannot_be_asked_is_refused(simple: Simple, query: str) -> None:
    queue_id = simple.create()
    simple.refusal("GET", f"/api/queues/{queue_id}/messages?{query}")


def test_a_queue_that_is_not_there_is_404(simple: Simple) -> None:
    queue_id = simple.create()
    simple.call("DELETE", f"/api/queues/{queue_id}")
    path = f"/api/queues/{queue_id}/messages"
    text = f"No queue has the id '{queue_id}'."
    assert simple.refusal("POST", path, {"data": "x"}, status=404) == text
    assert simple.refusal("GET", path, status=404) == text
    assert simple.refusal("DELETE", f"{path}/1", status=404) == text
