"""SNS: what Publish and PublishBatch take and refuse."""

from __future__ import annotations

import json
from typing import Any

from conformance.casebook import Cases
from conformance.driving import Client, expect, expect_refusal

CASES = Cases()
case = CASES.case

_LARGEST = 262_144
_DEDUPLICATION_ON_STANDARD = (
    "MessageDeduplicationId Reason: The request includes MessageDeduplicationId parameter that is "
    "not valid for this topic type"
)
_NO_DEDUPLICATION = (
    "The topic should either have ContentBasedDeduplication enabled or MessageDeduplicationId "
    "provided explicitly"
)


def _text(value: str) -> dict[str, str]:
    return {"DataType": "String", "StringValue": value}


def _absent(member: str) -> str:
    return (
        f"1 validation error detected: Value null at '{member}' failed to satisfy constraint: "
        "Member must not be null"
    )


def _topic_and_queue(client: Client, **attributes: str) -> tuple[str, str]:
    topic, url = client.topic(), client.queue()
    client.subscribed(topic, url, RawMessageDelivery="true", **attributes)
    return topic, url


def _bodies(client: Client, url: str, count: int) -> list[str]:
    """The bodies of so many messages, which may take a moment to arrive."""
    found: list[str] = []
    while len(found) < count:
        messages = client.receive(url, WaitTimeSeconds=20)
        expect(messages != [], True, f"{len(found)} of {count} messages")
        found += [message["Body"] for message in messages]
    return found


@case(brief=True)
def publish_to_a_queue(client: Client) -> None:
    topic, url = _topic_and_queue(client)
    body = "Zażółć <&>\"' \n\t 😀"
    published = client.sns("Publish", TopicArn=topic, Message=body)
    expect(set(published), {"MessageId"})
    expect(_bodies(client, url, 1), [body])
    expect(set(client.sns("Publish", TargetArn=topic, Message="again")), {"MessageId"})
    expect(_bodies(client, url, 1), ["again"])


@case(brief=True)
def publish_in_batches(client: Client) -> None:
    topic, url = _topic_and_queue(client)
    entries: list[dict[str, Any]] = [{"Id": f"e{n}", "Message": str(n)} for n in range(9)]
    entries[3]["MessageAttributes"] = {"color": _text("blue")}
    entries.append({"Id": "bad", "Message": ""})
    members = {"TopicArn": topic, "PublishBatchRequestEntries": entries}
    published = client.sns("PublishBatch", **members)
    expect([entry["Id"] for entry in published["Successful"]], [f"e{n}" for n in range(9)])
    expect(len({entry["MessageId"] for entry in published["Successful"]}), 9)
    [failed] = published["Failed"]
    expect((failed["Id"], failed["Code"]), ("bad", "InvalidParameter"))
    expect((failed["Message"], failed["SenderFault"]), ("Invalid parameter: Empty message", True))
    expect(sorted(_bodies(client, url, 9)), [str(n) for n in range(9)])
    members["PublishBatchRequestEntries"] = entries[:1]
    expect(client.sns("PublishBatch", **members)["Failed"], [])


