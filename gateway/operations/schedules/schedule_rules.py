"""Schedules in our own form (docs/seeds.md 1.4): changes, listings, previews and targets.

A specification has an expression in one of four forms, a target, and options for missed times and
failures. It is stored as written, beside the form of the engine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from queuegate.gateway.operations.access.authorization import SEND, find_own_queue
from queuegate.gateway.operations.queues import json_messages, sends
from queuegate.gateway.operations.runtime.background_tasks import yield_to_loop
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.gateway.operations.schedules import stored_schedules
from queuegate.gateway.operations.schedules.stored_schedules import (
    SCHEDULE_HEADER,
    StoredTarget,
    queue_target,
    text_of,
    topic_target,
)
from queuegate.protocol import routing_keys
from queuegate.protocol.calendars import Unparsable
from queuegate.protocol.expression_forms import human_readable, parse_form
from queuegate.protocol.malformed import refusing
from queuegate.protocol.timing import Timing, canonical
from queuegate.storage.model import NewSchedule, Schedule
from queuegate.storage.queue_model import NewMessage
from queuegate.storage.storage_errors import InvalidParameterValue, ScheduleDoesNotExist

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.runtime.engine import Engine


def timing_of(expression: Expression, now: datetime) -> Timing:
    """Return the timing of an expression written at ``now``. Raises InvalidParameterValue."""
    with refusing(InvalidParameterValue, Unparsable):
        return parse_form(
            **{expression.form: expression.text}, timezone=expression.timezone, now=now
        )


def first_time(timing: Timing, now: datetime, *, is_repeatable: bool = False) -> datetime:
    """Return the first time of a new timing. Raises InvalidParameterValue if there is none. A
    single time may be slightly in the past, because clocks differ: it is fired at once. Not if
    ``is_repeatable``: a repeated request would fire again."""
    first = timing.next_after(now)
    if first is None and not is_repeatable:
        first = timing.instant
    if first is None:
        raise InvalidParameterValue("This would never fire: its time has passed.")
    return first


@dataclass(frozen=True, slots=True)
class View:
    """A schedule with its next times; ``next_fires`` is empty while it is paused."""

    schedule: Schedule
    canonical: Mapping[str, Any]
    human_readable: str
    next_fires: tuple[datetime, ...] = ()


def summary(schedule: Schedule) -> View:
    """Return a schedule without next times: for a whole list they would take too long."""
    timing = Timing.from_json(schedule.timing)
    return View(schedule, canonical(timing), human_readable(timing))


def view(engine: Engine, schedule: Schedule) -> View:
    """Return the schedule with its next ``EngineRules.schedule_preview_count`` times."""
    first = schedule.next_fire_at if schedule.is_active else None
    timing = Timing.from_json(schedule.timing)
    fires = times_from(timing, first, engine.rules.schedule_preview_count)
    return dataclasses.replace(summary(schedule), next_fires=fires)


def times_from(timing: Timing, first: datetime | None, count: int) -> tuple[datetime, ...]:
    """Return ``first`` and later times, at most ``count``."""
    found: list[datetime] = []
    while first is not None and len(found) < count:
        found.append(first)
        first = timing.next_after(first)
    return tuple(found)


async def get_schedule(engine: Engine, caller: Caller, name: str) -> View:
    """Return one schedule with its next times. Raises ScheduleDoesNotExist."""
    return view(engine, await stored_schedules.find(engine, caller, name))


async def list_schedules(
    engine: Engine, caller: Caller, wanted: stored_schedules.ListSchedules, limit: int | None = None
) -> stored_schedules.SchedulePage[View]:
    """Return schedules by name, in byte order: at most ``limit`` and
    ``EngineRules.schedule_list_max``, fewer if their messages are long
    (``Limits.outbox_page_bytes``)."""
    cap, room = engine.rules.schedule_list_max, engine.limits.outbox_page_bytes
    most = cap if limit is None else min(limit, cap)
    return await stored_schedules.page(engine, caller, wanted, summary, most=most, room=room)


_MOST_UPCOMING = 100
"""Schedules of each API whose next times are computed at once."""


async def upcoming_fires(
    engine: Engine, caller: Caller
) -> tuple[datetime, list[tuple[datetime, Schedule]]]:
    """Return the present, and the next times of active schedules of both APIs, by time: of each
    schedule as many as ``view`` shows."""
    fires: list[tuple[datetime, Schedule]] = []
    for is_grouped in (False, True):
        wanted = stored_schedules.ListSchedules(is_grouped=is_grouped, is_active=True)
        page = await stored_schedules.page(
            engine, caller, wanted, lambda one: one, most=_MOST_UPCOMING
        )
        for schedule in page.shown:
            timing, count = Timing.from_json(schedule.timing), engine.rules.schedule_preview_count
            times = times_from(timing, schedule.next_fire_at, count)
            end = schedule.ends_at
            fires += [(at, schedule) for at in times if end is None or at <= end]
            await yield_to_loop()
    return engine.clock.of(caller.account_id).instant(), sorted(fires, key=itemgetter(0))


# A distance from the limits of datetime.
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime(9998, 12, 31, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Preview:
    """The understood expression. ``next_fires`` may be shorter than requested."""

    canonical: Mapping[str, Any]
    human_readable: str
    next_fires: tuple[datetime, ...]


async def preview_schedule(
    engine: Engine,
    caller: Caller,
    expression: Expression,
    count: int | None = None,
    start: datetime | None = None,
) -> Preview:
    """Return ``count`` times after ``start``; None: as many as schedules show, from now on. Raises
    InvalidParameterValue with the valid forms."""
    if start is None:
        start = engine.clock.of(caller.account_id).instant()
    if not _FIRST <= start <= _LAST:
        raise InvalidParameterValue("from must be between the years 1970 and 9998.")
    count = engine.rules.schedule_preview_count if count is None else count
    timing = timing_of(expression, start)
    fires = times_from(timing, timing.next_after(start), count)
    return Preview(canonical(timing), human_readable(timing), fires)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A specification whose target exists. ``queue_name`` is as written."""

    caller: Caller
    name: str
    expression: Expression
    target: Mapping[str, Any]
    queue_name: str | None
    options: ScheduleOptions

    def create(self, now: datetime, _: Schedule | None) -> NewSchedule:
        """Return the row of a new schedule; its single time may have passed."""
        timing = timing_of(self.expression, now)
        return _row(self, timing, first_time(timing, now))

    def put(self, now: datetime, found: Schedule | None) -> NewSchedule:
        """Return the row that replaces a schedule, or a new one: the request may be repeated."""
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
    """Create a schedule. Raises ScheduleExists, InvalidParameterValue, and the error of an absent
    queue."""
    wanted = await _checked(engine, caller, spec)
    return view(engine, await stored_schedules.create(engine, caller, wanted.create))


