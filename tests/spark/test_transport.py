"""Every call of a transport, to a gateway and to other endpoints, compared with boto3."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from spark_connectors.endpoints import Connection
from spark_connectors.errors import Fault, Refused
from spark_connectors.transport import (
    AttributeNames,
    MessageEntry,
    Transport,
    open_transport,
)
from tests.spark.queues import REGION, client_of
from tests.spark.waiting import wait_for

MakeQueue = Callable[..., str]
ATTRIBUTES: Mapping[str, tuple[str, str | bytes]] = {
    "text": ("String", "grüße, 世界 🌍"),
    "number": ("Number", "12.50"),
    "bytes": ("Binary", bytes(range(256))),
    "custom.text": ("String.json", '{"a": [1, "\\"]}'),
    "custom.number": ("Number.int", "-7"),
    "custom.bytes": ("Binary.png", b"\x89PNG"),
}
Received = dict[str, Mapping[str, Any]]
_names = itertools.count()


@pytest.fixture
def transport(endpoint: str) -> Iterator[Transport]:
    opened = open_transport(Connection(endpoint))
    yield opened
    opened.close()


@pytest.fixture
def queue(endpoint: str, make_queue: MakeQueue) -> str:
    return make_queue(endpoint)


@pytest.fixture
def fifo(endpoint: str, make_queue: MakeQueue) -> str:
    return make_queue(endpoint, fifo=True)


def bodies_of(messages: list[Mapping[str, Any]]) -> list[str]:
    return [message["Body"] for message in messages]


def arn_of(transport: Transport, queue_url: str) -> str:
    return transport.attributes(queue_url)["QueueArn"]


@pytest.mark.elsewhere
def test_a_message_comes_back_as_it_was_sent(transport: Transport, queue: str) -> None:
    body = 'plain, "quoted", <&>, \t\r\n, grüße, 世界 🌍 \u2028'
    assert transport.send(queue, [MessageEntry(body, ATTRIBUTES)]) == [None]
    [message] = transport.receive(queue, wait_seconds=2)
    assert message["Body"] == body
    assert {
        name: (each["DataType"], each.get("StringValue", each.get("BinaryValue")))
        for name, each in message["MessageAttributes"].items()
    } == ATTRIBUTES
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    assert message["Attributes"]["SentTimestamp"].isdigit()


def test_boto3_receives_the_same_message(transport: Transport, endpoint: str, fifo: str) -> None:
    transport.send(fifo, [MessageEntry("a body", ATTRIBUTES, group_id="g", deduplication_id="d")])
    [one] = transport.receive(fifo, visibility_seconds=0, wait_seconds=2)
    client = client_of("sqs", endpoint)
    names = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"]}
    found = client.receive_message(QueueUrl=fifo, VisibilityTimeout=0, WaitTimeSeconds=2, **names)
    assert _without_receive(one) == _without_receive(found["Messages"][0])
    attributes = client.get_queue_attributes(QueueUrl=fifo, AttributeNames=["All"])
    assert transport.attributes(fifo) == attributes["Attributes"]


def _without_receive(message: Mapping[str, Any]) -> dict[str, Any]:
    system = dict(message["Attributes"])
    del system["ApproximateReceiveCount"]
    return {**message, "Attributes": system, "ReceiptHandle": None}


@pytest.mark.elsewhere
def test_fifo_members_come_back(transport: Transport, fifo: str) -> None:
    entries = [MessageEntry(f"m{n}", group_id="g1", deduplication_id=f"d{n}") for n in range(3)]
    assert transport.send(fifo, entries) == [None] * 3
    received = transport.receive(fifo, attempt_id="try-1", wait_seconds=2)
    assert bodies_of(received) == ["m0", "m1", "m2"]
    for place, message in enumerate(received):
        assert message["Attributes"]["MessageGroupId"] == "g1"
        assert message["Attributes"]["MessageDeduplicationId"] == f"d{place}"
        assert message["Attributes"]["SequenceNumber"]


def test_only_named_attributes_are_received(transport: Transport, queue: str) -> None:
    transport.send(queue, [MessageEntry("a", ATTRIBUTES)])
    some = transport.receive(
        queue, visibility_seconds=0, wanted=AttributeNames(("number",)), wait_seconds=2
    )
    none = transport.receive(queue, visibility_seconds=0, wanted=AttributeNames(()), wait_seconds=2)
    assert list(some[0]["MessageAttributes"]) == ["number"]
    assert "MessageAttributes" not in none[0]


def test_a_long_body_comes_back(transport: Transport, queue: str) -> None:
    entry = MessageEntry("é" * 100_000 + '"' * 50_000)
    transport.send(queue, [entry])
    [message] = transport.receive(queue, wait_seconds=2)
    assert message["Body"] == entry.body


@pytest.mark.parametrize("endpoint", ["gateway"], indirect=True)
def test_a_body_of_one_mebibyte_comes_back(transport: Transport, queue: str) -> None:
    body = "0123456789abcdef" * 65_536
    assert transport.send(queue, [MessageEntry(body)]) == [None]
    [message] = transport.receive(queue, wait_seconds=2)
    assert message["Body"] == body
    with pytest.raises(Refused) as refused:
        transport.send(queue, [MessageEntry(body + "x")])
    assert refused.value.code == "BatchRequestTooLong"


def test_an_empty_queue_gives_nothing(transport: Transport, queue: str) -> None:
    assert transport.receive(queue) == []
    assert transport.delete(queue, []) == []
    assert transport.send(queue, []) == []


def test_a_delayed_message_is_not_received_and_is_counted(transport: Transport, queue: str) -> None:
    transport.send(
        queue, [MessageEntry("later", delay_seconds=600), MessageEntry("now"), MessageEntry("now")]
    )
    assert bodies_of(transport.receive(queue, most=1, wait_seconds=2)) == ["now"]
    wait_for(lambda: transport.figures(queue) == (1, 1, 1))


@pytest.mark.elsewhere
def test_a_delete_is_final_and_may_be_repeated(transport: Transport, queue: str) -> None:
    transport.send(queue, [MessageEntry("a"), MessageEntry("b")])
    receipts: list[str] = []
    while len(receipts) < 2:
        got = transport.receive(queue, wait_seconds=2)
        receipts += [message["ReceiptHandle"] for message in got]
    assert transport.delete(queue, receipts) == [None, None]
    assert transport.delete(queue, receipts) == [None, None]
    assert transport.figures(queue) == (0, 0, 0)


@pytest.mark.elsewhere
def test_a_bad_receipt_fails_alone(transport: Transport, queue: str) -> None:
    transport.send(queue, [MessageEntry("a")])
    [message] = transport.receive(queue, wait_seconds=2)
    for results in (
        transport.change_visibility(queue, ["garbage", message["ReceiptHandle"]], 60),
        transport.delete(queue, ["garbage", message["ReceiptHandle"]]),
    ):
        fault = results[0]
        assert isinstance(fault, Fault)
        assert fault.code == "ReceiptHandleIsInvalid"
        assert fault.is_senders
        assert results[1] is None


@pytest.mark.elsewhere
def test_visibility_of_nought_gives_a_message_back(transport: Transport, queue: str) -> None:
    transport.send(queue, [MessageEntry("a")])
    [message] = transport.receive(queue, visibility_seconds=600, wait_seconds=2)
    assert transport.receive(queue) == []
    assert transport.change_visibility(queue, [message["ReceiptHandle"]], 0) == [None]
    [again] = transport.receive(queue, wait_seconds=2)
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"


@pytest.mark.parametrize("endpoint", ["gateway"], indirect=True)
def test_a_bad_entry_fails_alone(transport: Transport, queue: str) -> None:
    first, second = transport.send(queue, [MessageEntry("bad \ufffe"), MessageEntry("good")])
    assert isinstance(first, Fault)
    assert first.code == "InvalidMessageContents"
    assert first.is_senders
    assert second is None


@pytest.mark.elsewhere
def test_what_the_service_refuses_is_refused_by_its_code(
    transport: Transport, queue: str, endpoint: str
) -> None:
    with pytest.raises(Refused) as refused:
        transport.receive(queue + "-is-not-there")
    assert refused.value.code == "QueueDoesNotExist"
    with pytest.raises(Refused) as refused:
        transport.queue_url("no-such-queue")
    assert refused.value.code == "QueueDoesNotExist"
    with pytest.raises(Refused) as refused:
        transport.send(queue, [MessageEntry("a")] * 11)
    assert refused.value.code == "TooManyEntriesInBatchRequest"
    assert refused.value.message


def test_a_queue_is_found_by_its_name(transport: Transport, queue: str) -> None:
    name = queue.rpartition("/")[2]
    assert transport.queue_url(name) == queue
    assert transport.attributes(queue)["QueueArn"].endswith(name)


def _published(
    transport: Transport, endpoint: str, queue: str, entries: list[MessageEntry]
) -> Received:
    """Return a subscribed queue's messages of the published entries: attributes by body."""
    topic = _topic(endpoint)
    _subscribe(endpoint, topic, arn_of(transport, queue))
    assert transport.publish(topic, entries) == [None] * len(entries)
    received: Received = {}

    def all_are_there() -> bool:
        for message in transport.receive(queue, wait_seconds=1):
            received[message["Body"]] = message["MessageAttributes"]
        return len(received) == len(entries)

    wait_for(all_are_there, 30)
    return received


