"""The metrics of the simple queue."""

from __future__ import annotations

import pytest

from tests.faces.connections import Connection
from tests.faces.servers import Server
from tests.faces.simple.client import Simple
from tests.faces.simple.test_dead_letters import wear_out
from tests.faces.simple.test_queues import NOWHERE
from tests.waiting import until


@pytest.fixture
def server(counting_server: Server) -> Server:
    return counting_server


@pytest.fixture
def counts(simple: Simple, server: Server) -> Counts:
    return Counts(simple, server)


class Counts:
    """Samples of the account."""

    def __init__(self, simple: Simple, server: Server) -> None:
        self._labels = f'account="{simple.account}",region="us-east-1"'
        self._server = server

    def of(self, name: str, **labels: str) -> float:
        """The value of a metric of a queue with these labels."""
        more = "".join(f',{key}="{value}"' for key, value in labels.items())
        return self._server.metric(f"{name}{{{self._labels}{more}}}")


def test_requests_are_counted_by_queue_and_outcome(
    simple: Simple, counts: Counts, server: Server
) -> None:
    queue_id = simple.create(queue_size=1, max_deliveries=1)
    path = f"/api/queues/{queue_id}/messages"
    message_id = wear_out(simple, server, queue_id)
    simple.refusal("POST", path, {"data": "x"}, status=429)
    simple.refusal("POST", path, {"data": "\0"})
    assert simple.dequeue(queue_id) == {"message": None}
    dlq = simple.describe(queue_id)["dlq_id"]
    simple.call("POST", f"/api/queues/{dlq}/messages/{message_id}/requeue")
    simple.refusal("POST", f"/api/queues/{dlq}/messages/{message_id}/requeue", status=404)
    simple.acknowledge(queue_id, message_id)
    simple.acknowledge(queue_id, message_id, status=404)
    wanted = {
        ("enqueue", "success"): 1.0,
        ("enqueue", "queue_full"): 1.0,
        ("enqueue", "invalid"): 1.0,
        ("dequeue", "success"): 2.0,
        ("ack", "success"): 1.0,
        ("ack", "message_not_found"): 1.0,
    }
    for (operation, outcome), value in wanted.items():
        name = f"simplemq_{operation}_total"
        assert counts.of(name, queue="orders", outcome=outcome) == value, (operation, outcome)
    for outcome in ("success", "message_not_found"):
        name = "simplemq_requeue_total"
        assert counts.of(name, queue="orders-dead-letters", outcome=outcome) == 1.0
    assert counts.of("queuegate_dead_letters_total", queue="orders") == 1.0


def test_queues_that_are_not_there_share_their_labels(simple: Simple, server: Server) -> None:
    sample = 'simplemq_enqueue_total{queue="_unknown",outcome="queue_not_found"}'
    before = server.metric(sample)
    path = f"/api/queues/{NOWHERE}/messages"
    simple.refusal("POST", path, {"data": "x"}, status=404)
    assert server.metric(sample) == before + 1


def test_who_goes_away_has_given_up(simple: Simple, counts: Counts, server: Server) -> None:
    queue_id = simple.create()
    with Connection(server.url) as connection:
        connection.send(simple.encode("GET", f"/api/queues/{queue_id}/messages?wait=20"))
        server.until_parked()
    until(lambda: counts.of("simplemq_dequeue_total", queue="orders", outcome="given_up"))
    simple.enqueue(queue_id)
    assert simple.dequeue(queue_id)["data"] == "hello"
