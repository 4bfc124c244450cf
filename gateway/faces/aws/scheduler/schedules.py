"""Schedules of EventBridge Scheduler: create, update, get, delete and list
(docs/contract/scheduler.md 4.1 and 4.2). Members keep the rules of the model when they come here.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from queuegate.gateway.faces.aws.limits import AWS
from queuegate.gateway.faces.aws.scheduler import targets
from queuegate.gateway.faces.aws.scheduler.pages import page_size, place_behind, token_behind
from queuegate.gateway.operations.access import authorization
from queuegate.gateway.operations.schedules import stored_schedules
from queuegate.gateway.operations.schedules.stored_schedules import DEFAULT
from queuegate.protocol import names
from queuegate.protocol.arns import schedule_arn
from queuegate.storage.model import NewSchedule, Schedule
from queuegate.storage.schedule_errors import ScheduleInvalid

if TYPE_CHECKING:
    from queuegate.gateway.faces.aws.scheduler.times import Times
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.runtime.engine import Engine

Members = Mapping[str, Any]


def arn_of(schedule: Schedule) -> str:
    """The ARN of a schedule."""
    group = schedule.group_name or ""
    return schedule_arn(schedule.region, schedule.account_id, group, schedule.name)


def description(schedule: Schedule) -> dict[str, Any]:
    """What the caller asked for, with the defaults of what was absent, as GetSchedule shows it."""
    target = dict(schedule.spec["Target"])
    if target.get("Input", "") is None:
        # It is what the stored target sends: it is not kept twice.
        target["Input"] = stored_schedules.text_of(schedule)
    shown = {**schedule.spec, "Target": target, "State": _state(schedule)}
    return {**_named(schedule), **_dated(schedule), **shown}


def _summary(schedule: Schedule) -> dict[str, Any]:
    """As ListSchedules shows it."""
    target = {"Arn": schedule.spec["Target"]["Arn"]}
    named = {**_named(schedule), "State": _state(schedule)}
    return {**named, **_dated(schedule), "Target": target}


def _named(schedule: Schedule) -> dict[str, Any]:
    return {"Arn": arn_of(schedule), "Name": schedule.name, "GroupName": schedule.group_name}


def _dated(schedule: Schedule) -> dict[str, Any]:
    return {"CreationDate": schedule.created_at, "LastModificationDate": schedule.modified_at}


def _state(schedule: Schedule) -> str:
    return "ENABLED" if schedule.is_active else "DISABLED"


def _group_of(members: Members) -> str:
    group: str = members.get("GroupName", DEFAULT)
    return group


async def create_schedule(engine: Engine, caller: Caller, members: Members) -> dict[str, Any]:
    """Create a schedule, and return its ARN; also of the one that the same request with the same
    client token has made.

    Raises ScheduleInvalid, ScheduleExists, ScheduleConflict and ResourceNotFound.
    """
    # Expressions and time zones come with it: a megabyte that no start has to wait for.
    from queuegate.gateway.faces.aws.scheduler.times import check_expression, first_times

    check_expression(members)
    wanted = _Wanted(engine, caller, members)

    def plan(now: datetime, _: Schedule | None) -> NewSchedule:
        return wanted.row(first_times(members, now, kept_start=None))

    created = await stored_schedules.create(
        engine, caller, plan, group=_group_of(members), client_token=members.get("ClientToken")
    )
    return {"ScheduleArn": arn_of(created)}


async def update_schedule(engine: Engine, caller: Caller, members: Members) -> dict[str, Any]:
    """Replace everything of a schedule, and return its ARN: what the request leaves out gets its
    default.

    Another expression, time zone or StartDate begins anew now; otherwise the times stay. A schedule
    that was disabled does not make up for that time. Raises ScheduleInvalid, ScheduleConflict for a
    client token that came with another update, ScheduleDoesNotExist and ResourceNotFound.
    """
    from queuegate.gateway.faces.aws.scheduler.times import (
        changed_times,
        check_expression,
        first_times,
    )

    check_expression(members)
    wanted = _Wanted(engine, caller, members)

    def plan(now: datetime, found: Schedule | None) -> NewSchedule:
        assert found is not None
        if _keeps_times(found.spec, wanted.spec):
            return wanted.row(changed_times(members, now, found))
        return wanted.row(first_times(members, now, kept_start=found.starts_at))

    changed = await stored_schedules.change(
        engine,
        caller,
        members["Name"],
        plan,
        group=_group_of(members),
        client_token=members.get("ClientToken"),
        always=True,
    )
    return {"ScheduleArn": arn_of(changed)}


async def get_schedule(engine: Engine, caller: Caller, members: Members) -> dict[str, Any]:
    """One schedule. Raises ScheduleDoesNotExist and ResourceNotFound."""
    found = await stored_schedules.find(engine, caller, members["Name"], group=_group_of(members))
    return description(found)


async def delete_schedule(engine: Engine, caller: Caller, members: Members) -> None:
    """Delete a schedule. Raises ScheduleDoesNotExist and ResourceNotFound."""
    await stored_schedules.delete(engine, caller, members["Name"], group=_group_of(members))


async def list_schedules(engine: Engine, caller: Caller, members: Members) -> dict[str, Any]:
    """A page of the caller's schedules, group by group and by name in byte order.

    Raises ResourceNotFound for a group that is not there, and ScheduleInvalid for a token that is
    none of ours.
    """
    state = members.get("State")
    wanted = stored_schedules.Wanted(
        is_grouped=True,
        group=members.get("GroupName"),
        name_prefix=members.get("NamePrefix", ""),
        is_active=None if state is None else state == "ENABLED",
        after=place_behind(members.get("NextToken")),
    )
    most = page_size(members.get("MaxResults"))
    page = await stored_schedules.page(engine, caller, wanted, _summary, most=most)
    token = None if page.last is None else token_behind(*page.last)
    return {"Schedules": page.shown, "NextToken": token}


class _Wanted:
    """A request without fault: what is shown of it, and what is sent where. Raises ScheduleInvalid;
    what says when has checks of its own."""

    def __init__(self, engine: Engine, caller: Caller, members: Members) -> None:
        if names.invalid_characters(members.get("Description", "")):
            raise ScheduleInvalid("Description has characters that no text may have.")
        self._caller = caller
        self._members = members
        role_arn = members["Target"]["RoleArn"]
        authorization.check_key(engine, caller, "iam:PassRole", role_arn)
        kept = targets.stored_target(engine, caller, members["Target"])
        self._target = {**kept, "role_arn": role_arn}
        self._dead_letter = targets.dead_letter(members["Target"])
        targets.check_rights(engine, caller, self._target)
        targets.check_rights(engine, caller, self._dead_letter or {})
        self.spec = _spec(members, self._target)

    def row(self, times: Times) -> NewSchedule:
        """With these times."""
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


def _keeps_times(old: Members, new: Members) -> bool:
    """Whether both say the same about when to begin and what follows."""
    members = ("ScheduleExpression", "ScheduleExpressionTimezone", "StartDate")
    return all(old.get(member) == new.get(member) for member in members)
