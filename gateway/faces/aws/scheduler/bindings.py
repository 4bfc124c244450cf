"""EventBridge Scheduler: action -> binding. Decoded members in, response members out.

Members keep the rules of the model when they come here, so those that it requires are there.
"""

from __future__ import annotations

from typing import Any

from gateway.faces.aws.face import Binding, Call, Members
from gateway.operations.eventbridge import groups, schedules, tags
from gateway.operations.eventbridge.requests import (
    DEFAULT_GROUP,
    CreateScheduleGroup,
    ListScheduleGroups,
    ListSchedules,
    PutSchedule,
)


def _to_put(members: Members) -> PutSchedule:
    return PutSchedule(
        members["Name"],
        members["ScheduleExpression"],
        members["Target"],
        members["FlexibleTimeWindow"],
        group=members.get("GroupName", DEFAULT_GROUP),
        timezone=members.get("ScheduleExpressionTimezone", "UTC"),
        starts_at=members.get("StartDate"),
        ends_at=members.get("EndDate"),
        is_enabled=members.get("State") != "DISABLED",
        deletes_itself=members.get("ActionAfterCompletion") == "DELETE",
        description=members.get("Description"),
        key_arn=members.get("KmsKeyArn"),
        client_token=members.get("ClientToken"),
    )


async def create_schedule(call: Call) -> Members:
    request = _to_put(call.members)
    return {"ScheduleArn": await schedules.create_schedule(call.engine, call.caller, request)}


async def update_schedule(call: Call) -> Members:
    request = _to_put(call.members)
    return {"ScheduleArn": await schedules.update_schedule(call.engine, call.caller, request)}


async def get_schedule(call: Call) -> Members:
    members = call.members
    group = members.get("GroupName", DEFAULT_GROUP)
    found = await schedules.get_schedule(call.engine, call.caller, group, members["Name"])
    return {
        "Arn": schedules.arn_of(found),
        "Name": found.name,
        "GroupName": found.group_name,
        "CreationDate": found.created_at,
        "LastModificationDate": found.modified_at,
        **schedules.description(found),
    }


async def delete_schedule(call: Call) -> None:
    members = call.members
    group = members.get("GroupName", DEFAULT_GROUP)
    await schedules.delete_schedule(call.engine, call.caller, group, members["Name"])


async def list_schedules(call: Call) -> Members:
    members = call.members
    state = members.get("State")
    request = ListSchedules(
        members.get("GroupName"),
        members.get("NamePrefix", ""),
        None if state is None else state == "ENABLED",
        members.get("NextToken"),
        members.get("MaxResults"),
    )
    page = await schedules.list_schedules(call.engine, call.caller, request)
    return {"Schedules": page.schedules, "NextToken": page.next_token}


def _pairs(given: list[dict[str, Any]] | None) -> tuple[tuple[str, str], ...]:
    return tuple((tag["Key"], tag["Value"]) for tag in given or ())


async def create_schedule_group(call: Call) -> Members:
    members = call.members
    request = CreateScheduleGroup(
        members["Name"], _pairs(members.get("Tags")), members.get("ClientToken")
    )
    group = await groups.create_schedule_group(call.engine, call.caller, request)
    return {"ScheduleGroupArn": groups.arn_of(group)}


async def get_schedule_group(call: Call) -> Members:
    name = call.members["Name"]
    return groups.description(await groups.get_schedule_group(call.engine, call.caller, name))


async def delete_schedule_group(call: Call) -> None:
    await groups.delete_schedule_group(call.engine, call.caller, call.members["Name"])


async def list_schedule_groups(call: Call) -> Members:
    members = call.members
    request = ListScheduleGroups(
        members.get("NamePrefix", ""), members.get("NextToken"), members.get("MaxResults")
    )
    page = await groups.list_schedule_groups(call.engine, call.caller, request)
    found = [groups.description(group) for group in page.groups]
    return {"ScheduleGroups": found, "NextToken": page.next_token}


async def tag_resource(call: Call) -> None:
    members = call.members
    pairs = _pairs(members["Tags"])
    await tags.tag_resource(call.engine, call.caller, members["ResourceArn"], pairs)


async def untag_resource(call: Call) -> None:
    members = call.members
    arn, keys = members["ResourceArn"], members["TagKeys"]
    await tags.untag_resource(call.engine, call.caller, arn, keys)


async def list_tags_for_resource(call: Call) -> Members:
    arn = call.members["ResourceArn"]
    found = await tags.list_tags_for_resource(call.engine, call.caller, arn)
    return {"Tags": [{"Key": key, "Value": value} for key, value in found.items()]}


BINDINGS: dict[str, Binding] = {
    "CreateSchedule": create_schedule,
    "CreateScheduleGroup": create_schedule_group,
    "DeleteSchedule": delete_schedule,
    "DeleteScheduleGroup": delete_schedule_group,
    "GetSchedule": get_schedule,
    "GetScheduleGroup": get_schedule_group,
    "ListScheduleGroups": list_schedule_groups,
    "ListSchedules": list_schedules,
    "ListTagsForResource": list_tags_for_resource,
    "TagResource": tag_resource,
    "UntagResource": untag_resource,
    "UpdateSchedule": update_schedule,
}
"""Actions of EventBridge Scheduler."""
