"""SQS."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from conformance.casebook import Cases
from conformance.driving import Client, expect

CASES = Cases()
case = CASES.case


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


# Messages


@case(brief=True)
def send_receive_delete(client: Client) -> None:
    url = client.queue()
    body = "Zażółć <&>\"' \r\n\t 😀"
    sent = client.call("SendMessage", QueueUrl=url, MessageBody=body)
    expect(sent["MD5OfMessageBody"], _md5(body))
    [message] = client.receive(url)
    expect(message["Body"], body)
    expect(message["MD5OfBody"], _md5(body))
    expect(message["MessageId"], sent["MessageId"])
    handle = message["ReceiptHandle"]
    expect(client.call("DeleteMessage", QueueUrl=url, ReceiptHandle=handle), {})
    expect(client.attribute(url, "ApproximateNumberOfMessagesNotVisible"), "0")


@case(brief=True)
def message_attributes_of_every_type(client: Client) -> None:
    url = client.queue()
    values: dict[str, dict[str, Any]] = {
        "text": {"DataType": "String", "StringValue": "żółć"},
        "number": {"DataType": "Number.float", "StringValue": "99.12"},
        "bytes": {"DataType": "Binary.png", "BinaryValue": b"plain bytes"},
    }
    sent = client.call("SendMessage", QueueUrl=url, MessageBody="b", MessageAttributes=values)
    [message] = client.receive(url, MessageAttributeNames=["All"])
    expect(message["MessageAttributes"], values)
    expect(message["MD5OfMessageAttributes"], sent["MD5OfMessageAttributes"])


@case()
def bytes_of_any_value(client: Client) -> None:
    url = client.queue()
    values = {"bytes": {"DataType": "Binary", "BinaryValue": bytes(range(256))}}
    client.call("SendMessage", QueueUrl=url, MessageBody="b", MessageAttributes=values)
    [message] = client.receive(url, MessageAttributeNames=["bytes"])
    expect(message["MessageAttributes"], values)


@case()
def system_attributes(client: Client) -> None:
    url = client.queue()
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-abc"}}
    sent = client.call("SendMessage", QueueUrl=url, MessageBody="b", MessageSystemAttributes=trace)
    expect(len(sent["MD5OfMessageSystemAttributes"]), 32)
    [message] = client.receive(url, AttributeNames=["All"])
    expect(message["Attributes"]["AWSTraceHeader"], "Root=1-abc")
    expect(message["Attributes"]["ApproximateReceiveCount"], "1")


@case()
def the_newer_name_list(client: Client) -> None:
    if client.is_query:
        return
    url = client.queue()
    client.call("SendMessage", QueueUrl=url, MessageBody="b")
    [message] = client.receive(url, MessageSystemAttributeNames=["SentTimestamp"])
    expect(set(message["Attributes"]), {"SentTimestamp"})


@case(brief=True)
def an_empty_receive(client: Client) -> None:
    expect(client.call("ReceiveMessage", QueueUrl=client.queue()), {})


@case(brief=True)
def batches(client: Client) -> None:
    url = client.queue()
    entries = [{"Id": f"e{number}", "MessageBody": str(number)} for number in range(9)]
    entries.append({"Id": "bad", "MessageBody": "\ufffe"})
    sent = client.call("SendMessageBatch", QueueUrl=url, Entries=entries)
    expect([entry["Id"] for entry in sent["Successful"]], [f"e{n}" for n in range(9)])
    [failed] = sent["Failed"]
    expect((failed["Code"], failed["SenderFault"]), ("InvalidMessageContents", True))
    found = client.receive(url)
    expect([message["Body"] for message in found], [str(n) for n in range(9)])
    changes = [
        {"Id": f"c{n}", "ReceiptHandle": m["ReceiptHandle"], "VisibilityTimeout": 0}
        for n, m in enumerate(found)
    ]
    changed = client.call("ChangeMessageVisibilityBatch", QueueUrl=url, Entries=changes)
    expect((len(changed["Successful"]), changed.get("Failed", [])), (9, []))
    found = client.receive(url)
    deletes = [{"Id": f"d{n}", "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(found)]
    deleted = client.call("DeleteMessageBatch", QueueUrl=url, Entries=deletes)
    expect((len(deleted["Successful"]), deleted.get("Failed", [])), (9, []))
    expect(client.receive(url), [])


@case(brief=True)
def visibility(client: Client) -> None:
    url = client.queue()
    client.call("SendMessage", QueueUrl=url, MessageBody="b")
    [message] = client.receive(url, VisibilityTimeout=600)
    expect(client.receive(url), [])
    members = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}
    expect(client.call("ChangeMessageVisibility", VisibilityTimeout=0, **members), {})
    expect(len(client.receive(url)), 1)


@case(brief=True)
def a_long_poll_ends_with_a_send(client: Client) -> None:
    url = client.queue()
    poll = {"QueueUrl": url, "WaitTimeSeconds": 20}
    send = {"QueueUrl": url, "MessageBody": "b"}
    found = client.meanwhile("ReceiveMessage", poll, "SendMessage", **send)
    expect([message["Body"] for message in found["Messages"]], ["b"])


@case()
def a_long_poll_ends_with_a_timeout_of_another_receive(client: Client) -> None:
    url = client.queue()
    client.call("SendMessage", QueueUrl=url, MessageBody="b")
    expect(len(client.receive(url, VisibilityTimeout=1)), 1)
    expect(len(client.receive(url, WaitTimeSeconds=20)), 1)


@case()
def a_delay(client: Client) -> None:
    url = client.queue()
    client.call("SendMessage", QueueUrl=url, MessageBody="b", DelaySeconds=900)
    expect(client.receive(url), [])
    expect(client.attribute(url, "ApproximateNumberOfMessagesDelayed"), "1")
    soon = client.queue()
    client.call("SendMessage", QueueUrl=soon, MessageBody="b", DelaySeconds=1)
    expect(len(client.receive(soon, WaitTimeSeconds=20)), 1)


@case()
def one_mebibyte(client: Client) -> None:
    url = client.queue()
    body = "x" * 1_048_576
    client.call("SendMessage", QueueUrl=url, MessageBody=body)
    [message] = client.receive(url)
    expect(message["Body"] == body, True)
    refused = client.refusal("SendMessage", QueueUrl=url, MessageBody=body + "x")
    expect(refused.code, "InvalidParameterValue")


@case()
def a_line_end_survives(client: Client) -> None:
    url = client.queue()
    client.call("SendMessage", QueueUrl=url, MessageBody="a\rb\r\nc\n")
    [message] = client.receive(url)
    expect(message["Body"], "a\rb\r\nc\n")
    expect(message["MD5OfBody"], _md5("a\rb\r\nc\n"))


# FIFO queues


@case(brief=True)
def a_fifo_queue(client: Client) -> None:
    url = client.queue(".fifo")
    first = client.call("SendMessage", QueueUrl=url, MessageBody="a", MessageGroupId="g")
    again = client.call("SendMessage", QueueUrl=url, MessageBody="a", MessageGroupId="g")
    expect(again["MessageId"], first["MessageId"])
    expect(again["SequenceNumber"], first["SequenceNumber"])
    second = client.call("SendMessage", QueueUrl=url, MessageBody="b", MessageGroupId="g")
    expect(second["SequenceNumber"] > first["SequenceNumber"], True)
    [message] = client.receive(url, 1, AttributeNames=["All"])
    expect(message["Attributes"]["MessageDeduplicationId"], hashlib.sha256(b"a").hexdigest())
    expect(message["Attributes"]["MessageGroupId"], "g")
    expect(client.receive(url), [])
    client.call("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    expect([message["Body"] for message in client.receive(url)], ["b"])


@case()
def an_expired_receipt_of_a_fifo_queue(client: Client) -> None:
    url = client.queue(".fifo")
    client.call("SendMessage", QueueUrl=url, MessageBody="a", MessageGroupId="g")
    [message] = client.receive(url, VisibilityTimeout=1)
    expect(len(client.receive(url, WaitTimeSeconds=20)), 1)
    handle = message["ReceiptHandle"]
    refused = client.refusal("DeleteMessage", QueueUrl=url, ReceiptHandle=handle)
    expect(refused.code, "InvalidParameterValue")
    expect(refused.text.endswith("Reason: The receipt handle has expired."), True)


@case()
def the_same_attempt(client: Client) -> None:
    url = client.queue(".fifo")
    client.call("SendMessage", QueueUrl=url, MessageBody="a", MessageGroupId="g")
    attempt: dict[str, Any] = {"ReceiveRequestAttemptId": "one"}
    [first] = client.receive(url, **attempt)
    [again] = client.receive(url, **attempt)
    expect(again["MessageId"], first["MessageId"])


# Queues


@case(brief=True)
def a_queue_is_created_found_listed_and_deleted(client: Client) -> None:
    url = client.queue("-listed")
    name = url.rpartition("/")[2]
    expect(client.call("GetQueueUrl", QueueName=name), {"QueueUrl": url})
    expect(client.call("ListQueues", QueueNamePrefix=name), {"QueueUrls": [url]})
    expect(client.call("DeleteQueue", QueueUrl=url), {})
    refused = client.refusal("GetQueueUrl", QueueName=name)
    expect(refused.code, "AWS.SimpleQueueService.NonExistentQueue")
    expect(refused.status in {400, None}, True)
    expect(refused.exception in {"QueueDoesNotExist", None}, True, "exception class")
    expect(client.call("ListQueues", QueueNamePrefix=name).get("QueueUrls", []), [])


@case()
def pages_of_queues(client: Client) -> None:
    urls = {client.queue("-paged") for _ in range(3)}
    first = client.call("ListQueues", QueueNamePrefix="case-", MaxResults=2)
    expect(len(first["QueueUrls"]), 2)
    found = set(first["QueueUrls"])
    token = first["NextToken"]
    while token:
        page = client.call("ListQueues", QueueNamePrefix="case-", MaxResults=1000, NextToken=token)
        found |= set(page["QueueUrls"])
        token = page.get("NextToken")
    expect(found >= urls, True)


@case(brief=True)
def attributes_read_back(client: Client) -> None:
    attributes = {
        "DelaySeconds": "5",
        "MessageRetentionPeriod": "60",
        "KmsMasterKeyId": "alias/mine",
        "KmsDataKeyReusePeriodSeconds": "600",
        "Policy": '{"Version":"2012-10-17","Statement":[]}',
    }
    url = client.queue()
    expect(client.call("SetQueueAttributes", QueueUrl=url, Attributes=attributes), {})
    result = client.call("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])["Attributes"]
    expect({name: result.get(name) for name in attributes}, attributes)
    expect(result["SqsManagedSseEnabled"], "false")


@case()
def every_attribute_at_creation(client: Client) -> None:
    attributes = {
        "DelaySeconds": "1",
        "MaximumMessageSize": "2048",
        "ReceiveMessageWaitTimeSeconds": "2",
        "VisibilityTimeout": "3",
        "DeduplicationScope": "messageGroup",
        "FifoThroughputLimit": "perMessageGroupId",
        "SqsManagedSseEnabled": "false",
    }
    url = client.queue(".fifo", **attributes)
    result = client.call("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])["Attributes"]
    expect({name: result.get(name) for name in attributes}, attributes)


@case(brief=True)
def tags(client: Client) -> None:
    url = client.queue()
    expect(client.call("ListQueueTags", QueueUrl=url), {})
    expect(client.call("TagQueue", QueueUrl=url, Tags={"env": "prod", "Team": "a b"}), {})
    expect(client.call("ListQueueTags", QueueUrl=url), {"Tags": {"env": "prod", "Team": "a b"}})
    expect(client.call("UntagQueue", QueueUrl=url, TagKeys=["env"]), {})
    expect(client.call("ListQueueTags", QueueUrl=url), {"Tags": {"Team": "a b"}})


@case()
def tags_at_creation(client: Client) -> None:
    members = {"QueueName": "tagged-at-creation", "tags": {"env": "prod"}}
    url = client.call("CreateQueue", **members)["QueueUrl"]
    expect(client.call("ListQueueTags", QueueUrl=url), {"Tags": {"env": "prod"}})
    client.call("DeleteQueue", QueueUrl=url)


@case(brief=True)
def permissions(client: Client) -> None:
    url = client.queue()
    members = {"AWSAccountIds": ["111111111111"], "Actions": ["SendMessage", "ReceiveMessage"]}
    expect(client.call("AddPermission", QueueUrl=url, Label="mine", **members), {})
    policy = json.loads(client.attribute(url, "Policy") or "{}")
    [statement] = policy["Statement"]
    expect(statement["Action"], ["SQS:SendMessage", "SQS:ReceiveMessage"])
    expect(client.call("RemovePermission", QueueUrl=url, Label="mine"), {})
    expect(client.attribute(url, "Policy"), None)


@case(brief=True)
def a_purge(client: Client) -> None:
    url = client.queue()
    client.call("SendMessage", QueueUrl=url, MessageBody="b")
    expect(client.call("PurgeQueue", QueueUrl=url), {})
    expect(client.receive(url), [])
    refused = client.refusal("PurgeQueue", QueueUrl=url)
    expect(refused.code, "AWS.SimpleQueueService.PurgeQueueInProgress")
    expect(refused.status in {403, None}, True)
    expect(refused.exception in {"PurgeQueueInProgress", None}, True, "exception class")


# Dead-letter queues


@case(brief=True)
def dead_letters_and_move_tasks(client: Client) -> None:
    # An attribute: the SDK for Go leaves a timeout of 0 out of a receive.
    dead = client.queue("-dead", VisibilityTimeout="0")
    arn = client.queue_arn(dead)
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    source = client.queue("-source", RedrivePolicy=policy, VisibilityTimeout="0")
    found = client.call("ListDeadLetterSourceQueues", QueueUrl=dead)
    expect(found["queueUrls"], [source])
    client.call("SendMessage", QueueUrl=source, MessageBody="b")
    expect(len(client.receive(source)), 1)
    expect(client.receive(source), [])
    [message] = client.receive(dead, AttributeNames=["All"])
    expect(message["Attributes"]["ApproximateReceiveCount"], "2")
    expect(message["Attributes"]["DeadLetterQueueSourceArn"], client.queue_arn(source))
    members = {"SourceArn": arn, "MaxNumberOfMessagesPerSecond": 500}
    handle = client.call("StartMessageMoveTask", **members)["TaskHandle"]
    expect(len(handle) > 40, True)
    [back] = client.receive(source, WaitTimeSeconds=20, AttributeNames=["All"])
    expect(back["Attributes"]["ApproximateReceiveCount"], "1")
    [task] = client.call("ListMessageMoveTasks", SourceArn=arn)["Results"]
    expect(task["MaxNumberOfMessagesPerSecond"], 500)


@case(brief=True)
def a_move_task_is_cancelled(client: Client) -> None:
    dead = client.queue("-dead")
    arn = client.queue_arn(dead)
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    target = client.queue_arn(client.queue("-source", RedrivePolicy=policy))
    entries = [{"Id": str(number), "MessageBody": str(number)} for number in range(10)]
    # Half a minute: a command that starts slowly must come in time.
    for _ in range(3):
        client.call("SendMessageBatch", QueueUrl=dead, Entries=entries)
    members = {"SourceArn": arn, "DestinationArn": target, "MaxNumberOfMessagesPerSecond": 1}
    handle = client.call("StartMessageMoveTask", **members)["TaskHandle"]
    moved = client.call("CancelMessageMoveTask", TaskHandle=handle)
    expect(moved["ApproximateNumberOfMessagesMoved"] < 30, True)
    [task] = client.call("ListMessageMoveTasks", SourceArn=arn)["Results"]
    expect(task["Status"] in {"CANCELLING", "CANCELLED"}, True)


# Refusals: the code, the text and the class that a program catches


@case(brief=True)
def a_receipt_that_is_none(client: Client) -> None:
    url = client.queue()
    refused = client.refusal("DeleteMessage", QueueUrl=url, ReceiptHandle="garbage")
    expect(refused.code, "ReceiptHandleIsInvalid")
    expect(refused.text, 'The input receipt handle "garbage" is not a valid receipt handle.')
    expect(refused.status in {404, None}, True)
    expect(refused.exception in {"ReceiptHandleIsInvalid", None}, True, "exception class")


@case()
def classes_of_refusals(client: Client) -> None:
    url = client.queue(VisibilityTimeout="20")
    name = url.rpartition("/")[2]
    other = {"VisibilityTimeout": "21"}
    entry = {"Id": "a", "MessageBody": "b"}
    prefix = "AWS.SimpleQueueService."
    table: list[tuple[str, dict[str, Any], str, str]] = [
        ("CreateQueue", {"QueueName": name, "Attributes": other}, "", "QueueNameExists"),
        (
            "GetQueueAttributes",
            {"QueueUrl": url, "AttributeNames": ["Foo"]},
            "",
            "InvalidAttributeName",
        ),
        ("SendMessageBatch", {"QueueUrl": url, "Entries": []}, prefix, "EmptyBatchRequest"),
        (
            "SendMessageBatch",
            {"QueueUrl": url, "Entries": [entry] * 2},
            prefix,
            "BatchEntryIdsNotDistinct",
        ),
        (
            "SendMessageBatch",
            {"QueueUrl": url, "Entries": [entry] * 11},
            prefix,
            "TooManyEntriesInBatchRequest",
        ),
        ("SendMessage", {"QueueUrl": url, "MessageBody": "\ufffe"}, "", "InvalidMessageContents"),
    ]
    for action, members, start, shape in table:
        refused = client.refusal(action, **members)
        code = "QueueAlreadyExists" if shape == "QueueNameExists" else start + shape
        expect(refused.code, code, action)
        expect(refused.exception, shape, f"class of {action}'s refusal")


@case()
def texts_differ_between_the_wires(client: Client) -> None:
    refused = client.refusal("GetQueueUrl", QueueName="nothing-of-that-name")
    tail = " for this wsdl version." if client.is_query else "."
    expect(refused.text, "The specified queue does not exist" + tail)


@case(brief=True)
def retries_meet_throttles_and_lost_connections(client: Client) -> None:
    """Two throttles, a reset before the work and an answer lost after the commit: the fifth attempt
    succeeds, and the message is there twice, as at-least-once delivery allows."""
    if not client.retries:
        return
    url = client.queue()
    send = {"operation": "SendMessage", "queue": url.rpartition("/")[2]}
    faults = (
        {"error": "ThrottlingException", "count": 2},
        {"kind": "drop", "count": 1},
        {"kind": "lost", "count": 1},
    )
    ask, page = client.endpoint.ask, "/_admin/faults"
    added = ask("POST", page, [{**send, **fault} for fault in faults])["faults"]
    try:
        with client.as_another(CONFORMANCE_ATTEMPTS="5") as patient:
            sent = patient.call("SendMessage", QueueUrl=url, MessageBody="x")
        met = {one["id"]: one["fired"] for one in ask("GET", page)["faults"]}
    finally:
        for one in added:
            ask("DELETE", f"{page}/{one['id']}")
    expect([met[one["id"]] for one in added], [2, 1, 1], "faults")
    received = client.receive(url)
    expect([one["Body"] for one in received], ["x", "x"])
    expect(sent["MessageId"] in {one["MessageId"] for one in received}, True)


@case(brief=True)
def parameters_out_of_range(client: Client) -> None:
    refused = client.refusal("ReceiveMessage", QueueUrl=client.queue(), MaxNumberOfMessages=11)
    expect(refused.code, "InvalidParameterValue")
    expect(
        refused.text,
        "Value 11 for parameter MaxNumberOfMessages is invalid. Reason: Must be between 1 and 10, "
        "if provided.",
    )
