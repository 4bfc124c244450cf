"""EventBridge Scheduler: what is refused, in which words, and that it leaves no trace."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.faces.scheduler_client import Scheduler
from tests.faces.servers import Server

CONSTRAINT = "failed to satisfy constraint: Member must"
LAMBDA = "arn:aws:lambda:us-east-1:123456789012:function:f"
PUBLISH = "arn:aws:scheduler:::aws-sdk:sns:publish"
SEND = "arn:aws:scheduler:::aws-sdk:sqs:sendMessage"


def refused_both(scheduler: Scheduler, text: str, **changes: Any) -> None:
    """Creation and update refuse these changes in the same words, and change nothing."""
    scheduler.create("there")
    before = scheduler.state()
    for operation, name in (("create_schedule", "new"), ("update_schedule", "there")):
        refused = scheduler.refusal(operation, **scheduler.members(name, **changes))
        assert (refused.kind, refused.status) == ("ValidationException", 400)
        assert text in refused.text, refused.text
    assert scheduler.state() == before


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"ScheduleExpression": None}, f"Value null at 'scheduleExpression' {CONSTRAINT} not be"),
        ({"ScheduleExpression": ""}, f"Value '' at 'scheduleExpression' {CONSTRAINT} have length"),
        ({"ScheduleExpression": "x" * 257}, "less than or equal to 256"),
        ({"ScheduleExpression": "rate(5 minutes)\x00"}, "Invalid Schedule Expression rate(5 minu"),
        ({"Target": None}, f"Value null at 'target' {CONSTRAINT} not be null"),
        ({"Target": {}}, f"Value null at 'target.arn' {CONSTRAINT} not be null; Value null at"),
        ({"FlexibleTimeWindow": None}, f"Value null at 'flexibleTimeWindow' {CONSTRAINT} not be"),
        ({"FlexibleTimeWindow": {}}, f"Value null at 'flexibleTimeWindow.mode' {CONSTRAINT} not"),
        ({"FlexibleTimeWindow": {"Mode": "off"}}, "satisfy enum value set: [OFF, FLEXIBLE]"),
        (
            {"FlexibleTimeWindow": {"Mode": "OFF", "MaximumWindowInMinutes": 1}},
            "which goes with the mode FLEXIBLE only",
        ),
        ({"FlexibleTimeWindow": {"Mode": "FLEXIBLE"}}, "which needs MaximumWindowInMinutes"),
        (
            {"FlexibleTimeWindow": {"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 0}},
            "Value '0' at 'flexibleTimeWindow.maximumWindowInMinutes'",
        ),
        (
            {"FlexibleTimeWindow": {"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 1441}},
            "Member must have value less than or equal to 1440",
        ),
        ({"GroupName": "a b"}, r"pattern: [0-9a-zA-Z-_.]+"),
        ({"State": "PAUSED"}, "satisfy enum value set: [ENABLED, DISABLED]"),
        ({"ActionAfterCompletion": "delete"}, "satisfy enum value set: [NONE, DELETE]"),
        ({"Description": "x" * 513}, "less than or equal to 512"),
        ({"Description": "a\x00b"}, "Description has characters"),
        ({"KmsKeyArn": "alias/x"}, "at 'kmsKeyArn' failed"),
        ({"ClientToken": "a b"}, "at 'clientToken' failed"),
        ({"ClientToken": ""}, "at 'clientToken' failed"),
        ({"ScheduleExpressionTimezone": "x" * 51}, "less than or equal to 50"),
        ({"ScheduleExpressionTimezone": "Mars/Olympus"}, "Mars/Olympus"),
        ({"ScheduleExpressionTimezone": "../etc/passwd"}, "../etc/passwd"),
        (
            {
                "ScheduleExpression": "rate(1 day)",
                "StartDate": "2090-01-02T00:00:00Z",
                "EndDate": "2090-01-02T00:00:00Z",
            },
            "must be earlier than the EndDate",
        ),
    ],
    ids=lambda value: str(value)[:50],
)
def test_members_of_a_schedule(scheduler: Scheduler, changes: dict[str, Any], text: str) -> None:
    refused_both(scheduler, text, **changes)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"Arn": "x"}, "Provided Arn is not in correct format: x."),
        ({"Arn": ""}, "at 'target.arn' failed"),
        ({"Arn": "arn:aws:s3:::bucket"}, "A target is a queue"),
        ({"Arn": "arn:aws:sqs:us-east-1:123456789012:a b"}, "Provided Arn is not in correct"),
        ({"Arn": "arn:aws:sqs::123456789012:q"}, "Provided Arn is not in correct"),
        ({"Arn": "arn:aws:sns:us-east-1:123456789012:a:b"}, "Provided Arn is not in correct"),
        ({"Arn": "arn:aws:scheduler:::aws-sdk:sqs"}, "Provided Arn is not in"),
        ({"Arn": "arn:aws:sqs:us-east-1:123456789012:q.fifo"}, "needs a MessageGroupId"),
        ({"Arn": "arn:aws:sns:us-east-1:123456789012:t.fifo"}, PUBLISH),
        ({"RoleArn": "role"}, "at 'target.roleArn' failed"),
        ({"RoleArn": None}, "Value null at 'target.roleArn'"),
        ({"Input": ""}, "at 'target.input' failed"),
        ({"Input": "a\x00b"}, "Input has characters"),
        ({"Input": "é" * 600_000}, "Input is longer than the 1048576 bytes"),
        ({"SqsParameters": {"MessageGroupId": ""}}, "at 'target.sqsParameters.messageGroupId'"),
        ({"SqsParameters": {"MessageGroupId": "a b"}}, "MessageGroupId can only include"),
        ({"KinesisParameters": {"PartitionKey": "k"}}, "KinesisParameters does not go with"),
        ({"EcsParameters": {"TaskDefinitionArn": "a"}}, "EcsParameters does not go with"),
        ({"EcsParameters": {}}, "Value null at 'target.ecsParameters.taskDefinitionArn'"),
        (
            {"Arn": LAMBDA, "SqsParameters": {"MessageGroupId": "g"}},
            "SqsParameters go with a target that is the ARN of a queue only",
        ),
        ({"RetryPolicy": {"MaximumRetryAttempts": 186}}, "less than or equal to 185"),
        ({"RetryPolicy": {"MaximumRetryAttempts": -1}}, "greater than or equal to 0"),
        ({"RetryPolicy": {"MaximumEventAgeInSeconds": 59}}, "greater than or equal to 60"),
        ({"RetryPolicy": {"MaximumEventAgeInSeconds": 86401}}, "less than or equal to 86400"),
        (
            {"DeadLetterConfig": {"Arn": "arn:aws:sqs:us-east-1:123456789012:d.fifo"}},
            "at 'target.deadLetterConfig.arn' failed",
        ),
        (
            {"DeadLetterConfig": {"Arn": "arn:aws:sqs:us-east-1:123456789012:" + "d" * 81}},
            "DeadLetterConfig has the ARN of no queue",
        ),
        ({"Arn": SEND}, f"The Input for {SEND} must be the request as a JSON object."),
        ({"Arn": SEND, "Input": "{"}, "must be the request as a JSON object"),
        ({"Arn": PUBLISH, "Input": "[1]"}, "must be the request as a JSON object"),
        (
            {"Arn": PUBLISH, "Input": "{}", "SqsParameters": {"MessageGroupId": "g"}},
            "SqsParameters go with a target that is the ARN of a queue only",
        ),
        (
            {
                "Arn": "arn:aws:sns:us-east-1:123456789012:t",
                "SqsParameters": {"MessageGroupId": "g"},
            },
            "SqsParameters go with a target that is the ARN of a queue only",
        ),
    ],
    ids=lambda value: str(value)[:50],
)
def test_members_of_a_target(scheduler: Scheduler, changes: dict[str, Any], text: str) -> None:
    target = scheduler.target(**changes) if "Arn" not in changes else changes
    target = {"RoleArn": scheduler.role, **target}
    given = {name: value for name, value in target.items() if value is not None}
    refused_both(scheduler, text, Target=given)


@pytest.mark.parametrize(
    "arn",
    [LAMBDA, "x", "arn:aws:sqs:us-east-1:123456789012:q.fifo", SEND],
    ids=["lambda", "none", "fifo", "universal"],
)
def test_the_expression_is_looked_at_before_the_target(scheduler: Scheduler, arn: str) -> None:
    """docs/contract/scheduler.md 4.2, recorded."""
    refused_both(
        scheduler,
        "Invalid Schedule Expression rate(10 seconds).",
        ScheduleExpression="rate(10 seconds)",
        Target={"Arn": arn, "RoleArn": scheduler.role},
    )


def test_a_schedule_takes_no_tags(scheduler: Scheduler) -> None:
    """Only groups have some, says the model (docs/contract/scheduler.md 4.1)."""
    refused = scheduler.refusal(
        "tag_resource", ResourceArn=scheduler.create("s"), Tags=[{"Key": "k", "Value": "v"}]
    )
    assert (refused.kind, refused.status) == ("ValidationException", 400)
    assert "at 'resourceArn' failed to satisfy constraint: Member must satisfy" in refused.text


def test_breaches_are_counted(scheduler: Scheduler) -> None:
    members = scheduler.members("a b", State="on", Target={"Arn": scheduler.queue_arn()})
    refused = scheduler.refusal("create_schedule", **members)
    assert refused.text == (
        "3 validation errors detected: Value 'a b' at 'name' failed to satisfy constraint: Member "
        "must satisfy regular expression pattern: [0-9a-zA-Z-_.]+; Value 'on' at 'state' failed to "
        "satisfy constraint: Member must satisfy enum value set: [ENABLED, DISABLED]; Value null "
        "at 'target.roleArn' failed to satisfy constraint: Member must not be null"
    )


@pytest.mark.parametrize("most", [0, 101, -1])
def test_sizes_of_pages(scheduler: Scheduler, most: int) -> None:
    for operation in ("list_schedules", "list_schedule_groups"):
        refused = scheduler.refusal(operation, MaxResults=most)
        assert (refused.kind, refused.status) == ("ValidationException", 400)
        assert f"Value '{most}' at 'maxResults' failed to satisfy constraint" in refused.text


def test_a_start_in_the_past(scheduler: Scheduler, server: Server) -> None:
    clock = datetime.fromisoformat(server.now())
    rate = {"ScheduleExpression": "rate(1 day)", "State": "DISABLED"}
    scheduler.create("recent", StartDate=clock - timedelta(minutes=4), **rate)
    members = scheduler.members("old", StartDate=clock - timedelta(minutes=6), **rate)
    refused = scheduler.refusal("create_schedule", **members)
    assert (refused.code, refused.status) == ("ValidationException", 400)
    assert refused.text == "The StartDate you specify cannot be earlier than 5 minutes ago."
    at = {"ScheduleExpression": "at(2090-01-01T00:00:00)"}
    scheduler.create("old", StartDate=clock - timedelta(days=6), **at)


def test_an_old_start_may_be_kept_when_all_is_replaced(
    scheduler: Scheduler, server: Server
) -> None:
    clock = datetime.fromisoformat(server.now())
    members = {
        "ScheduleExpression": "rate(1 day)",
        "StartDate": clock + timedelta(seconds=1),
        "State": "DISABLED",
    }
    scheduler.create("s", **members)
    server.advance(600)
    scheduler.update("s", **members, Description="changed")
    scheduler.update("s", **(members | {"ScheduleExpression": "rate(2 days)"}))
    other = members | {"StartDate": clock + timedelta(seconds=2)}
    refused = scheduler.refusal("update_schedule", **scheduler.members("s", **other))
    assert "cannot be earlier than 5 minutes ago" in refused.text


@pytest.mark.parametrize(
    "request_of_send",
    [
        {"MessageBody": "b"},
        {"QueueUrl": "http://host/elsewhere/x", "MessageBody": "b"},
        {"QueueUrl": "q"},
        {"QueueUrl": "q", "MessageBody": 5},
        {"QueueUrl": "q", "MessageBody": "b", "DelaySeconds": 901},
        {"QueueUrl": "q", "MessageBody": "b", "MessageDeduplicationId": "d"},
        {"QueueUrl": "q.fifo", "MessageBody": "b"},
        {"QueueUrl": "q", "MessageBody": "b", "MessageAttributes": {"a": {"DataType": "Odd"}}},
    ],
    ids=str,
)
def test_a_universal_target_is_judged_when_it_fires(
    scheduler: Scheduler, request_of_send: dict[str, Any]
) -> None:
    text = json.dumps(request_of_send)
    scheduler.create("s", Target=scheduler.target(SEND, Input=text))
    assert scheduler.get("s")["Target"]["Input"] == text