@pytest.mark.elsewhere
def test_a_published_batch_reaches_the_queue(
    transport: Transport, queue: str, endpoint: str
) -> None:
    entries = [
        MessageEntry("raw & <ünïcode> + = %", {"text": ("String", "a&b"), "n": ("Number", "1")}),
        MessageEntry("subject", {"text": ("String", "x y")}, subject="a subject"),
    ]
    received = _published(transport, endpoint, queue, entries)
    assert received[entries[0].body]["text"]["StringValue"] == "a&b"
    assert received[entries[0].body]["n"] == {"DataType": "Number", "StringValue": "1"}
    assert received["subject"]["text"]["StringValue"] == "x y"


# Others fail on bytes that pass through a topic.
@pytest.mark.parametrize("endpoint", ["gateway"], indirect=True)
def test_published_bytes_reach_the_queue(transport: Transport, queue: str, endpoint: str) -> None:
    entry = MessageEntry("a", {"bytes": ("Binary", bytes(range(256)))})
    received = _published(transport, endpoint, queue, [entry])
    assert received["a"]["bytes"]["BinaryValue"] == bytes(range(256))


def test_a_topic_that_is_not_there_is_refused(transport: Transport) -> None:
    with pytest.raises(Refused) as refused:
        transport.publish(f"arn:aws:sns:{REGION}:000000000000:none", [MessageEntry("a")])
    assert refused.value.code == "NotFound"


