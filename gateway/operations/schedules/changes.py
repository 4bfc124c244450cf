"""Schedules of the native API: create, put, patch and delete (docs/seeds.md 1.4).

A change that changes nothing leaves the schedule alone, its next time too: whoever keeps schedules
in a file may put them all day. What does not touch the expression keeps the timing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gateway.operations.schedules import targets
from gateway.operations.schedules.present import present_second
from gateway.operations.schedules.reading import View, not_found, view
from gateway.operations.schedules.specs import (
    PAUSED,
    Expression,
    Options,
    QueueTarget,
    ScheduleSpec,
    Target,
    check_name,
    expression_of,
    options_of,
)
from gateway.operations.schedules.timings import first_time, timing_of
from protocol.expressions import Timing
from storage.errors import (
    InvalidParameterValue,
    ScheduleConflict,
    Unavailable,
)
from storage.schedules import schedules
from storage.schedules.schedules import NewSchedule

if TYPE_CHECKING:
    from gateway.operations.caller import Caller
    from gateway.operations.engine import Engine
    from storage.database import Transaction
    from storage.schedules.schedules import Schedule

_PUT_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A specification whose target was found. ``queue_name``: as it was written."""

    name: str
    expression: Expression
    target: Mapping[str, Any]
    queue_name: str | None
    options: Options


async def create_schedule(engine: Engine, caller: Caller, spec: ScheduleSpec) -> View:
    """The new schedule. Raises ScheduleConflict, InvalidParameterValue, and the refusal of a queue
    that does not exist."""
    wanted = await _checked(engine, caller, spec)
    async with engine.database.transaction() as tx:
        schedule = await _create(engine, caller, tx, wanted, is_repeatable=False)
    if schedule is None:
        raise ScheduleConflict(
            f"Schedule '{spec.name}' exists already. PUT /v1/schedules/{spec.name} replaces it."
        )
    return view(engine, schedule)


async def put_schedule(engine: Engine, caller: Caller, spec: ScheduleSpec) -> tuple[View, bool]:
    """The schedule as it is now, and whether it was created.

    Without a status one that is there stays active or paused, whoever paused it.
    """
    wanted = await _checked(engine, caller, spec)
    # One that is deleted between a refused insert and the look at it is created after all.
    for _ in range(_PUT_ATTEMPTS):
        async with engine.database.transaction() as tx:
            found = await schedules.lock(tx, caller.account_id, caller.region, None, spec.name)
            if found is None:
                schedule = await _create(engine, caller, tx, wanted, is_repeatable=True)
            else:
                schedule = await _change(engine, caller, tx, found, wanted)
        if schedule is not None:
            return view(engine, schedule), found is None
    raise Unavailable("The schedule is being created and deleted by others.")


