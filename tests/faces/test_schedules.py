"""EventBridge Scheduler as boto3 sees it: schedules."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.faces.scheduler_client import OFF, Scheduler
from tests.faces.servers import Server
from tests.protocol import contract

VECTORS = contract.load("schedule_expressions")


def now(server: Server) -> datetime:
    return datetime.fromisoformat(server.now())


def test_a_schedule_with_defaults(scheduler: Scheduler) -> None:
    arn = f"arn:aws:scheduler:us-east-1:{scheduler.account}:schedule/default/daily"
    assert scheduler.create("daily") == arn
    found = scheduler.get("daily")
    created, modified = found.pop("CreationDate"), found.pop("LastModificationDate")
    assert created == modified
    assert found == {
        "Arn": arn,
        "Name": "daily",
        "GroupName": "default",
        "ScheduleExpression": "cron(0 0 1 1 ? 2190)",
        "ScheduleExpressionTimezone": "UTC",
        "State": "ENABLED",
        "ActionAfterCompletion": "NONE",
        "FlexibleTimeWindow": OFF,
        "Target": {
            "Arn": scheduler.queue_arn(),
            "RoleArn": scheduler.role,
            "RetryPolicy": {"MaximumEventAgeInSeconds": 86400, "MaximumRetryAttempts": 185},
        },
    }


def _everything(scheduler: Scheduler, server: Server) -> dict[str, Any]:
    start = (now(server) + timedelta(days=1)).replace(microsecond=250_000)
    return {
        "ScheduleExpression": "rate(2 hours)",
        "ScheduleExpressionTimezone": "Europe/Warsaw",
        "StartDate": start,
        "EndDate": start + timedelta(days=30),
        "Description": "żółć 😀\n",
        "State": "DISABLED",
        "KmsKeyArn": "arn:aws:kms:us-east-1:123456789012:key/abc",
        "ActionAfterCompletion": "DELETE",
        "FlexibleTimeWindow": {"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 1440},
        "Target": scheduler.target(
            scheduler.queue_arn("q.fifo"),
            Input='{"a": "ż"}',
            SqsParameters={"MessageGroupId": "g"},
            RetryPolicy={"MaximumEventAgeInSeconds": 60, "MaximumRetryAttempts": 0},
            DeadLetterConfig={"Arn": scheduler.queue_arn("dead")},
        ),
    }


def test_everything_that_a_schedule_may_have(scheduler: Scheduler, server: Server) -> None:
    scheduler.call("create_schedule_group", Name="g")
    given = _everything(scheduler, server)
    arn = scheduler.create("all", GroupName="g", **given)
    assert arn.endswith(":schedule/g/all")
    found = scheduler.get("all", GroupName="g")
    assert {name: found[name] for name in given} == given
    assert (found["GroupName"], found["Arn"]) == ("g", arn)


def test_an_update_replaces_everything(scheduler: Scheduler, server: Server) -> None:
    scheduler.create("s", **_everything(scheduler, server))
    full = scheduler.get("s")
    scheduler.update("s")
    found = scheduler.get("s")
    scheduler.create("fresh")
    fresh = scheduler.get("fresh")
    assert found["CreationDate"] == full["CreationDate"]
    assert found["LastModificationDate"] > full["LastModificationDate"]
    for one in (found, fresh):
        for name in ("Arn", "Name", "CreationDate", "LastModificationDate"):
            one.pop(name)
    assert found == fresh


def test_the_same_name_in_two_groups_and_regions(scheduler: Scheduler, server: Server) -> None:
    scheduler.call("create_schedule_group", Name="g")
    scheduler.create("same", Description="in default")
    scheduler.create("same", GroupName="g", Description="in g")
    elsewhere = Scheduler(server.url, scheduler.account, "eu-west-1")
    assert elsewhere.refusal("get_schedule", Name="same").status == 404
    elsewhere.create("same", Description="in Europe")
    assert scheduler.get("same")["Description"] == "in default"
    assert scheduler.get("same", GroupName="g")["Description"] == "in g"
    assert elsewhere.get("same")["Description"] == "in Europe"
    scheduler.call("delete_schedule", Name="same", GroupName="g")
    assert scheduler.names() == ["same"]
    assert elsewhere.names() == ["same"]
    elsewhere.close()


def test_a_deleted_schedule_is_gone(scheduler: Scheduler) -> None:
    scheduler.create("s")
    assert scheduler.call("delete_schedule", Name="s", ClientToken="t") == {}
    for operation in ("get_schedule", "delete_schedule"):
        refused = scheduler.refusal(operation, Name="s")
        assert (refused.kind, refused.status) == ("ResourceNotFoundException", 404)
        assert refused.text == "Schedule s does not exist."
    refused = scheduler.refusal("update_schedule", **scheduler.members("s"))
    assert (refused.code, refused.text) == (
        "ResourceNotFoundException",
        "Schedule s does not exist.",
    )


@pytest.mark.parametrize("operation", ["create_schedule", "update_schedule", "get_schedule"])
def test_a_group_that_is_not_there(scheduler: Scheduler, operation: str) -> None:
    members = {"Name": "s"} if operation == "get_schedule" else scheduler.members("s")
    refused = scheduler.refusal(operation, **members, GroupName="nowhere")
    assert (refused.kind, refused.status) == ("ResourceNotFoundException", 404)
    assert refused.text == "Schedule group nowhere does not exist."


def test_a_name_that_is_taken(scheduler: Scheduler) -> None:
    scheduler.create("s")
    before = scheduler.state()
    refused = scheduler.refusal("create_schedule", **scheduler.members("s", Description="other"))
    assert (refused.kind, refused.status) == ("ConflictException", 409)
    assert refused.text == "Schedule s already exists."
    assert scheduler.state() == before


def test_a_repeated_creation_with_its_token(scheduler: Scheduler) -> None:
    arn = scheduler.create("s", ClientToken="t", Description="d")
    before = scheduler.state()
    assert scheduler.create("s", ClientToken="t", Description="d") == arn
    for changes in (
        {"ClientToken": "t", "Description": "other"},
        {"ClientToken": "t", "Description": "d", "State": "DISABLED"},
        {"ClientToken": "t", "Description": "d", "Target": scheduler.target(Input="x")},
        {"ClientToken": "other", "Description": "d"},
    ):
        refused = scheduler.refusal("create_schedule", **scheduler.members("s", **changes))
        assert (refused.code, refused.status) == ("ConflictException", 409)
    assert scheduler.state() == before


def test_a_repeated_update_with_its_token(scheduler: Scheduler) -> None:
    scheduler.create("s", ClientToken="t")
    scheduler.update("s", ClientToken="t", Description="d")
    before = scheduler.state()
    scheduler.update("s", ClientToken="t", Description="d")
    refused = scheduler.refusal(
        "update_schedule", **scheduler.members("s", ClientToken="t", Description="e")
    )
    assert (refused.kind, refused.status) == ("ConflictException", 409)
    assert scheduler.state() == before
    scheduler.update("s", ClientToken="u", Description="e")
    assert scheduler.get("s")["Description"] == "e"


def test_listing_by_group_state_and_prefix(scheduler: Scheduler) -> None:
    for name in ("b", "a1", "A", "a2", "a_"):
        scheduler.create(name, State="DISABLED" if name == "a2" else "ENABLED")
    scheduler.call("create_schedule_group", Name="g")
    scheduler.create("a1", GroupName="g")
    assert scheduler.names() == ["A", "a1", "a2", "a_", "b", "a1"]
    assert scheduler.names(GroupName="g") == ["a1"]
    assert scheduler.names(GroupName="default", NamePrefix="a") == ["a1", "a2", "a_"]
    assert scheduler.names(NamePrefix="a1") == ["a1", "a1"]
    assert scheduler.names(State="DISABLED") == ["a2"]
    assert scheduler.names(NamePrefix="zz") == []
    refused = scheduler.refusal("list_schedules", GroupName="nowhere")
    assert (refused.kind, refused.status) == ("ResourceNotFoundException", 404)
    [one] = scheduler.call("list_schedules", GroupName="g")["Schedules"]
    whole = scheduler.get("a1", GroupName="g")
    assert one == {
        **{name: whole[name] for name in one if name != "Target"},
        "Target": {"Arn": scheduler.queue_arn()},
    }
    assert len(one) == 7


def test_pages_of_schedules(scheduler: Scheduler) -> None:
    names = [f"s{number:02}" for number in range(41)]
    for name in names:
        scheduler.create(name)
    for size in (1, 20, 21, 40, 41, 100):
        assert scheduler.names(MaxResults=size) == names, size
    page = scheduler.call("list_schedules", MaxResults=7, NamePrefix="s1")
    assert [one["Name"] for one in page["Schedules"]] == names[10:17]
    rest = scheduler.call("list_schedules", NamePrefix="s1", NextToken=page["NextToken"])
    assert [one["Name"] for one in rest["Schedules"]] == names[17:20]
    assert "NextToken" not in rest
    assert len(scheduler.call("list_schedules")["Schedules"]) == 41


@pytest.mark.parametrize("token", ["x", "Z3JvdXBzOmE=", "c2NoZWR1bGVzOmE=", "💥", "x" * 3000, ""])
@pytest.mark.parametrize("operation", ["list_schedules", "list_schedule_groups"])
def test_tokens_that_are_none_of_ours(scheduler: Scheduler, operation: str, token: str) -> None:
    if operation == "list_schedule_groups" and token.startswith("Z3J"):
        token = "c2NoZWR1bGVzOjEvYQ=="
    refused = scheduler.refusal(operation, NextToken=token)
    assert (refused.code, refused.status) == ("ValidationException", 400)


@pytest.mark.parametrize("row", VECTORS["valid"], ids=lambda row: row["expression"])
def test_expressions_that_are_taken(scheduler: Scheduler, row: dict[str, str]) -> None:
    scheduler.create("s", ScheduleExpression=row["expression"])
    assert scheduler.get("s")["ScheduleExpression"] == row["expression"]


@pytest.mark.parametrize("row", VECTORS["invalid"], ids=lambda row: row["expression"])
def test_expressions_that_are_refused(scheduler: Scheduler, row: dict[str, Any]) -> None:
    scheduler.create("there")
    before = scheduler.state()
    for operation, name in (("create_schedule", "s"), ("update_schedule", "there")):
        members = scheduler.members(name, ScheduleExpression=row["expression"])
        refused = scheduler.refusal(operation, **members)
        assert (refused.status, refused.code) == (row["status"], row["code"])
        assert refused.text == row["message"]
    assert scheduler.state() == before


def test_a_time_in_the_past_is_taken(scheduler: Scheduler) -> None:
    scheduler.create("s", ScheduleExpression="at(2020-01-01T00:00:00)")
    assert scheduler.get("s")["State"] == "ENABLED"
