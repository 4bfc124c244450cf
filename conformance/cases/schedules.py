"""EventBridge Scheduler and STS: schedules, their groups, what they fire, and who the caller is."""

from __future__ import annotations

import json
import secrets
from typing import Any

from conformance.casebook import Cases
from conformance.driving import Client, expect, expect_refusal

CASES = Cases()
case = CASES.case

_OFF = {"Mode": "OFF"}
_NEVER = "cron(0 0 1 1 ? 2190)"
_ROLE = "arn:aws:iam::123456789012:role/schedules"


def _name() -> str:
    return f"case-{secrets.token_hex(4)}"


def _account(client: Client) -> str:
    account: str = client.identity()["Account"]
    return account


def _members(name: str, arn: str, **changes: Any) -> dict[str, Any]:
    target = {"Arn": arn, "RoleArn": _ROLE, **changes.pop("target", {})}
    given = {"ScheduleExpression": _NEVER, "FlexibleTimeWindow": _OFF, "Target": target}
    return {"Name": name, **given, **changes}


def _queue_arn(client: Client, name: str = "q") -> str:
    return f"arn:aws:sqs:us-east-1:{_account(client)}:{name}"


@case(brief=True)
def who_the_caller_is(client: Client) -> None:
    found = client.identity()
    account = found["Account"]
    expect(len(account), 12)
    expect(found["Arn"].startswith(f"arn:aws:iam::{account}:user/"), True)
    expect(found["UserId"], account)


