"""SNS: what arrives at queues and web hooks."""

from __future__ import annotations

import json
import re
from typing import Any

from conformance import web_hooks
from conformance.casebook import Cases
from conformance.driving import Client, expect
from queuegate.protocol import sns_envelopes

CASES = Cases()
case = CASES.case

_ENVELOPE = [
    "Type",
    "MessageId",
    "TopicArn",
    "Subject",
    "Message",
    "Timestamp",
    "SignatureVersion",
    "Signature",
    "SigningCertURL",
    "UnsubscribeURL",
    "MessageAttributes",
]
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def _one(client: Client, url: str, **members: Any) -> dict[str, Any]:
    [message] = client.receive(url, 1, WaitTimeSeconds=20, **members)
    return message


def _expect_signature(message: dict[str, Any], version: str) -> None:
    expect(message["SignatureVersion"], version)
    certificate = web_hooks.visit(message["SigningCertURL"])
    expect(message["SigningCertURL"].endswith(".pem"), True)
    expect(sns_envelopes.verify(certificate, message), True, "signature")


def _confirmed(client: Client, hook: web_hooks.WebHook, topic: str, **attributes: str) -> str:
    members: dict[str, Any] = {"TopicArn": topic, "Protocol": "http", "Endpoint": hook.url}
    if attributes:
        members["Attributes"] = attributes
    client.sns("Subscribe", **members)
    message = hook.next("SubscriptionConfirmation").message
    _expect_signature(message, client.topic_attributes(topic).get("SignatureVersion", "1"))
    confirmed = client.sns("ConfirmSubscription", TopicArn=topic, Token=message["Token"])
    arn: str = confirmed["SubscriptionArn"]
    return arn


@case(brief=True)
def an_envelope_in_a_queue(client: Client) -> None:
    topic, url = client.topic(), client.queue()
    arn = client.subscribed(topic, url)
    attributes: dict[str, dict[str, Any]] = {
        "text": {"DataType": "String", "StringValue": "żółć"},
        "list": {"DataType": "String.Array", "StringValue": '["a",1]'},
        "bytes": {"DataType": "Binary", "BinaryValue": b"plain bytes"},
    }
    members = {"Message": 'a "b" \n', "Subject": "the subject", "MessageAttributes": attributes}
    published = client.sns("Publish", TopicArn=topic, **members)
    received = _one(client, url, MessageAttributeNames=["All"])
    expect("MessageAttributes" in received, False)
    message = json.loads(received["Body"])
    expect(list(message), _ENVELOPE)
    expect(message["Type"], "Notification")
    expect(message["MessageId"], published["MessageId"])
    expect(message["TopicArn"], topic)
    expect((message["Subject"], message["Message"]), ("the subject", 'a "b" \n'))
    expect(bool(_TIMESTAMP.fullmatch(message["Timestamp"])), True, message["Timestamp"])
    expect(message["UnsubscribeURL"].endswith(f"/?Action=Unsubscribe&SubscriptionArn={arn}"), True)
    wanted = {
        "text": {"Type": "String", "Value": "żółć"},
        "list": {"Type": "String.Array", "Value": '["a",1]'},
        "bytes": {"Type": "Binary", "Value": "cGxhaW4gYnl0ZXM="},
    }
    expect(message["MessageAttributes"], wanted)
    _expect_signature(message, "1")


@case()
def an_envelope_of_a_fifo_topic_is_not_signed(client: Client) -> None:
    topic = client.topic(".fifo", ContentBasedDeduplication="true")
    url = client.queue(".fifo")
    client.subscribed(topic, url)
    published = client.sns("Publish", TopicArn=topic, Message="m", MessageGroupId="g")
    message = json.loads(_one(client, url)["Body"])
    order = ["Type", "MessageId", "SequenceNumber", "TopicArn", "Message", "Timestamp"]
    expect(list(message), [*order, "UnsubscribeURL"])
    expect(message["SequenceNumber"], published["SequenceNumber"])


