"""Recordings of SQS at AWS, request by request (docs/contract/sqs.md).

A test says so if its row of the contract is no recording.
"""

from __future__ import annotations

import json

import pytest

from tests.faces.clients import Refused, Sqs
from tests.faces.servers import Server


@pytest.mark.parametrize("is_batch", [False, True], ids=["single", "batch"])
def test_visibility_changes_by_the_handle_of_an_earlier_receive(sqs: Sqs, is_batch: bool) -> None:
    """2.6."""
    url = sqs.create()
    sqs.send(url)
    [first] = sqs.receive(url, VisibilityTimeout=0)
    sqs.receive(url, VisibilityTimeout=30)
    assert sqs.receive(url) == []
    change = {"ReceiptHandle": first["ReceiptHandle"], "VisibilityTimeout": 0}
    if is_batch:
        answer = sqs.call(
            "ChangeMessageVisibilityBatch", QueueUrl=url, Entries=[{"Id": "a"} | change]
        )
        assert answer == {"Successful": [{"Id": "a"}]}
    else:
        sqs.call("ChangeMessageVisibility", QueueUrl=url, **change)
    assert len(sqs.receive(url)) == 1


def test_a_changed_deduplication_scope_does_not_count_at_once(sqs: Sqs, server: Server) -> None:
    """2.7: ids seen before, and those first seen in the minute after, stay duplicates in other
    groups. That groups are apart after five minutes is inferred: no recording waits as long."""
    url = sqs.create_fifo(DeduplicationScope="queue")

    def send(body: str, group: str, deduplication_id: str) -> str:
        ids = {"MessageGroupId": group, "MessageDeduplicationId": deduplication_id}
        number: str = sqs.send(url, body, **ids)["SequenceNumber"]
        return number

    before = send("a", "one", "seen")
    scope = {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
    sqs.call("SetQueueAttributes", QueueUrl=url, Attributes=scope)
    assert sqs.attributes(url, *scope) == scope
    assert send("b", "two", "seen") == before
    server.advance(60)
    after = send("c", "one", "later")
    assert send("d", "two", "later") == after
    assert send("e", "two", "seen") == before
    assert sorted(sqs.bodies(url)) == ["a", "c"]
    server.advance(301)
    assert send("f", "one", "new") != send("g", "two", "new")


def test_a_queue_that_was_made_so_deduplicates_by_group_at_once(sqs: Sqs) -> None:
    url = sqs.create_fifo(DeduplicationScope="messageGroup")
    for group in "ab":
        sqs.send(url, group, MessageGroupId=group, MessageDeduplicationId="same")
    assert sorted(sqs.bodies(url)) == ["a", "b"]


@pytest.mark.parametrize("kind", ["standard", "fifo"])
def test_a_dead_letter_queue_counts_its_own_receives(sqs: Sqs, kind: str) -> None:
    """2.10, as documented: a message that moves on from queue to queue is seen in each. The count
    that receivers are shown goes on, as recorded."""
    suffix, group = ("", {}) if kind == "standard" else (".fifo", {"MessageGroupId": "g"})
    make = sqs.create_fifo if suffix else sqs.create
    urls = [make(f"third{suffix}")]
    for name in ("second", "first"):
        policy = {"deadLetterTargetArn": sqs.arn(urls[-1]), "maxReceiveCount": 2}
        urls.append(make(f"{name}{suffix}", RedrivePolicy=json.dumps(policy)))
    third, second, first = urls
    sqs.send(first, **group)

    def counts(url: str, times: int) -> list[str]:
        count = "ApproximateReceiveCount"
        found = [
            sqs.receive(url, VisibilityTimeout=0, MessageSystemAttributeNames=[count])
            for _ in range(times)
        ]
        return [message["Attributes"][count] for messages in found for message in messages]

    assert counts(first, 3) == ["1", "2"]
    assert counts(second, 3) == ["3", "4"]
    assert counts(third, 3) == ["5", "6", "7"]


def test_a_missing_timeout_is_found_before_the_handle(sqs: Sqs) -> None:
    """2.4."""
    refused = sqs.refusal("ChangeMessageVisibility", QueueUrl=sqs.create(), ReceiptHandle="garbage")
    assert (refused.status, refused.code) == (400, "MissingParameter")
    assert refused.text == "The request must contain the parameter VisibilityTimeout."


@pytest.mark.parametrize("action", ["RemovePermission", "DeleteQueue", "SetQueueAttributes"])
def test_what_only_owners_may_do_cannot_be_allowed_to_others(sqs: Sqs, action: str) -> None:
    """2.4; an emulator's text, verified."""
    url = sqs.create()
    members = {"Label": "l", "AWSAccountIds": ["111111111111"], "Actions": ["SendMessage", action]}
    refused = sqs.refusal("AddPermission", QueueUrl=url, **members)
    assert (refused.status, refused.code) == (400, "InvalidParameterValue")
    assert refused.text == "Only the queue owner is allowed to invoke this action."
    assert "Policy" not in sqs.attributes(url)


@pytest.mark.parametrize("mode", ["presence", "none"])
@pytest.mark.parametrize("value", ["AWS4-HMAC-SHA256", "AWS4-HMAC-SHA256 Credential=1/2/3"])
def test_half_a_signature_is_incomplete(
    sqs: Sqs, relaxed_server: Server, mode: str, value: str
) -> None:
    """docs/contract/protocol.md 1.2, whatever a gateway asks for."""
    url = sqs.url if mode == "presence" else relaxed_server.url
    with sqs.other(url=url) as client:
        refused = Refused(client.ask("ListQueues", {}, headers={"Authorization": value}))
    assert (refused.status, refused.code) == (400, "IncompleteSignature")