@case(brief=True)
def a_schedule_is_created_read_replaced_listed_and_deleted(client: Client) -> None:
    name, arn = _name(), _queue_arn(client)
    window = {"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 15}
    policy = {"MaximumEventAgeInSeconds": 60, "MaximumRetryAttempts": 0}
    target = {
        "Input": '{"a": "b"}',
        "RetryPolicy": policy,
        "DeadLetterConfig": {"Arn": f"{arn}-dead"},
    }
    given = _members(
        name,
        arn,
        ScheduleExpressionTimezone="Europe/Warsaw",
        State="DISABLED",
        Description="daily",
        ActionAfterCompletion="DELETE",
        EndDate="2195-01-01T00:00:00Z",
        target=target,
    )
    given["FlexibleTimeWindow"] = window
    created = client.scheduler("CreateSchedule", **given)
    account = arn.split(":")[4]
    place = f"arn:aws:scheduler:us-east-1:{account}"
    expect(created, {"ScheduleArn": f"{place}:schedule/default/{name}"})
    found = client.scheduler("GetSchedule", Name=name, GroupName="default")
    for member in given.keys() - {"EndDate"}:
        expect(found[member], given[member], member)
    expect(found["GroupName"], "default")
    expect(client.scheduler("UpdateSchedule", **_members(name, arn)), created)
    found = client.scheduler("GetSchedule", Name=name)
    expect((found["State"], found["ScheduleExpressionTimezone"]), ("ENABLED", "UTC"))
    expect("Description" in found or "EndDate" in found, False, "what was left out")
    expect("Input" in found["Target"], False, "Input")
    listed = client.scheduler("ListSchedules", GroupName="default", NamePrefix=name)["Schedules"]
    expect([(one["Name"], one["Target"]) for one in listed], [(name, {"Arn": arn})])
    expect(client.scheduler("ListSchedules", NamePrefix=name, State="DISABLED")["Schedules"], [])
    expect(client.scheduler("DeleteSchedule", Name=name), {})
    refused = client.scheduler_refusal("GetSchedule", Name=name)
    exception = "ResourceNotFoundException"
    text = f"Schedule {name} does not exist."
    expect_refusal(refused, exception, text=text, status=404, exception=exception)


@case(brief=True)
def a_group_of_schedules_and_its_tags(client: Client) -> None:
    name, arn = _name(), _queue_arn(client)
    tags = [{"Key": "env / a=b", "Value": "prod"}, {"Key": "team", "Value": "x y"}]
    made = client.scheduler("CreateScheduleGroup", Name=name, Tags=tags)["ScheduleGroupArn"]
    expect(made.rpartition(":")[2], f"schedule-group/{name}")
    found = client.scheduler("GetScheduleGroup", Name=name)
    expect((found["Arn"], found["State"]), (made, "ACTIVE"))
    listed = client.scheduler("ListScheduleGroups", NamePrefix=name)["ScheduleGroups"]
    expect([one["Arn"] for one in listed], [made])
    expect(client.scheduler("ListTagsForResource", ResourceArn=made)["Tags"], tags)
    added = [{"Key": "new", "Value": "v"}]
    expect(client.scheduler("TagResource", ResourceArn=made, Tags=added), {})
    keys = ["env / a=b", "team"]
    expect(client.scheduler("UntagResource", ResourceArn=made, TagKeys=keys), {})
    expect(client.scheduler("ListTagsForResource", ResourceArn=made)["Tags"], added)
    created = client.scheduler("CreateSchedule", **_members("same", arn, GroupName=name))
    expect(created["ScheduleArn"].rpartition(":")[2], f"schedule/{name}/same")
    refused = client.scheduler_refusal("GetSchedule", Name="same")
    expect(refused.code, "ResourceNotFoundException")
    expect(client.scheduler("DeleteScheduleGroup", Name=name), {})
    refused = client.scheduler_refusal("ListSchedules", GroupName=name)
    text = f"Schedule group {name} does not exist."
    expect_refusal(refused, "ResourceNotFoundException", text=text, status=404)


@case(brief=True)
def a_schedule_sends_to_a_queue(client: Client) -> None:
    url, name = client.queue("-scheduled"), _name()
    arn = client.queue_arn(url)
    target = {"Input": "<aws.scheduler.schedule-arn> <aws.scheduler.attempt-number>"}
    members = _members(name, arn, target=target) | {"ScheduleExpression": "rate(1 hour)"}
    made = client.scheduler("CreateSchedule", **members)["ScheduleArn"]
    [message] = client.receive(url, WaitTimeSeconds=20)
    expect(message["Body"], f"{made} 1")
    client.scheduler("DeleteSchedule", Name=name)


@case()
def a_schedule_publishes_to_a_topic(client: Client) -> None:
    url, topic = client.queue("-subscribed"), client.topic("-scheduled")
    client.subscribed(topic, url, RawMessageDelivery="true")
    members = _members(_name(), topic, target={"Input": "news"})
    client.scheduler("CreateSchedule", **members | {"ScheduleExpression": "rate(1 hour)"})
    [message] = client.receive(url, WaitTimeSeconds=20)
    expect(message["Body"], "news")
    client.scheduler("DeleteSchedule", Name=members["Name"])


@case()
def universal_targets(client: Client) -> None:
    url, topic = client.queue("-universal"), client.topic("-universal")
    client.subscribed(topic, url, RawMessageDelivery="true")
    requests = (
        ("sqs:sendMessage", {"QueueUrl": url, "MessageBody": "sent"}),
        ("sns:publish", {"TopicArn": topic, "Message": "published"}),
    )
    for action, request in requests:
        target = {"Input": json.dumps(request)}
        arn = f"arn:aws:scheduler:::aws-sdk:{action}"
        members = _members(_name(), arn, target=target)
        client.scheduler("CreateSchedule", **members | {"ScheduleExpression": "rate(1 hour)"})
        [message] = client.receive(url, WaitTimeSeconds=20)
        expect(message["Body"] in request.values(), True, message["Body"])
        client.scheduler("DeleteSchedule", Name=members["Name"])


@case()
def what_fails_goes_to_a_dead_letter_queue(client: Client) -> None:
    url, name = client.queue("-dead"), _name()
    target = {
        "Input": "lost",
        "RetryPolicy": {"MaximumRetryAttempts": 0},
        "DeadLetterConfig": {"Arn": client.queue_arn(url)},
    }
    members = _members(name, _queue_arn(client, "nowhere"), target=target)
    client.scheduler("CreateSchedule", **members | {"ScheduleExpression": "rate(1 hour)"})
    [message] = client.receive(url, WaitTimeSeconds=20, MessageAttributeNames=["All"])
    expect(message["Body"], "lost")
    code = message["MessageAttributes"]["ERROR_CODE"]["StringValue"]
    expect(code, "AWS.SimpleQueueService.NonExistentQueue")
    client.scheduler("DeleteSchedule", Name=name)


@case()
def refusals_of_schedules(client: Client) -> None:
    name, arn = _name(), _queue_arn(client)
    for changes, text in (
        ({"ScheduleExpression": "rate(5 x)"}, "Invalid Schedule Expression rate(5 x)."),
        (
            {"ScheduleExpression": "cron(0 1 * * * *)"},
            "Invalid Schedule Expression cron(0 1 * * * *).",
        ),
        (
            {"State": "ON"},
            "1 validation error detected: Value 'ON' at 'state' failed to satisfy constraint: "
            "Member must satisfy enum value set: [ENABLED, DISABLED]",
        ),
    ):
        members = _members(name, arn) | changes
        refused = client.scheduler_refusal("CreateSchedule", **members)
        exception = "ValidationException"
        expect_refusal(refused, exception, text=text, exception=exception)
    client.scheduler("CreateSchedule", **_members(name, arn))
    refused = client.scheduler_refusal("CreateSchedule", **_members(name, arn, Description="d"))
    text = f"Schedule {name} already exists."
    exception = "ConflictException"
    expect_refusal(refused, exception, text=text, status=409, exception=exception)
    client.scheduler("DeleteSchedule", Name=name)


@case()
def a_client_token_makes_a_creation_repeatable(client: Client) -> None:
    members = _members(_name(), _queue_arn(client), ClientToken=secrets.token_hex(8))
    made = client.scheduler("CreateSchedule", **members)
    expect(client.scheduler("CreateSchedule", **members), made)
    refused = client.scheduler_refusal("CreateSchedule", **members | {"Description": "other"})
    expect_refusal(refused, "ConflictException", status=409)


@case()
def pages_of_schedules(client: Client) -> None:
    prefix, arn = _name(), _queue_arn(client)
    names = [f"{prefix}-{number}" for number in range(7)]
    for name in names:
        client.scheduler("CreateSchedule", **_members(name, arn))
    found: list[str] = []
    page = client.scheduler("ListSchedules", NamePrefix=prefix, MaxResults=3)
    found += [one["Name"] for one in page["Schedules"]]
    while page.get("NextToken"):
        page = client.scheduler(
            "ListSchedules", NamePrefix=prefix, MaxResults=3, NextToken=page["NextToken"]
        )
        found += [one["Name"] for one in page["Schedules"]]
    expect(found, names)
    for name in names:
        client.scheduler("DeleteSchedule", Name=name)
