"""Dead letters of the simple face: routed, polled, requeued."""

from __future__ import annotations

import json
from typing import Any

from tests.faces.clients import Sqs
from tests.faces.servers import Server
from tests.faces.simple.client import Simple
from tests.waiting import until

SECONDS = 30


def wear_out(simple: Simple, server: Server, queue_id: str) -> str:
    """Enqueue a message and deliver it as often as it may be; its id."""
    message_id = simple.enqueue(queue_id, "poison")
    for _ in range(simple.describe(queue_id)["max_deliveries"]):
        assert simple.dequeue(queue_id)["message_id"] == message_id
        server.advance(SECONDS + 1)
    return message_id


def bury(simple: Simple, server: Server, **members: Any) -> tuple[str, str, str]:
    """A queue, its dead-letter queue, and the message in that."""
    queue_id = simple.create(**({"max_deliveries": 1} | members))
    message_id = wear_out(simple, server, queue_id)
    assert simple.dequeue(queue_id) == {"message": None}
    found = simple.describe(queue_id)
    assert found["current_message_count"] == 0
    return queue_id, found["dlq_id"], message_id


def test_a_message_goes_there_after_so_many_deliveries(simple: Simple, server: Server) -> None:
    queue_id = simple.create(max_deliveries=3, queue_size=9)
    message_id = wear_out(simple, server, queue_id)
    assert simple.dequeue(queue_id) == {"message": None}
    dlq_id = simple.describe(queue_id)["dlq_id"]
    dead = simple.describe(dlq_id)
    assert (dead["current_message_count"], dead["queue_size"]) == (1, 9)
    assert (dead["dlq_id"], dead["max_deliveries"]) == (None, None)
    # Polled like any other queue; the deliveries so far are not forgotten.
    [letter] = simple.dequeue(dlq_id, "?limit=10")["messages"]
    assert (letter["message_id"], letter["data"]) == (message_id, "poison")
    assert letter["delivery_count"] == 4
    simple.acknowledge(queue_id, message_id, status=404)
    simple.acknowledge(dlq_id, message_id)


def test_nobody_needs_to_poll(simple: Simple, server: Server) -> None:
    queue_id = simple.create(max_deliveries=1)
    message_id = wear_out(simple, server, queue_id)
    until(lambda: simple.describe(queue_id)["dlq_id"])
    dlq_id = simple.describe(queue_id)["dlq_id"]
    assert simple.describe(queue_id)["current_message_count"] == 0
    assert simple.dequeue(dlq_id)["message_id"] == message_id


def test_a_requeued_message_begins_anew(simple: Simple, server: Server) -> None:
    queue_id, dlq_id, message_id = bury(simple, server, max_deliveries=2)
    path = f"/api/queues/{dlq_id}/messages/{message_id}/requeue"
    assert simple.call("POST", path) == {"message_id": message_id, "requeued_to": queue_id}
    assert simple.describe(dlq_id)["current_message_count"] == 0
    [message] = simple.dequeue(queue_id, "?limit=10")["messages"]
    assert (message["message_id"], message["data"]) == (message_id, "poison")
    assert message["delivery_count"] == 1
    server.advance(SECONDS + 1)
    assert simple.dequeue(queue_id)["message_id"] == message_id
    assert "no dead letter" in simple.refusal("POST", path, status=404)
    simple.acknowledge(queue_id, message_id)


def test_a_dead_letter_that_somebody_looks_at_is_requeued(simple: Simple, server: Server) -> None:
    queue_id, dlq_id, message_id = bury(simple, server)
    assert simple.dequeue(dlq_id)["message_id"] == message_id
    simple.call("POST", f"/api/queues/{dlq_id}/messages/{message_id}/requeue")
    assert simple.dequeue(queue_id)["message_id"] == message_id
    simple.acknowledge(dlq_id, message_id, status=404)


def test_what_is_no_dead_letter_cannot_be_requeued(simple: Simple, server: Server) -> None:
    queue_id = simple.create()
    for message_id in (simple.enqueue(queue_id), "1", "x", "9" * 30):
        path = f"/api/queues/{queue_id}/messages/{message_id}/requeue"
        assert "no dead letter" in simple.refusal("POST", path, status=404)
    simple.call("DELETE", f"/api/queues/{queue_id}")
    text = f"No queue has the id '{queue_id}'."
    path = f"/api/queues/{queue_id}/messages/1/requeue"
    assert simple.refusal("POST", path, status=404) == text


def test_what_was_sent_to_a_dead_letter_queue_goes_to_whose_it_is(
    simple: Simple, server: Server
) -> None:
    queue_id, dlq_id, _ = bury(simple, server)
    message_id = simple.enqueue(dlq_id, "straight")
    path = f"/api/queues/{dlq_id}/messages/{message_id}/requeue"
    assert simple.call("POST", path)["requeued_to"] == queue_id


