"""EventBridge Scheduler: actions on schedules, schedule groups and their tags
(docs/contract/scheduler.md 4.1 and 4.2).

The face has checked the members by the service model: required members are present.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from queuegate.gateway.faces.aws.aws_face import AwsCall, Binding, Members
from queuegate.gateway.faces.aws.aws_rules import AWS, TagRules, removing
from queuegate.gateway.faces.aws.scheduler import aws_schedule_targets
from queuegate.gateway.operations.access import authorization
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.schedules import stored_schedules
from queuegate.gateway.operations.schedules.stored_schedules import DEFAULT
from queuegate.protocol import arns, names, opaque_tokens
from queuegate.protocol.arns import schedule_arn, schedule_group_arn
from queuegate.protocol.malformed import refusing
from queuegate.protocol.opaque_tokens import token_behind
from queuegate.storage.model import NewSchedule, Schedule, ScheduleGroup
from queuegate.storage.storage_errors import ScheduleInvalid

if TYPE_CHECKING:
    from queuegate.gateway.faces.aws.scheduler.aws_schedule_times import Times


_INVALID = "Invalid NextToken."
_LARGEST_ID = (1 << 31) - 1


def last_of(listing: str, token: str | None) -> str | None:
    """Read a page token as ``opaque_tokens.last_of`` does. Raises ScheduleInvalid."""
    with refusing(ScheduleInvalid(_INVALID)):
        return opaque_tokens.last_of(listing, token)


def place_behind(token: str | None) -> tuple[int, str]:
    """Return the group id and the name in a page token; (0, "") without one. Raises
    ScheduleInvalid."""
    last = last_of("schedules", token)
    if last is None:
        return 0, ""
    digits, _, name = last.partition("/")
    is_id = len(digits) <= 10 and digits.isascii() and digits.isdigit()
    if not is_id or int(digits) > _LARGEST_ID or not name:
        raise ScheduleInvalid(_INVALID)
    return int(digits), name


def _bad_characters() -> ScheduleInvalid:
    return ScheduleInvalid("A tag has characters that no tag may have.")


_RULES = TagRules(
    AWS.schedule_group_tags,
    lambda: ScheduleInvalid(f"A schedule group has at most {AWS.schedule_group_tags} tags."),
    _bad_characters,
    _bad_characters,
    lambda key: ScheduleInvalid(f"The tag key {key} is given twice."),
)


def checked_tags(given: Sequence[Mapping[str, str]] | None) -> dict[str, str]:
    """Return the tags of a request in the given order. Raises ScheduleInvalid."""
    return _RULES.checked((tag["Key"], tag["Value"]) for tag in given or ())


def _tagged_group(call: AwsCall) -> str:
    """Return the name of the group that an ARN names, in the caller's account and region."""
    arn, caller = call.members["ResourceArn"], call.caller
    with refusing(ScheduleInvalid(f"The ARN is not that of a schedule group: {arn}.")):
        parsed = arns.parse(arn)
    name = parsed.resource.partition("/")[2]
    if (parsed.account_id, parsed.region) != (caller.account_id, caller.region):
        raise stored_schedules.not_found(name)
    return name


async def tag_resource(call: AwsCall) -> None:
    change = _RULES.adding(checked_tags(call.members["Tags"]))
    await stored_schedules.change_tags(call.engine, call.caller, _tagged_group(call), change)


async def untag_resource(call: AwsCall) -> None:
    change = removing(call.members["TagKeys"])
    await stored_schedules.change_tags(call.engine, call.caller, _tagged_group(call), change)


async def list_tags_for_resource(call: AwsCall) -> Members:
    group = await stored_schedules.find_group(call.engine, call.caller, _tagged_group(call))
    return {"Tags": [{"Key": key, "Value": value} for key, value in group.tags.items()]}


def arn_of(schedule: Schedule) -> str:
    """Return the ARN of a schedule."""
    group = schedule.group_name or ""
    return schedule_arn(schedule.region, schedule.account_id, group, schedule.name)


def shown_schedule(schedule: Schedule) -> dict[str, Any]:
    """Return the request with the defaults for absent members, as GetSchedule shows it."""
    target = dict(schedule.spec["Target"])
    if target.get("Input", "") is None:
        # The stored target has the same text, so it is stored once.
        target["Input"] = stored_schedules.text_of(schedule)
    shown = {**schedule.spec, "Target": target, "State": _state(schedule)}
    return {**_named(schedule), **_dated(schedule), **shown}


def _summary(schedule: Schedule) -> dict[str, Any]:
    """Return an entry of ListSchedules."""
    target = {"Arn": schedule.spec["Target"]["Arn"]}
    named = {**_named(schedule), "State": _state(schedule)}
    return {**named, **_dated(schedule), "Target": target}


