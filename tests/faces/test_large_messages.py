"""MaximumMessageSize of topics (docs/contract/sns.md 3.3): messages of up to 1 MiB."""

from __future__ import annotations

import json

import pytest

from tests.faces.sns_client import Sns

LARGE = str(1_048_576)
UNFIT = (
    "Invalid parameter: MaximumMessageSize Reason: A topic with messages of more than 262144 bytes "
    "can have 100 subscriptions, all of them to SQS, Firehose or Lambda."
)


def large_topic(sns: Sns, name: str = "news", **attributes: str) -> str:
    attributes |= {"MaximumMessageSize": LARGE}
    arn: str = sns.call("CreateTopic", Name=name, Attributes=attributes)["TopicArn"]
    return arn


def size_of(sns: Sns, topic: str) -> str | None:
    found: dict[str, str] = sns.call("GetTopicAttributes", TopicArn=topic)["Attributes"]
    return found.get("MaximumMessageSize")


def set_size(topic: str, size: str) -> dict[str, str]:
    name = "MaximumMessageSize"
    return {"TopicArn": topic, "AttributeName": name, "AttributeValue": size}


def test_the_size_is_shown_when_it_was_set(sns: Sns) -> None:
    topic = sns.create()
    assert size_of(sns, topic) is None
    for size in ("1024", LARGE):
        sns.call("SetTopicAttributes", **set_size(topic, size))
        assert size_of(sns, topic) == size
    for size in ("1023", "1048577", "x", "-1", "1e4", "٢٠٤٨"):
        refused = sns.refusal("SetTopicAttributes", **set_size(topic, size))
        assert (refused.status, refused.code) == (400, "InvalidParameter")
    refused = sns.refusal("CreateTopic", Name="other", Attributes={"MaximumMessageSize": "1"})
    assert (refused.status, refused.code) == (400, "InvalidParameter")


@pytest.mark.parametrize("kind", ["", ".fifo"])
def test_a_mebibyte_reaches_ten_queues(publisher: Sns, kind: str) -> None:
    fifo = {"FifoTopic": "true"} if kind else {}
    ids = {"MessageGroupId": "g", "MessageDeduplicationId": "d"} if kind else {}
    topic = large_topic(publisher, "news" + kind, **fifo)
    urls = [
        publisher.subscribe_queue(topic, f"q{number}{kind}", RawMessageDelivery="true")
        for number in range(10)
    ]
    publisher.warm(topic)
    attributes = {"a": {"DataType": "String", "StringValue": "x"}}
    message = "ż" * ((1_048_576 - 8) // 2)
    publisher.publish(topic, message, MessageAttributes=attributes, **ids)
    for url in urls:
        assert publisher.sqs().bodies(url) == [message]
    refused = publisher.refusal("Publish", TopicArn=topic, Message=message + "123456789", **ids)
    assert (refused.status, refused.code) == (400, "InvalidParameter")
    assert refused.text == "Invalid parameter: Message too long"


def test_the_size_limits_messages_and_batches(publisher: Sns) -> None:
    topic = publisher.create()
    publisher.call("SetTopicAttributes", **set_size(topic, "1024"))
    publisher.publish(topic, "x" * 1024)
    refused = publisher.refusal("Publish", TopicArn=topic, Message="x" * 1025)
    assert refused.text == "Invalid parameter: Message too long"
    publisher.publish_batch(topic, {"Message": "x" * 1000}, {"Message": "x" * 24})
    entries = [{"Id": str(number), "Message": "x" * 513} for number in range(2)]
    refused = publisher.refusal("PublishBatch", TopicArn=topic, PublishBatchRequestEntries=entries)
    assert (refused.status, refused.code) == (400, "BatchRequestTooLong")
    publisher.call("SetTopicAttributes", **set_size(topic, LARGE))
    publisher.publish_batch(topic, {"Message": "x" * 1_000_000}, {"Message": "x" * 48_576})


def test_web_hooks_and_large_messages_exclude_each_other(sns: Sns) -> None:
    """LargeMessagesUnfit: its text is inferred."""
    topic = sns.create()
    hook = sns.subscribe(topic, "https", "https://192.0.2.1/hook")
    refused = sns.refusal("SetTopicAttributes", **set_size(topic, LARGE))
    assert (refused.status, refused.code, refused.text) == (400, "InvalidParameter", UNFIT)
    assert size_of(sns, topic) is None
    sns.call("SetTopicAttributes", **set_size(topic, "262144"))
    assert hook.startswith(topic)
    large = large_topic(sns, "large")
    members = {"TopicArn": large, "Protocol": "https", "Endpoint": "https://192.0.2.1/hook"}
    refused = sns.refusal("Subscribe", **members)
    assert (refused.status, refused.code, refused.text) == (400, "InvalidParameter", UNFIT)
    assert sns.call("ListSubscriptionsByTopic", TopicArn=large)["Subscriptions"] == []


def test_a_topic_with_large_messages_has_a_hundred_subscriptions(sns: Sns) -> None:
    topic = large_topic(sns)
    for number in range(100):
        sns.subscribe(topic, "sqs", f"arn:aws:sqs:us-east-1:{sns.account}:q{number}")
    members = {"TopicArn": topic, "Protocol": "sqs"}
    endpoint = f"arn:aws:sqs:us-east-1:{sns.account}:q100"
    refused = sns.refusal("Subscribe", **members, Endpoint=endpoint)
    assert (refused.status, refused.code, refused.text) == (400, "InvalidParameter", UNFIT)
    sns.call("SetTopicAttributes", **set_size(topic, "262144"))
    sns.subscribe(topic, "sqs", endpoint)
    refused = sns.refusal("SetTopicAttributes", **set_size(topic, LARGE))
    assert (refused.status, refused.code, refused.text) == (400, "InvalidParameter", UNFIT)


def test_an_envelope_larger_than_its_queue_allows_is_a_dead_letter(publisher: Sns) -> None:
    """Publish succeeds. The copy goes to the dead-letter queue of the subscription, whole."""
    topic = large_topic(publisher)
    sqs = publisher.sqs()
    dead = sqs.create("dead")
    policy = f'{{"deadLetterTargetArn":"{sqs.arn(dead)}"}}'
    url = publisher.subscribe_queue(topic, "enveloped", RedrivePolicy=policy)
    raw = publisher.subscribe_queue(topic, "raw", RawMessageDelivery="true")
    publisher.warm(topic)
    message = "x" * 1_048_576
    publisher.publish(topic, message)
    assert sqs.bodies(raw) == [message]
    assert sqs.bodies(url) == []
    [letter] = sqs.bodies(dead)
    assert json.loads(letter)["Message"] == message