def test_a_full_queue_takes_nothing_back(simple: Simple, server: Server) -> None:
    queue_id, dlq_id, message_id = bury(simple, server, queue_size=1)
    other = simple.enqueue(queue_id, "in the way")
    path = f"/api/queues/{dlq_id}/messages/{message_id}/requeue"
    assert "is full" in simple.refusal("POST", path, status=429)
    assert simple.describe(dlq_id)["current_message_count"] == 1
    simple.acknowledge(queue_id, other)
    simple.call("POST", path)


def test_a_full_dead_letter_queue_leaves_them_where_they_are(
    simple: Simple, server: Server
) -> None:
    queue_id, dlq_id, _ = bury(simple, server, queue_size=1)
    message_id = wear_out(simple, server, queue_id)
    assert simple.dequeue(queue_id) == {"message": None}
    assert simple.describe(queue_id)["current_message_count"] == 1
    assert "is full" in simple.refusal(
        "POST", f"/api/queues/{queue_id}/messages", {"data": "x"}, status=429
    )
    simple.acknowledge(dlq_id, simple.dequeue(dlq_id)["message_id"])
    server.advance(SECONDS + 1)
    until(lambda: simple.describe(queue_id)["current_message_count"] == 0)
    assert simple.dequeue(dlq_id)["message_id"] == message_id


def test_a_deleted_queue_takes_its_dead_letters_with_it(simple: Simple, server: Server) -> None:
    queue_id, dlq_id, _ = bury(simple, server)
    simple.call("DELETE", f"/api/queues/{queue_id}")
    for one in (queue_id, dlq_id):
        simple.refusal("GET", f"/api/queues/{one}", status=404)


def test_dead_letters_of_a_redrive_policy_can_be_requeued(simple: Simple, server: Server) -> None:
    with Sqs("json", simple.url, simple.account) as sqs:
        target = sqs.create("dead")
        policy = {"deadLetterTargetArn": sqs.arn(target), "maxReceiveCount": 1}
        url = sqs.create("jobs", RedrivePolicy=json.dumps(policy))
        sqs.send(url, "poison")
        assert sqs.bodies(url, 1) == ["poison"]
        server.advance(SECONDS + 1)
        assert sqs.bodies(url, 1) == []
        listed = simple.call("GET", "/api/queues")["queues"]
        ids = {one["sqs_name"]: one["queue_id"] for one in listed}
        assert simple.describe(ids["jobs"])["dlq_id"] == ids["dead"]
        message_id = simple.dequeue(ids["dead"])["message_id"]
        path = f"/api/queues/{ids['dead']}/messages/{message_id}/requeue"
        assert simple.call("POST", path)["requeued_to"] == ids["jobs"]
        assert sqs.bodies(url, 1) == ["poison"]


def test_a_requeued_message_stays_as_urgent_as_it_was(simple: Simple, server: Server) -> None:
    """Its queue is another one of that name, and had no urgent messages so far."""
    with Sqs("json", simple.url, simple.account) as sqs:
        policy = {"deadLetterTargetArn": sqs.arn(sqs.create("dead")), "maxReceiveCount": 1}
        url = sqs.create("jobs", RedrivePolicy=json.dumps(policy))
        simple.send("jobs", "urgent", priority=5)
        assert sqs.bodies(url, 1) == ['"urgent"']
        server.advance(SECONDS + 1)
        assert sqs.bodies(url, 1) == []
        sqs.call("DeleteQueue", QueueUrl=url)
        server.advance(60)
        sqs.create("jobs")
        simple.send("jobs", "plain")
        listed = simple.call("GET", "/api/queues")["queues"]
        dead = next(one["queue_id"] for one in listed if one["sqs_name"] == "dead")
        message_id = simple.dequeue(dead)["message_id"]
        simple.call("POST", f"/api/queues/{dead}/messages/{message_id}/requeue")
        assert sqs.bodies(url, 2) == ['"urgent"', '"plain"']


def test_a_requeued_message_expires_when_it_would_have(simple: Simple, server: Server) -> None:
    _, dlq_id, _ = bury(simple, server)
    name = simple.describe(dlq_id)["sqs_name"]
    late, gone = [simple.send(name, "brief", ttl=SECONDS) for _ in range(2)]
    queue_id = simple.call("POST", f"/api/queues/{dlq_id}/messages/{late}/requeue")["requeued_to"]
    server.advance(SECONDS + 1)
    assert simple.dequeue(queue_id) == {"message": None}
    path = f"/api/queues/{dlq_id}/messages/{gone}/requeue"
    assert "no dead letter" in simple.refusal("POST", path, status=404)


def test_messages_in_order_are_moved_by_tasks(simple: Simple, server: Server) -> None:
    with Sqs("json", simple.url, simple.account) as sqs:
        sqs.create_fifo("jobs.fifo")
    [one] = simple.call("GET", "/api/queues")["queues"]
    path = f"/api/queues/{one['queue_id']}/messages/1/requeue"
    assert "move task" in simple.refusal("POST", path, status=400)