@case()
def batches_that_are_refused_whole(client: Client) -> None:
    topic = client.topic()
    entry = {"Id": "a", "Message": "m"}
    ids = "The Id of a batch entry in the batch request contains an impermissible character: a b"
    same = "Two or more batch entries in the request have the same Id."
    many = "The batch request contains more entries than permissible."
    long = "The length of all the messages put together is more than the limit."
    half = "x" * (_LARGEST // 2)
    table = [
        ([entry] * 2, "BatchEntryIdsNotDistinct", same),
        ([{"Id": str(n), "Message": "m"} for n in range(11)], "TooManyEntriesInBatchRequest", many),
        ([entry | {"Id": "a b"}], "InvalidBatchEntryId", ids),
        (
            [{"Id": "a", "Message": half}, {"Id": "b", "Message": half + "x"}],
            "BatchRequestTooLong",
            long,
        ),
    ]
    for entries, code, text in table:
        members: dict[str, Any] = {"TopicArn": topic, "PublishBatchRequestEntries": entries}
        refused = client.sns_refusal("PublishBatch", **members)
        expect_refusal(refused, code, text=text, exception=f"{code}Exception")


@case()
def a_message_for_each_protocol(client: Client) -> None:
    topic, url = _topic_and_queue(client)
    members = {"TopicArn": topic, "MessageStructure": "json"}
    texts = {"default": "for all", "sqs": "for queues", "http": 5}
    client.sns("Publish", Message=json.dumps(texts), **members)
    expect(_bodies(client, url, 1), ["for queues"])
    client.sns("Publish", Message='{"default":"for all","http":"for web hooks"}', **members)
    expect(_bodies(client, url, 1), ["for all"])
    table = [
        ('{"sqs":"x"}', "Message Structure - No default entry in JSON message body"),
        ('{"default":5}', "Message Structure - No default entry in JSON message body"),
        ("{", "Message Structure - JSON message body failed to parse"),
    ]
    for message, reason in table:
        refused = client.sns_refusal("Publish", Message=message, **members)
        expect_refusal(refused, "InvalidParameter", text=f"Invalid parameter: {reason}")


@case()
def the_largest_message(client: Client) -> None:
    topic, url = _topic_and_queue(client)
    body = "x" * _LARGEST
    client.sns("Publish", TopicArn=topic, Message=body)
    expect(_bodies(client, url, 1) == [body], True)
    refused = client.sns_refusal("Publish", TopicArn=topic, Message=body + "x")
    expect_refusal(refused, "InvalidParameter", text="Invalid parameter: Message too long")


@case()
def messages_that_are_refused(client: Client) -> None:
    topic = client.topic()
    nobody = topic + "-missing"
    endpoint = topic.rpartition(":")[0] + ":endpoint/GCM/app/11111111-2222-3333-4444-555555555555"
    target = "TargetArn Reason: No endpoint found for the target arn specified"
    number = "PhoneNumber Reason: +1x is not valid to publish to"
    table: list[tuple[dict[str, Any], str, str]] = [
        ({"TopicArn": topic, "Message": ""}, "InvalidParameter", "Empty message"),
        ({"TopicArn": topic, "Message": "m", "Subject": ""}, "InvalidParameter", "Subject"),
        ({"TopicArn": topic, "Message": "m", "Subject": "a\nb"}, "InvalidParameter", "Subject"),
        ({"TopicArn": topic, "Message": "m", "Subject": "s" * 101}, "InvalidParameter", "Subject"),
        (
            {"TopicArn": topic, "Message": "m", "MessageDeduplicationId": "d"},
            "InvalidParameter",
            _DEDUPLICATION_ON_STANDARD,
        ),
        ({"TargetArn": endpoint, "Message": "m"}, "InvalidParameter", target),
        ({"PhoneNumber": "+1x", "Message": "m"}, "InvalidParameter", number),
    ]
    for members, code, reason in table:
        refused = client.sns_refusal("Publish", **members)
        expect_refusal(refused, code, text=f"Invalid parameter: {reason}")
    refused = client.sns_refusal("Publish", TopicArn=nobody, Message="m")
    text = "Topic does not exist"
    expect_refusal(refused, "NotFound", text=text, status=404, exception="NotFoundException")
    refused = client.sns_refusal("Publish", TopicArn=topic)
    expect_refusal(refused, "ValidationError", text=_absent("message"))


@case()
def attributes_that_are_refused(client: Client) -> None:
    topic = client.topic()
    value: dict[str, Any] = {"DataType": "String", "StringValue": "v"}
    table: list[tuple[str, dict[str, Any], str]] = [
        (
            "n",
            {"DataType": "String", "StringValue": ""},
            "The message attribute 'n' must contain non-empty message attribute value for message "
            "attribute type 'String'.",
        ),
        (
            "n",
            {"DataType": "String", "BinaryValue": b"v"},
            "The message attribute 'n' with type 'String' must use field 'String'.",
        ),
        (
            "n",
            {"DataType": "Text", "StringValue": "v"},
            "The message attribute 'n' has an invalid message attribute type, the set of supported "
            "type prefixes is Binary, Number, and String.",
        ),
        ("x" * 257, value, "Length of message attribute name must be less than 256 bytes."),
        (
            "a^b",
            value,
            "Invalid non-alphanumeric character '#x5E' was found in the message attribute name. "
            "Can only include alphanumeric characters, hyphens, underscores, or dots.",
        ),
        (".a", value, "Invalid message attribute name starting with character '.' was found."),
        ("a..b", value, "Message attribute name can not have successive '.' character."),
    ]
    for name, attribute, text in table:
        members = {"TopicArn": topic, "Message": "m", "MessageAttributes": {name: attribute}}
        refused = client.sns_refusal("Publish", **members)
        exception = "InvalidParameterValueException"
        expect_refusal(refused, "ParameterValueInvalid", text=text, exception=exception)
    members = {"TopicArn": topic, "Message": "m", "MessageAttributes": {"n": {"StringValue": "v"}}}
    refused = client.sns_refusal("Publish", **members)
    text = _absent("messageAttributes.n.member.dataType")
    expect_refusal(refused, "ValidationError", text=text)


@case(brief=True)
def a_filter_by_attributes(client: Client) -> None:
    policy = {"color": ["blue", {"prefix": "re"}], "size": [{"numeric": [">", 5, "<=", 10]}]}
    topic, url = _topic_and_queue(client, FilterPolicy=json.dumps(policy))
    table = [
        ("blue", "7", True),
        ("red", "10.0", True),
        ("green", "7", False),
        ("blue", "5", False),
    ]
    for color, size, _ in table:
        attributes = {
            "color": _text(color),
            "size": {"DataType": "Number", "StringValue": size},
        }
        members = {"Message": f"{color} {size}", "MessageAttributes": attributes}
        client.sns("Publish", TopicArn=topic, **members)
    client.sns("Publish", TopicArn=topic, Message="without attributes")
    wanted = sorted(f"{color} {size}" for color, size, passes in table if passes)
    expect(sorted(_bodies(client, url, len(wanted))), wanted)
    expect(client.receive(url), [])


@case()
def a_filter_by_the_body(client: Client) -> None:
    policy = json.dumps({"order": {"state": [{"anything-but": "draft"}], "tags": ["gift"]}})
    topic, url = _topic_and_queue(client, FilterPolicy=policy, FilterPolicyScope="MessageBody")
    bodies = [
        '{"order":{"state":"sent","tags":["new","gift"]}}',
        '{"order":{"state":"draft","tags":["gift"]}}',
        '{"order":{"state":"sent"}}',
        "no JSON",
    ]
    for body in bodies:
        client.sns("Publish", TopicArn=topic, Message=body)
    expect(_bodies(client, url, 1), bodies[:1])
    expect(client.receive(url), [])


@case()
def a_new_filter_counts_at_once(client: Client) -> None:
    topic, url = client.topic(), client.queue()
    arn = client.subscribed(topic, url, RawMessageDelivery="true")
    client.sns("Publish", TopicArn=topic, Message="before")
    members = {"AttributeName": "FilterPolicy", "AttributeValue": '{"a":["b"]}'}
    client.sns("SetSubscriptionAttributes", SubscriptionArn=arn, **members)
    client.sns("Publish", TopicArn=topic, Message="after")
    expect(_bodies(client, url, 1), ["before"])
    expect(client.receive(url), [])


@case(brief=True)
def a_fifo_topic(client: Client) -> None:
    topic = client.topic(".fifo", ContentBasedDeduplication="true")
    fifo, standard = client.queue(".fifo"), client.queue()
    for url in (fifo, standard):
        client.subscribed(topic, url, RawMessageDelivery="true")
    members = {"TopicArn": topic, "MessageGroupId": "g"}
    first = client.sns("Publish", Message="a", **members)
    client.sns("Publish", Message="a", **members)
    entry = {"Id": "e", "Message": "b", "MessageGroupId": "g", "MessageDeduplicationId": "d"}
    batch = client.sns("PublishBatch", TopicArn=topic, PublishBatchRequestEntries=[entry])
    [second] = batch["Successful"]
    expect(second["SequenceNumber"] > first["SequenceNumber"], True)
    found: list[dict[str, Any]] = []
    while len(found) < 2:
        [message] = client.receive(fifo, 1, WaitTimeSeconds=20, AttributeNames=["All"])
        client.call("DeleteMessage", QueueUrl=fifo, ReceiptHandle=message["ReceiptHandle"])
        found.append(message)
    expect([message["Body"] for message in found], ["a", "b"])
    expect({message["Attributes"]["MessageGroupId"] for message in found}, {"g"})
    expect(found[1]["Attributes"]["MessageDeduplicationId"], "d")
    expect(sorted(_bodies(client, standard, 2)), ["a", "b"])


@case()
def scopes_of_deduplication(client: Client) -> None:
    for scope, wanted in (("Topic", 1), ("MessageGroup", 2)):
        attributes = {"ContentBasedDeduplication": "true", "FifoThroughputScope": scope}
        topic, url = client.topic(".fifo", **attributes), client.queue()
        client.subscribed(topic, url, RawMessageDelivery="true")
        for group in ("g1", "g2", "g1"):
            client.sns("Publish", TopicArn=topic, Message="m", MessageGroupId=group)
        expect(len(_bodies(client, url, wanted)), wanted, scope)
        expect(client.receive(url), [], scope)


@case()
def messages_that_a_fifo_topic_refuses(client: Client) -> None:
    topic = client.topic(".fifo")
    table = [
        (
            {"MessageDeduplicationId": "d"},
            "The MessageGroupId parameter is required for FIFO topics",
        ),
        ({"MessageGroupId": "g"}, _NO_DEDUPLICATION),
    ]
    for members, reason in table:
        text = f"Invalid parameter: {reason}"
        refused = client.sns_refusal("Publish", TopicArn=topic, Message="m", **members)
        expect_refusal(refused, "InvalidParameter", text=text)
        entries = [{"Id": "e", "Message": "m", **members}]
        whole: dict[str, Any] = {"TopicArn": topic, "PublishBatchRequestEntries": entries}
        expect_refusal(client.sns_refusal("PublishBatch", **whole), "InvalidParameter", text=text)
