"""Schedules and previews as this API writes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from queuegate.gateway.faces.json.message_members import (
    Delay,
    FifoId,
    Headers,
    JsonMessage,
    MessageId,
)
from queuegate.gateway.faces.rest.events import Copy, RoutingKey
from queuegate.gateway.faces.rest.words import QueueName
from queuegate.gateway.operations.schedules import schedule_specs
from queuegate.gateway.operations.schedules.schedule_changes import View
from queuegate.storage.errors import InvalidParameterValue

_NAME_PATTERN = r"^[A-Za-z0-9_.-]{1,128}$"

Name = Annotated[
    str,
    Meta(
        description="A schedule: letters, digits, underscores, periods and hyphens.",
        examples=["nightly-report"],
        extra_json_schema={"pattern": _NAME_PATTERN, "maxLength": 128},
    ),
]
"""Documented, not checked: operations refuse it, or have no such schedule."""

Status = Literal["active", "paused"]
Kind = Literal["queue", "topic", "workflow"]

Cron = Annotated[
    str,
    Meta(
        description="Five fields as in crontab(5), or an alias such as @daily.",
        examples=["0 9 * * 1-5"],
    ),
]
Every = Annotated[str, Meta(description="An interval.", examples=["15m", "2 hours"])]
When = Annotated[str, Meta(description="Plain English.", examples=["every weekday at 9am"])]
FireAt = Annotated[
    str,
    Meta(
        description="One instant, RFC 3339; without an offset a local time in `timezone`. The "
        "schedule is deleted once it has fired.",
        examples=["2030-01-31T09:00:00Z"],
    ),
]
Timezone = Annotated[
    str, Meta(description="A name of the IANA database.", examples=["Europe/Berlin"])
]
Catchup = Annotated[
    bool,
    Meta(
        description="Whether times that were missed are made up for, while it was paused, too. If "
        "not, one is fired for all that were missed while nobody fired."
    ),
]
CatchupLimit = Annotated[
    int, Meta(ge=1, le=1_000, description="How many missed times are made up for, at most.")
]
FailureThreshold = Annotated[
    int,
    Meta(
        ge=1,
        le=1_000_000,
        description="After so many failures in a row the schedule pauses; null: never.",
    ),
]


class QueueTarget(
    Struct, tag_field="kind", tag="queue", forbid_unknown_fields=True, omit_defaults=True
):
    """A message for a queue."""

    queue_name: QueueName
    message: JsonMessage
    headers: Headers | None = None
    delay: Delay | None = None
    group_id: Annotated[FifoId | None, Meta(description="FIFO queues need one.")] = None
    deduplication_id: Annotated[
        FifoId | None,
        Meta(
            description="For FIFO queues. What is fired within five minutes with the same id is "
            "dropped; without it each time has an id of its own."
        ),
    ] = None


class TopicTarget(
    Struct, tag_field="kind", tag="topic", forbid_unknown_fields=True, omit_defaults=True
):
    """An event for all who subscribed to its routing key."""

    routing_key: RoutingKey
    message: JsonMessage
    headers: Headers | None = None


class WorkflowTarget(Struct, tag_field="kind", tag="workflow"):
    """Reserved: refused with 400 until there are workflows."""


AnyTarget = QueueTarget | TopicTarget | WorkflowTarget
Target = QueueTarget | TopicTarget


class SchedulePath(Struct, forbid_unknown_fields=True):
    """Which schedule."""

    name: Name


class _Forms(Struct, kw_only=True):
    """The ways to say when to fire."""

    cron: Cron | UnsetType = UNSET
    every: Every | UnsetType = UNSET
    when: When | UnsetType = UNSET
    fire_at: FireAt | UnsetType = UNSET


class _Body(_Forms, forbid_unknown_fields=True, kw_only=True):
    """What POST and PUT have in common. Exactly one of cron, every, when and fire_at."""

    timezone: Timezone = schedule_specs.DEFAULT_TIMEZONE
    target: AnyTarget
    catchup: Catchup = False
    catchup_limit: CatchupLimit = schedule_specs.DEFAULT_CATCHUP_LIMIT
    failure_threshold: FailureThreshold | None = schedule_specs.DEFAULT_FAILURE_THRESHOLD
    status: Annotated[
        Status | UnsetType,
        Meta(description="Without it a new schedule is active, and another stays as it is."),
    ] = UNSET


class NewSchedule(_Body, forbid_unknown_fields=True, kw_only=True):
    """A schedule to create. Exactly one of cron, every, when and fire_at."""

    name: Name


class PutSchedule(_Body, forbid_unknown_fields=True, kw_only=True):
    """A schedule as it is to be. Exactly one of cron, every, when and fire_at."""

    name: Annotated[
        Name | UnsetType, Meta(description="May be left out; else it is the one in the path.")
    ] = UNSET


class PatchSchedule(_Forms, forbid_unknown_fields=True, kw_only=True):
    """What to change. At most one of cron, every, when and fire_at."""

    timezone: Timezone | UnsetType = UNSET
    target: AnyTarget | UnsetType = UNSET
    catchup: Catchup | UnsetType = UNSET
    catchup_limit: CatchupLimit | UnsetType = UNSET
    failure_threshold: FailureThreshold | UnsetType | None = UNSET
    status: Status | UnsetType = UNSET


_ONE_FORM = [{"required": [form]} for form in schedule_specs.FORMS]
NewScheduleBody = Annotated[NewSchedule, Meta(extra_json_schema={"oneOf": _ONE_FORM})]
PutScheduleBody = Annotated[PutSchedule, Meta(extra_json_schema={"oneOf": _ONE_FORM})]
PatchScheduleBody = Annotated[
    PatchSchedule,
    Meta(extra_json_schema={"oneOf": [*_ONE_FORM, {"not": {"anyOf": _ONE_FORM}}]}),
]


class Canonical(Struct, omit_defaults=True):
    """What all spellings of an expression come to: cron in a timezone, an interval of elapsed time
    counted from an anchor, or one instant."""

    cron: str | UnsetType = UNSET
    timezone: str | UnsetType = UNSET
    every_seconds: int | UnsetType = UNSET
    anchor: datetime | UnsetType = UNSET
    fire_at: datetime | UnsetType = UNSET


class ListedSchedule(Struct, kw_only=True):
    """A schedule as it was written, and how it fares. All instants are UTC."""

    name: Name
    cron: Cron | UnsetType = UNSET
    every: Every | UnsetType = UNSET
    when: When | UnsetType = UNSET
    fire_at: FireAt | UnsetType = UNSET
    timezone: Timezone
    target: Target
    catchup: Catchup
    catchup_limit: CatchupLimit
    failure_threshold: FailureThreshold | None
    status: Status
    canonical: Canonical
    human_readable: str
    next_fire_at: Annotated[
        datetime | None, Meta(description="Of a paused one: the time at which it stopped.")
    ]
    failure_count: Annotated[int, Meta(ge=0, description="Failures in a row.")]
    last_error: str | None
    last_fired_at: datetime | None
    fired_count: Annotated[int, Meta(ge=0)]
    skipped_count: Annotated[
        int, Meta(ge=0, description="Times that were missed and not made up for.")
    ]
    created_at: datetime
    updated_at: datetime


class ScheduleShown(ListedSchedule, kw_only=True):
    """A schedule as it was written, how it fares, and its next times. All instants are UTC."""

    next_fires: Annotated[list[datetime], Meta(description="Empty while it is paused.")]


class ScheduleQuery(Struct, forbid_unknown_fields=True):
    """Which schedules to list."""

    status: Status | None = None
    target_kind: Kind | None = None
    name_prefix: Annotated[
        str, Meta(max_length=128, description="Only schedules whose names begin so.")
    ] = ""
    limit: (
        Annotated[
            int, Meta(ge=1, le=100_000, description="At most so many; the gateway has a cap.")
        ]
        | None
    ) = None
    after: Annotated[
        str, Meta(max_length=128, description="Only names behind this one: the last one you got.")
    ] = ""


class RunShown(Struct):
    """A schedule that was fired by hand."""

    id: str
    schedule: Name
    msg_ids: Annotated[
        list[MessageId],
        Meta(
            description="Of the messages that are in queues now: one, or one for each queue that "
            "subscribed to the event."
        ),
    ]
    messages: list[Copy]
    scheduled_for: datetime
    out_of_band: Annotated[bool, Meta(description="Always true: it is none of its times.")]


class NewPreview(_Forms, forbid_unknown_fields=True, kw_only=True):
    """An expression: exactly one of cron, every, when and fire_at."""

    timezone: Timezone = schedule_specs.DEFAULT_TIMEZONE
    count: (
        Annotated[
            int,
            Meta(ge=0, le=100, description="How many times to show; without it as for schedules."),
        ]
        | None
    ) = None
    start: (
        Annotated[
            datetime, Meta(tz=True, description="Show the times after this instant, not after now.")
        ]
        | None
    ) = field(name="from", default=None)


NewPreviewBody = Annotated[NewPreview, Meta(extra_json_schema={"oneOf": _ONE_FORM})]


class PreviewShown(Struct):
    """What an expression comes to."""

    canonical: Canonical
    human_readable: str
    next_fires: Annotated[
        list[datetime], Meta(description="UTC; fewer than asked for when no more follow.")
    ]


def given_members(body: Struct, names: Iterable[str]) -> dict[str, Any]:
    """Those of these members that the body has."""
    found = {name: getattr(body, name) for name in names}
    return {name: value for name, value in found.items() if value is not UNSET}


def chosen_form(members: Mapping[str, str]) -> tuple[str, str]:
    """The one form of FORMS that is given, and its text; refuses none and several."""
    given = [(form, members[form]) for form in schedule_specs.FORMS if form in members]
    if len(given) == 1:
        return given[0]
    if not given:
        raise InvalidParameterValue(
            "One of cron, every, when and fire_at must say when to fire: cron such as 0 9 * * 1-5, "
            "every such as 15 minutes, when such as every weekday at 9am, or fire_at such as "
            "2030-01-31T09:00:00Z."
        )
    names = " and ".join(form for form, _ in given)
    raise InvalidParameterValue(
        f"Only one of cron, every, when and fire_at can say when to fire, and {names} are given."
    )


def wanted_target(target: QueueTarget | TopicTarget | WorkflowTarget) -> schedule_specs.Target:
    """The target for operations."""
    if isinstance(target, WorkflowTarget):
        return schedule_specs.WorkflowTarget()
    headers = {name: bytes(raw) for name, raw in (target.headers or {}).items()}
    message = bytes(target.message)
    if isinstance(target, TopicTarget):
        return schedule_specs.TopicTarget(target.routing_key, message, headers)
    return schedule_specs.QueueTarget(
        target.queue_name,
        message,
        headers,
        target.delay,
        target.group_id,
        target.deduplication_id,
    )


def shown_canonical(canonical: Any) -> Canonical:
    """The canonical form for this API."""
    return msgspec.convert(canonical, Canonical)


def wanted_activity(status: str | UnsetType | None) -> bool | None:
    """A status for operations; None: none was given."""
    return None if status is None or status is UNSET else status == "active"


def listed(view: View) -> ListedSchedule:
    """A schedule in a list."""
    return ListedSchedule(**_members(view))


def shown(view: View) -> ScheduleShown:
    """A schedule alone."""
    return ScheduleShown(next_fires=list(view.next_fires), **_members(view))


def _members(view: View) -> dict[str, Any]:
    schedule = view.schedule
    expression = schedule_specs.expression_of(schedule)
    return {
        "name": schedule.name,
        expression.form: expression.text,
        "timezone": expression.timezone,
        "target": _shown_target(view),
        "catchup": schedule.catchup,
        "catchup_limit": schedule.catchup_limit,
        "failure_threshold": schedule.failure_threshold,
        "status": "active" if schedule.is_active else "paused",
        "canonical": shown_canonical(view.canonical),
        "human_readable": view.human_readable,
        "next_fire_at": schedule.next_fire_at,
        "failure_count": schedule.failure_count,
        "last_error": schedule.last_error,
        "last_fired_at": schedule.last_fired_at,
        "fired_count": schedule.fired_count,
        "skipped_count": schedule.skipped_count,
        "created_at": schedule.created_at,
        "updated_at": schedule.modified_at,
    }


def _shown_target(view: View) -> Target:
    schedule = view.schedule
    target = schedule.target
    message = Raw(schedule_specs.message_of(schedule))
    headers = msgspec.json.decode(schedule_specs.headers_of(schedule), type=dict[str, Raw]) or None
    if target["kind"] == "topic":
        return TopicTarget(target["topic_name"], message, headers)
    return QueueTarget(
        schedule.spec["queue_name"],
        message,
        headers,
        target["delay_seconds"],
        target["group_id"],
        target["deduplication_id"],
    )
