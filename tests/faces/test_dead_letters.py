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


_COUNT = "Invalid value for maxReceiveCount: {}, valid values are from 1 to 1000 both inclusive."
_TARGET = "arn:aws:sqs:us-east-1:A:dead"


def _policy(count: str = "3", target: str = _TARGET, more: str = "") -> str:
    return f'{{"maxReceiveCount":{count},"deadLetterTargetArn":"{target}"{more}}}'


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ("no json", "Redrive policy is not a valid JSON map."),
        ("[]", "Redrive policy is not a valid JSON map."),
        ("{}", "Redrive policy does not contain mandatory attribute: maxReceiveCount."),
        (
            '{"maxReceiveCount":3}',
            "Redrive policy does not contain mandatory attribute: deadLetterTargetArn.",
        ),
        (_policy("0"), _COUNT.format(0)),
        (_policy('"1001"'), _COUNT.format(1001)),
        (_policy("true"), _COUNT.format("True")),
        (_policy("1.5"), _COUNT.format(1.5)),
        (_policy(target="dead"), "Invalid value for deadLetterTargetArn."),
        (
            '{"maxReceiveCount":3,"deadLetterTargetArn":7}',
            "Invalid value for deadLetterTargetArn.",
        ),
        (
            _policy(more=',"more":1'),
            "Only following attributes are supported: [deadLetterTargetArn, maxReceiveCount].",
        ),
        (_policy(target=f"{_TARGET}er"), "Dead letter target does not exist."),
        (
            _policy(target=f"{_TARGET}.fifo"),
            "Dead-letter queue must be same type of queue as the source.",
        ),
        (
            _policy(target=_TARGET.replace(":A:", ":999988887777:")),
            "Dead-letter target owner should be same as the source.",
        ),
        (
            _policy(target=_TARGET.replace("us-east-1", "eu-west-1")),
            "Dead-letter target must be in the same region as the source.",
        ),
    ],
)
def test_redrive_policies_are_checked(json_sqs: Sqs, policy: str, reason: str) -> None:
    dead = json_sqs.create("dead")
    json_sqs.create_fifo("dead.fifo")
    policy = policy.replace(":A:", f":{json_sqs.account}:")
    text = f"Value {policy} for parameter RedrivePolicy is invalid. Reason: {reason}"
    for action, members in (
        ("CreateQueue", {"QueueName": "q"}),
        ("SetQueueAttributes", {"QueueUrl": dead}),
    ):
        refused = json_sqs.refusal(action, Attributes={"RedrivePolicy": policy}, **members)
        assert (refused.status, refused.code, refused.text) == (400, "InvalidParameterValue", text)
    assert json_sqs.refusal("GetQueueUrl", QueueName="q").code.endswith("NonExistentQueue")


@pytest.mark.parametrize(
    "policy",
    [
        "no json",
        "{}",
        '{"redrivePermission":"some"}',
        '{"redrivePermission":["allowAll"]}',
        '{"redrivePermission":"byQueue"}',
        '{"redrivePermission":"byQueue","sourceQueueArns":[]}',
        '{"redrivePermission":"byQueue","sourceQueueArns":["a"]}',
        '{"redrivePermission":"byQueue","sourceQueueArns":[1]}',
        json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": [_TARGET] * 11}),
        json.dumps({"redrivePermission": "allowAll", "sourceQueueArns": [_TARGET]}),
        json.dumps({"redrivePermission": "denyAll", "sourceQueueArns": []}),
        '{"redrivePermission":"denyAll","more":1}',
    ],
)
def test_redrive_allow_policies_are_checked(json_sqs: Sqs, policy: str) -> None:
    policy = policy.replace(":A:", ":999988887777:")
    members = {"QueueUrl": json_sqs.create(), "Attributes": {"RedriveAllowPolicy": policy}}
    refused = json_sqs.refusal("SetQueueAttributes", **members)
    assert refused.code == "InvalidParameterValue"
    text = f"Value {policy} for parameter RedriveAllowPolicy is invalid. Reason: "
    assert refused.text.startswith(text)


