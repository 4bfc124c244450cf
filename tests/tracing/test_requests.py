"""Spans of requests: the caller's trace if it names one, by chance if not."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from tests.faces.clients import WIRES, Sqs, authorization, new_account
from tests.faces.connections import Connection, fetch, request_bytes
from tests.faces.servers import Server
from tests.faces.sns_client import PUBLISH_WIRES, Sns
from tests.tracing.collector import Collector, Span, caller
from tests.tracing.conftest import traced


def own_name() -> str:
    """The name of a queue that no other test has."""
    return f"q-{uuid.uuid4().hex}"


@pytest.fixture(params=WIRES)
def any_sqs(request: pytest.FixtureRequest, server: Server) -> Iterator[Sqs]:
    with Sqs(request.param, server.url) as client:
        yield client


@pytest.mark.parametrize("wire", PUBLISH_WIRES)
def test_a_publish_belongs_to_its_callers_trace(
    server: Server, collector: Collector, wire: str
) -> None:
    with Sns(wire, server.url) as sns:
        topic = sns.create(own_name())
        trace, parent, header = caller()
        for _ in range(2):
            # The second finds the topic in the cache: on the fast path, if its wire has one.
            members = {"TopicArn": topic, "Message": "the text"}
            answer = sns.ask("Publish", members, headers={"traceparent": header})
            assert answer.status == 200
    spans = collector.some(2, name="sns.Publish", trace_id=trace, parent_id=parent)
    assert {span.attributes["messaging.destination.name"] for span in spans} == {
        topic.rpartition(":")[2]
    }
    assert {span.attributes["messaging.system"] for span in spans} == {"aws.sns"}
    assert all(b"the text" not in span.raw for span in spans)


def test_a_send_belongs_to_its_callers_trace(any_sqs: Sqs, collector: Collector) -> None:
    name = own_name()
    url = any_sqs.call("CreateQueue", QueueName=name)["QueueUrl"]
    trace, parent, header = caller()
    members = {"QueueUrl": url, "MessageBody": "the text"}
    headers = {"traceparent": header, "tracestate": "vendor=1,other=2"}
    sent = any_sqs.ask("SendMessage", members, headers=headers)
    span = collector.one(trace_id=trace, parent_id=parent)
    assert span.name == "sqs.SendMessage"
    assert span.kind == "server"
    assert span.state == "vendor=1,other=2"
    assert not span.is_error
    message_id = span.attributes.pop("messaging.message.id")
    assert message_id in sent.text
    assert span.attributes == {
        "http.request.method": "POST",
        "http.route": "/",
        "http.response.status_code": 200,
        "queuegate.request_id": sent.headers["x-amzn-requestid"],
        "messaging.system": "aws_sqs",
        "messaging.operation.name": "SendMessage",
        "messaging.operation.type": "send",
        "messaging.destination.name": name,
    }
    assert span.resource["service.name"] == "queuegate"
    assert span.resource["service.version"]
    assert uuid.UUID(span.resource["service.instance.id"])


def test_no_secret_of_a_cycle_is_in_its_spans(any_sqs: Sqs, collector: Collector) -> None:
    url = any_sqs.call("CreateQueue", QueueName=own_name())["QueueUrl"]
    trace, parent, header = caller()
    headers = {"traceparent": header}
    body, value = uuid.uuid4().hex, uuid.uuid4().hex
    attributes = {"a": {"DataType": "String", "StringValue": value}}
    members = {"QueueUrl": url, "MessageBody": body, "MessageAttributes": attributes}
    any_sqs.ask("SendMessage", members, headers=headers)
    answer = any_sqs.ask("ReceiveMessage", {"QueueUrl": url}, headers=headers)
    [message] = any_sqs.decode("ReceiveMessage", answer)["Messages"]
    handle = message["ReceiptHandle"]
    deletion = {"QueueUrl": url, "ReceiptHandle": handle}
    any_sqs.ask("DeleteMessage", deletion, headers=headers)
    spans = collector.some(3, trace_id=trace, parent_id=parent)
    kinds = {span.name: span.attributes["messaging.operation.type"] for span in spans}
    assert kinds == {
        "sqs.SendMessage": "send",
        "sqs.ReceiveMessage": "receive",
        "sqs.DeleteMessage": "settle",
    }
    secrets = (body, value, handle, any_sqs.account, "Signature")
    for span in (*spans, *(span for span in collector.spans if span.trace_id == trace)):
        assert [secret for secret in secrets if secret.encode() in span.raw] == []
    [one] = [span for span in spans if span.name == "sqs.ReceiveMessage"]
    assert one.attributes["messaging.batch.message_count"] == 1


def test_a_caller_that_does_not_sample_is_obeyed(any_sqs: Sqs, collector: Collector) -> None:
    url = any_sqs.call("CreateQueue", QueueName=own_name())["QueueUrl"]
    trace, _, header = caller(is_sampled=False)
    members = {"QueueUrl": url, "MessageBody": "x"}
    assert any_sqs.ask("SendMessage", members, headers={"traceparent": header}).status == 200
    # Spans come in the order in which they ended, a second later at most.
    later, _, sampled = caller()
    any_sqs.ask("SendMessage", members, headers={"traceparent": sampled})
    collector.some(1, trace_id=later, name="sqs.SendMessage")
    assert [span for span in collector.spans if span.trace_id == trace] == []


@pytest.mark.parametrize("header", ["00-nonsense", "ff" + caller()[2][2:], caller()[2] + "-x"])
def test_a_trace_begins_here_when_the_header_is_not_valid(
    sqs: Sqs, collector: Collector, header: str
) -> None:
    name = own_name()
    url = sqs.call("CreateQueue", QueueName=name)["QueueUrl"]
    members = {"QueueUrl": url, "MessageBody": "x"}
    headers = {"traceparent": header, "tracestate": "a=1"}
    assert sqs.ask("SendMessage", members, headers=headers).status == 200
    span = collector.one(name="sqs.SendMessage", messaging__destination__name=name)
    assert span.parent_id == ""
    assert span.state == ""
    assert span.trace_id not in header


def test_a_tracestate_that_is_not_valid_is_left_out(sqs: Sqs, collector: Collector) -> None:
    url = sqs.call("CreateQueue", QueueName=own_name())["QueueUrl"]
    trace, parent, header = caller()
    members = {"QueueUrl": url, "MessageBody": "x"}
    headers = {"traceparent": header, "tracestate": "a=1,=,UPPER"}
    assert sqs.ask("SendMessage", members, headers=headers).status == 200
    assert collector.one(trace_id=trace, parent_id=parent).state == ""


def test_refusals_are_named_and_are_no_errors_of_ours(any_sqs: Sqs, collector: Collector) -> None:
    url = any_sqs.call("CreateQueue", QueueName=own_name())["QueueUrl"]
    trace, parent, header = caller()
    members = {"QueueUrl": url, "MessageBody": ""}
    assert any_sqs.ask("SendMessage", members, headers={"traceparent": header}).status == 400
    span = collector.one(trace_id=trace, parent_id=parent)
    assert span.attributes["http.response.status_code"] == 400
    assert span.attributes["error.type"]
    assert not span.is_error


def test_an_action_that_nobody_knows_has_a_span_without_its_name(
    server: Server, collector: Collector
) -> None:
    trace, parent, header = caller()
    headers = {"Host": "localhost", "X-Amz-Target": "AmazonSQS.Secret", "traceparent": header}
    headers |= {"Content-Type": "application/x-amz-json-1.0", "Authorization": "x"}
    with Connection(server.url) as connection:
        connection.send(request_bytes("POST", "/", headers, b"{}"))
        assert connection.answer().status == 400
    span = collector.one(trace_id=trace, parent_id=parent)
    assert span.name == "POST /"
    assert b"Secret" not in span.raw


def test_other_services_are_named_too(server: Server, collector: Collector) -> None:
    trace, parent, header = caller()
    members = {"Action": "GetCallerIdentity", "Version": "2011-06-15"}
    headers = {
        "Host": "localhost",
        "Authorization": authorization(new_account(), service="sts"),
        "Content-Type": "application/x-www-form-urlencoded",
        "traceparent": header,
    }
    with Connection(server.url) as connection:
        connection.send(request_bytes("POST", "/", headers, urlencode(members).encode()))
        assert connection.answer().status == 200
    span = collector.one(trace_id=trace, parent_id=parent)
    assert span.name == "sts.GetCallerIdentity"
    assert span.attributes["rpc.method"] == "GetCallerIdentity"
    assert "messaging.system" not in span.attributes


def test_pages_have_spans_named_by_their_route(server: Server, collector: Collector) -> None:
    trace, parent, header = caller()
    with Connection(server.url) as connection:
        for path in ("/livez?x=secret", "/_admin/clock"):
            connection.send(
                request_bytes("GET", path, {"Host": "localhost", "traceparent": header}, b"")
            )
            assert connection.answer().status == 200
    spans = collector.some(2, trace_id=trace, parent_id=parent)
    assert {span.name for span in spans} == {"GET /livez", "GET /_admin"}
    assert all(b"secret" not in span.raw for span in spans)


def test_methods_that_nobody_knows_are_not_repeated(server: Server, collector: Collector) -> None:
    trace, parent, header = caller()
    with Connection(server.url) as connection:
        headers = {"Host": "localhost", "traceparent": header}
        connection.send(request_bytes("PROPFIND", "/", headers, b""))
        assert connection.answer().status >= 400
    span = collector.one(trace_id=trace, parent_id=parent)
    assert span.name == "HTTP /"
    assert span.attributes["http.request.method"] == "_OTHER"


def test_a_client_that_goes_away_ends_its_span(
    server: Server, sqs: Sqs, collector: Collector
) -> None:
    url = sqs.call("CreateQueue", QueueName=own_name())["QueueUrl"]
    for wire in ("json", "json-long"):
        trace, parent, header = caller()
        parked = server.metric("queuegate_parked_receives")
        with sqs.other(wire=wire) as other:
            members = {"QueueUrl": url, "WaitTimeSeconds": 20}
            request = other.encode("ReceiveMessage", members, headers={"traceparent": header})
            with Connection(server.url) as connection:
                connection.send(request)
                server.until_parked(int(parked) + 1)
        span = collector.one(trace_id=trace, parent_id=parent)
        assert span.attributes["http.response.status_code"] == 499


def test_at_rate_zero_only_callers_decide() -> None:
    with Collector() as collector, traced(collector, rate="0") as server:
        trace, parent, header = caller()
        with Sqs("json", server.url) as sqs:
            url = sqs.call("CreateQueue", QueueName="jobs")["QueueUrl"]
            members = {"QueueUrl": url, "MessageBody": "x"}
            for _ in range(20):
                sqs.ask("SendMessage", members)
            fetch(server.url, "/livez")
            sqs.ask("SendMessage", members, headers={"traceparent": header})
        span = collector.one(trace_id=trace, parent_id=parent)
        flush = collector.one(trace_id=trace, parent_id=span.span_id)
        assert _unlike(collector, span, flush) == []


def test_at_a_half_some_are_sampled_and_some_are_not() -> None:
    count = 200
    with Collector() as collector, traced(collector, rate="0.5") as server:
        for _ in range(count):
            fetch(server.url, "/livez")
        trace, _, header = caller()
        with Connection(server.url) as connection:
            connection.send(
                request_bytes("GET", "/readyz", {"Host": "localhost", "traceparent": header}, b"")
            )
            assert connection.answer().status == 200
        collector.some(1, trace_id=trace)
        sampled = len([span for span in collector.spans if span.name == "GET /livez"])
        # Beyond eight standard deviations.
        assert 40 < sampled < 160


def _unlike(collector: Collector, *known: Span) -> list[Span]:
    return [span for span in collector.spans if span not in known]