def _named(schedule: Schedule) -> dict[str, Any]:
    return {"Arn": arn_of(schedule), "Name": schedule.name, "GroupName": schedule.group_name}


def _dated(schedule: Schedule) -> dict[str, Any]:
    return {"CreationDate": schedule.created_at, "LastModificationDate": schedule.modified_at}


def _state(schedule: Schedule) -> str:
    return "ENABLED" if schedule.is_active else "DISABLED"


async def create_schedule(engine: Engine, caller: Caller, members: Members) -> dict[str, Any]:
    """Create a schedule and return its ARN. A repeated client token returns the first schedule's.
    Raises ScheduleInvalid, ScheduleExists, ScheduleConflict and ResourceNotFound."""
    # Lazy: expressions and time zones take a megabyte that start does not need.
    from queuegate.gateway.faces.aws.scheduler import aws_schedule_times

    aws_schedule_times.check_expression(members)
    wanted = _CheckedSchedule(engine, caller, members)

    def plan(now: datetime, _: Schedule | None) -> NewSchedule:
        return wanted.row(aws_schedule_times.first_times(members, now, kept_start=None))

    created = await stored_schedules.create(
        engine,
        caller,
        plan,
        group=members.get("GroupName", DEFAULT),
        client_token=members.get("ClientToken"),
    )
    return {"ScheduleArn": arn_of(created)}


async def update_schedule(engine: Engine, caller: Caller, members: Members) -> dict[str, Any]:
    """Replace a schedule and return its ARN. Absent members get their defaults.

    Another expression, time zone or StartDate starts anew now; otherwise the times stay. A schedule
    that was disabled does not catch up. Raises ScheduleInvalid, ScheduleConflict for a client token
    of another update, ScheduleDoesNotExist and ResourceNotFound.
    """
    from queuegate.gateway.faces.aws.scheduler import aws_schedule_times

    aws_schedule_times.check_expression(members)
    wanted = _CheckedSchedule(engine, caller, members)

    def plan(now: datetime, found: Schedule | None) -> NewSchedule:
        assert found is not None
        if _keeps_times(found.spec, wanted.spec):
            return wanted.row(aws_schedule_times.changed_times(members, now, found))
        start = found.starts_at
        return wanted.row(aws_schedule_times.first_times(members, now, kept_start=start))

    changed = await stored_schedules.change(
        engine,
        caller,
        members["Name"],
        plan,
        group=members.get("GroupName", DEFAULT),
        client_token=members.get("ClientToken"),
        always=True,
    )
    return {"ScheduleArn": arn_of(changed)}


async def get_schedule(engine: Engine, caller: Caller, members: Members) -> dict[str, Any]:
    """Return one schedule. Raises ScheduleDoesNotExist and ResourceNotFound."""
    group = members.get("GroupName", DEFAULT)
    found = await stored_schedules.find(engine, caller, members["Name"], group=group)
    return shown_schedule(found)


async def delete_schedule(engine: Engine, caller: Caller, members: Members) -> None:
    """Delete a schedule. Raises ScheduleDoesNotExist and ResourceNotFound."""
    group = members.get("GroupName", DEFAULT)
    await stored_schedules.delete(engine, caller, members["Name"], group=group)


async def list_schedules(engine: Engine, caller: Caller, members: Members) -> dict[str, Any]:
    """List a page of the caller's schedules, group by group and by name in byte order. Raises
    ResourceNotFound for an absent group, and ScheduleInvalid for a foreign token."""
    state = members.get("State")
    wanted = stored_schedules.ListSchedules(
        is_grouped=True,
        group=members.get("GroupName"),
        name_prefix=members.get("NamePrefix", ""),
        is_active=None if state is None else state == "ENABLED",
        after=place_behind(members.get("NextToken")),
    )
    most = members.get("MaxResults", AWS.schedules_page)
    page = await stored_schedules.page(engine, caller, wanted, _summary, most=most)
    token = None if page.last is None else token_behind("schedules", "{}/{}".format(*page.last))
    return {"Schedules": page.shown, "NextToken": token}


