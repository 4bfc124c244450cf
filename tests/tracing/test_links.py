"""Links from a receive to the spans in which its messages were sent or published."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.faces.clients import WIRES, Sqs
from tests.faces.servers import Server
from tests.faces.sns_client import PUBLISH_WIRES, Sns
from tests.tracing.collector import Collector, caller

_UNKNOWN = f"{0:032x}"


def _name() -> str:
    return f"q-{uuid.uuid4().hex}"


def _ask(client: Any, action: str, **members: Any) -> str:
    """Call as a caller with a trace of its own; return the trace."""
    trace, _, header = caller()
    answer = client.ask(action, members, headers={"traceparent": header})
    assert answer.status == 200, answer.body
    return trace


def _text(value: str) -> dict[str, str]:
    return {"DataType": "String", "StringValue": value}


@pytest.mark.parametrize("wire", WIRES)
def test_a_receive_is_linked_to_each_send(server: Server, collector: Collector, wire: str) -> None:
    with Sqs(wire, server.url) as sqs:
        url = sqs.create(_name())
        sends = [_ask(sqs, "SendMessage", QueueUrl=url, MessageBody=body) for body in "ab"]
        received = _ask(sqs, "ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10)
    places = {collector.one(name="sqs.SendMessage", trace_id=trace).place for trace in sends}
    links = collector.one(name="sqs.ReceiveMessage", trace_id=received).links
    assert {*links} == places


@pytest.mark.parametrize("wire", PUBLISH_WIRES)
def test_a_receive_is_linked_to_the_publish(
    server: Server, collector: Collector, wire: str
) -> None:
    with Sns(wire, server.url) as sns:
        sqs = sns.sqs()
        topic = sns.create(_name())
        url = sns.subscribe_queue(topic, _name())
        for _ in range(2):
            # The second finds the topic in the cache.
            published = _ask(sns, "Publish", TopicArn=topic, Message="m")
            received = _ask(sqs, "ReceiveMessage", QueueUrl=url, WaitTimeSeconds=20)
            place = collector.one(name="sns.Publish", trace_id=published).place
            assert collector.one(name="sqs.ReceiveMessage", trace_id=received).links == (place,)


def test_the_message_tells_its_span_and_that_of_its_sender(collector: Collector, sqs: Sqs) -> None:
    """The gateway notes its span as AWSTraceHeader, the sender its own as an attribute."""
    url = sqs.create(_name())
    trace, span, header = caller()
    sent = _ask(
        sqs,
        "SendMessage",
        QueueUrl=url,
        MessageBody="m",
        MessageAttributes={"traceparent": _text(header)},
    )
    place = collector.one(name="sqs.SendMessage", trace_id=sent).place
    trace_of_receive, _, own = caller()
    members = {"QueueUrl": url, "AttributeNames": ["AWSTraceHeader"]}
    answer = sqs.ask("ReceiveMessage", members, headers={"traceparent": own})
    root = f"Root=1-{sent[:8]}-{sent[8:]};Parent={place[1]};Sampled=1"
    assert root.encode() in answer.body
    links = collector.one(name="sqs.ReceiveMessage", trace_id=trace_of_receive).links
    assert {*links} == {place, (trace, span)}


def test_a_trace_header_of_the_sender_stays(collector: Collector, sqs: Sqs) -> None:
    url = sqs.create(_name())
    trace, span, _ = caller()
    root = f"Root=1-{trace[:8]}-{trace[8:]};Parent={span};Sampled=0"
    own = {"AWSTraceHeader": _text(root)}
    _ask(sqs, "SendMessage", QueueUrl=url, MessageBody="m", MessageSystemAttributes=own)
    received = _ask(sqs, "ReceiveMessage", QueueUrl=url)
    assert collector.one(name="sqs.ReceiveMessage", trace_id=received).links == ((trace, span),)


@pytest.mark.parametrize(
    "members",
    [
        {"MessageAttributes": {"traceparent": _text("00-zz-1-01")}},
        {"MessageAttributes": {"traceparent": {"DataType": "Binary", "BinaryValue": "AAAA"}}},
        {"MessageAttributes": {"traceparent": {"DataType": "Number", "StringValue": "1"}}},
        {"MessageAttributes": {"x": _text('"traceparent"')}},
        {"MessageSystemAttributes": {"AWSTraceHeader": _text("Root=1-0-0;Parent=\u20ac")}},
        {"MessageSystemAttributes": {"AWSTraceHeader": _text(f"Root=1-{_UNKNOWN};Parent=0")}},
        {
            "MessageSystemAttributes": {
                "AWSTraceHeader": _text(f"Root=1-{'0' * 8}-{'0' * 24};Parent={'0' * 16}")
            }
        },
    ],
)
def test_what_names_no_span_is_no_link(
    collector: Collector, sqs: Sqs, members: dict[str, Any]
) -> None:
    url = sqs.create(_name())
    sqs.call(
        "SendMessage",
        QueueUrl=url,
        MessageBody="m",
        **{"MessageSystemAttributes": {"AWSTraceHeader": _text("none")}, **members},
    )
    received = _ask(sqs, "ReceiveMessage", QueueUrl=url, MessageAttributeNames=["All"])
    span = collector.one(name="sqs.ReceiveMessage", trace_id=received)
    assert span.links == ()
    assert span.attributes["messaging.batch.message_count"] == 1


def test_a_group_of_the_name_of_the_header_is_no_link(collector: Collector, sqs: Sqs) -> None:
    url = sqs.create(_name())
    _, _, header = caller(is_sampled=False)
    members: dict[str, Any] = {
        "QueueUrl": url,
        "MessageBody": "traceparent",
        "MessageGroupId": "AWSTraceHeader",
    }
    members["MessageAttributes"] = {"x": _text("traceparent")}
    assert sqs.ask("SendMessage", members, headers={"traceparent": header}).status == 200
    received = _ask(sqs, "ReceiveMessage", QueueUrl=url)
    span = collector.one(name="sqs.ReceiveMessage", trace_id=received)
    assert (span.links, span.attributes["messaging.batch.message_count"]) == ((), 1)


def test_a_send_outside_of_traces_has_no_trace_header(server: Server, sqs: Sqs) -> None:
    url = sqs.create(_name())
    _, _, header = caller(is_sampled=False)
    sqs.ask("SendMessage", {"QueueUrl": url, "MessageBody": "m"}, headers={"traceparent": header})
    [message] = sqs.receive(url, AttributeNames=["All"])
    assert "AWSTraceHeader" not in message["Attributes"]
