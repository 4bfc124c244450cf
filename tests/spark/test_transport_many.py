"""More than ten messages a call, where the endpoint is Queuegate and says that it can."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_connectors.endpoints import Connection
from spark_connectors.errors import Refused
from spark_connectors.transport import Message, MessageEntry, Transport, open_transport
from tests.spark.queues import REGION, counts, queue_with
from tests.spark.readers import Run, reader_of
from tests.spark.scripted_endpoint import ScriptedEndpoint, answer, refusal

MakeQueue = Callable[..., str]
ALLOWED = answer(status="204 No Content", Allow="DELETE, OPTIONS, PATCH, POST")
QUEUE = "http://localhost/000000000000/orders"
ATTRIBUTES: dict[str, tuple[str, str | bytes]] = {
    "bytes": ("Binary", b"\x00\xff"),
    "text": ("String", "ü"),
}
# What another receive of a message changes.
_MOVING = ("ApproximateReceiveCount", "ApproximateFirstReceiveTimestamp")


def opened(endpoint: str, *, max_retries: int = 0) -> Transport:
    return open_transport(Connection(endpoint, region=REGION, max_retries=max_retries))


def send(transport: Transport, url: str, count: int, *, fifo: bool) -> None:
    for start in range(0, count, 10):
        entries = [
            MessageEntry(f"{n}", ATTRIBUTES, group_id=f"{n // 10}", deduplication_id=f"{n}")
            if fifo
            else MessageEntry(f"{n}", ATTRIBUTES)
            for n in range(start, start + 10)
        ]
        transport.send(url, entries)


@pytest.mark.parametrize("fifo", [False, True])
def test_all_come_go_and_come_back_by_one_call_each(
    gateway: str, make_queue: MakeQueue, fifo: bool
) -> None:
    url = make_queue(gateway, fifo=fifo)
    transport, other = opened(gateway), opened(gateway)
    other._most = 10  # as for an endpoint that has SQS alone
    assert transport.most_per_call == 1_000
    send(transport, url, 120, fifo=fifo)
    first = transport.receive(url, most=1_000, visibility_seconds=60)
    receipts = [one["ReceiptHandle"] for one in first]
    assert counts(gateway, url) == (0, 120)
    assert transport.change_visibility(url, receipts, 0) == [None] * 120
    found = {one["MessageId"]: one for one in other.receive(url, most=1_000)}
    assert len(found) == 10
    for one in first:
        same = found.get(one["MessageId"])
        if same is not None:
            assert one["MessageAttributes"] == same["MessageAttributes"]
            assert one["Body"] == same["Body"]
            assert {k: v for k, v in one["Attributes"].items() if k not in _MOVING} == {
                k: v for k, v in same["Attributes"].items() if k not in _MOVING
            }
    other.change_visibility(url, [one["ReceiptHandle"] for one in found.values()], 0)
    again = transport.receive(url, most=1_000, visibility_seconds=60)
    receipts = [one["ReceiptHandle"] for one in again]
    *good, strange = transport.delete(url, [*receipts, "strange"])
    assert good == [None] * 120
    assert strange is not None
    assert (strange.code, strange.is_senders) == ("ReceiptHandleIsInvalid", True)
    assert counts(gateway, url) == (0, 0)


def test_a_queue_that_is_not_there_is_refused_in_the_words_of_sqs(gateway: str) -> None:
    transport = opened(gateway)
    with pytest.raises(Refused) as refused:
        transport.receive(f"{gateway}/000000000000/none", most=transport.most_per_call)
    assert refused.value.code == "QueueDoesNotExist"


@pytest.mark.parametrize(
    "said",
    [
        answer(status="204 No Content"),
        answer(status="204 No Content", Access_Control_Allow_Methods="PATCH"),
        answer(status="200 OK", Allow="PATCH"),
        refusal("UnknownOperationException", status="404 Not Found"),
        answer(b"<html>", "501 Not Implemented"),
    ],
)
def test_others_are_asked_for_ten(said: bytes) -> None:
    with ScriptedEndpoint(said, answer({})) as server:
        transport = opened(server.url)
        assert transport.most_per_call == 10
        assert transport.receive(QUEUE, most=1_000) == []
        assert transport.delete(QUEUE, ["r"] * 25)
        actions = [one.headers.get("x-amz-target") for one in server.requests]
        assert actions == [
            None,
            "AmazonSQS.ReceiveMessage",
            *["AmazonSQS.DeleteMessageBatch"] * 3,
        ]
        assert json.loads(server.requests[1].body)["MaxNumberOfMessages"] == 10


def test_one_that_cannot_any_longer_is_asked_for_ten_from_then_on() -> None:
    """An older gateway serves at the same address, or a balancer lets nothing of it through."""
    gone = answer({"error": "There is nothing at /v1/receipts."}, "404 Not Found")
    deleted = answer({"Successful": [{"Id": str(n)} for n in range(10)]})
    with ScriptedEndpoint(ALLOWED, gone, deleted) as server:
        transport = opened(server.url)
        assert transport.delete(QUEUE, ["r"] * 20) == [None] * 20
        assert transport.most_per_call == 10
        assert [one.line.split()[0] for one in server.requests] == [
            "OPTIONS",
            "DELETE",
            "POST",
            "POST",
        ]


def test_one_that_is_away_is_asked_again_later() -> None:
    away = answer(status="503 Service Unavailable")
    with ScriptedEndpoint(away, ALLOWED) as server:
        transport = opened(server.url)
        assert transport.most_per_call == 10
        assert transport.most_per_call == 1_000


def test_a_receive_without_a_body_in_its_answer_is_retried() -> None:
    with ScriptedEndpoint(ALLOWED, answer(), answer({"messages": []})) as server:
        assert opened(server.url, max_retries=1).receive(QUEUE, most=1_000) == []
        assert [one.line.split()[:2] for one in server.requests] == [
            ["OPTIONS", "/v1/receipts"],
            ["POST", "/v1/receipts"],
            ["POST", "/v1/receipts"],
        ]


def test_a_reader_asks_for_no_more_than_it_has_room_for(
    gateway: str, make_queue: MakeQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = queue_with(300, gateway, make_queue)
    run = Run(reader_of(gateway, url, tmp_path, maxOffsetsPerTrigger=50, receiveThreads=8))
    transport, lock = run.reader._transport, threading.Lock()
    under_way, most_under_way, receive = 0, 0, transport.receive

    def counted(url: str, *, most: int, **how: Any) -> list[Message]:
        nonlocal under_way, most_under_way
        with lock:
            under_way += most
            most_under_way = max(most_under_way, under_way)
        try:
            return receive(url, most=most, **how)
        finally:
            with lock:
                under_way -= most

    monkeypatch.setattr(transport, "receive", counted)
    run.all_rows(300)
    # Calls of ten beside the large ones would be as dear as they are.
    assert most_under_way <= 50