@case(brief=True)
def a_raw_message_in_a_queue(client: Client) -> None:
    topic, url = client.topic(), client.queue()
    client.subscribed(topic, url, RawMessageDelivery="true")
    attributes: dict[str, dict[str, Any]] = {
        "text": {"DataType": "String", "StringValue": "żółć"},
        "list": {"DataType": "String.Array", "StringValue": '["a",1]'},
        "number": {"DataType": "Number", "StringValue": "3.50"},
        "bytes": {"DataType": "Binary", "BinaryValue": b"plain bytes"},
    }
    members = {"Message": "raw", "Subject": "dropped", "MessageAttributes": attributes}
    client.sns("Publish", TopicArn=topic, **members)
    received = _one(client, url, MessageAttributeNames=["All"])
    expect(received["Body"], "raw")
    expect(received["MessageAttributes"], attributes)


@case()
def a_message_group_of_a_standard_topic(client: Client) -> None:
    topic, url = client.topic(), client.queue()
    client.subscribed(topic, url, RawMessageDelivery="true")
    client.sns("Publish", TopicArn=topic, Message="m", MessageGroupId="tenant")
    message = _one(client, url, AttributeNames=["All"])
    expect(message["Attributes"]["MessageGroupId"], "tenant")


@case()
def a_topic_reaches_every_queue(client: Client) -> None:
    topic = client.topic()
    urls = [client.queue() for _ in range(12)]
    for url in urls:
        client.subscribed(topic, url, RawMessageDelivery="true")
    client.sns("Publish", TopicArn=topic, Message="m")
    expect([_one(client, url)["Body"] for url in urls], ["m"] * 12)


@case()
def a_dead_letter_of_a_subscription(client: Client) -> None:
    topic, url, dead = client.topic(), client.queue(), client.queue()
    policy = json.dumps({"deadLetterTargetArn": client.open_to_topics(dead)})
    client.subscribed(topic, url, RawMessageDelivery="true", RedrivePolicy=policy)
    client.call("DeleteQueue", QueueUrl=url)
    client.sns("Publish", TopicArn=topic, Message="nobody there")
    expect(_one(client, dead)["Body"], "nobody there")


@case()
def an_archive_and_its_replay(client: Client) -> None:
    attributes = {
        "ContentBasedDeduplication": "true",
        "ArchivePolicy": '{"MessageRetentionPeriod":"30"}',
    }
    topic = client.topic(".fifo", **attributes)
    for body in ("a", "b", "c"):
        client.sns("Publish", TopicArn=topic, Message=body, MessageGroupId="g")
    begins = client.topic_attributes(topic)["BeginningArchiveTime"]
    expect(bool(_TIMESTAMP.fullmatch(begins)), True, begins)
    url = client.queue(".fifo")
    policy = {"PointType": "Timestamp", "StartingPoint": begins}
    arn = client.subscribed(topic, url, RawMessageDelivery="true", ReplayPolicy=json.dumps(policy))
    expect("ReplayStatus" in client.subscription_attributes(arn), True)
    found = []
    for _ in range(3):
        message = _one(client, url)
        client.call("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        found.append(message["Body"])
    expect(found, ["a", "b", "c"])


@case()
def a_signature_of_version_2(client: Client) -> None:
    topic = client.topic(SignatureVersion="2")
    with web_hooks.listening() as hook:
        _confirmed(client, hook, topic)
        client.sns("Publish", TopicArn=topic, Message="żółć\n", Subject="s")
        delivery = hook.next("Notification")
        expect(list(delivery.message), _ENVELOPE[:-1])
        _expect_signature(delivery.message, "2")


@case()
def a_raw_message_at_a_web_hook(client: Client) -> None:
    topic = client.topic()
    policy = json.dumps({"requestPolicy": {"headerContentType": "application/json"}})
    with web_hooks.listening() as hook:
        arn = _confirmed(client, hook, topic, RawMessageDelivery="true", DeliveryPolicy=policy)
        published = client.sns("Publish", TopicArn=topic, Message='{"a":1}')
        delivery = hook.next("Notification")
        expect(delivery.body, '{"a":1}')
        names = ("content-type", "x-amz-sns-rawdelivery", "x-amz-sns-message-id")
        expect(
            [delivery.headers[name].partition(";")[0] for name in names],
            ["application/json", "true", published["MessageId"]],
        )
        expect(delivery.headers["x-amz-sns-subscription-arn"], arn)