async def put_schedule(engine: Engine, caller: Caller, spec: ScheduleSpec) -> tuple[View, bool]:
    """Create or replace a schedule; return it, and True if it was created. Without an option, an
    existing schedule stays active or paused."""
    wanted = await _checked(engine, caller, spec)
    schedule, is_new = await stored_schedules.put(engine, caller, spec.name, wanted.put)
    return view(engine, schedule), is_new


@dataclass(frozen=True, slots=True)
class PatchSchedule:
    """Changes; None: unchanged. A timezone alone applies to the present expression."""

    name: str
    form: tuple[str, str] | None = None
    timezone: str | None = None
    target: Target | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


async def patch_schedule(engine: Engine, caller: Caller, request: PatchSchedule) -> View:
    """Change parts of a schedule. A resumed schedule does not fire for the pause, unless it catches
    up; its failure count starts at 0. Raises ScheduleDoesNotExist, InvalidParameterValue, and the
    error of an absent queue."""
    target = None
    if request.target is not None:
        target = await resolve(engine, caller, request.name, request.target)

    def plan(now: datetime, found: Schedule | None) -> NewSchedule:
        assert found is not None
        return _patched(caller, found, request, target).put(now, found)

    return view(engine, await stored_schedules.change(engine, caller, request.name, plan))


async def delete_schedule(engine: Engine, caller: Caller, name: str) -> None:
    """Delete the schedule if there is one. Sent messages stay. Raises InvalidParameterValue for an
    invalid name."""
    check_name(name)
    with contextlib.suppress(ScheduleDoesNotExist):
        await stored_schedules.delete(engine, caller, name)


async def _checked(engine: Engine, caller: Caller, spec: ScheduleSpec) -> _Wanted:
    check_name(spec.name)
    target = await resolve(engine, caller, spec.name, spec.target)
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
    """Return the next time of a schedule that was paused; to catch up, the first time that it
    missed; a single time, if that failed."""
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
        # Without its suffix, the name differs from that in the target.
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


FORMS = ("cron", "every", "when", "fire_at")
"""Members for the time; a specification has exactly one."""
DEFAULT_TIMEZONE = "UTC"
DEFAULT_CATCHUP_LIMIT = 100
DEFAULT_FAILURE_THRESHOLD = 10
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}").fullmatch


@dataclass(frozen=True, slots=True)
class Expression:
    """The text of one of FORMS, and its timezone."""

    form: str
    text: str
    timezone: str = DEFAULT_TIMEZONE


