"""Spans of flushes: below the first traced request in them, linked to the others."""

from __future__ import annotations

import json
import uuid

from tests.faces.clients import Sqs
from tests.faces.connections import Connection
from tests.faces.servers import Background, Server
from tests.tracing.collector import Collector, Span, caller
from tests.tracing.conftest import traced

_LINGER = {"QUEUEGATE_LINGER_MS": "1000"}


def flushes_of(collector: Collector, lane: str, span: Span) -> list[Span]:
    """The flushes of a lane in which a request was, as far as they came."""
    return [
        flush
        for flush in collector.spans
        if flush.name == f"flush {lane}"
        and ((flush.trace_id, flush.parent_id) == span.place or span.place in flush.links)
    ]


def test_a_flush_is_below_one_request_and_linked_to_the_others() -> None:
    with Collector() as collector, traced(collector, rate="0", **_LINGER) as server:
        callers = [caller() for _ in range(3)]
        headers = [{"traceparent": header} for _, _, header in callers]
        with Sqs("json", server.url) as sqs:
            url = sqs.create()
            members = {"QueueUrl": url, "MessageBody": "x"}
            requests = [sqs.encode("SendMessage", members, headers=h) for h in (*headers, {})]
            connections = [Connection(server.url) for _ in requests]
            # The lane waits for a second before it flushes: all four are in one flush, of which
            # three are traced.
            for connection, request in zip(connections, requests, strict=True):
                connection.send(request)
            for connection in connections:
                assert connection.answer().status == 200
                connection.close()
        sends = collector.some(3, name="sqs.SendMessage")
        assert {(span.trace_id, span.parent_id) for span in sends} == {
            (trace, parent) for trace, parent, _ in callers
        }
        flush = collector.one(name="flush send")
        assert flush.kind == "internal"
        assert flush.attributes == {"queuegate.lane": "send", "queuegate.flush.entries": 4}
        [first] = [span for span in sends if span.place == (flush.trace_id, flush.parent_id)]
        assert set(flush.links) == {span.place for span in sends if span is not first}
        assert flush.nanoseconds > 0


def test_flushes_of_requests_that_are_not_traced_are_not(collector: Collector) -> None:
    with traced(collector, rate="0") as server, Sqs("json", server.url) as sqs:
        url = sqs.create()
        instance = ""
        for _ in range(10):
            sqs.send(url)
        trace, parent, header = caller()
        sqs.ask(
            "SendMessage", {"QueueUrl": url, "MessageBody": "x"}, headers={"traceparent": header}
        )
        span = collector.one(trace_id=trace, parent_id=parent)
        collector.one(trace_id=trace, parent_id=span.span_id)
        instance = span.resource["service.instance.id"]
        mine = [one for one in collector.spans if one.resource["service.instance.id"] == instance]
        assert len(mine) == 2


def test_each_kind_of_request_has_the_flush_of_its_lane(sqs: Sqs, collector: Collector) -> None:
    for create, prefix in ((sqs.create, ""), (sqs.create_fifo, "fifo_")):
        url = create()
        trace, parent, header = caller()
        headers = {"traceparent": header}
        members = {"QueueUrl": url, "MessageBody": "x"}
        if prefix:
            members["MessageGroupId"] = "g"
        assert sqs.ask("SendMessage", members, headers=headers).status == 200
        answer = sqs.ask("ReceiveMessage", {"QueueUrl": url}, headers=headers)
        [message] = sqs.decode("ReceiveMessage", answer)["Messages"]
        deletion = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}
        change = deletion | {"VisibilityTimeout": 40}
        assert sqs.ask("ChangeMessageVisibility", change, headers=headers).status == 200
        assert sqs.ask("DeleteMessage", deletion, headers=headers).status == 200
        lanes = {
            "sqs.SendMessage": f"{prefix}send",
            "sqs.ReceiveMessage": f"{prefix}receive",
            "sqs.ChangeMessageVisibility": "lease",
            "sqs.DeleteMessage": f"{prefix}delete",
        }
        spans = collector.some(4, trace_id=trace, parent_id=parent)
        for span in spans:
            flush = collector.one(trace_id=trace, parent_id=span.span_id)
            assert flush.name == f"flush {lanes[span.name]}"


def test_a_long_poll_is_in_its_own_flushes_and_not_in_its_senders(
    server: Server, sqs: Sqs, collector: Collector
) -> None:
    url = sqs.create()
    for wire in ("json", "json-long"):
        (poll_trace, poll_parent, poll_header), (trace, parent, header) = caller(), caller()
        parked = int(server.metric("queuegate_parked_receives"))
        with sqs.other(wire=wire) as other:
            members = {"QueueUrl": url, "WaitTimeSeconds": 20}
            poll = Background(
                other.ask, "ReceiveMessage", members, headers={"traceparent": poll_header}
            )
            server.until_parked(parked + 1)
            body = uuid.uuid4().hex
            sending = {"QueueUrl": url, "MessageBody": body}
            assert sqs.ask("SendMessage", sending, headers={"traceparent": header}).status == 200
            assert json.loads(poll.result().body)["Messages"][0]["Body"] == body
        receive = collector.one(trace_id=poll_trace, parent_id=poll_parent)
        send = collector.one(trace_id=trace, parent_id=parent)
        # The look that found nothing: what is sent then comes without one.
        collector.some(1, trace_id=poll_trace, parent_id=receive.span_id, name="flush receive")
        assert len(flushes_of(collector, "receive", receive)) == 1
        assert flushes_of(collector, "receive", send) == []
        assert len(flushes_of(collector, "send", send)) == 1


def test_an_untraced_long_poll_is_in_nobodys_trace(
    server: Server, sqs: Sqs, collector: Collector
) -> None:
    url = sqs.create()
    _, _, unsampled = caller(is_sampled=False)
    trace, parent, header = caller()
    parked = int(server.metric("queuegate_parked_receives"))
    members = {"QueueUrl": url, "WaitTimeSeconds": 20}
    with sqs.other() as other:
        poll = Background(other.ask, "ReceiveMessage", members, headers={"traceparent": unsampled})
        server.until_parked(parked + 1)
        sending = {"QueueUrl": url, "MessageBody": "x"}
        assert sqs.ask("SendMessage", sending, headers={"traceparent": header}).status == 200
        assert poll.result().status == 200
    send = collector.one(trace_id=trace, parent_id=parent)
    collector.one(trace_id=trace, parent_id=send.span_id)
    # Whatever ended before this was exported before it.
    later, _, sampled = caller()
    sqs.ask("ReceiveMessage", {"QueueUrl": url}, headers={"traceparent": sampled})
    collector.some(2, trace_id=later)
    assert flushes_of(collector, "receive", send) == []


def test_pipelined_requests_are_each_their_own(
    server: Server, sqs: Sqs, collector: Collector
) -> None:
    url = sqs.create()
    callers = [caller() for _ in range(4)]
    members = {"QueueUrl": url, "MessageBody": "x"}
    pipeline = b"".join(
        sqs.encode("SendMessage", members, headers={"traceparent": header})
        for _, _, header in callers
    )
    with Connection(server.url) as connection:
        connection.send(pipeline)
        for _ in callers:
            assert connection.answer().status == 200
    for trace, parent, _ in callers:
        span = collector.one(trace_id=trace, parent_id=parent)
        flush = collector.one(trace_id=trace, parent_id=span.span_id)
        assert flush.links == ()
