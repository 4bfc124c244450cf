"""Schedules in our own forms as their readers see them: one, or a list by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from queuegate.gateway.operations.schedules import keeping
from queuegate.protocol import expressions
from queuegate.protocol.expressions import Timing

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.model import Schedule


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


async def get_schedule(engine: Engine, caller: Caller, name: str) -> View:
    """One schedule with its next times. Raises ScheduleDoesNotExist."""
    return view(engine, await keeping.find(engine, caller, name))


async def list_schedules(
    engine: Engine, caller: Caller, wanted: keeping.Wanted, limit: int | None = None
) -> keeping.Page[View]:
    """Schedules by name, in byte order: ``limit`` and ``Rules.schedule_list_max`` at most, and
    fewer when their messages are long (``Limits.outbox_page_bytes``).
    """
    cap, room = engine.rules.schedule_list_max, engine.limits.outbox_page_bytes
    most = cap if limit is None else min(limit, cap)
    return await keeping.page(engine, caller, wanted, summary, most=most, room=room)
