"""Batches: checks of the whole, in AWS's order, then entry by entry (docs/contract/sqs.md 2.8)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faces.clients import Sqs

ACTIONS = ("SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch")
PREFIX = "AWS.SimpleQueueService."
MOST = 1_048_576


def _entry(action: str, entry_id: str, **more: Any) -> dict[str, Any]:
    members: dict[str, dict[str, Any]] = {
        "SendMessageBatch": {"MessageBody": "x"},
        "DeleteMessageBatch": {"ReceiptHandle": "garbage"},
        "ChangeMessageVisibilityBatch": {"ReceiptHandle": "garbage", "VisibilityTimeout": 1},
    }
    return {"Id": entry_id} | members[action] | more


@pytest.mark.parametrize("action", ACTIONS)
def test_an_empty_batch(sqs: Sqs, action: str) -> None:
    refused = sqs.refusal(action, QueueUrl=sqs.create(), Entries=[])
    assert (refused.status, refused.code) == (400, PREFIX + "EmptyBatchRequest")
    assert refused.text == f"There should be at least one {action}RequestEntry in the request."


@pytest.mark.parametrize("action", ACTIONS)
def test_a_batch_without_entries(sqs: Sqs, action: str) -> None:
    refused = sqs.refusal(action, QueueUrl=sqs.create())
    assert refused.code == PREFIX + "EmptyBatchRequest"


@pytest.mark.parametrize("action", ACTIONS)
def test_eleven_entries_come_before_bad_ids(sqs: Sqs, action: str) -> None:
    entries = [_entry(action, "bad id") for _ in range(11)]
    refused = sqs.refusal(action, QueueUrl=sqs.create(), Entries=entries)
    assert (refused.status, refused.code) == (400, PREFIX + "TooManyEntriesInBatchRequest")
    assert refused.text == "Maximum number of entries per request are 10. You have sent 11."


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("entry_id", ["a b", "x" * 81, "a.b", "ż"])
def test_bad_ids_come_before_repeated_ones(sqs: Sqs, action: str, entry_id: str) -> None:
    entries = [_entry(action, entry_id), _entry(action, entry_id)]
    refused = sqs.refusal(action, QueueUrl=sqs.create(), Entries=entries)
    assert (refused.status, refused.code) == (400, PREFIX + "InvalidBatchEntryId")


@pytest.mark.parametrize("action", ACTIONS)
def test_repeated_ids(sqs: Sqs, action: str) -> None:
    entries = [_entry(action, "a"), _entry(action, "b"), _entry(action, "a")]
    refused = sqs.refusal(action, QueueUrl=sqs.create(), Entries=entries)
    assert (refused.status, refused.code) == (400, PREFIX + "BatchEntryIdsNotDistinct")
    assert refused.text == "Id a repeated."


def test_fifo_ids_come_before_repeated_ones(sqs: Sqs) -> None:
    entries = [_entry("SendMessageBatch", "a"), _entry("SendMessageBatch", "a")]
    refused = sqs.refusal("SendMessageBatch", QueueUrl=sqs.create_fifo(), Entries=entries)
    assert refused.code == "InvalidParameterValue"


def test_repeated_ids_come_before_the_size(sqs: Sqs) -> None:
    entries = [_entry("SendMessageBatch", "a", MessageBody="x" * 600_000) for _ in range(2)]
    refused = sqs.refusal("SendMessageBatch", QueueUrl=sqs.create(), Entries=entries)
    assert refused.code == PREFIX + "BatchEntryIdsNotDistinct"


def test_a_batch_of_one_mebibyte_and_one_byte_more(sqs: Sqs) -> None:
    url = sqs.create()
    entries = [_entry("SendMessageBatch", str(n), MessageBody="x" * (MOST // 4)) for n in range(4)]
    sent = sqs.call("SendMessageBatch", QueueUrl=url, Entries=entries)
    assert len(sent["Successful"]) == 4
    entries.append(_entry("SendMessageBatch", "more", MessageBody="y"))
    refused = sqs.refusal("SendMessageBatch", QueueUrl=url, Entries=entries)
    assert (refused.status, refused.code) == (400, PREFIX + "BatchRequestTooLong")
    assert refused.text == (
        f"Batch requests cannot be longer than {MOST} bytes. You have sent {MOST + 1} bytes."
    )
    assert sqs.counts(url) == (4, 0, 0)


def test_a_batch_may_exceed_the_message_limit_of_its_queue(sqs: Sqs) -> None:
    url = sqs.create(MaximumMessageSize="1024")
    entries = [_entry("SendMessageBatch", str(n), MessageBody="x" * 1000) for n in range(10)]
    assert len(sqs.call("SendMessageBatch", QueueUrl=url, Entries=entries)["Successful"]) == 10


def test_entries_fail_alone(sqs: Sqs) -> None:
    url = sqs.create()
    entries = [
        _entry("SendMessageBatch", "ok"),
        _entry("SendMessageBatch", "bad", MessageBody="\x01"),
        _entry("SendMessageBatch", "late", DelaySeconds=901),
        _entry("SendMessageBatch", "fine", DelaySeconds=900),
    ]
    answer = sqs.call("SendMessageBatch", QueueUrl=url, Entries=entries)
    assert [entry["Id"] for entry in answer["Successful"]] == ["ok", "fine"]
    codes = [(entry["Id"], entry["Code"], entry["SenderFault"]) for entry in answer["Failed"]]
    assert codes == [
        ("bad", "InvalidMessageContents", True),
        ("late", "InvalidParameterValue", True),
    ]
    assert sqs.counts(url) == (1, 0, 1)


REFUSED: dict[str, dict[str, Any]] = {
    "characters": {"MessageBody": "\x01"},
    "length": {"MessageBody": "x" * 2000},
    "empty": {"MessageBody": ""},
    "delay": {"DelaySeconds": 5},
    "attribute": {"MessageAttributes": {"AWS.x": {"DataType": "String", "StringValue": "v"}}},
    "deduplication id": {"MessageDeduplicationId": "ż"},
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_fifo_batch_closes_a_group_behind_what_failed(sqs: Sqs, why: str) -> None:
    """The failed entries, corrected and sent again, keep every group in order."""
    url = sqs.create_fifo(MaximumMessageSize="1024")
    groups = "ghgghg"
    entries = [
        _entry("SendMessageBatch", f"{n}", MessageBody=f"{n}", MessageGroupId=group)
        for n, group in enumerate(groups)
    ]
    wrong = [*entries[:2], entries[2] | REFUSED[why], *entries[3:5], entries[5] | REFUSED[why]]
    answer = sqs.call("SendMessageBatch", QueueUrl=url, Entries=wrong)
    assert [entry["Id"] for entry in answer["Successful"]] == ["0", "1", "4"]
    first, behind, last = answer["Failed"]
    assert (behind["Id"], behind["Code"], behind["SenderFault"]) == (
        "3",
        "PriorRequestNotComplete",
        False,
    )
    assert "message group g " in behind["Message"]
    # Its own fault is what its sender has to hear of.
    assert [(one["Id"], one["SenderFault"]) for one in (first, last)] == [("2", True), ("5", True)]
    assert first["Code"] == last["Code"] != behind["Code"]
    again = sqs.call("SendMessageBatch", QueueUrl=url, Entries=[entries[n] for n in (2, 3, 5)])
    assert len(again["Successful"]) == 3
    assert sorted(sqs.bodies(url), key=lambda n: groups[int(n)]) == [*"023514"]


def test_a_fifo_batch_whose_every_group_is_closed(sqs: Sqs) -> None:
    """An entry with a group that cannot be one closes no other."""
    entries = [
        _entry("SendMessageBatch", f"{n}", MessageGroupId=group, MessageBody=body)
        for n, (group, body) in enumerate([("g", "\x01"), ("g", "b"), ("ż", "c"), ("ż", "d")])
    ]
    url = sqs.create_fifo()
    answer = sqs.call("SendMessageBatch", QueueUrl=url, Entries=entries)
    assert answer.keys() == {"Failed"}
    codes = [entry["Code"] for entry in answer["Failed"]]
    assert codes == [
        "InvalidMessageContents",
        "PriorRequestNotComplete",
        "InvalidParameterValue",
        "InvalidParameterValue",
    ]
    assert sqs.counts(url) == (0, 0, 0)


def test_a_standard_batch_closes_no_group(sqs: Sqs) -> None:
    entries = [
        _entry("SendMessageBatch", f"{n}", MessageGroupId="g", MessageBody=body)
        for n, body in enumerate(["a", "\x01", "b"])
    ]
    answer = sqs.call("SendMessageBatch", QueueUrl=sqs.create(), Entries=entries)
    assert [entry["Id"] for entry in answer["Successful"]] == ["0", "2"]


def test_all_entries_may_fail_and_the_answer_is_still_a_success(sqs: Sqs) -> None:
    entries = [_entry("SendMessageBatch", "bad", MessageBody="\x01")]
    answer = sqs.call("SendMessageBatch", QueueUrl=sqs.create(), Entries=entries)
    assert answer.keys() == {"Failed"}


def test_digests_of_the_entries(sqs: Sqs) -> None:
    url = sqs.create()
    value = {"DataType": "String", "StringValue": "foobar"}
    trace = {"DataType": "String", "StringValue": "Root=1-x"}
    entry = _entry(
        "SendMessageBatch",
        "a",
        MessageAttributes={"MyAttribute": value},
        MessageSystemAttributes={"AWSTraceHeader": trace},
    )
    answer = sqs.call("SendMessageBatch", QueueUrl=url, Entries=[entry])
    assert answer.keys() == {"Successful"}
    [sent] = answer["Successful"]
    assert sent["MD5OfMessageAttributes"] == "adb59cd4678ea5a855436b949cd07ab6"
    assert sent["MD5OfMessageBody"] == "9dd4e461268c8034f5c8564e155c67a6"
    assert len(sent["MD5OfMessageSystemAttributes"]) == 32
    [message] = sqs.receive(url, MessageAttributeNames=["All"], AttributeNames=["All"])
    assert message["MessageId"] == sent["MessageId"]
    assert message["MessageAttributes"] == {"MyAttribute": value}
    assert message["Attributes"]["AWSTraceHeader"] == "Root=1-x"


@pytest.mark.parametrize("kind", ["standard", "fifo"])
def test_batches_of_deletes_and_changes(sqs: Sqs, kind: str) -> None:
    url = sqs.create_fifo() if kind == "fifo" else sqs.create()
    ids = {"MessageGroupId": "g"} if kind == "fifo" else {}
    for number in range(4):
        sqs.send(url, str(number), **ids)
    handles = [message["ReceiptHandle"] for message in sqs.receive(url)]
    changes = [
        {"Id": f"c{number}", "ReceiptHandle": handle, "VisibilityTimeout": 100}
        for number, handle in enumerate(handles)
    ]
    changes.append({"Id": "bad", "ReceiptHandle": "garbage", "VisibilityTimeout": 100})
    changes.append({"Id": "far", "ReceiptHandle": handles[0], "VisibilityTimeout": 43_201})
    answer = sqs.call("ChangeMessageVisibilityBatch", QueueUrl=url, Entries=changes)
    assert [entry["Id"] for entry in answer["Successful"]] == ["c0", "c1", "c2", "c3"]
    failed = [(entry["Id"], entry["Code"]) for entry in answer["Failed"]]
    assert failed == [("bad", "ReceiptHandleIsInvalid"), ("far", "InvalidParameterValue")]
    deletes = [{"Id": f"d{n}", "ReceiptHandle": handle} for n, handle in enumerate(handles)]
    deletes.insert(2, {"Id": "bad", "ReceiptHandle": "garbage"})
    deletes.append({"Id": "none"})
    answer = sqs.call("DeleteMessageBatch", QueueUrl=url, Entries=deletes)
    assert [entry["Id"] for entry in answer["Successful"]] == ["d0", "d1", "d2", "d3"]
    failed_delete, none = answer["Failed"]
    assert failed_delete["Message"] == (
        'The input receipt handle "garbage" is not a valid receipt handle.'
    )
    assert (none["Id"], none["Code"]) == ("none", "MissingParameter")
    assert sqs.counts(url) == (0, 0, 0)


def test_the_same_message_twice_in_one_batch(sqs: Sqs) -> None:
    url = sqs.create()
    sqs.send(url)
    handle = sqs.receive(url)[0]["ReceiptHandle"]
    entries = [{"Id": name, "ReceiptHandle": handle} for name in ("a", "b")]
    changes = [
        {"Id": name, "ReceiptHandle": handle, "VisibilityTimeout": seconds}
        for name, seconds in (("a", 0), ("b", 50))
    ]
    answer = sqs.call("ChangeMessageVisibilityBatch", QueueUrl=url, Entries=changes)
    assert len(answer["Successful"]) == 2
    assert sqs.counts(url) == (0, 1, 0)
    answer = sqs.call("DeleteMessageBatch", QueueUrl=url, Entries=entries)
    assert len(answer["Successful"]) == 2