@pytest.mark.parametrize("endpoint", ["gateway"], indirect=True)
def test_an_entry_that_cannot_be_published_fails_alone(transport: Transport, endpoint: str) -> None:
    first, second = transport.publish(_topic(endpoint), [MessageEntry(""), MessageEntry("good")])
    assert isinstance(first, Fault)
    assert first.is_senders
    assert second is None


@pytest.mark.parametrize("endpoint", ["gateway"], indirect=True)
def test_a_fifo_topic_takes_groups_and_ids(transport: Transport, endpoint: str) -> None:
    entry = MessageEntry("a", group_id="g", deduplication_id="d")
    assert transport.publish(_topic(endpoint, fifo=True), [entry]) == [None]


def _topic(endpoint: str, *, fifo: bool = False) -> str:
    name = f"spark-{os.getpid()}-{next(_names)}"
    attributes = {"FifoTopic": "true"} if fifo else {}
    arn: str = client_of("sns", endpoint).create_topic(
        Name=name + (".fifo" if fifo else ""), Attributes=attributes
    )["TopicArn"]
    return arn


def _subscribe(endpoint: str, topic: str, queue_arn: str) -> None:
    client_of("sns", endpoint).subscribe(
        TopicArn=topic,
        Protocol="sqs",
        Endpoint=queue_arn,
        Attributes={"RawMessageDelivery": "true"},
    )


@pytest.mark.parametrize("endpoint", ["gateway"], indirect=True)
def test_threads_share_a_transport(transport: Transport, queue: str) -> None:
    received: list[str] = []

    def work(number: int) -> None:
        for turn in range(10):
            transport.send(queue, [MessageEntry(f"{number}-{turn}-{place}") for place in range(10)])
            messages = transport.receive(queue)
            transport.delete(queue, [message["ReceiptHandle"] for message in messages])
            received.extend(bodies_of(messages))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    while messages := transport.receive(queue):
        received += bodies_of(messages)
    assert sorted(received) == sorted(
        f"{n}-{turn}-{place}" for n in range(6) for turn in range(10) for place in range(10)
    )


def test_a_closed_transport_opens_again(transport: Transport, queue: str) -> None:
    transport.send(queue, [MessageEntry("a")])
    transport.close()
    assert bodies_of(transport.receive(queue, wait_seconds=2)) == ["a"]