class _CheckedSchedule:
    """A valid request without its times, as shown and as stored. Raises ScheduleInvalid."""

    def __init__(self, engine: Engine, caller: Caller, members: Members) -> None:
        if names.invalid_characters(members.get("Description", "")):
            raise ScheduleInvalid("Description has characters that no text may have.")
        self._caller = caller
        self._members = members
        role_arn = members["Target"]["RoleArn"]
        authorization.check_key(engine, caller, "iam:PassRole", role_arn)
        kept = aws_schedule_targets.stored_target(engine, caller, members["Target"])
        self._target = {**kept, "role_arn": role_arn}
        self._dead_letter = aws_schedule_targets.dead_letter(members["Target"])
        aws_schedule_targets.check_rights(engine, caller, self._target)
        aws_schedule_targets.check_rights(engine, caller, self._dead_letter or {})
        self.spec = _spec(members, self._target)

    def row(self, times: Times) -> NewSchedule:
        """Return the schedule with these times."""
        policy = self.spec["Target"]["RetryPolicy"]
        return NewSchedule(
            account_id=self._caller.account_id,
            region=self._caller.region,
            name=self._members["Name"],
            spec=self.spec,
            timing=times.timing.to_json(),
            target=self._target,
            is_active=times.is_enabled,
            deletes_itself=self.spec["ActionAfterCompletion"] == "DELETE",
            window_seconds=times.window_seconds,
            starts_at=times.starts_at,
            ends_at=times.ends_at,
            max_attempts=policy["MaximumRetryAttempts"],
            max_age_seconds=policy["MaximumEventAgeInSeconds"],
            dead_letter=self._dead_letter,
            next_fire_at=times.next_fire_at,
            due_at=times.due_at,
        )


def _spec(members: Members, stored: Mapping[str, Any]) -> dict[str, Any]:
    shown = dict(members["Target"])
    given = shown.get("RetryPolicy") or {}
    shown["RetryPolicy"] = {
        "MaximumEventAgeInSeconds": AWS.event_age_seconds,
        "MaximumRetryAttempts": AWS.retry_attempts,
        **given,
    }
    text = shown.get("Input")
    if text is not None and text in (stored.get("body"), stored.get("message")):
        shown["Input"] = None
    spec = {
        "ScheduleExpression": members["ScheduleExpression"],
        "ScheduleExpressionTimezone": members.get("ScheduleExpressionTimezone", "UTC"),
        "Target": shown,
        "FlexibleTimeWindow": dict(members["FlexibleTimeWindow"]),
        "ActionAfterCompletion": members.get("ActionAfterCompletion", "NONE"),
    }
    spec |= {name: members[name] for name in ("Description", "KmsKeyArn") if name in members}
    dates = ("StartDate", "EndDate")
    return spec | {name: members[name].timestamp() for name in dates if name in members}


def _keeps_times(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Return True if both have the same expression, time zone and StartDate."""
    members = ("ScheduleExpression", "ScheduleExpressionTimezone", "StartDate")
    return all(old.get(member) == new.get(member) for member in members)


def _bound(action: Callable[[Engine, Caller, Members], Awaitable[Members | None]]) -> Binding:
    return lambda call: action(call.engine, call.caller, call.members)


def _arn_of(group: ScheduleGroup) -> str:
    return schedule_group_arn(group.region, group.account_id, group.name)


def _shown(group: ScheduleGroup) -> Members:
    """Return a group as GetScheduleGroup shows it."""
    return {
        "Arn": _arn_of(group),
        "Name": group.name,
        "State": "DELETING" if group.is_deleting else "ACTIVE",
        "CreationDate": group.created_at,
        "LastModificationDate": group.modified_at,
    }


async def create_schedule_group(call: AwsCall) -> Members:
    members = call.members
    given = checked_tags(members.get("Tags"))
    group = await stored_schedules.create_group(
        call.engine,
        call.caller,
        members["Name"],
        tags=given,
        client_token=members.get("ClientToken"),
    )
    return {"ScheduleGroupArn": _arn_of(group)}


async def get_schedule_group(call: AwsCall) -> Members:
    return _shown(await stored_schedules.find_group(call.engine, call.caller, call.members["Name"]))


async def delete_schedule_group(call: AwsCall) -> None:
    name = call.members["Name"]
    if name == DEFAULT:
        raise ScheduleInvalid("The default schedule group cannot be deleted.")
    await stored_schedules.delete_group(call.engine, call.caller, name)


async def list_schedule_groups(call: AwsCall) -> Members:
    """List groups by name, in byte order."""
    members = call.members
    found, has_more = await stored_schedules.page_of_groups(
        call.engine,
        call.caller,
        name_prefix=members.get("NamePrefix", ""),
        after=last_of("groups", members.get("NextToken")) or "",
        most=members.get("MaxResults", AWS.schedules_page),
    )
    token = token_behind("groups", found[-1].name) if has_more else None
    return {"ScheduleGroups": [_shown(group) for group in found], "NextToken": token}


BINDINGS: dict[str, Binding] = {
    "CreateSchedule": _bound(create_schedule),
    "CreateScheduleGroup": create_schedule_group,
    "DeleteSchedule": _bound(delete_schedule),
    "DeleteScheduleGroup": delete_schedule_group,
    "GetSchedule": _bound(get_schedule),
    "GetScheduleGroup": get_schedule_group,
    "ListScheduleGroups": list_schedule_groups,
    "ListSchedules": _bound(list_schedules),
    "ListTagsForResource": list_tags_for_resource,
    "TagResource": tag_resource,
    "UntagResource": untag_resource,
    "UpdateSchedule": _bound(update_schedule),
}