def test_the_target_allows_its_sources(sqs: Sqs) -> None:
    dead, source = sqs.create("dead"), sqs.create("source")
    policy = f'{{"deadLetterTargetArn":"{sqs.arn(dead)}","maxReceiveCount":5}}'
    other = sqs.arn(source).replace("source", "other")
    members = {"QueueUrl": source, "Attributes": {"RedrivePolicy": policy}}
    for allowed, permission in (
        (False, {"redrivePermission": "denyAll"}),
        (False, {"redrivePermission": "byQueue", "sourceQueueArns": [other]}),
        (True, {"redrivePermission": "byQueue", "sourceQueueArns": [other, sqs.arn(source)]}),
        (True, {"redrivePermission": "allowAll"}),
    ):
        allow = {"RedriveAllowPolicy": json.dumps(permission)}
        sqs.call("SetQueueAttributes", QueueUrl=dead, Attributes=allow)
        if allowed:
            sqs.call("SetQueueAttributes", **members)
        else:
            refused = sqs.refusal("SetQueueAttributes", **members)
            assert refused.code == "InvalidParameterValue"
            attributes = {"RedrivePolicy": policy}
            refused = sqs.refusal("CreateQueue", QueueName="new", Attributes=attributes)
            assert refused.code == "InvalidParameterValue"
    denied = {"RedriveAllowPolicy": '{"redrivePermission":"denyAll"}'}
    sqs.call("SetQueueAttributes", QueueUrl=dead, Attributes=denied)
    assert sqs.attributes(source, "RedrivePolicy") == {"RedrivePolicy": policy}


def test_a_queue_may_be_its_own_dead_letter_queue(sqs: Sqs) -> None:
    url = sqs.create()
    policy = f'{{"deadLetterTargetArn":"{sqs.arn(url)}","maxReceiveCount":5}}'
    sqs.call("SetQueueAttributes", QueueUrl=url, Attributes={"RedrivePolicy": policy})
    assert sqs.attributes(url, "RedrivePolicy") == {"RedrivePolicy": policy}


def test_a_redrive_policy_outlives_its_target(sqs: Sqs) -> None:
    pair = Pair(sqs, "standard")
    policy = sqs.attributes(pair.source, "RedrivePolicy")
    sqs.call("DeleteQueue", QueueUrl=pair.dead)
    sqs.call("SetQueueAttributes", QueueUrl=pair.source, Attributes={"VisibilityTimeout": "7"})
    assert sqs.attributes(pair.source, "RedrivePolicy") == policy


def test_sources_come_in_pages(sqs: Sqs) -> None:
    dead = sqs.create("dead")
    policy = f'{{"deadLetterTargetArn":"{sqs.arn(dead)}","maxReceiveCount":3}}'
    urls = [sqs.create(f"source{number}", RedrivePolicy=policy) for number in range(5)]
    sqs.call("DeleteQueue", QueueUrl=sqs.create("gone", RedrivePolicy=policy))
    members: dict[str, Any] = {"QueueUrl": dead, "MaxResults": 2}
    pages: list[list[str]] = []
    more: dict[str, Any] = {}
    while not pages or more:
        page = sqs.call("ListDeadLetterSourceQueues", **members, **more)
        pages.append(page["queueUrls"])
        more = {"NextToken": page["NextToken"]} if "NextToken" in page else {}
    assert pages == [urls[:2], urls[2:4], urls[4:]]
    for token in ("cXVldWVzOmE=", "c291cmNlczotMQ==", "c291cmNlczoxMjM0NTY3ODkwMTI="):
        refused = sqs.refusal("ListDeadLetterSourceQueues", **members, NextToken=token)
        assert refused.code == "InvalidParameterValue"


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
    assert sqs.counts(pair.dead)[0] == 8 - task["ApproximateNumberOfMessagesMoved"]


