"""Spans of attempts at web hooks, and the ``traceparent`` that these get."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.faces.sns_client import Sns
from tests.faces.test_webhooks import NO_DELAY, subscribed
from tests.faces.web_hooks import WebHook
from tests.tracing.collector import Collector, caller
from tests.tracing.conftest import traced


@pytest.fixture
def hook() -> Iterator[WebHook]:
    with WebHook() as hook:
        yield hook


def test_an_attempt_has_a_span_and_its_request_carries_it(
    sns: Sns, hook: WebHook, collector: Collector
) -> None:
    topic = sns.create()
    arn = subscribed(sns, topic, hook)
    trace, _, header = caller()
    members = {"TopicArn": topic, "Message": "the text", "Subject": "the subject"}
    answer = sns.ask("Publish", members, headers={"traceparent": header})
    message_id = sns.decode("Publish", answer)["MessageId"]
    posted = hook.next()
    span = collector.one(name="deliver", messaging__message__id=message_id)
    version, trace_id, span_id, flags = posted.headers["traceparent"].split("-")
    assert (version, trace_id, span_id) == ("00", span.trace_id, span.span_id)
    assert int(flags, 16) & 1
    assert span.kind == "client"
    # Its own trace: nothing of the publish's is stored. The id of the message is on both sides.
    assert span.parent_id == ""
    publish = collector.one(trace_id=trace, name="sns.Publish")
    assert publish.attributes["messaging.message.id"] == message_id
    port = int(hook.url.split(":")[2].partition("/")[0])
    assert span.attributes == {
        "messaging.system": "aws.sns",
        "messaging.operation.name": "deliver",
        "messaging.operation.type": "send",
        "messaging.destination.name": "news",
        "messaging.message.id": message_id,
        "queuegate.subscription.id": arn.rpartition(":")[2],
        "queuegate.delivery.kind": "Notification",
        "queuegate.delivery.attempt": 1,
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "server.address": "127.0.0.1",
        "server.port": port,
    }
    assert not span.is_error
    secrets = (b"the text", b"the subject", b"/news", sns.account.encode())
    assert [secret for secret in secrets if secret in span.raw] == []


def test_each_attempt_has_a_span_of_its_own(sns: Sns, hook: WebHook, collector: Collector) -> None:
    topic = sns.create()
    subscribed(sns, topic, hook, DeliveryPolicy=json.dumps({"healthyRetryPolicy": NO_DELAY}))
    hook.statuses += [503]
    message_id = sns.publish(topic, "x")["MessageId"]
    posted = [hook.next(), hook.next()]
    spans = collector.some(2, name="deliver", messaging__message__id=message_id)
    spans.sort(key=lambda span: int(span.attributes["queuegate.delivery.attempt"]))
    assert [span.attributes["queuegate.delivery.attempt"] for span in spans] == [1, 2]
    assert [span.attributes["http.response.status_code"] for span in spans] == [503, 200]
    assert [span.attributes.get("error.type") for span in spans] == ["503", None]
    assert [span.is_error for span in spans] == [True, False]
    assert [request.headers["traceparent"].split("-")[2] for request in posted] == [
        span.span_id for span in spans
    ]


def test_an_attempt_that_gets_no_answer_says_so(sns: Sns, collector: Collector) -> None:
    topic = sns.create()
    with WebHook() as hook:
        url = hook.url.replace("http://", "http://user:geheim@")
        arn = sns.subscribe(topic, "http", url)
        hook.next()
    confirmation = {"queuegate.delivery.kind": "SubscriptionConfirmation"}
    number = arn.rpartition(":")[2]
    span = collector.one(name="deliver", queuegate__subscription__id=number)
    assert span.attributes | confirmation == span.attributes
    assert b"geheim" not in span.raw
    assert span.attributes["server.address"] == "127.0.0.1"


def test_what_is_not_sampled_is_said_to_web_hooks(hook: WebHook) -> None:
    with Collector() as collector, traced(collector, rate="0") as server:
        with Sns("query", server.url) as sns:
            topic = sns.create()
            subscribed(sns, topic, hook)
            sns.publish(topic, "x")
            header = hook.next().headers["traceparent"]
            sns.publish(topic, "x")
            other = hook.next().headers["traceparent"]
        assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-00", header)
        assert set(header.split("-")[1]) != {"0"}
        assert set(header.split("-")[2]) != {"0"}
        assert header != other
    assert collector.spans == []
