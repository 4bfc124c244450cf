"""Dead-letter queues and message move tasks over the wire (docs/contract/sqs.md 2.10)."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.faces.clients import Sqs
from tests.faces.servers import Server
from tests.waiting import until

KINDS = pytest.mark.parametrize("kind", ["standard", "fifo"])


class Pair:
    """A source queue and its dead-letter queue."""

    def __init__(self, sqs: Sqs, kind: str, most: int = 2) -> None:
        self.sqs = sqs
        self.is_fifo = kind == "fifo"
        self.dead = self.make("dead")
        self.dead_arn = sqs.arn(self.dead)
        policy = {"deadLetterTargetArn": self.dead_arn, "maxReceiveCount": most}
        self.source = self.make("source", RedrivePolicy=json.dumps(policy))
        self.source_arn = sqs.arn(self.source)

    def make(self, name: str, **attributes: str) -> str:
        if self.is_fifo:
            return self.sqs.create_fifo(name + ".fifo", **attributes)
        return self.sqs.create(name, **attributes)

    def send(self, url: str, body: str = "b", **members: Any) -> dict[str, Any]:
        if self.is_fifo:
            members = {"MessageGroupId": "g"} | members
        return self.sqs.send(url, body, **members)

    def bury(self, most: int = 2) -> None:
        """Receive until nothing comes any more."""
        for _ in range(most):
            assert self.sqs.receive(self.source, 1, VisibilityTimeout=0)
        assert self.sqs.receive(self.source, 1, VisibilityTimeout=0) == []

    def start(self, **members: Any) -> str:
        members = {"SourceArn": self.dead_arn} | members
        handle: str = self.sqs.call("StartMessageMoveTask", **members)["TaskHandle"]
        return handle

    def tasks(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.sqs.call(
            "ListMessageMoveTasks", SourceArn=self.dead_arn, MaxResults=10
        ).get("Results", [])
        return found

    def until(self, status: str) -> dict[str, Any]:
        """The newest task when it has this status."""
        return until(lambda: self.tasks()[0], lambda task: task["Status"] == status)


@KINDS
def test_the_receive_beyond_the_maximum_moves_the_message(sqs: Sqs, kind: str) -> None:
    pair = Pair(sqs, kind)
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-x"}}
    value = {"a": {"DataType": "Number", "StringValue": "1"}}
    sent = pair.send(pair.source, MessageAttributes=value, MessageSystemAttributes=trace)
    [before] = sqs.receive(pair.source, VisibilityTimeout=0, AttributeNames=["All"])
    assert sqs.receive(pair.source, VisibilityTimeout=0)
    assert sqs.receive(pair.source) == []
    assert sqs.counts(pair.source) == (0, 0, 0)
    [moved] = sqs.receive(pair.dead, AttributeNames=["All"], MessageAttributeNames=["All"])
    assert moved["MessageId"] == sent["MessageId"]
    assert moved["MessageAttributes"] == value
    assert moved["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    attributes = moved["Attributes"]
    assert attributes["ApproximateReceiveCount"] == "3"
    assert attributes["DeadLetterQueueSourceArn"] == pair.source_arn
    assert attributes["AWSTraceHeader"] == "Root=1-x"
    if kind == "fifo":
        assert attributes["MessageDeduplicationId"] == sent["MessageId"]
        assert attributes["MessageGroupId"] == "g"
    else:
        assert attributes["SentTimestamp"] == before["Attributes"]["SentTimestamp"]


def test_the_group_goes_on_after_a_move(sqs: Sqs) -> None:
    pair = Pair(sqs, "fifo", 1)
    for body in ("bad", "good"):
        pair.send(pair.source, body)
    assert sqs.bodies(pair.source, 1, VisibilityTimeout=0) == ["bad"]
    assert sqs.bodies(pair.source, 1) == ["good"]
    assert sqs.bodies(pair.dead) == ["bad"]


@KINDS
def test_sources_are_listed(sqs: Sqs, kind: str) -> None:
    pair = Pair(sqs, kind)
    found = sqs.call("ListDeadLetterSourceQueues", QueueUrl=pair.dead)
    assert found == {"queueUrls": [pair.source]}
    assert sqs.call("ListDeadLetterSourceQueues", QueueUrl=pair.source).get("queueUrls", []) == []


@KINDS
def test_messages_stay_when_the_target_was_deleted(sqs: Sqs, kind: str) -> None:
    pair = Pair(sqs, kind, 1)
    pair.send(pair.source)
    sqs.call("DeleteQueue", QueueUrl=pair.dead)
    for _ in range(3):
        assert sqs.bodies(pair.source, VisibilityTimeout=0) == ["b"]


POLICIES = {
    "missing target": '{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:A:nope","maxReceiveCount":1}',
    "no count": '{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:A:dead"}',
    "zero": '{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:A:dead","maxReceiveCount":0}',
    "1001": '{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:A:dead","maxReceiveCount":1001}',
    "no json": "dead",
    "no arn": '{"deadLetterTargetArn":"dead","maxReceiveCount":1}',
    "other type": '{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:A:dead.fifo","maxReceiveCount":1}',
    "denied": '{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:A:closed","maxReceiveCount":1}',
}


@pytest.mark.parametrize("fault", POLICIES)
def test_redrive_policies_are_checked(sqs: Sqs, fault: str) -> None:
    sqs.create("dead")
    sqs.create_fifo("dead.fifo")
    sqs.create("closed", RedriveAllowPolicy='{"redrivePermission":"denyAll"}')
    policy = POLICIES[fault].replace(":A:", f":{sqs.account}:")
    attributes = {"RedrivePolicy": policy}
    for action, members in (
        ("CreateQueue", {"QueueName": "q"}),
        ("SetQueueAttributes", {"QueueUrl": "dead"}),
    ):
        refused = sqs.refusal(action, Attributes=attributes, **members)
        assert (refused.status, refused.code) == (400, "InvalidParameterValue")
    assert sqs.refusal("GetQueueUrl", QueueName="q").code.endswith("NonExistentQueue")


@KINDS
def test_a_task_brings_messages_back_to_their_sources(sqs: Sqs, kind: str) -> None:
    pair = Pair(sqs, kind)
    sent = [pair.send(pair.source, str(number))["MessageId"] for number in range(3)]
    for _ in range(2):
        assert len(sqs.receive(pair.source, 10, VisibilityTimeout=0)) == 3
    assert sqs.receive(pair.source, 10) == []
    assert sqs.counts(pair.dead) == (3, 0, 0)
    handle = pair.start()
    decoded = json.loads(base64.b64decode(handle))
    assert decoded["sourceArn"] == pair.dead_arn
    task = pair.until("COMPLETED")
    assert task["ApproximateNumberOfMessagesMoved"] == 3
    assert task["SourceArn"] == pair.dead_arn
    assert task["StartedTimestamp"] > 1_700_000_000_000
    assert not task.keys() & {"TaskHandle", "DestinationArn", "MaxNumberOfMessagesPerSecond"}
    found = sqs.receive(pair.source, 10, AttributeNames=["All"])
    assert sorted(message["Body"] for message in found) == ["0", "1", "2"]
    for message in found:
        assert message["MessageId"] not in sent
        assert message["Attributes"]["ApproximateReceiveCount"] == "1"
        assert "DeadLetterQueueSourceArn" not in message["Attributes"]


@KINDS
def test_a_task_to_another_queue(sqs: Sqs, kind: str) -> None:
    pair = Pair(sqs, kind)
    pair.send(pair.dead, "b")
    other = pair.make("other")
    pair.start(DestinationArn=sqs.arn(other), MaxNumberOfMessagesPerSecond=500)
    task = pair.until("COMPLETED")
    assert task["DestinationArn"] == sqs.arn(other)
    assert task["MaxNumberOfMessagesPerSecond"] == 500
    assert sqs.bodies(other) == ["b"]


def test_a_slow_task_is_shown_and_cancelled(sqs: Sqs) -> None:
    pair = Pair(sqs, "standard")
    for number in range(8):
        pair.send(pair.dead, str(number))
    other = sqs.arn(pair.make("other"))
    handle = pair.start(DestinationArn=other, MaxNumberOfMessagesPerSecond=1)
    [task] = pair.tasks()
    assert (task["Status"], task["TaskHandle"]) == ("RUNNING", handle)
    assert task["ApproximateNumberOfMessagesToMove"] == 8
    answer = sqs.call("CancelMessageMoveTask", TaskHandle=handle)
    assert answer["ApproximateNumberOfMessagesMoved"] < 8
    task = pair.until("CANCELLED")
    assert "TaskHandle" not in task
    refused = sqs.refusal("CancelMessageMoveTask", TaskHandle=handle)
    assert refused.status in {400, 404}
    moved = task["ApproximateNumberOfMessagesMoved"]
    assert sqs.counts(pair.dead)[0] == 8 - moved


def test_a_task_fails_when_its_destination_is_deleted(sqs: Sqs, server: Server) -> None:
    pair = Pair(sqs, "standard")
    for number in range(8):
        pair.send(pair.dead, str(number))
    other = pair.make("other")
    pair.start(DestinationArn=sqs.arn(other), MaxNumberOfMessagesPerSecond=1)
    sqs.call("DeleteQueue", QueueUrl=other)
    task = pair.until("FAILED")
    assert task["FailureReason"] == "AWS.SimpleQueueService.NonExistentQueue"


def test_tasks_are_listed_newest_first(sqs: Sqs) -> None:
    pair = Pair(sqs, "standard")
    assert pair.tasks() == []
    for rate in (100, 200):
        pair.start(MaxNumberOfMessagesPerSecond=rate)
        pair.until("COMPLETED")
    assert [task["MaxNumberOfMessagesPerSecond"] for task in pair.tasks()] == [200, 100]
    one = sqs.call("ListMessageMoveTasks", SourceArn=pair.dead_arn)["Results"]
    assert [task["MaxNumberOfMessagesPerSecond"] for task in one] == [200]


@pytest.mark.parametrize("rate", [0, 501, -1])
def test_rates_out_of_range(sqs: Sqs, rate: int) -> None:
    pair = Pair(sqs, "standard")
    members = {"SourceArn": pair.dead_arn, "MaxNumberOfMessagesPerSecond": rate}
    refused = sqs.refusal("StartMessageMoveTask", **members)
    assert (refused.status, refused.code) == (400, "InvalidParameterValue")
