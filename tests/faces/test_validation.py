"""Every invalid input that was recorded on AWS: status, code and text, on both wires."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.faces.clients import Sqs
from tests.faces.servers import Server
from tests.protocol import contract

Case = dict[str, Any]
Call = tuple[str, dict[str, Any]]
Prepare = Callable[[Sqs, Server], Call]

CASES: list[Case] = contract.load("sqs_validation")["cases"]
MOST = 1_048_576


def _fifo(sqs: Sqs) -> str:
    return sqs.create("f.fifo", FifoQueue="true")


def _too_large(sqs: Sqs, _: Server) -> Call:
    attributes = {"a": {"DataType": "String", "StringValue": "v"}}
    body = "x" * (MOST - 7)
    return "SendMessage", {
        "QueueUrl": sqs.create(),
        "MessageBody": body,
        "MessageAttributes": attributes,
    }


def _larger_than_the_queue_takes(sqs: Sqs, _: Server) -> Call:
    url = sqs.create(MaximumMessageSize="1024")
    return "SendMessage", {"QueueUrl": url, "MessageBody": "x" * 1025}


def _batch_too_long(sqs: Sqs, _: Server) -> Call:
    entries = [{"Id": "a", "MessageBody": "x" * MOST}, {"Id": "b", "MessageBody": "y"}]
    return "SendMessageBatch", {"QueueUrl": sqs.create(), "Entries": entries}


def _twenty_entries(sqs: Sqs, _: Server) -> Call:
    entries = [{"Id": str(n), "MessageBody": "x"} for n in range(20)]
    return "SendMessageBatch", {"QueueUrl": sqs.create(), "Entries": entries}


def _bad_entry_id(sqs: Sqs, _: Server) -> Call:
    entries = [{"Id": "message:1", "MessageBody": "x"}]
    return "SendMessageBatch", {"QueueUrl": sqs.create(), "Entries": entries}


def _entry_too_large(sqs: Sqs, _: Server) -> Call:
    url = sqs.create(MaximumMessageSize="1024")
    entries = [{"Id": "a", "MessageBody": "x" * 1025}]
    return "SendMessageBatch", {"QueueUrl": url, "Entries": entries}


def _entry_without_group(sqs: Sqs, _: Server) -> Call:
    entries = [
        {"Id": "a", "MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "d"},
        {"Id": "b", "MessageBody": "x", "MessageDeduplicationId": "e"},
    ]
    return "SendMessageBatch", {"QueueUrl": _fifo(sqs), "Entries": entries}


def _no_group(sqs: Sqs, _: Server) -> Call:
    return "SendMessage", {"QueueUrl": _fifo(sqs), "MessageBody": "x"}


def _no_deduplication_id(sqs: Sqs, _: Server) -> Call:
    return "SendMessage", {"QueueUrl": _fifo(sqs), "MessageBody": "x", "MessageGroupId": "g"}


def _queue_exists(sqs: Sqs, _: Server) -> Call:
    sqs.create("twice")
    return "CreateQueue", {"QueueName": "twice", "Attributes": {"DelaySeconds": "1"}}


def _deleted_recently(sqs: Sqs, _: Server) -> Call:
    sqs.call("DeleteQueue", QueueUrl=sqs.create("gone"))
    return "CreateQueue", {"QueueName": "gone"}


def _missing_queue(sqs: Sqs, _: Server) -> Call:
    return "ReceiveMessage", {"QueueUrl": f"{sqs.url}/{sqs.account}/nope"}


def _expired_receipt(sqs: Sqs, server: Server) -> Call:
    url = sqs.create_fifo(VisibilityTimeout="5")
    sqs.send(url, MessageGroupId="g")
    handle = sqs.receive(url)[0]["ReceiptHandle"]
    server.advance(6)
    return "DeleteMessage", {"QueueUrl": url, "ReceiptHandle": handle}


def _change_deleted(sqs: Sqs, _: Server) -> Call:
    url = sqs.create()
    sqs.send(url)
    message = sqs.receive(url)[0]
    sqs.delete(url, message)
    return "ChangeMessageVisibility", {
        "QueueUrl": url,
        "ReceiptHandle": message["ReceiptHandle"],
        "VisibilityTimeout": 10,
    }


def _second_purge(sqs: Sqs, _: Server) -> Call:
    url = sqs.create("purged")
    sqs.call("PurgeQueue", QueueUrl=url)
    return "PurgeQueue", {"QueueUrl": url}


def _label_exists(sqs: Sqs, _: Server) -> Call:
    members = {
        "QueueUrl": sqs.create(),
        "Label": "mine",
        "AWSAccountIds": [sqs.account],
        "Actions": ["SendMessage"],
    }
    sqs.call("AddPermission", **members)
    return "AddPermission", members


def _label_missing(sqs: Sqs, _: Server) -> Call:
    return "RemovePermission", {"QueueUrl": sqs.create(), "Label": "mine"}


def _not_a_dead_letter_queue(sqs: Sqs, _: Server) -> Call:
    return "StartMessageMoveTask", {"SourceArn": sqs.arn(sqs.create())}


def _with_dead_letter_queue(sqs: Sqs) -> str:
    """The ARN of a dead-letter queue that has a source."""
    arn = sqs.arn(sqs.create("dead"))
    sqs.create("source", RedrivePolicy=f'{{"deadLetterTargetArn":"{arn}","maxReceiveCount":1}}')
    return arn


def _second_task(sqs: Sqs, _: Server) -> Call:
    arn = _with_dead_letter_queue(sqs)
    url = f"{sqs.url}/{sqs.account}/dead"
    for _number in range(9):
        sqs.send(url)
    members = {"SourceArn": arn, "MaxNumberOfMessagesPerSecond": 1}
    members["DestinationArn"] = sqs.arn(sqs.create("elsewhere"))
    sqs.call("StartMessageMoveTask", **members)
    return "StartMessageMoveTask", members


def _missing_destination(sqs: Sqs, _: Server) -> Call:
    arn = _with_dead_letter_queue(sqs)
    return "StartMessageMoveTask", {"SourceArn": arn, "DestinationArn": arn[:-4] + "nope"}


def _task_handle(arn: str) -> str:
    task = {"taskId": "5eab31a7-0d3c-4d15-9f9f-2d3a4f1c0d11", "sourceArn": arn}
    return base64.b64encode(json.dumps(task).encode()).decode()


def _task_of_a_missing_queue(sqs: Sqs, _: Server) -> Call:
    arn = f"arn:aws:sqs:us-east-1:{sqs.account}:nope"
    return "CancelMessageMoveTask", {"TaskHandle": _task_handle(arn)}


def _unknown_task(sqs: Sqs, _: Server) -> Call:
    return "CancelMessageMoveTask", {"TaskHandle": _task_handle(_with_dead_letter_queue(sqs))}


def _garbage_task(_: Sqs, __: Server) -> Call:
    return "CancelMessageMoveTask", {"TaskHandle": "garbage"}


PREPARED: dict[tuple[str, str], Prepare] = {
    ("SendMessage", "body+attributes > 1048576 bytes"): _too_large,
    ("SendMessage", "MaximumMessageSize=1024 exceeded"): _larger_than_the_queue_takes,
    ("SendMessageBatch", "sum 1048577"): _batch_too_long,
    ("SendMessageBatch", "20 entries"): _twenty_entries,
    ("SendMessageBatch", "entry > queue MaximumMessageSize (per-entry)"): _entry_too_large,
    ("SendMessageBatch FIFO", "one entry lacks MessageGroupId"): _entry_without_group,
    ("SendMessage FIFO", "no MessageGroupId"): _no_group,
    ("SendMessage|Batch FIFO", "no dedup id and CBD=false"): _no_deduplication_id,
    ("CreateQueue", "exists, DelaySeconds differs"): _queue_exists,
    ("CreateQueue", "deleted < 60 s ago"): _deleted_recently,
    ("any", "missing queue, JSON"): _missing_queue,
    ("any", "missing queue, Query"): _missing_queue,
    ("DeleteMessage FIFO", "visibility expired"): _expired_receipt,
    ("ChangeMessageVisibility", "message deleted"): _change_deleted,
    ("PurgeQueue", "second within 60 s"): _second_purge,
    ("AddPermission", "label exists"): _label_exists,
    ("RemovePermission", "label missing"): _label_missing,
    ("StartMessageMoveTask", "source is not a DLQ"): _not_a_dead_letter_queue,
    ("StartMessageMoveTask", "second active task"): _second_task,
    ("CancelMessageMoveTask", "undecodable handle"): _garbage_task,
    ("StartMessageMoveTask", "destination missing"): _missing_destination,
    ("CancelMessageMoveTask", "source queue in handle missing"): _task_of_a_missing_queue,
    ("CancelMessageMoveTask", "unknown task id"): _unknown_task,
}


def _given(case: Case, sqs: Sqs, server: Server) -> Call:
    """The call of a case, after what must have happened before it."""
    action, members = case["action"], case["input"]
    if isinstance(members, str):
        return PREPARED[(action, members)](sqs, server)
    name, _, kind = action.partition(" ")
    if "|" in name:
        return _bad_entry_id(sqs, server)
    if name == "CreateQueue":
        return name, {"QueueName": "q"} | members
    url = _fifo(sqs) if kind == "FIFO" else sqs.create()
    defaults: dict[str, Any] = {"QueueUrl": url}
    if name == "SendMessage":
        defaults["MessageBody"] = "x"
        if kind == "FIFO":
            defaults |= {"MessageGroupId": "g", "MessageDeduplicationId": "d"}
    if name == "SetQueueAttributes":
        members = {"Attributes": members}
    return name, defaults | members


def _name(case: Case) -> str:
    return f"{case['action']}: {case['input']}"[:70]


def _applies(case: Case, sqs: Sqs) -> bool:
    wanted = str(case["input"]).rpartition(", ")[2]
    return wanted not in {"JSON", "Query"} or (wanted == "Query") == sqs.is_query


def _told(case: Case, members: dict[str, Any]) -> str:
    """The text with what it quotes of this very request."""
    text: str = case["message"]
    values = {
        "<handle>": members.get("ReceiptHandle", ""),
        "<queue-name>": members.get("QueueUrl", "").rpartition("/")[2],
        "<label>": members.get("Label", ""),
    }
    for mark, value in values.items():
        text = text.replace(mark, value)
    return text


@pytest.mark.parametrize("case", CASES, ids=_name)
def test_recorded_refusals(case: Case, sqs: Sqs, server: Server) -> None:
    if not _applies(case, sqs):
        return
    action, members = _given(case, sqs, server)
    if case["status"] == 200:
        [failed] = sqs.call(action, **members)["Failed"]
        assert failed["Code"] == case["query_code"]
        assert failed["Message"] == case["message"]
        assert failed["SenderFault"] is True
        return
    refused = sqs.refusal(action, **members)
    text = _told(case, members)
    assert (refused.status, refused.code, refused.text) == (
        case["status"],
        case["query_code"],
        text,
    )
    assert refused.fault == "Sender"
    if not sqs.is_query:
        assert refused.type == case["json_type"]


@pytest.mark.parametrize("group", ["", "x" * 129, "a b"])
@pytest.mark.parametrize("kind", ["standard", "fifo"])
def test_group_ids_are_checked_on_both_kinds_of_queue(sqs: Sqs, kind: str, group: str) -> None:
    url = sqs.create_fifo() if kind == "fifo" else sqs.create()
    refused = sqs.refusal("SendMessage", QueueUrl=url, MessageBody="x", MessageGroupId=group)
    assert (refused.status, refused.code) == (400, "InvalidParameterValue")
    assert refused.text == (
        f"Value {group} for parameter MessageGroupId is invalid. Reason: MessageGroupId can only "
        "include alphanumeric and punctuation characters. 1 to 128 in length."
    )


ATTRIBUTE_FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "reserved": ("AWS.mine", {"DataType": "String", "StringValue": "v"}),
    "reserved in lower case": ("amazon.mine", {"DataType": "String", "StringValue": "v"}),
    "leading dot": (".mine", {"DataType": "String", "StringValue": "v"}),
    "trailing dot": ("mine.", {"DataType": "String", "StringValue": "v"}),
    "space": ("my name", {"DataType": "String", "StringValue": "v"}),
    "long name": ("n" * 257, {"DataType": "String", "StringValue": "v"}),
    "no type": ("mine", {"StringValue": "v"}),
    "unknown type": ("mine", {"DataType": "Text", "StringValue": "v"}),
    "not a number": ("mine", {"DataType": "Number", "StringValue": "ten"}),
    "long number": ("mine", {"DataType": "Number", "StringValue": "1" * 39}),
    "wrong member": ("mine", {"DataType": "Binary", "StringValue": "v"}),
    "no value": ("mine", {"DataType": "Number"}),
    "control character": ("mine", {"DataType": "String", "StringValue": "a\x01b"}),
}


@pytest.mark.parametrize("fault", ATTRIBUTE_FAULTS)
def test_message_attributes_are_checked(sqs: Sqs, fault: str) -> None:
    url = sqs.create()
    name, value = ATTRIBUTE_FAULTS[fault]
    refused = sqs.refusal(
        "SendMessage", QueueUrl=url, MessageBody="x", MessageAttributes={name: value}
    )
    assert (refused.status, refused.code) == (400, "InvalidParameterValue")
    assert sqs.counts(url) == (0, 0, 0)


def test_list_valued_attributes_are_not_supported(sqs: Sqs) -> None:
    value = {"DataType": "String", "StringListValues": ["a", "b"]}
    members = {"QueueUrl": sqs.create(), "MessageBody": "x", "MessageAttributes": {"mine": value}}
    refused = sqs.refusal("SendMessage", **members)
    assert (refused.status, refused.code) == (400, "AWS.SimpleQueueService.UnsupportedOperation")


def test_eleven_attributes_are_refused_and_ten_are_not(sqs: Sqs) -> None:
    url = sqs.create()
    values = {f"n{number}": {"DataType": "Number", "StringValue": "1"} for number in range(11)}
    refused = sqs.refusal("SendMessage", QueueUrl=url, MessageBody="x", MessageAttributes=values)
    assert refused.text == "Number of message attributes [11] exceeds the allowed maximum [10]."
    values.popitem()
    sqs.send(url, MessageAttributes=values)
    [message] = sqs.receive(url, MessageAttributeNames=["All"])
    assert message["MessageAttributes"] == values


RANGES: list[tuple[str, dict[str, Any]]] = [
    ("SendMessage", {"DelaySeconds": 901}),
    ("SendMessage", {"DelaySeconds": -1}),
    ("ReceiveMessage", {"VisibilityTimeout": 43_201}),
    ("ReceiveMessage", {"VisibilityTimeout": -1}),
    ("ReceiveMessage", {"MaxNumberOfMessages": 0}),
    ("ReceiveMessage", {"ReceiveRequestAttemptId": "a b"}),
    ("SendMessage", {"MessageDeduplicationId": "d"}),
]


@pytest.mark.parametrize(("action", "member"), RANGES)
def test_numbers_out_of_range_are_refused(sqs: Sqs, action: str, member: dict[str, Any]) -> None:
    needed = {"MessageBody": "x"} if action == "SendMessage" else {}
    refused = sqs.refusal(action, QueueUrl=sqs.create(), **(needed | member))
    assert (refused.status, refused.code) == (400, "InvalidParameterValue")
    [(name, value)] = member.items()
    assert refused.text.startswith(f"Value {value} for parameter {name} is invalid. Reason: ")


def test_the_size_counts_bytes_of_body_and_attributes(sqs: Sqs) -> None:
    url = sqs.create(MaximumMessageSize="1024")
    # Name, type and value have 1 + 6 + 3 bytes.
    more = {"MessageAttributes": {"n": {"DataType": "String", "StringValue": "abc"}}}
    sqs.send(url, "é" * 512)
    sqs.send(url, "a" * 1014, **more)
    for body, members in (("é" * 512 + "a", {}), ("a" * 1015, more)):
        refused = sqs.refusal("SendMessage", QueueUrl=url, MessageBody=body, **members)
        assert refused.text == (
            "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes."
        )


@pytest.mark.parametrize("value", ["queue", ""])
def test_number_parameters_that_are_no_numbers(json_sqs: Sqs, value: str) -> None:
    url = json_sqs.create()
    refused = json_sqs.refusal("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=value)
    assert (refused.status, refused.code) == (400, "MalformedInput")
