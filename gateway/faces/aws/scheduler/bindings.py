"""EventBridge Scheduler: action -> binding. Decoded members in, response members out.

Members keep the rules of the model when they come here, so those that it requires are there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from queuegate.gateway.faces.aws.face import Binding, Call, Members
from queuegate.gateway.faces.aws.scheduler import schedules, tags
from queuegate.gateway.faces.aws.scheduler.pages import last_of, page_size
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.schedules import stored_schedules
from queuegate.gateway.operations.schedules.stored_schedules import DEFAULT
from queuegate.protocol.arns import schedule_group_arn
from queuegate.protocol.page_tokens import token_behind
from queuegate.storage.model import ScheduleGroup
from queuegate.storage.schedule_errors import ScheduleInvalid


def _bound(action: Callable[[Engine, Caller, Members], Awaitable[Members | None]]) -> Binding:
    return lambda call: action(call.engine, call.caller, call.members)


def _arn_of(group: ScheduleGroup) -> str:
    return schedule_group_arn(group.region, group.account_id, group.name)


def _shown(group: ScheduleGroup) -> Members:
    """As GetScheduleGroup shows it."""
    return {
        "Arn": _arn_of(group),
        "Name": group.name,
        "State": "DELETING" if group.is_deleting else "ACTIVE",
        "CreationDate": group.created_at,
        "LastModificationDate": group.modified_at,
    }


async def create_schedule_group(call: Call) -> Members:
    members = call.members
    given = tags.checked_tags(members.get("Tags"))
    group = await stored_schedules.create_group(
        call.engine,
        call.caller,
        members["Name"],
        tags=given,
        client_token=members.get("ClientToken"),
    )
    return {"ScheduleGroupArn": _arn_of(group)}


async def get_schedule_group(call: Call) -> Members:
    return _shown(await stored_schedules.find_group(call.engine, call.caller, call.members["Name"]))


async def delete_schedule_group(call: Call) -> None:
    name = call.members["Name"]
    if name == DEFAULT:
        raise ScheduleInvalid("The default schedule group cannot be deleted.")
    await stored_schedules.delete_group(call.engine, call.caller, name)


async def list_schedule_groups(call: Call) -> Members:
    """By name, in byte order."""
    members = call.members
    found, has_more = await stored_schedules.page_of_groups(
        call.engine,
        call.caller,
        name_prefix=members.get("NamePrefix", ""),
        after=last_of("groups", members.get("NextToken")) or "",
        most=page_size(members.get("MaxResults")),
    )
    token = token_behind("groups", found[-1].name) if has_more else None
    return {"ScheduleGroups": [_shown(group) for group in found], "NextToken": token}


BINDINGS: dict[str, Binding] = {
    "CreateSchedule": _bound(schedules.create_schedule),
    "CreateScheduleGroup": create_schedule_group,
    "DeleteSchedule": _bound(schedules.delete_schedule),
    "DeleteScheduleGroup": delete_schedule_group,
    "GetSchedule": _bound(schedules.get_schedule),
    "GetScheduleGroup": get_schedule_group,
    "ListScheduleGroups": list_schedule_groups,
    "ListSchedules": _bound(schedules.list_schedules),
    "UpdateSchedule": _bound(schedules.update_schedule),
    **tags.BINDINGS,
}
"""Actions of EventBridge Scheduler."""