def test_tasks_are_listed_newest_first(sqs: Sqs) -> None:
    pair = Pair(sqs, "standard")
    assert pair.tasks() == []
    for rate in (100, 200):
        pair.start(MaxNumberOfMessagesPerSecond=rate)
        pair.until("COMPLETED")
    assert [task["MaxNumberOfMessagesPerSecond"] for task in pair.tasks()] == [200, 100]
    one = sqs.call("ListMessageMoveTasks", SourceArn=pair.dead_arn)["Results"]
    assert [task["MaxNumberOfMessagesPerSecond"] for task in one] == [200]


_NOBODY = "arn:aws:sqs:us-east-1:A:nobody"
_SOURCE = "The resource that you specified for the SourceArn parameter doesn't exist."
_DESTINATION = "The resource that you specified for the DestinationArn parameter doesn't exist."


@pytest.mark.parametrize(
    ("members", "code", "text"),
    [
        ({"SourceArn": _NOBODY}, "ResourceNotFoundException", _SOURCE),
        ({"SourceArn": "dead"}, "ResourceNotFoundException", _SOURCE),
        (
            {"SourceArn": _TARGET.replace("us-east-1", "eu-west-1")},
            "ResourceNotFoundException",
            _SOURCE,
        ),
        ({"DestinationArn": _NOBODY}, "ResourceNotFoundException", _DESTINATION),
        ({"DestinationArn": "?"}, "ResourceNotFoundException", _DESTINATION),
        (
            {"DestinationArn": _TARGET},
            "InvalidParameterValue",
            "Source queue arn and destination queue arn cannot be the same.",
        ),
        (
            {"DestinationArn": _NOBODY.replace("nobody", "o.fifo")},
            "InvalidParameterValue",
            "Source queue and destination queue must be of the same type.",
        ),
        *(
            (
                {"MaxNumberOfMessagesPerSecond": rate},
                "InvalidParameterValue",
                f"Value {rate} for parameter MaxNumberOfMessagesPerSecond is invalid. "
                "Reason: Must be between 1 and 500, if provided.",
            )
            for rate in (0, 501, -1)
        ),
    ],
)
def test_tasks_that_cannot_start(
    json_sqs: Sqs, members: dict[str, Any], code: str, text: str
) -> None:
    pair = Pair(json_sqs, "standard")
    json_sqs.create_fifo("o.fifo")
    own = {
        name: value.replace(":A:", f":{json_sqs.account}:") if isinstance(value, str) else value
        for name, value in members.items()
    }
    refused = json_sqs.refusal("StartMessageMoveTask", **({"SourceArn": pair.dead_arn} | own))
    assert (refused.status, refused.code, refused.text) == (
        404 if code.startswith("Resource") else 400,
        code,
        text,
    )


def test_handles_of_no_task(json_sqs: Sqs) -> None:
    task = "00000000-0000-0000-0000-000000000007"
    contents: list[Any] = [
        [],
        {},
        {"taskId": 7, "sourceArn": _NOBODY.replace(":A:", ":111122223333:")},
        {"taskId": task, "sourceArn": 7},
    ]
    encoded = [base64.b64encode(json.dumps(one).encode()).decode() for one in contents]
    for handle in ("", "é", "A" * 5000, *encoded):
        refused = json_sqs.refusal("CancelMessageMoveTask", TaskHandle=handle)
        assert (refused.code, refused.text) == (
            "InvalidParameterValue",
            "Value for parameter TaskHandle is invalid.",
        )


def test_lists_of_tasks_that_are_none(json_sqs: Sqs) -> None:
    pair = Pair(json_sqs, "standard")
    nobody = pair.dead_arn.replace("dead", "nobody")
    refused = json_sqs.refusal("ListMessageMoveTasks", SourceArn=nobody)
    assert refused.code == "ResourceNotFoundException"
    for most in (0, 11):
        members = {"SourceArn": pair.dead_arn, "MaxResults": most}
        refused = json_sqs.refusal("ListMessageMoveTasks", **members)
        assert refused.code == "InvalidParameterValue"
