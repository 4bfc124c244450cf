"""From Subscribe and Publish to the web hook, through a running gateway."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest

from tests.faces.clients import Refused
from tests.faces.connections import fetch
from tests.faces.servers import Server
from tests.faces.sns_client import Sns
from tests.faces.web_hooks import Posted, WebHook

NO_DELAY = {"numRetries": 3, "numNoDelayRetries": 3}
COLOUR = {"colour": {"DataType": "String", "StringValue": "red"}}


@pytest.fixture
def topic(query_sns: Sns) -> str:
    return query_sns.create()


def subscribed(sns: Sns, topic: str, hook: WebHook, **attributes: str) -> str:
    """The ARN of a subscription that the web hook has confirmed."""
    arn = sns.subscribe(topic, "http", hook.url, **attributes)
    confirm(sns, hook.next())
    return arn


def confirm(sns: Sns, posted: Posted) -> None:
    assert posted.headers["x-amz-sns-message-type"] == "SubscriptionConfirmation"
    link: str = posted.envelope["SubscribeURL"]
    assert fetch(sns.url, link.removeprefix(sns.url)).status == 200


def test_a_subscription_is_confirmed_by_its_link_and_then_gets_messages(
    query_sns: Sns, topic: str, hook: WebHook
) -> None:
    sns = query_sns
    arn = sns.subscribe(topic, "http", hook.url)
    request = hook.next()
    assert request.path == "/news"
    assert request.headers["x-amz-sns-topic-arn"] == topic
    assert request.headers["content-type"] == "text/plain; charset=UTF-8"
    assert "x-amz-sns-subscription-arn" not in request.headers
    assert request.envelope["Type"] == "SubscriptionConfirmation"
    assert sns.subscription(arn)["PendingConfirmation"] == "true"
    confirm(sns, request)

    message_id = sns.publish(topic, "hällo", Subject="news")["MessageId"]
    request = hook.next()
    assert request.headers["x-amz-sns-message-type"] == "Notification"
    assert request.headers["x-amz-sns-message-id"] == message_id
    assert request.headers["x-amz-sns-subscription-arn"] == arn
    assert request.headers["user-agent"] == "Amazon Simple Notification Service Agent"
    assert "x-amz-sns-rawdelivery" not in request.headers
    envelope = request.envelope
    assert (envelope["Message"], envelope["Subject"]) == ("hällo", "news")
    assert len(envelope["Signature"]) > 300


def test_user_and_password_of_the_url_are_sent_and_not_shown(
    query_sns: Sns, topic: str, hook: WebHook
) -> None:
    sns, place = query_sns, hook.url.removeprefix("http://")
    endpoint, shown = f"http://me:se%40cret@{place}", f"http://me:****@{place}"
    arn = sns.subscribe(topic, "http", endpoint)
    request = hook.next()
    assert request.headers["authorization"] == "Basic " + b64encode(b"me:se@cret").decode()
    assert request.headers["host"] == place.partition("/")[0]
    assert "cret" not in request.body.decode()
    confirm(sns, request)
    assert sns.subscribe(topic, "http", endpoint) == arn
    assert sns.subscribe(topic, "http", f"http://me:other@{place}") != arn
    assert sns.subscription(arn)["Endpoint"] == shown
    listed = sns.call("ListSubscriptionsByTopic", TopicArn=topic)["Subscriptions"]
    assert [one["Endpoint"] for one in listed] == [shown, shown]


def test_nothing_comes_before_the_confirmation(query_sns: Sns, topic: str, hook: WebHook) -> None:
    query_sns.subscribe(topic, "http", hook.url)
    early = hook.next()
    query_sns.publish(topic, "early")
    confirm(query_sns, early)
    query_sns.publish(topic, "late")
    assert hook.next().envelope["Message"] == "late"


def test_unsubscribe_link_is_followed_by_a_confirmation(
    query_sns: Sns, topic: str, hook: WebHook
) -> None:
    sns = query_sns
    arn = subscribed(sns, topic, hook)
    sns.publish(topic)
    link = hook.next().envelope["UnsubscribeURL"]
    assert fetch(sns.url, link.removeprefix(sns.url)).status == 200
    request = hook.next()
    assert request.headers["x-amz-sns-message-type"] == "UnsubscribeConfirmation"
    assert request.headers["x-amz-sns-subscription-arn"] == arn
    sns.publish(topic)
    confirmed = request.envelope["SubscribeURL"]
    assert fetch(sns.url, confirmed.removeprefix(sns.url)).status == 200
    sns.publish(topic, "again")
    assert hook.next().envelope["Message"] == "again"


def test_raw_delivery_and_content_type(query_sns: Sns, topic: str, hook: WebHook) -> None:
    policy = {"requestPolicy": {"headerContentType": "application/json"}}
    attributes = {"RawMessageDelivery": "true", "DeliveryPolicy": json.dumps(policy)}
    subscribed(query_sns, topic, hook, **attributes)
    values = {"color": {"DataType": "String", "StringValue": "red"}}
    query_sns.publish(topic, '{"a":1}', MessageAttributes=values)
    request = hook.next()
    assert request.body == b'{"a":1}'
    assert request.headers["x-amz-sns-rawdelivery"] == "true"
    assert request.headers["content-type"] == "application/json"


def test_filters_and_batches(query_sns: Sns, topic: str, hook: WebHook) -> None:
    policy = json.dumps({"color": ["red"]})
    subscribed(query_sns, topic, hook, FilterPolicy=policy, RawMessageDelivery="true")
    entries = [
        {
            "Id": color,
            "Message": color,
            "MessageAttributes": {"color": {"DataType": "String", "StringValue": color}},
        }
        for color in ("blue", "red", "green")
    ]
    query_sns.call("PublishBatch", TopicArn=topic, PublishBatchRequestEntries=entries)
    assert hook.next().body == b"red"


def test_confirmation_is_tried_again(query_sns: Sns, topic: str, hook: WebHook) -> None:
    query_sns.set(
        topic, "DeliveryPolicy", json.dumps({"http": {"defaultHealthyRetryPolicy": NO_DELAY}})
    )
    hook.statuses += [500, 503]
    query_sns.subscribe(topic, "http", hook.url)
    tokens = {hook.next().envelope["Token"] for _ in range(3)}
    assert len(tokens) == 1


def test_retries_come_by_the_clock(
    server: Server, query_sns: Sns, topic: str, hook: WebHook
) -> None:
    subscribed(query_sns, topic, hook)
    hook.statuses += [500, 429]
    message_id = query_sns.publish(topic)["MessageId"]
    assert hook.next().headers["x-amz-sns-message-id"] == message_id
    for _ in range(2):
        assert next_after(server, hook, 23).headers["x-amz-sns-message-id"] == message_id


def next_after(server: Server, hook: WebHook, seconds: float) -> Posted:
    """Let time pass until the next request comes. Once may be too early: what became of the request
    before is recorded after its answer, and its retry is counted from there."""
    for _ in range(20):
        server.advance(seconds)
        posted = hook.next_within(1.0)
        if posted is not None:
            return posted
    raise AssertionError("no request came")


def test_client_error_goes_to_the_dead_letter_queue_at_once(
    query_sns: Sns, topic: str, hook: WebHook
) -> None:
    sqs = query_sns.sqs()
    url = sqs.create("dead")
    policy = json.dumps({"deadLetterTargetArn": sqs.arn(url)})
    subscribed(query_sns, topic, hook, RedrivePolicy=policy)
    hook.statuses.append(404)
    query_sns.publish(topic, "lost?", MessageAttributes=COLOUR)
    posted = hook.next()
    answer = sqs.call(
        "ReceiveMessage", QueueUrl=url, WaitTimeSeconds=20, MessageAttributeNames=["All"]
    )
    [message] = answer["Messages"]
    assert message["Body"].encode() == posted.body
    # Recorded: nothing is added (docs/contract/sns.md 3.6).
    assert "MessageAttributes" not in message


def test_exhausted_retries_go_to_the_dead_letter_queue_raw(
    query_sns: Sns, topic: str, hook: WebHook
) -> None:
    sqs = query_sns.sqs()
    url = sqs.create("dead")
    attributes = {
        "RedrivePolicy": json.dumps({"deadLetterTargetArn": sqs.arn(url)}),
        "DeliveryPolicy": json.dumps({"healthyRetryPolicy": NO_DELAY}),
        "RawMessageDelivery": "true",
    }
    subscribed(query_sns, topic, hook, **attributes)
    hook.statuses += [500] * 4
    query_sns.publish(topic, "raw", MessageAttributes=COLOUR)
    assert [hook.next().body for _ in range(4)] == [b"raw"] * 4
    answer = sqs.call(
        "ReceiveMessage", QueueUrl=url, WaitTimeSeconds=20, MessageAttributeNames=["All"]
    )
    [message] = answer["Messages"]
    assert (message["Body"], message["MessageAttributes"]) == ("raw", COLOUR)


def test_metrics_count_attempts_and_what_is_left(hook: WebHook) -> None:
    with Server() as server, Sns("query", server.url) as sns:
        topic = sns.create()
        subscribed(sns, topic, hook)
        hook.statuses += [410, 500]
        sns.publish(topic, "given up")
        hook.next()
        server.until('queue_delivery_attempts_total{outcome="failure"}', 1)
        server.until("queue_delivery_exhausted_total", 1)
        sns.publish(topic, "tried again")
        hook.next()
        server.until('queue_delivery_attempts_total{outcome="failure"}', 2)
        server.advance(11)
        assert server.metric('queue_delivery_attempts_total{outcome="success"}') == 1
        count = 'queue_delivery_attempt_duration_seconds_count{outcome="failure"}'
        assert server.metric(count) == 2
        assert server.metric("queuegate_delivery_leases_lost_total") == 0
        for gauge in ("pending", "exhausted", "oldest_pending_seconds"):
            name = f"queuegate_deliveries_{gauge}"
            assert f"\n{name} " in server.metrics(name)


def test_deliveries_are_immediate_whichever_process_was_asked(hook: WebHook) -> None:
    """Nobody waits for the worker to look by itself, which here takes a minute."""
    with Server("--workers", "2", QUEUE_HTTP_DELIVERY_POLL_MS="60000") as server:
        for _ in range(3):
            with Sns("query", server.url) as sns:
                topic = sns.create()
                subscribed(sns, topic, hook)
                for number in range(3):
                    sns.publish(topic, str(number))
                    assert hook.next().envelope["Message"] == str(number)


def test_private_addresses_can_be_refused(hook: WebHook) -> None:
    with Server(QUEUEGATE_PRIVATE_WEBHOOKS="false") as server, Sns("query", server.url) as sns:
        topic = sns.create()
        with pytest.raises(Refused) as refused:
            sns.subscribe(topic, "http", hook.url)
        assert (refused.value.status, refused.value.code) == (403, "AuthorizationError")


def test_deliveries_can_be_left_to_others(hook: WebHook) -> None:
    with Server(QUEUE_HTTP_DELIVERY_ENABLED="false") as server, Sns("query", server.url) as sns:
        sns.subscribe(sns.create(), "http", hook.url)
        server.until("queuegate_deliveries_pending", 1)
