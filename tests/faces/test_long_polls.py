"""Long polls: what ends them, what does not, and what a client that goes away leaves behind."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.faces.clients import Refused, Sqs
from tests.faces.connections import Closed
from tests.faces.servers import Background, Server

pytestmark = pytest.mark.usefixtures("nothing_parked")

KINDS = pytest.mark.parametrize("kind", ["standard", "fifo"])


def _create(sqs: Sqs, kind: str, **attributes: str) -> str:
    if kind == "fifo":
        return sqs.create_fifo(**attributes)
    return sqs.create(**attributes)


def _send(sqs: Sqs, kind: str, url: str, body: str = "b", **members: Any) -> None:
    sqs.send(url, body, **members, **({"MessageGroupId": "g"} if kind == "fifo" else {}))


def _poll(sqs: Sqs, url: str, **members: Any) -> Background[list[str]]:
    return Background(sqs.bodies, url, 10, **({"WaitTimeSeconds": 20} | members))


@KINDS
def test_a_send_ends_a_poll(sqs: Sqs, server: Server, kind: str) -> None:
    url = _create(sqs, kind)
    poll = _poll(sqs, url)
    server.until_parked()
    _send(sqs, kind, url)
    assert poll.result() == ["b"]


@KINDS
def test_a_batch_wakes_as_many_as_there_is_work_for(sqs: Sqs, server: Server, kind: str) -> None:
    url = _create(sqs, kind)
    polls = [Background(sqs.bodies, url, 1, WaitTimeSeconds=20) for _ in range(3)]
    server.until_parked(3)
    entries = [
        {"Id": name, "MessageBody": name} | ({"MessageGroupId": name} if kind == "fifo" else {})
        for name in ("a", "b", "c")
    ]
    sqs.call("SendMessageBatch", QueueUrl=url, Entries=entries)
    assert sorted(body for poll in polls for body in poll.result()) == ["a", "b", "c"]


@KINDS
def test_a_poll_does_not_wait_to_fill_its_maximum(sqs: Sqs, kind: str) -> None:
    url = _create(sqs, kind)
    _send(sqs, kind, url)
    assert sqs.bodies(url, 10, WaitTimeSeconds=20) == ["b"]


@KINDS
def test_the_end_of_a_delay_ends_a_poll(sqs: Sqs, server: Server, kind: str) -> None:
    url = _create(sqs, kind, DelaySeconds="1")
    _send(sqs, kind, url)
    poll = _poll(sqs, url)
    assert poll.result() == ["b"]


@KINDS
def test_the_end_of_a_visibility_timeout_ends_a_poll(sqs: Sqs, kind: str) -> None:
    url = _create(sqs, kind)
    _send(sqs, kind, url)
    assert sqs.bodies(url, VisibilityTimeout=1) == ["b"]
    assert sqs.bodies(url, WaitTimeSeconds=20) == ["b"]


@KINDS
def test_a_moved_clock_ends_a_poll(sqs: Sqs, server: Server, kind: str) -> None:
    url = _create(sqs, kind, DelaySeconds="600")
    _send(sqs, kind, url)
    poll = _poll(sqs, url)
    server.until_parked()
    server.advance(601)
    assert poll.result() == ["b"]


@KINDS
@pytest.mark.parametrize("action", ["ChangeMessageVisibility", "ChangeMessageVisibilityBatch"])
def test_visibility_zero_ends_a_poll(sqs: Sqs, server: Server, kind: str, action: str) -> None:
    url = _create(sqs, kind)
    _send(sqs, kind, url)
    change = {"ReceiptHandle": sqs.receive(url)[0]["ReceiptHandle"], "VisibilityTimeout": 0}
    poll = _poll(sqs, url)
    server.until_parked()
    if action.endswith("Batch"):
        sqs.call(action, QueueUrl=url, Entries=[{"Id": "a"} | change])
    else:
        sqs.call(action, QueueUrl=url, **change)
    assert poll.result() == ["b"]


def test_a_delete_that_unlocks_a_group_ends_a_poll(sqs: Sqs, server: Server) -> None:
    url = sqs.create_fifo()
    for body in ("a", "b"):
        sqs.send(url, body, MessageGroupId="g")
    first = sqs.receive(url, 1)
    poll = _poll(sqs, url)
    server.until_parked()
    sqs.delete(url, *first)
    assert poll.result() == ["b"]


def test_a_move_to_the_dead_letter_queue_ends_a_poll_there(sqs: Sqs, server: Server) -> None:
    dead = sqs.create("dead")
    policy = f'{{"deadLetterTargetArn":"{sqs.arn(dead)}","maxReceiveCount":1}}'
    url = sqs.create("source", RedrivePolicy=policy)
    sqs.send(url, "b")
    assert sqs.bodies(url, VisibilityTimeout=0) == ["b"]
    poll = _poll(sqs, dead)
    server.until_parked()
    assert sqs.bodies(url) == []
    assert poll.result() == ["b"]


@KINDS
def test_the_queues_own_wait_is_taken_when_the_request_names_none(
    sqs: Sqs, server: Server, kind: str
) -> None:
    url = _create(sqs, kind, ReceiveMessageWaitTimeSeconds="20")
    poll = Background(sqs.call, "ReceiveMessage", QueueUrl=url)
    server.until_parked()
    _send(sqs, kind, url)
    assert len(poll.result()["Messages"]) == 1
    assert sqs.receive(url, WaitTimeSeconds=0) == []


@KINDS
def test_a_poll_ends_empty_at_its_deadline(sqs: Sqs, kind: str) -> None:
    url = _create(sqs, kind)
    began = time.monotonic()
    assert sqs.receive(url, WaitTimeSeconds=1) == []
    assert 0.95 < time.monotonic() - began < 5


@KINDS
def test_a_poll_ends_when_its_queue_is_deleted(sqs: Sqs, server: Server, kind: str) -> None:
    url = _create(sqs, kind)
    poll = _poll(sqs, url)
    server.until_parked()
    sqs.call("DeleteQueue", QueueUrl=url)
    with pytest.raises(Refused, match="NonExistentQueue"):
        poll.result()


# A client that goes away


@KINDS
def test_a_client_that_goes_away_takes_no_message_with_it(
    sqs: Sqs, server: Server, kind: str
) -> None:
    url = _create(sqs, kind)
    with sqs.other() as leaving:
        members = {"QueueUrl": url, "WaitTimeSeconds": 20}
        connection = leaving.connection()
        connection.send(leaving.encode("ReceiveMessage", members))
        server.until_parked(1)
    server.until_parked(0)
    _send(sqs, kind, url)
    [message] = sqs.receive(url, AttributeNames=["All"])
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"


@KINDS
def test_a_client_that_goes_away_as_the_message_comes(sqs: Sqs, kind: str) -> None:
    """The next receiver gets the message in either case, at once or after its timeout."""
    url = _create(sqs, kind)
    for number in range(10):
        with sqs.other() as leaving:
            members = {"QueueUrl": url, "WaitTimeSeconds": 20, "VisibilityTimeout": 0}
            leaving.connection().send(leaving.encode("ReceiveMessage", members))
            _send(sqs, kind, url, str(number))
        found = sqs.receive(url, WaitTimeSeconds=20)
        assert [message["Body"] for message in found] == [str(number)]
        sqs.delete(url, *found)
    assert sqs.counts(url) == (0, 0, 0)


def test_other_polls_go_on_when_one_client_goes_away(sqs: Sqs, server: Server) -> None:
    url = sqs.create()
    with sqs.other() as leaving:
        members = {"QueueUrl": url, "WaitTimeSeconds": 20}
        leaving.connection().send(leaving.encode("ReceiveMessage", members))
        server.until_parked(1)
        poll = _poll(sqs, url)
        server.until_parked(2)
    server.until_parked(1)
    sqs.send(url)
    assert poll.result() == ["hello"]


# A server that stops


def _each_wire(url: str, queue: str, account: str) -> list[Callable[[], dict[str, Any]]]:
    clients = [Sqs(wire, url, account) for wire in ("json", "json-long", "query")]
    polls: list[Callable[[], dict[str, Any]]] = []
    for client in clients:

        def poll(client: Sqs = client) -> dict[str, Any]:
            with client:
                return client.call("ReceiveMessage", QueueUrl=queue, WaitTimeSeconds=20)

        polls.append(poll)
    return polls


@pytest.mark.parametrize("workers", ["1", "2"])
def test_polls_end_empty_when_the_server_stops(workers: str) -> None:
    with Server("--workers", workers) as server, Sqs("json", server.url) as sqs:
        queue = sqs.create()
        assert sqs.receive(queue) == []
        polls = [Background(poll) for poll in _each_wire(server.url, queue, sqs.account)]
        server.until_parked(3)
        assert server.stop(signal.SIGTERM) == 0
        assert [poll.result() for poll in polls] == [{}, {}, {}]
        with pytest.raises((Closed, ConnectionError)):
            sqs.receive(queue)


def test_polls_in_two_processes(server: Server) -> None:
    """A send wakes a poll whichever process either of them reached."""
    with Server("--workers", "2") as two, Sqs("json", two.url) as sqs:
        queue = sqs.create()
        for _ in range(6):
            with sqs.other() as polling, sqs.other() as sending:
                poll = Background(polling.bodies, queue, 1, WaitTimeSeconds=20)
                two.until_parked(1)
                sending.send(queue)
                assert poll.result() == ["hello"]
