"""Topics of SNS, and patterns of events, feed logs: subscriptions of protocol `log`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

import pytest

from queuegate.protocol import sns_envelopes
from tests.faces.clients import new_account
from tests.faces.connections import fetch
from tests.faces.logs.client import Logs, record
from tests.faces.scheduler_client import Refusal, Scheduler
from tests.faces.servers import Server
from tests.faces.sns_client import Sns

RAW = {"RawMessageDelivery": "true"}


@pytest.fixture
def sns(logs: Logs) -> Iterator[Sns]:
    """SNS of the same account."""
    with Sns("query", logs.url, logs.account) as client:
        yield client


def text(value: str) -> dict[str, str]:
    return {"DataType": "String", "StringValue": value}


def key_of(value: str) -> dict[str, Any]:
    return {"MessageAttributes": {"Queuegate.PartitionKey": text(value)}}


def arn_of(logs: Logs, name: str = "orders") -> str:
    return f"arn:aws:log:{logs.region}:{logs.account}:{name}"


@pytest.fixture
def boto(server: Server) -> Iterator[Callable[[str], Any]]:
    """boto3's SNS of an account."""
    with ExitStack() as stack:

        def client(account: str) -> Any:
            sdk = stack.enter_context(closing(Scheduler(server.url, account)))
            return sdk.client("sns")

        yield client


def test_boto3_subscribes_a_log(logs: Logs, boto: Callable[[str], Any]) -> None:
    """By its name or by its ARN; the answer is the same, and nobody confirms it."""
    logs.make()
    sns = boto(logs.account)
    topic = sns.create_topic(Name="news")["TopicArn"]
    made = sns.subscribe(TopicArn=topic, Protocol="log", Endpoint="orders", Attributes=RAW)
    arn = made["SubscriptionArn"]
    again = sns.subscribe(TopicArn=topic, Protocol="log", Endpoint=arn_of(logs), Attributes=RAW)
    assert again["SubscriptionArn"] == arn
    [listed] = sns.list_subscriptions()["Subscriptions"]
    assert listed == {
        "SubscriptionArn": arn,
        "Owner": logs.account,
        "Protocol": "log",
        "Endpoint": arn_of(logs),
        "TopicArn": topic,
    }
    attributes = sns.get_subscription_attributes(SubscriptionArn=arn)["Attributes"]
    assert (attributes["PendingConfirmation"], attributes["RawMessageDelivery"]) == (
        "false",
        "true",
    )
    first = sns.publish(TopicArn=topic, Message="1", **key_of("a"))["MessageId"]
    sns.publish(TopicArn=topic, Message="2")
    [found] = logs.records()
    found.pop("published_at")
    assert found == {
        "partition": 0,
        "offset": 0,
        "key": "a",
        "id": first,
        "payload": "1",
        "metadata": {"Queuegate.PartitionKey": "a"},
    }
    assert logs.payloads(1) == ["2"]
    assert [one["key"] for one in logs.partitions()] == ["a", ""]
    sns.unsubscribe(SubscriptionArn=arn)
    sns.publish(TopicArn=topic, Message="3")
    assert logs.payloads(1) == ["2"]


def test_an_envelope_is_signed_as_one_in_a_queue(logs: Logs, sns: Sns) -> None:
    topic = sns.create()
    sns.subscribe(topic, "log", "orders")
    logs.make(partitions=4)
    url = sns.subscribe_queue(topic, "jobs")
    sns.publish(topic, "hello", Subject="s", MessageAttributes={"n": text("1")})
    queued = json.loads(sns.sqs().receive(url)[0]["Body"])
    [found] = logs.records()
    envelope = json.loads(found["payload"])
    assert "metadata" not in found
    for one in (queued, envelope):
        assert one.pop("UnsubscribeURL")
    assert envelope == queued
    certificate = fetch(logs.url, envelope["SigningCertURL"].removeprefix(logs.url))
    assert sns_envelopes.verify(certificate.text, envelope)


def test_a_fifo_topic_feeds_a_log_by_group(logs: Logs, sns: Sns) -> None:
    """The group is the key, also where an attribute says another; a duplicate comes once."""
    logs.make()
    topic = sns.create_fifo()
    sns.subscribe(topic, "log", "orders", **RAW)
    sns.subscribe(topic, "log", "envelopes")
    logs.make("envelopes")
    for message, group in (("1", "a"), ("2", "b"), ("3", "a"), ("1", "a")):
        sns.publish(topic, message, MessageGroupId=group, **key_of("other"))
    assert [one["key"] for one in logs.partitions()] == ["a", "b"]
    assert (logs.payloads(0), logs.payloads(1)) == (["1", "3"], ["2"])
    envelopes = [json.loads(one) for one in logs.payloads(0, "envelopes")]
    assert [one["Message"] for one in envelopes] == ["1", "3"]
    assert envelopes[0]["SequenceNumber"] < envelopes[1]["SequenceNumber"]


def test_filters_and_texts_for_logs(logs: Logs, sns: Sns) -> None:
    logs.make()
    topic = sns.create()
    sns.subscribe(topic, "log", "orders", FilterPolicy='{"color": ["red"]}', **RAW)
    for color in ("red", "blue"):
        message = json.dumps({"default": "d", "log": f"for logs, {color}"})
        attributes = {"color": text(color)}
        sns.publish(topic, message, MessageStructure="json", MessageAttributes=attributes)
    sns.publish_batch(topic, {"Message": "1"}, {"Message": "2", **_red()}, {"Message": "3"})
    assert logs.payloads() == ["for logs, red", "2"]


