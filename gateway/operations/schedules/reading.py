"""Schedules of the native API as their readers see them: one, or a list by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gateway.operations.schedules.specs import ACTIVE
from protocol import expressions
from protocol.expressions import Timing
from storage.errors import ResourceNotFound
from storage.schedules import schedules
from storage.schedules.schedules import ScheduleFilter

if TYPE_CHECKING:
    from gateway.operations.caller import Caller
    from gateway.operations.engine import Engine
    from storage.schedules.schedules import Schedule

_ROWS_AT_ONCE = 50
"""Of a list: each may carry a message of the largest size."""


@dataclass(frozen=True, slots=True)
class View:
    """A schedule and what follows from it. ``next_fires``: none while it is paused."""

    schedule: Schedule
    canonical: Mapping[str, Any]
    human_readable: str
    next_fires: tuple[datetime, ...] = ()


def summary(schedule: Schedule) -> View:
    """The schedule without the times to come: working them out for a whole list takes too long."""
    timing = Timing.from_json(schedule.timing)
    return View(schedule, expressions.canonical(timing), expressions.human_readable(timing))


def view(engine: Engine, schedule: Schedule) -> View:
    """The schedule with its next times: ``Rules.schedule_preview_count`` of them, if there are."""
    seen = summary(schedule)
    first = schedule.next_fire_at if schedule.is_active else None
    if first is None:
        return seen
    timing = Timing.from_json(schedule.timing)
    fires = times_from(timing, first, engine.rules.schedule_preview_count)
    return View(schedule, seen.canonical, seen.human_readable, fires)


def times_from(timing: Timing, first: datetime | None, count: int) -> tuple[datetime, ...]:
    """``first`` and what follows it, ``count`` times at most."""
    found: list[datetime] = []
    while first is not None and len(found) < count:
        found.append(first)
        first = timing.next_after(first)
    return tuple(found)


def not_found(name: str) -> ResourceNotFound:
    """The refusal of a schedule that is not there."""
    return ResourceNotFound(f"Schedule '{name}' does not exist")


async def find_schedule(engine: Engine, caller: Caller, name: str) -> Schedule:
    """One schedule as it is stored. Raises ResourceNotFound."""
    async with engine.database.transaction() as tx:
        schedule = await schedules.find(tx, caller.account_id, caller.region, None, name)
    if schedule is None:
        raise not_found(name)
    return schedule


async def get_schedule(engine: Engine, caller: Caller, name: str) -> View:
    """One schedule with its next times. Raises ResourceNotFound."""
    return view(engine, await find_schedule(engine, caller, name))


@dataclass(frozen=True, slots=True)
class ListSchedules:
    """Which schedules; None: whatever it is. ``after``: those whose names come behind it.
    ``limit``: how many at most, below the gateway's cap."""

    status: str | None = None
    target_kind: str | None = None
    name_prefix: str = ""
    after: str = ""
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class SchedulePage:
    """``is_cut_off``: there are more behind the last one."""

    schedules: list[View]
    is_cut_off: bool


async def list_schedules(engine: Engine, caller: Caller, request: ListSchedules) -> SchedulePage:
    """Schedules by name, in byte order: ``Rules.schedule_list_max`` at most, and fewer when their
    messages are long (``Limits.outbox_page_bytes``).
    """
    cap, room = engine.rules.schedule_list_max, engine.limits.outbox_page_bytes
    most = cap if request.limit is None else min(request.limit, cap)
    wanted = ScheduleFilter(
        caller.account_id,
        caller.region,
        name_prefix=request.name_prefix,
        is_active=None if request.status is None else request.status == ACTIVE,
        target_kind=request.target_kind,
    )
    found: list[View] = []
    after = request.after
    async with engine.database.transaction() as tx:
        while True:
            # One more than there is room for tells whether there are more.
            limit = min(_ROWS_AT_ONCE, most + 1 - len(found))
            rows = await schedules.page(tx, wanted, after, limit=limit)
            for row in rows:
                room -= _size(row)
                if len(found) == most or (found and room < 0):
                    return SchedulePage(found, True)
                found.append(summary(row))
            if len(rows) < limit:
                return SchedulePage(found, False)
            after = rows[-1].name


def _size(schedule: Schedule) -> int:
    """Characters that its message and headers have, nearly all that is ever long."""
    target = schedule.target
    message = target["body"] if target["kind"] == "queue" else target["message"]
    return len(message) + len(target["attributes"] or "")
