"""EventBridge Scheduler as boto3 sees it: groups of schedules and their tags."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faces.scheduler_client import Scheduler


def test_a_group_is_created_read_listed_and_deleted(scheduler: Scheduler) -> None:
    created = scheduler.call("create_schedule_group", Name="g.1")
    assert created == {"ScheduleGroupArn": scheduler.group_arn("g.1")}
    found = scheduler.call("get_schedule_group", Name="g.1")
    assert found.pop("CreationDate") == found.pop("LastModificationDate")
    assert found == {"Arn": scheduler.group_arn("g.1"), "Name": "g.1", "State": "ACTIVE"}
    assert scheduler.groups() == ["default", "g.1"]
    assert scheduler.call("delete_schedule_group", Name="g.1", ClientToken="t") == {}
    for operation in ("get_schedule_group", "delete_schedule_group"):
        refused = scheduler.refusal(operation, Name="g.1")
        assert (refused.kind, refused.status) == ("ResourceNotFoundException", 404)
        assert refused.text == "Schedule group g.1 does not exist."
    assert scheduler.groups() == ["default"]


def test_the_default_group_is_always_there(scheduler: Scheduler) -> None:
    assert scheduler.call("get_schedule_group", Name="default")["State"] == "ACTIVE"
    refused = scheduler.refusal("delete_schedule_group", Name="default")
    assert (refused.kind, refused.status) == ("ValidationException", 400)
    refused = scheduler.refusal("create_schedule_group", Name="default")
    assert (refused.kind, refused.status) == ("ConflictException", 409)
    arn = scheduler.group_arn("default")
    scheduler.call("tag_resource", ResourceArn=arn, Tags=[{"Key": "a", "Value": "b"}])
    assert scheduler.groups() == ["default"]


def test_a_group_of_an_unused_account_can_be_listed_and_tagged(scheduler: Scheduler) -> None:
    arn = scheduler.group_arn("default")
    assert scheduler.call("list_tags_for_resource", ResourceArn=arn) == {"Tags": []}


def test_the_schedules_of_a_deleted_group_go_with_it(scheduler: Scheduler) -> None:
    scheduler.call("create_schedule_group", Name="g")
    scheduler.create("mine", GroupName="g")
    scheduler.create("mine")
    scheduler.call("delete_schedule_group", Name="g")
    assert scheduler.names() == ["mine"]
    assert scheduler.refusal("get_schedule", Name="mine", GroupName="g").status == 404
    scheduler.call("create_schedule_group", Name="g")
    assert scheduler.names(GroupName="g") == []


def test_a_repeated_creation_with_its_token(scheduler: Scheduler) -> None:
    tags = [{"Key": "a", "Value": "b"}]
    members: dict[str, Any] = {"Name": "g", "Tags": tags, "ClientToken": "t"}
    created = scheduler.call("create_schedule_group", **members)
    assert scheduler.call("create_schedule_group", **members) == created
    others: tuple[dict[str, Any], ...] = ({"Tags": []}, {"ClientToken": "u"})
    for changes in others:
        refused = scheduler.refusal("create_schedule_group", **(members | changes))
        assert (refused.kind, refused.status) == ("ConflictException", 409)
        assert refused.text == "Schedule group g already exists."


def test_pages_of_groups(scheduler: Scheduler) -> None:
    names = [f"g{number}" for number in range(9)]
    for name in names:
        scheduler.call("create_schedule_group", Name=name)
    for size in (1, 3, 5, 9, 10, 100):
        assert scheduler.groups(MaxResults=size) == ["default", *names], size
    assert scheduler.groups(NamePrefix="g", MaxResults=2) == names
    assert scheduler.groups(NamePrefix="g1") == ["g1"]


def test_tags_of_a_group(scheduler: Scheduler) -> None:
    tags = [{"Key": "env", "Value": "prod"}, {"Key": "Team / a=b:c", "Value": "ż 💥"}]
    arn = scheduler.call("create_schedule_group", Name="g", Tags=tags)["ScheduleGroupArn"]
    assert scheduler.call("list_tags_for_resource", ResourceArn=arn) == {"Tags": tags}
    more = [{"Key": "env", "Value": "test"}, {"Key": "Env", "Value": "x"}]
    assert scheduler.call("tag_resource", ResourceArn=arn, Tags=more) == {}
    found = scheduler.call("list_tags_for_resource", ResourceArn=arn)["Tags"]
    assert found == [more[0], tags[1], more[1]]
    group = scheduler.call("get_schedule_group", Name="g")
    assert group["LastModificationDate"] > group["CreationDate"]
    keys = ["Team / a=b:c", "Env", "nothing"]
    assert scheduler.call("untag_resource", ResourceArn=arn, TagKeys=keys) == {}
    assert scheduler.call("list_tags_for_resource", ResourceArn=arn) == {"Tags": [more[0]]}


def test_limits_of_tags(scheduler: Scheduler) -> None:
    arn = scheduler.call("create_schedule_group", Name="g")["ScheduleGroupArn"]
    many = [{"Key": f"k{number}", "Value": "v" * 256} for number in range(200)]
    scheduler.call("tag_resource", ResourceArn=arn, Tags=many)
    before = scheduler.state()
    for tags, text in (
        ([{"Key": "one more", "Value": "v"}], "A schedule group has at most 200 tags."),
        ([{"Key": "a", "Value": "b"}, {"Key": "a", "Value": "c"}], "given twice"),
        ([{"Key": "\x00", "Value": "b"}], "characters that no tag may have"),
        ([{"Key": "", "Value": "b"}], "greater than or equal to 1"),
        ([{"Key": "k" * 129, "Value": "b"}], "less than or equal to 128"),
        ([{"Key": "k", "Value": ""}], "greater than or equal to 1"),
        ([{"Key": "k", "Value": "v" * 257}], "less than or equal to 256"),
        ([{"Key": "k"}], "Value null at 'tags.1.member.value'"),
        ([*many, many[0]], "less than or equal to 200"),
    ):
        refused = scheduler.refusal("tag_resource", ResourceArn=arn, Tags=tags)
        assert (refused.code, refused.status) == ("ValidationException", 400)
        assert text in refused.text
    assert scheduler.state() == before


def test_only_own_groups_can_be_tagged(scheduler: Scheduler) -> None:
    own = scheduler.group_arn("g")
    for arn in (
        own,
        own.replace("us-east-1", "eu-west-1"),
        own.replace(scheduler.account, "1" * 12),
    ):
        refused = scheduler.refusal("list_tags_for_resource", ResourceArn=arn)
        assert (refused.kind, refused.status) == ("ResourceNotFoundException", 404)
        assert refused.text == "Schedule group g does not exist."
    schedule = scheduler.create("s")
    for arn in (schedule, "g", scheduler.queue_arn(), own + "\n"):
        refused = scheduler.refusal("list_tags_for_resource", ResourceArn=arn)
        assert (refused.kind, refused.status) == ("ValidationException", 400)
        assert "at 'resourceArn' failed to satisfy constraint" in refused.text


@pytest.mark.parametrize("name", ["a b", "x" * 65, "ż", "a/b"])
def test_names_that_no_group_may_have(scheduler: Scheduler, name: str) -> None:
    for operation in ("create_schedule_group", "get_schedule_group", "delete_schedule_group"):
        refused = scheduler.refusal(operation, Name=name)
        assert (refused.kind, refused.status) == ("ValidationException", 400)
        assert f"Value '{name}' at 'name' failed to satisfy constraint" in refused.text