@dataclass(frozen=True, slots=True)
class PatchSchedule:
    """What to change; None: stays as it is. A timezone alone reads the same expression there."""

    name: str
    form: tuple[str, str] | None = None
    """One of FORMS, and its text."""
    timezone: str | None = None
    target: Target | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Fields of ``Options`` with their new values."""


async def patch_schedule(engine: Engine, caller: Caller, request: PatchSchedule) -> View:
    """Change parts of a schedule. One that is resumed does not fire for the time in which it was
    paused, unless it catches up; its failures are counted anew.

    Raises ResourceNotFound, InvalidParameterValue, and the refusal of a queue that does not exist.
    """
    target = None
    if request.target is not None:
        target = await targets.resolve(engine, caller, request.name, request.target)
    async with engine.database.transaction() as tx:
        found = await schedules.lock(tx, caller.account_id, caller.region, None, request.name)
        if found is None:
            raise not_found(request.name)
        schedule = await _change(engine, caller, tx, found, _patched(found, request, target))
    return view(engine, schedule)


async def delete_schedule(engine: Engine, caller: Caller, name: str) -> None:
    """Delete the schedule if there is one. What it fired stays where it is.

    Raises InvalidParameterValue for a name that no schedule can have.
    """
    check_name(name)
    async with engine.database.transaction() as tx:
        found = await schedules.lock(tx, caller.account_id, caller.region, None, name)
        if found is not None:
            await schedules.delete(tx, found.schedule_id)


async def _checked(engine: Engine, caller: Caller, spec: ScheduleSpec) -> _Wanted:
    check_name(spec.name)
    target = await targets.resolve(engine, caller, spec.name, spec.target)
    return _Wanted(spec.name, spec.expression, target, _written_name(spec.target), spec.options)


def _written_name(target: Target) -> str | None:
    return target.queue_name if isinstance(target, QueueTarget) else None


def _patched(found: Schedule, request: PatchSchedule, target: Mapping[str, Any] | None) -> _Wanted:
    old = expression_of(found)
    form, text = request.form or (old.form, old.text)
    options = dataclasses.replace(options_of(found), **request.options)
    if target is None:
        target, queue_name = found.target, found.spec.get("queue_name")
    else:
        assert request.target is not None
        queue_name = _written_name(request.target)
    expression = Expression(form, text, request.timezone or old.timezone)
    return _Wanted(found.name, expression, target, queue_name, options)


async def _create(
    engine: Engine, caller: Caller, tx: Transaction, wanted: _Wanted, *, is_repeatable: bool
) -> Schedule | None:
    """The created schedule, or None when there is one of that name."""
    now = await present_second(engine, tx, caller.account_id)
    timing = timing_of(wanted.expression, now)
    first = first_time(timing, now, is_repeatable=is_repeatable)
    new = _row(caller, wanted, timing, first)
    return await schedules.create(tx, engine.clock.of(caller.account_id).now(), new)


async def _change(
    engine: Engine, caller: Caller, tx: Transaction, found: Schedule, wanted: _Wanted
) -> Schedule:
    """The locked schedule as it is wanted; it is left alone if it is that already."""
    now = await present_second(engine, tx, caller.account_id)
    status = wanted.options.status or found.status
    wanted = dataclasses.replace(wanted, options=dataclasses.replace(wanted.options, status=status))
    if wanted.expression != expression_of(found):
        timing = timing_of(wanted.expression, now)
        next_fire_at: datetime | None = first_time(timing, now, is_repeatable=True)
    else:
        timing = Timing.from_json(found.timing)
        next_fire_at = found.next_fire_at
        if status != found.status and status != PAUSED:
            next_fire_at = _resumed_at(timing, found, now, catchup=wanted.options.catchup)
    new = _row(caller, wanted, timing, next_fire_at)
    if all(getattr(found, name) == getattr(new, name) for name in _COMPARED):
        return found
    await schedules.replace(tx, engine.clock.of(caller.account_id).now(), found.schedule_id, new)
    changed = await schedules.find_by_id(tx, found.schedule_id)
    assert changed is not None
    return changed


# When it is due follows from the next time, unless it failed and waits to be tried again.
_COMPARED = [field.name for field in dataclasses.fields(NewSchedule) if field.name != "due_at"]


def _resumed_at(timing: Timing, found: Schedule, now: datetime, *, catchup: bool) -> datetime:
    """The next time of a schedule that was paused: of one that catches up the first that it
    missed, and the single one, if that failed."""
    if found.next_fire_at is not None and (catchup or found.next_fire_at > now):
        return found.next_fire_at
    following = timing.next_after(now)
    if following is None and catchup:
        following = timing.instant
    if following is None:
        raise InvalidParameterValue(
            "The time of this schedule passed while it was paused. Give it another fire_at, or "
            "set catchup to true for it to fire now."
        )
    return following


def _row(
    caller: Caller, wanted: _Wanted, timing: Timing, next_fire_at: datetime | None
) -> NewSchedule:
    expression, options = wanted.expression, wanted.options
    spec = {expression.form: expression.text, "timezone": expression.timezone}
    if wanted.queue_name is not None:
        # Without its suffix it is not the name in the target.
        spec["queue_name"] = wanted.queue_name
    return NewSchedule(
        account_id=caller.account_id,
        region=caller.region,
        group_id=None,
        name=wanted.name,
        spec=spec,
        timing=timing.to_json(),
        target=wanted.target,
        is_active=options.status != PAUSED,
        catchup=options.catchup,
        catchup_limit=options.catchup_limit,
        failure_threshold=options.failure_threshold,
        deletes_itself=timing.kind == "once",
        window_seconds=0,
        starts_at=None,
        ends_at=None,
        max_attempts=0,
        max_age_seconds=None,
        dead_letter=None,
        client_token=None,
        next_fire_at=next_fire_at,
        due_at=next_fire_at,
    )
