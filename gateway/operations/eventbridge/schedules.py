"""Schedules of EventBridge Scheduler: create, update, get, delete and list
(docs/contract/scheduler.md 4.1 and 4.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gateway.operations.eventbridge import targets
from gateway.operations.eventbridge.groups import existing_group, group_for_new
from gateway.operations.eventbridge.pages import page_size, place_behind, token_behind
from gateway.operations.eventbridge.requests import ListSchedules, PutSchedule
from gateway.operations.schedules.present import present_second
from protocol import names
from protocol.arns import schedule_arn
from storage.errors import ResourceNotFound, ScheduleConflict, ScheduleInvalid, Unavailable
from storage.schedules import schedules
from storage.schedules.schedules import NewSchedule, Schedule, ScheduleFilter

if TYPE_CHECKING:
    from gateway.operations.caller import Caller
    from gateway.operations.engine import Engine
    from gateway.operations.eventbridge.times import Times
    from storage.database import Transaction
    from storage.schedules.schedule_groups import ScheduleGroup

Spec = Mapping[str, Any]
_CREATE_ATTEMPTS = 5
_CHUNK = 20
"""Rows read at a time for a list: each may carry a message of the largest size."""
_CREATED, _UPDATED = "create", "update"


def arn_of(schedule: Schedule) -> str:
    """The ARN of a schedule."""
    group = schedule.group_name or ""
    return schedule_arn(schedule.region, schedule.account_id, group, schedule.name)


def description(schedule: Schedule) -> dict[str, Any]:
    """What the caller asked for, with the defaults of what was absent, as GetSchedule shows it."""
    spec = dict(schedule.spec)
    target = dict(spec["Target"])
    if target.get("Input", "") is None:
        # It is what the stored target sends: it is not kept twice.
        kept = schedule.target
        target["Input"] = kept["body"] if kept["kind"] == "queue" else kept["message"]
    state = "ENABLED" if schedule.is_active else "DISABLED"
    return {**spec, "Target": target, "State": state}


async def create_schedule(engine: Engine, caller: Caller, request: PutSchedule) -> str:
    """Create a schedule, and return its ARN; also of the one that the same request with the same
    client token has made.

    Raises ScheduleInvalid, ScheduleConflict and ResourceNotFound.
    """
    # Expressions and time zones come with it: a megabyte that no start has to wait for.
    from gateway.operations.eventbridge.times import check_expression, first_times

    check_expression(request)
    checked = _checked(engine, caller, request)
    arn = schedule_arn(caller.region, caller.account_id, request.group, request.name)
    # A schedule that is deleted between a refused insert and the look at it is created after all.
    for _ in range(_CREATE_ATTEMPTS):
        async with engine.database.transaction() as tx:
            now = await present_second(engine, tx, caller.account_id)
            times = first_times(request, now, kept_start=None)
            group = await group_for_new(engine, caller, tx, request.group)
            new = _row(group, request, checked, times, _token(_CREATED, request))
            created = await schedules.create(tx, engine.clock.of(caller.account_id).now(), new)
            if created is not None:
                return arn
            found = await _find(caller, tx, group, request.name)
            if found is not None:
                if _is_same(found, new):
                    return arn
                raise ScheduleConflict(f"Schedule {request.name} already exists.")
    raise Unavailable("The schedule is being created and deleted by others.")


async def update_schedule(engine: Engine, caller: Caller, request: PutSchedule) -> str:
    """Replace everything of a schedule, and return its ARN: what the request leaves out gets its
    default.

    Another expression, time zone or StartDate begins anew now; otherwise the times stay. A schedule
    that was disabled does not make up for that time. Raises ScheduleInvalid, ScheduleConflict for a
    client token that came with another update, and ResourceNotFound.
    """
    from gateway.operations.eventbridge.times import changed_times, check_expression, first_times

    check_expression(request)
    checked = _checked(engine, caller, request)
    token = _token(_UPDATED, request)
    async with engine.database.transaction() as tx:
        group = await existing_group(engine, caller, tx, request.group)
        found = await schedules.lock(
            tx, caller.account_id, caller.region, group.group_id, request.name
        )
        if found is None:
            raise _not_found(request.name)
        now = await present_second(engine, tx, caller.account_id)
        if _keeps_times(found.spec, checked.spec):
            times = changed_times(request, now, found)
        else:
            times = first_times(request, now, kept_start=found.starts_at)
        new = _row(group, request, checked, times, token)
        if token is None or found.client_token != token:
            await schedules.replace(
                tx, engine.clock.of(caller.account_id).now(), found.schedule_id, new
            )
        elif not _is_same(found, new):
            raise ScheduleConflict(
                f"Schedule {request.name} was updated with other parameters and the same "
                "ClientToken."
            )
    return schedule_arn(caller.region, caller.account_id, request.group, request.name)


async def get_schedule(engine: Engine, caller: Caller, group_name: str, name: str) -> Schedule:
    """One schedule. Raises ResourceNotFound."""
    async with engine.database.transaction() as tx:
        group = await existing_group(engine, caller, tx, group_name)
        found = await _find(caller, tx, group, name)
    if found is None:
        raise _not_found(name)
    return found


async def delete_schedule(engine: Engine, caller: Caller, group_name: str, name: str) -> None:
    """Delete a schedule; what it sent stays, and what failed is still repeated.

    Raises ResourceNotFound.
    """
    async with engine.database.transaction() as tx:
        group = await existing_group(engine, caller, tx, group_name)
        found = await schedules.lock(tx, caller.account_id, caller.region, group.group_id, name)
        if found is None:
            raise _not_found(name)
        await schedules.delete(tx, found.schedule_id)


@dataclass(frozen=True, slots=True)
class SchedulePage:
    """``next_token`` None: there are no more."""

    schedules: list[dict[str, Any]]
    """Summaries, as ListSchedules shows them."""
    next_token: str | None


async def list_schedules(engine: Engine, caller: Caller, request: ListSchedules) -> SchedulePage:
    """A page of the caller's schedules, group by group and by name in byte order.

    Raises ResourceNotFound for a group that is not there, and ScheduleInvalid for a token that is
    none of ours.
    """
    size = page_size(request.max_results)
    after_group, after_name = place_behind(request.next_token)
    found: list[dict[str, Any]] = []
    async with engine.database.transaction() as tx:
        wanted = await _filter(engine, caller, tx, request)
        while len(found) <= size:
            rows = await schedules.page(
                tx, wanted, after_name, after_group_id=after_group, limit=_CHUNK
            )
            for row in rows:
                if len(found) == size:
                    return SchedulePage(found, token_behind(after_group, after_name))
                found.append(_summary(row))
                after_group, after_name = row.group_id or 0, row.name
            if len(rows) < _CHUNK:
                break
    return SchedulePage(found, None)


async def _filter(
    engine: Engine, caller: Caller, tx: Transaction, request: ListSchedules
) -> ScheduleFilter:
    group_id = None
    if request.group is not None:
        group_id = (await existing_group(engine, caller, tx, request.group)).group_id
    return ScheduleFilter(
        caller.account_id,
        caller.region,
        is_native=False,
        group_id=group_id,
        name_prefix=request.name_prefix,
        is_active=request.is_enabled,
    )


def _summary(schedule: Schedule) -> dict[str, Any]:
    return {
        "Arn": arn_of(schedule),
        "Name": schedule.name,
        "GroupName": schedule.group_name,
        "State": "ENABLED" if schedule.is_active else "DISABLED",
        "CreationDate": schedule.created_at,
        "LastModificationDate": schedule.modified_at,
        "Target": {"Arn": schedule.spec["Target"]["Arn"]},
    }


def _not_found(name: str) -> ResourceNotFound:
    return ResourceNotFound(f"Schedule {name} does not exist.")


async def _find(
    caller: Caller, tx: Transaction, group: ScheduleGroup, name: str
) -> Schedule | None:
    return await schedules.find(tx, caller.account_id, caller.region, group.group_id, name)


@dataclass(frozen=True, slots=True)
class _Checked:
    """A request without fault: what is shown of it, and what is sent where."""

    spec: Spec
    target: Mapping[str, Any]
    dead_letter: Mapping[str, str] | None


def _checked(engine: Engine, caller: Caller, request: PutSchedule) -> _Checked:
    """Raises ScheduleInvalid; what says when has checks of its own."""
    if request.description is not None and names.invalid_characters(request.description):
        raise ScheduleInvalid("Description has characters that no text may have.")
    target = targets.stored_target(engine, caller, request.target)
    return _Checked(_spec(request, target), target, targets.dead_letter(request.target))


def _spec(request: PutSchedule, stored: Mapping[str, Any]) -> dict[str, Any]:
    shown = dict(request.target)
    given = shown.get("RetryPolicy") or {}
    shown["RetryPolicy"] = {
        "MaximumEventAgeInSeconds": targets.MOST_AGE_SECONDS,
        "MaximumRetryAttempts": targets.MOST_ATTEMPTS,
        **given,
    }
    text = shown.get("Input")
    if text is not None and text in (stored.get("body"), stored.get("message")):
        shown["Input"] = None
    optional = {
        "Description": request.description,
        "KmsKeyArn": request.key_arn,
        "StartDate": None if request.starts_at is None else request.starts_at.timestamp(),
        "EndDate": None if request.ends_at is None else request.ends_at.timestamp(),
    }
    return {
        "ScheduleExpression": request.expression,
        "ScheduleExpressionTimezone": request.timezone,
        "Target": shown,
        "FlexibleTimeWindow": dict(request.window),
        "ActionAfterCompletion": "DELETE" if request.deletes_itself else "NONE",
        **{name: value for name, value in optional.items() if value is not None},
    }


def _keeps_times(old: Spec, new: Spec) -> bool:
    """Whether both say the same about when to begin and what follows."""
    members = ("ScheduleExpression", "ScheduleExpressionTimezone", "StartDate")
    return all(old.get(member) == new.get(member) for member in members)


def _token(operation: str, request: PutSchedule) -> str | None:
    """Tokens belong to an operation: the same one may come with another of them."""
    token = request.client_token
    return None if token is None else f"{operation}:{token}"


def _is_same(found: Schedule, new: NewSchedule) -> bool:
    """Whether a schedule is what the same request with the same client token has made."""
    return (
        new.client_token is not None
        and found.client_token == new.client_token
        and found.is_active == new.is_active
        and found.spec == new.spec
        and found.target == new.target
    )


def _row(
    group: ScheduleGroup, request: PutSchedule, checked: _Checked, times: Times, token: str | None
) -> NewSchedule:
    policy = checked.spec["Target"]["RetryPolicy"]
    return NewSchedule(
        account_id=group.account_id,
        region=group.region,
        group_id=group.group_id,
        name=request.name,
        spec=checked.spec,
        timing=times.timing.to_json(),
        target=checked.target,
        is_active=request.is_enabled,
        catchup=False,
        catchup_limit=1,
        failure_threshold=None,
        deletes_itself=request.deletes_itself,
        window_seconds=times.window_seconds,
        starts_at=times.starts_at,
        ends_at=times.ends_at,
        max_attempts=policy["MaximumRetryAttempts"],
        max_age_seconds=policy["MaximumEventAgeInSeconds"],
        dead_letter=checked.dead_letter,
        client_token=token,
        next_fire_at=times.next_fire_at,
        due_at=times.due_at,
    )