@dataclass(frozen=True, slots=True)
class QueueTarget:
    """A message for a queue. ``message`` is JSON text, ``headers`` are JSON texts by name.
    ``delay`` in seconds; None: the queue's."""

    queue_name: str
    message: bytes
    headers: Mapping[str, bytes]
    delay: int | None = None
    group_id: str | None = None
    deduplication_id: str | None = None


@dataclass(frozen=True, slots=True)
class TopicTarget:
    """An event for subscriptions that match its routing key."""

    routing_key: str
    message: bytes
    headers: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class WorkflowTarget:
    """A reserved kind, refused at present."""


Target = QueueTarget | TopicTarget | WorkflowTarget


@dataclass(frozen=True, slots=True)
class ScheduleOptions:
    """Options, whose ranges the face checks. ``is_active`` None: active when created, unchanged
    later. ``failure_threshold`` None: failures never pause the schedule."""

    catchup: bool = False
    catchup_limit: int = DEFAULT_CATCHUP_LIMIT
    failure_threshold: int | None = DEFAULT_FAILURE_THRESHOLD
    is_active: bool | None = None


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """A whole specification."""

    name: str
    expression: Expression
    target: Target
    options: ScheduleOptions = ScheduleOptions()


def check_name(name: str) -> None:
    """Raise InvalidParameterValue unless the name has 1 to 128 letters, digits, `_`, `.` and
    `-`."""
    if _NAME(name) is None:
        raise InvalidParameterValue(
            "The name of a schedule is 1 to 128 letters, digits, underscores, periods and hyphens."
        )


def expression_of(schedule: Schedule) -> Expression:
    """Return the expression as written."""
    form = next(form for form in FORMS if form in schedule.spec)
    return Expression(form, schedule.spec[form], schedule.spec["timezone"])


def options_of(schedule: Schedule) -> ScheduleOptions:
    """Return the present options."""
    return ScheduleOptions(
        schedule.catchup, schedule.catchup_limit, schedule.failure_threshold, schedule.is_active
    )


# Name, type and value, without the name of the schedule.
_SCHEDULE_HEADER_BYTES = 128


async def resolve(engine: Engine, caller: Caller, name: str, target: Target) -> StoredTarget:
    """Return the stored target of the schedule ``name``. Raises InvalidParameterValue, and the
    error of an absent queue."""
    if isinstance(target, QueueTarget):
        return await _of_queue(engine, caller, name, target)
    if isinstance(target, TopicTarget):
        return _of_topic(caller, name, target)
    raise InvalidParameterValue(
        "There are no workflows yet that a schedule could start. The kind of a target is queue or "
        "topic."
    )


async def _of_queue(engine: Engine, caller: Caller, name: str, target: QueueTarget) -> StoredTarget:
    queue = await find_own_queue(engine, caller, SEND, target.queue_name)
    attributes, size = _attributes(name, target.headers)
    options: StoredTarget = {
        "attributes": attributes,
        "group_id": target.group_id,
        "deduplication_id": target.deduplication_id,
        "delay_seconds": target.delay,
    }
    priority, ttl_seconds = sends.urgency_of_stored(attributes, engine.limits)
    message = NewMessage(
        json_messages.body_of(target.message), **options, priority=priority, ttl_seconds=ttl_seconds
    )
    sends.checked(engine, queue, message, size)
    place = {"account_id": queue.account_id, "region": queue.region, "queue_name": queue.name}
    return queue_target(place, message.body, **options, schedule_header=True)


def _of_topic(caller: Caller, name: str, target: TopicTarget) -> StoredTarget:
    with refusing(InvalidParameterValue):
        routing_keys.check_key(target.routing_key)
    attributes, size = _attributes(name, target.headers)
    body = json_messages.body_of(target.message)
    size += len(body.encode())
    most = LIMITS.published_bytes
    if size > most:
        raise InvalidParameterValue(
            f"The message and its headers have {size} bytes; an event takes {most}."
        )
    place = {
        "account_id": caller.account_id,
        "region": caller.region,
        "topic_name": target.routing_key,
    }
    return topic_target(place, body, attributes=attributes, is_event=True, schedule_header=True)


def _attributes(name: str, headers: Mapping[str, bytes]) -> tuple[str | None, int]:
    """Return stored headers, and their size in bytes with the schedule's header."""
    if SCHEDULE_HEADER in headers:
        raise InvalidParameterValue(
            f"The header {SCHEDULE_HEADER} is added when the schedule fires: leave it out."
        )
    attributes, size = json_messages.attributes_of(headers)
    return attributes, size + _SCHEDULE_HEADER_BYTES + len(name)


def message_of(schedule: Schedule) -> bytes:
    """Return the message as written: JSON text."""
    return text_of(schedule).encode()


def headers_of(schedule: Schedule) -> bytes:
    """Return the headers as a JSON object, without the schedule's header."""
    return json_messages.headers_of(schedule.target["attributes"])
