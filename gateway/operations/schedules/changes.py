"""Schedules in the forms of Queuegate's own: create, put, patch and delete (docs/seeds.md 1.4).

A change that changes nothing leaves the schedule alone, its next time too: whoever keeps schedules
in a file may put them all day. What does not touch the expression keeps the timing.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from queuegate.gateway.operations.schedules import keeping, targets
from queuegate.gateway.operations.schedules.reading import View, view
from queuegate.gateway.operations.schedules.specs import (
    Expression,
    Options,
    QueueTarget,
    ScheduleSpec,
    Target,
    check_name,
    expression_of,
    options_of,
)
from queuegate.gateway.operations.schedules.timings import first_time, timing_of
from queuegate.protocol.expressions import Timing
from queuegate.storage.errors import InvalidParameterValue
from queuegate.storage.model import NewSchedule, Schedule
from queuegate.storage.schedule_errors import ScheduleDoesNotExist

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A specification whose target was found. ``queue_name``: as it was written."""

    caller: Caller
    name: str
    expression: Expression
    target: Mapping[str, Any]
    queue_name: str | None
    options: Options

    def create(self, now: datetime, _: Schedule | None) -> NewSchedule:
        """As a new one; its single time may have passed."""
        timing = timing_of(self.expression, now)
        return _row(self, timing, first_time(timing, now))

    def put(self, now: datetime, found: Schedule | None) -> NewSchedule:
        """Instead of the one that there is, or as a new one: the request may be repeated."""
        if found is not None and self.options.is_active is None:
            options = dataclasses.replace(self.options, is_active=found.is_active)
            return dataclasses.replace(self, options=options).put(now, found)
        if found is None or self.expression != expression_of(found):
            timing = timing_of(self.expression, now)
            return _row(self, timing, first_time(timing, now, is_repeatable=True))
        timing = Timing.from_json(found.timing)
        next_fire_at = found.next_fire_at
        if self.options.is_active and not found.is_active:
            next_fire_at = _resumed_at(timing, found, now, catchup=self.options.catchup)
        return _row(self, timing, next_fire_at)


async def create_schedule(engine: Engine, caller: Caller, spec: ScheduleSpec) -> View:
    """The new schedule. Raises ScheduleExists, InvalidParameterValue, and the refusal of a queue
    that does not exist."""
    wanted = await _checked(engine, caller, spec)
    return view(engine, await keeping.create(engine, caller, wanted.create))


async def put_schedule(engine: Engine, caller: Caller, spec: ScheduleSpec) -> tuple[View, bool]:
    """The schedule as it is now, and whether it was created.

    Unless it is told, one that is there stays active or paused, whoever paused it.
    """
    wanted = await _checked(engine, caller, spec)
    schedule, is_new = await keeping.put(engine, caller, spec.name, wanted.put)
    return view(engine, schedule), is_new


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

    Raises ScheduleDoesNotExist, InvalidParameterValue, and the refusal of a queue that does not
    exist.
    """
    target = None
    if request.target is not None:
        target = await targets.resolve(engine, caller, request.name, request.target)

    def plan(now: datetime, found: Schedule | None) -> NewSchedule:
        assert found is not None
        return _patched(caller, found, request, target).put(now, found)

    return view(engine, await keeping.change(engine, caller, request.name, plan))


async def delete_schedule(engine: Engine, caller: Caller, name: str) -> None:
    """Delete the schedule if there is one. What it fired stays where it is.

    Raises InvalidParameterValue for a name that no schedule can have.
    """
    check_name(name)
    with contextlib.suppress(ScheduleDoesNotExist):
        await keeping.delete(engine, caller, name)


async def _checked(engine: Engine, caller: Caller, spec: ScheduleSpec) -> _Wanted:
    check_name(spec.name)
    target = await targets.resolve(engine, caller, spec.name, spec.target)
    queue_name = _written_name(spec.target)
    return _Wanted(caller, spec.name, spec.expression, target, queue_name, spec.options)


def _written_name(target: Target) -> str | None:
    return target.queue_name if isinstance(target, QueueTarget) else None


def _patched(
    caller: Caller, found: Schedule, request: PatchSchedule, target: Mapping[str, Any] | None
) -> _Wanted:
    old = expression_of(found)
    form, text = request.form or (old.form, old.text)
    options = dataclasses.replace(options_of(found), **request.options)
    if target is None:
        target, queue_name = found.target, found.spec.get("queue_name")
    else:
        assert request.target is not None
        queue_name = _written_name(request.target)
    expression = Expression(form, text, request.timezone or old.timezone)
    return _Wanted(caller, found.name, expression, target, queue_name, options)


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


def _row(wanted: _Wanted, timing: Timing, next_fire_at: datetime | None) -> NewSchedule:
    expression, options = wanted.expression, wanted.options
    spec = {expression.form: expression.text, "timezone": expression.timezone}
    if wanted.queue_name is not None:
        # Without its suffix it is not the name in the target.
        spec["queue_name"] = wanted.queue_name
    return NewSchedule(
        account_id=wanted.caller.account_id,
        region=wanted.caller.region,
        name=wanted.name,
        spec=spec,
        timing=timing.to_json(),
        target=wanted.target,
        is_active=options.is_active is not False,
        catchup=options.catchup,
        catchup_limit=options.catchup_limit,
        failure_threshold=options.failure_threshold,
        deletes_itself=timing.kind == "once",
        next_fire_at=next_fire_at,
        due_at=next_fire_at,
    )