def _red() -> dict[str, Any]:
    return {"MessageAttributes": {"color": text("red")}}


def test_a_deleted_log_is_like_a_deleted_queue(logs: Logs, sns: Sns) -> None:
    """Its copies go to the dead-letter queue of the subscription; a new log of the name has what
    is published from then on."""
    logs.make()
    topic = sns.create()
    url = sns.sqs().create("dead")
    policy = json.dumps({"deadLetterTargetArn": sns.sqs().arn(url)})
    sns.subscribe(topic, "log", "orders", RedrivePolicy=policy, **RAW)
    sns.publish(topic, "1")
    logs.call("DELETE", "/v1/logs/orders", status=204)
    sns.publish(topic, "2")
    assert [one["Body"] for one in sns.sqs().receive(url)] == ["2"]
    logs.make()
    sns.publish(topic, "3")
    assert logs.payloads() == ["3"]


def test_what_a_log_cannot_take_goes_to_the_dead_letter_queue(logs: Logs, sns: Sns) -> None:
    """A key that is too long, and more attributes than a record has metadata."""
    logs.make()
    topic = sns.create()
    url = sns.sqs().create("dead")
    policy = json.dumps({"deadLetterTargetArn": sns.sqs().arn(url)})
    sns.subscribe(topic, "log", "orders", RedrivePolicy=policy, **RAW)
    sns.publish(topic, "long", **key_of("k" * 257))
    sns.publish(topic, "many", MessageAttributes={f"n{n}": text("1") for n in range(101)})
    sns.publish(topic, "fine", **key_of("k" * 256))
    assert {one["Body"] for one in sns.sqs().receive(url, 10)} == {"long", "many"}
    assert logs.payloads() == ["fine"]


def test_a_reader_is_woken_by_a_publish(logs: Logs, sns: Sns) -> None:
    logs.publish(record("0", ""))
    topic = sns.create()
    sns.subscribe(topic, "log", "orders", **RAW)
    with ThreadPoolExecutor(1) as pool:
        wanted = {"partition": 0, "from": 1, "to": 2}
        read = pool.submit(logs.read, wanted, wait=20)
        sns.publish(topic, "1")
        [found] = read.result(15)
    assert found["payloads"] == ["1"]


@pytest.mark.parametrize(
    ("endpoint", "reason"),
    [
        ("", "Log endpoint ARN"),
        ("a b", "Log endpoint ARN"),
        ("arn:aws:log:us-east-1:{account}:a.b", "Log endpoint ARN"),
        ("arn:aws:sqs:us-east-1:{account}:orders", "Log endpoint ARN"),
        ("arn:aws:log:eu-west-1:{account}:orders", "Endpoint Reason: a log must be of"),
        ("arn:aws:log:us-east-1:000000000001:orders", "Endpoint Reason: a log must be of"),
    ],
)
def test_what_is_no_log_of_the_topic_is_refused(sns: Sns, endpoint: str, reason: str) -> None:
    topic = sns.create()
    members = {"Protocol": "log", "Endpoint": endpoint.format(account=sns.account)}
    refused = sns.refusal("Subscribe", TopicArn=topic, **members)
    assert (refused.status, refused.code) == (400, "InvalidParameter")
    assert refused.text.startswith(f"Invalid parameter: {reason}")


def test_nobody_feeds_anothers_topic_into_a_log(sns: Sns, boto: Callable[[str], Any]) -> None:
    topic, other = sns.create(), boto(new_account())
    with pytest.raises(other.exceptions.InvalidParameterException) as refused:
        other.subscribe(TopicArn=topic, Protocol="log", Endpoint="orders")
    assert "must be of the topic's account" in Refusal(refused.value).text


def test_events_feed_a_log_once(logs: Logs) -> None:
    """However many patterns of its subscriptions a key matches."""
    logs.make()
    for pattern in ("order.*", "%23"):
        made = logs.call(
            "POST", f"/v1/events/{pattern}/subscriptions", {"log_name": "orders"}, status=201
        )
        assert (made["protocol"], made["log_name"], made["queue_name"]) == ("log", "orders", None)
        assert made["endpoint"] == arn_of(logs)
    [listed] = logs.call("GET", "/v1/events/order.*/subscriptions")
    assert listed["log_name"] == "orders"
    headers = {"color": "red", "Queuegate.PartitionKey": "k"}
    event = {"message": {"n": 1}, "headers": headers, "delay": 60}
    logs.call("POST", "/v1/events/order.created", event, status=201)
    [found] = logs.records()
    assert (found["key"], found["payload"], found["metadata"]) == ("k", '{"n": 1}', headers)
    logs.call("DELETE", f"/v1/events/order.*/subscriptions/{listed['id']}", status=204)


def test_events_want_a_log_that_is_there(logs: Logs) -> None:
    place = "/v1/events/order.*/subscriptions"
    assert "nowhere" in logs.refusal("POST", place, {"log_name": "nowhere"}, status=404)
    both = {"log_name": "orders", "queue_name": "jobs"}
    assert "log_name is all" in logs.refusal("POST", place, both)
