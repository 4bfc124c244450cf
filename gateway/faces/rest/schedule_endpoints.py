"""Endpoints of schedules: create, list, get, put, patch, delete, run, preview, fires."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from queuegate.gateway.faces.json.json_endpoints import PAGED, Answer, Call, Endpoints, next_page
from queuegate.gateway.faces.json.json_fields import (
    Delay,
    FifoId,
    Headers,
    JsonMessage,
    MessageId,
    QueueName,
    about,
    example,
    schema_name,
)
from queuegate.gateway.faces.rest.event_endpoints import QueueCopy, RoutingKey
from queuegate.gateway.operations.access.authorization import Effect, check_right, own_arn
from queuegate.gateway.operations.schedules import dispatch, schedule_rules, stored_schedules
from queuegate.gateway.operations.schedules.schedule_rules import View
from queuegate.storage.storage_errors import InvalidParameterValue

_NAME_PATTERN = r"^[A-Za-z0-9_.-]{1,128}$"

Name = Annotated[
    str,
    about("Name of a schedule: letters, digits, underscores, periods and hyphens."),
    Meta(
        examples=["nightly-report"], extra_json_schema={"pattern": _NAME_PATTERN, "maxLength": 128}
    ),
]
"""Documented, not validated: operations refuse it or find no such schedule."""

Status = Literal["active", "paused"]
Kind = Literal["queue", "topic", "workflow"]

Cron = Annotated[
    str,
    about("Five fields as in crontab(5), or an alias such as @daily.", examples=["0 9 * * 1-5"]),
]
Every = Annotated[str, about("An interval.", examples=["15m", "2 hours"])]
When = Annotated[str, about("Plain English.", examples=["every weekday at 9am"])]
FireAt = Annotated[
    str,
    about(
        "One instant, RFC 3339. Without an offset: local time in `timezone`. The "
        "schedule is deleted after it has fired.",
        examples=["2030-01-31T09:00:00Z"],
    ),
]
Timezone = Annotated[str, about("A name of the IANA database.", examples=["Europe/Berlin"])]
Catchup = Annotated[
    bool,
    about(
        "True: missed times are fired later, also those of a pause. False: one fire "
        "replaces all times that were missed without a running gateway."
    ),
]
CatchupLimit = Annotated[
    int, about("Maximum number of missed times that are fired later.", ge=1, le=1_000)
]
FailureThreshold = Annotated[
    int,
    about(
        "Consecutive failures after which the schedule pauses. Null: no limit.", ge=1, le=1_000_000
    ),
]


@schema_name("QueueTarget")
class QueueTargetBody(
    Struct, tag_field="kind", tag="queue", forbid_unknown_fields=True, omit_defaults=True
):
    """A message for a queue."""

    queue_name: QueueName
    message: JsonMessage
    headers: Headers | None = None
    delay: Delay | None = None
    group_id: Annotated[FifoId | None, about("Required for FIFO queues.")] = None
    deduplication_id: Annotated[
        FifoId | None,
        about(
            "For FIFO queues. Messages with the same id within five minutes are "
            "dropped. Absent: each time has its own id."
        ),
    ] = None


@schema_name("TopicTarget")
class TopicTargetBody(
    Struct, tag_field="kind", tag="topic", forbid_unknown_fields=True, omit_defaults=True
):
    """An event for the subscriptions to its routing key."""

    routing_key: RoutingKey
    message: JsonMessage
    headers: Headers | None = None


@schema_name("WorkflowTarget")
class WorkflowTargetBody(Struct, tag_field="kind", tag="workflow"):
    """Reserved: refused with 400."""


AnyTarget = QueueTargetBody | TopicTargetBody | WorkflowTargetBody
Target = QueueTargetBody | TopicTargetBody


class _Forms(Struct, kw_only=True):
    """The forms of an expression."""

    cron: Cron | UnsetType = UNSET
    every: Every | UnsetType = UNSET
    when: Annotated[When | UnsetType, example("every weekday at 9am")] = UNSET
    fire_at: FireAt | UnsetType = UNSET


class _ScheduleBody(_Forms, forbid_unknown_fields=True, kw_only=True):
    """The common members of POST and PUT. Exactly one of cron, every, when and fire_at."""

    timezone: Timezone = schedule_rules.DEFAULT_TIMEZONE
    target: AnyTarget
    catchup: Catchup = False
    catchup_limit: CatchupLimit = schedule_rules.DEFAULT_CATCHUP_LIMIT
    failure_threshold: FailureThreshold | None = schedule_rules.DEFAULT_FAILURE_THRESHOLD
    status: Annotated[
        Status | UnsetType, about("Absent: a new schedule is active, and another is unchanged.")
    ] = UNSET


@schema_name("NewSchedule")
class ScheduleCreation(_ScheduleBody, forbid_unknown_fields=True, kw_only=True):
    """A schedule to create. Exactly one of cron, every, when and fire_at."""

    name: Name


@schema_name("PutSchedule")
class SchedulePut(_ScheduleBody, forbid_unknown_fields=True, kw_only=True):
    """The new state of a schedule. Exactly one of cron, every, when and fire_at."""

    name: Annotated[Name | UnsetType, about("Absent, or the name in the path.")] = UNSET


@schema_name("PatchSchedule")
class SchedulePatch(_Forms, forbid_unknown_fields=True, kw_only=True):
    """Settings to change. At most one of cron, every, when and fire_at."""

    timezone: Timezone | UnsetType = UNSET
    target: AnyTarget | UnsetType = UNSET
    catchup: Catchup | UnsetType = UNSET
    catchup_limit: CatchupLimit | UnsetType = UNSET
    failure_threshold: FailureThreshold | UnsetType | None = UNSET
    status: Status | UnsetType = UNSET


_ONE_FORM = [{"required": [form]} for form in schedule_rules.FORMS]
NewScheduleBody = Annotated[ScheduleCreation, Meta(extra_json_schema={"oneOf": _ONE_FORM})]
PutScheduleBody = Annotated[SchedulePut, Meta(extra_json_schema={"oneOf": _ONE_FORM})]
PatchScheduleBody = Annotated[
    SchedulePatch, Meta(extra_json_schema={"oneOf": [*_ONE_FORM, {"not": {"anyOf": _ONE_FORM}}]})
]


class Canonical(Struct, omit_defaults=True):
    """The canonical form of an expression: cron in a timezone, an interval of elapsed time from an
    anchor, or one instant."""

    cron: Annotated[str | UnsetType, example("0 9 * * 1-5")] = UNSET
    timezone: Annotated[str | UnsetType, example("Europe/Berlin")] = UNSET
    every_seconds: int | UnsetType = UNSET
    anchor: datetime | UnsetType = UNSET
    fire_at: datetime | UnsetType = UNSET


class ListedSchedule(Struct, kw_only=True):
    """A schedule as it was sent, and its state. All instants are UTC."""

    name: Name
    cron: Cron | UnsetType = UNSET
    every: Every | UnsetType = UNSET
    when: Annotated[When | UnsetType, example("every weekday at 9am")] = UNSET
    fire_at: FireAt | UnsetType = UNSET
    timezone: Timezone
    target: Annotated[
        Target,
        example(
            {
                "kind": "queue",
                "queue_name": "jobs",
                "message": {"report": "sales"},
                "headers": {"priority": 5},
            }
        ),
    ]
    catchup: Catchup
    catchup_limit: Annotated[CatchupLimit, example(100)]
    failure_threshold: Annotated[FailureThreshold | None, example(10)]
    status: Status
    canonical: Canonical
    human_readable: Annotated[str, example("Every weekday at 09:00 (Europe/Berlin)")]
    next_fire_at: Annotated[
        datetime | None,
        about("The next time. If paused: the first time not fired.", "2030-01-31T08:00:00Z"),
    ]
    failure_count: Annotated[int, about("Consecutive failures.", ge=0)]
    last_error: str | None
    last_fired_at: Annotated[datetime | None, example("2030-01-30T08:00:00.004Z")]
    fired_count: Annotated[int, Meta(ge=0), example(21)]
    skipped_count: Annotated[int, about("Missed times that are not fired later.", ge=0)]
    created_at: Annotated[datetime, example("2030-01-01T12:00:00Z")]
    updated_at: Annotated[datetime, example("2030-01-01T12:00:00Z")]


class ScheduleShown(ListedSchedule, kw_only=True):
    """A schedule as it was sent, its state and its next times. All instants are UTC."""

    next_fires: Annotated[
        list[datetime],
        about("Empty while it is paused.", ["2030-01-31T08:00:00Z", "2030-02-01T08:00:00Z"]),
    ]


class ScheduleQuery(Struct, forbid_unknown_fields=True):
    """A page of schedules, and filters."""

    status: Status | None = None
    target_kind: Kind | None = None
    name_prefix: Annotated[str, about("Prefix of names.", max_length=128)] = ""
    limit: (
        Annotated[int, about("Maximum number of results, below a cap.", ge=1, le=100_000)] | None
    ) = None
    after: Annotated[
        str, about("Only later names: the last name of the page before.", max_length=128)
    ] = ""


class RunShown(Struct):
    """A manual run of a schedule."""

    id: Annotated[str, example("0f8fad5b-d9cb-469f-a165-70867728950e")]
    schedule: Name
    msg_ids: Annotated[
        list[MessageId],
        about(
            "Ids of the sent messages: one, or one for each queue that subscribes to the event.",
            [17],
        ),
    ]
    messages: Annotated[list[QueueCopy], example([{"queue": "jobs", "id": 17}])]
    scheduled_for: Annotated[datetime, example("2030-01-31T11:30:00Z")]
    out_of_band: Annotated[bool, about("Always true: a manual run.", True)]


class NewPreview(_Forms, forbid_unknown_fields=True, kw_only=True):
    """An expression: exactly one of cron, every, when and fire_at."""

    timezone: Annotated[Timezone, example("Europe/Berlin")] = schedule_rules.DEFAULT_TIMEZONE
    count: (
        Annotated[
            int, about("Number of times. Absent: as for schedules.", ge=0, le=100), example(2)
        ]
        | None
    ) = None
    start: (
        Annotated[
            datetime,
            about("Show the times after this instant. Absent: now.", tz=True),
            example("2030-01-30T12:00:00Z"),
        ]
        | None
    ) = field(name="from", default=None)


NewPreviewBody = Annotated[NewPreview, Meta(extra_json_schema={"oneOf": _ONE_FORM})]


class PreviewShown(Struct):
    """The meaning of an expression."""

    canonical: Canonical
    human_readable: Annotated[str, example("Every weekday at 09:00 (Europe/Berlin)")]
    next_fires: Annotated[
        list[datetime],
        about(
            "UTC. Fewer than requested if no more follow.",
            ["2030-01-31T08:00:00Z", "2030-02-01T08:00:00Z"],
        ),
    ]


class UpcomingFire(Struct):
    """A time of a schedule."""

    at: Annotated[datetime, example("2030-01-31T08:00:00Z")]
    schedule: Annotated[str, example("nightly-report")]
    group: Annotated[str | None, about("Group in EventBridge Scheduler. Null: of this API.")]


class UpcomingFires(Struct):
    """The next times of schedules."""

    now: Annotated[datetime, about("The present, by the clock of the account.")]
    fires: Annotated[list[UpcomingFire], about("By time.")]


def given_members(body: Struct, names: Iterable[str]) -> dict[str, Any]:
    """Return the given members of these names."""
    found = {name: getattr(body, name) for name in names}
    return {name: value for name, value in found.items() if value is not UNSET}


def chosen_form(members: Mapping[str, str]) -> tuple[str, str]:
    """Return the given form of FORMS and its text. Refuses none and several."""
    given = [(form, members[form]) for form in schedule_rules.FORMS if form in members]
    if len(given) == 1:
        return given[0]
    if not given:
        raise InvalidParameterValue(
            "One of cron, every, when and fire_at is required: cron such as 0 9 * * 1-5, "
            "every such as 15 minutes, when such as every weekday at 9am, or fire_at such as "
            "2030-01-31T09:00:00Z."
        )
    names = " and ".join(form for form, _ in given)
    raise InvalidParameterValue(
        f"Only one of cron, every, when and fire_at is allowed, and {names} are given."
    )


def wanted_target(
    target: QueueTargetBody | TopicTargetBody | WorkflowTargetBody,
) -> schedule_rules.Target:
    """Convert the target for operations."""
    if isinstance(target, WorkflowTargetBody):
        return schedule_rules.WorkflowTarget()
    headers = {name: bytes(raw) for name, raw in (target.headers or {}).items()}
    message = bytes(target.message)
    if isinstance(target, TopicTargetBody):
        return schedule_rules.TopicTarget(target.routing_key, message, headers)
    return schedule_rules.QueueTarget(
        target.queue_name, message, headers, target.delay, target.group_id, target.deduplication_id
    )


def wanted_activity(status: str | UnsetType | None) -> bool | None:
    """Convert a status for operations. None: absent."""
    return None if status is None or status is UNSET else status == "active"


def _shown(view: View) -> ScheduleShown:
    """Show a schedule alone."""
    return ScheduleShown(next_fires=list(view.next_fires), **_members(view))


def _members(view: View) -> dict[str, Any]:
    schedule = view.schedule
    expression = schedule_rules.expression_of(schedule)
    return {
        "name": schedule.name,
        expression.form: expression.text,
        "timezone": expression.timezone,
        "target": _shown_target(view),
        "catchup": schedule.catchup,
        "catchup_limit": schedule.catchup_limit,
        "failure_threshold": schedule.failure_threshold,
        "status": "active" if schedule.is_active else "paused",
        "canonical": msgspec.convert(view.canonical, Canonical),
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
    message = Raw(schedule_rules.message_of(schedule))
    headers = msgspec.json.decode(schedule_rules.headers_of(schedule), type=dict[str, Raw]) or None
    if target["kind"] == "topic":
        return TopicTargetBody(target["topic_name"], message, headers)
    return QueueTargetBody(
        schedule.spec["queue_name"],
        message,
        headers,
        target["delay_seconds"],
        target["group_id"],
        target["deduplication_id"],
    )


endpoint = Endpoints("schedules", name=Name)
_TO_QUEUE = {
    "when": "every weekday at 9am",
    "timezone": "Europe/Berlin",
    "target": {
        "kind": "queue",
        "queue_name": "jobs",
        "message": {"report": "sales"},
        "headers": {"priority": 5},
    },
}
_TO_TOPIC = {
    "cron": "*/15 * * * *",
    "target": {"kind": "topic", "routing_key": "orders.check", "message": {"deep": True}},
    "catchup": True,
    "catchup_limit": 4,
}
_NAME = {"name": "$response.body#/name"}
_LINKS = dict.fromkeys(("getSchedule", "patchSchedule", "runSchedule", "deleteSchedule"), _NAME)
_LOCATION = {"Location": "Path of the schedule."}


@endpoint("POST /v1/previews", "", refusals=(), effect=Effect.READING)
async def preview_schedule(call: Call, body: NewPreviewBody) -> Answer[PreviewShown]:
    """Preview an expression. Returns the meaning and the next times of an expression. Stores
    nothing. Returns 200: The meaning of the expression."""
    form, text = chosen_form(given_members(body, schedule_rules.FORMS))
    expression = schedule_rules.Expression(form, text, body.timezone)
    preview = await schedule_rules.preview_schedule(
        call.engine, call.caller, expression, body.count, body.start
    )
    canonical = msgspec.convert(preview.canonical, Canonical)
    shown = PreviewShown(canonical, preview.human_readable, list(preview.next_fires))
    return Answer(200, shown)


@endpoint("GET /v1/fires", "scheduler:ListSchedules", resource="schedule/*", refusals=())
async def list_fires(call: Call) -> Answer[UpcomingFires]:
    """List the next times of active schedules. Lists a few times of each schedule: of the first 100
    schedules of this API, and of EventBridge Scheduler. Returns 200: Times."""
    now, found = await schedule_rules.upcoming_fires(call.engine, call.caller)
    fires = [UpcomingFire(at, one.name, one.group_name) for at, one in found]
    return Answer(200, UpcomingFires(now, fires))


_OPTIONS = ("catchup", "catchup_limit", "failure_threshold")


def _spec(name: str, body: ScheduleCreation | SchedulePut) -> schedule_rules.ScheduleSpec:
    form, text = chosen_form(given_members(body, schedule_rules.FORMS))
    return schedule_rules.ScheduleSpec(
        name,
        schedule_rules.Expression(form, text, body.timezone),
        wanted_target(body.target),
        schedule_rules.ScheduleOptions(
            body.catchup, body.catchup_limit, body.failure_threshold, wanted_activity(body.status)
        ),
    )


@endpoint(
    "POST /v1/schedules",
    "scheduler:CreateSchedule",
    resource="schedule/{name}",
    refusals=(404, 409),
    carries_messages=True,
    example={
        "examples": {
            "queue": {"name": "nightly-report", **_TO_QUEUE},
            "topic": {"name": "order-check", **_TO_TOPIC},
        }
    },
    headers=_LOCATION,
    links=_LINKS,
)
async def create_schedule(call: Call, body: NewScheduleBody) -> Answer[ScheduleShown]:
    """Create a schedule. The queue of the target must exist. A fired message has the header
    `_schedule` with name, scheduled_for and out_of_band. 409: the name is taken. PUT replaces a
    schedule. Returns 201: The schedule."""
    view = await schedule_rules.create_schedule(call.engine, call.caller, _spec(body.name, body))
    return Answer(201, _shown(view), {"location": f"/v1/schedules/{body.name}"})


@endpoint(
    "PUT /v1/schedules/{name}",
    "scheduler:CreateSchedule",
    resource="schedule/{name}",
    carries_messages=True,
    example={"examples": {"queue": _TO_QUEUE, "topic": _TO_TOPIC}},
    headers=_LOCATION,
    links=_LINKS,
)
async def put_schedule(call: Call, body: PutScheduleBody) -> Answer[ScheduleShown]:
    """Create or replace a schedule. Idempotent: an equal schedule changes nothing, not even the
    next time. A change with the same expression keeps the timing. A paused schedule stays paused
    without `status`. Returns 200: The replaced schedule. Returns 201: The new schedule."""
    name: str = call.path.name
    if body.name is not UNSET and body.name != name:
        raise InvalidParameterValue(
            f"The name in the body is '{body.name[:128]}', the one in the path is '{name[:128]}'. "
            "A schedule keeps its name: leave it out of the body."
        )
    view, is_new = await schedule_rules.put_schedule(call.engine, call.caller, _spec(name, body))
    if is_new:
        return Answer(201, _shown(view), {"location": f"/v1/schedules/{name}"})
    return Answer(200, _shown(view))


@endpoint(
    "PATCH /v1/schedules/{name}",
    "scheduler:UpdateSchedule",
    resource="schedule/{name}",
    carries_messages=True,
    example={"examples": {"pause": {"status": "paused"}, "sooner": {"every": "5 minutes"}}},
)
async def patch_schedule(call: Call, body: PatchScheduleBody) -> Answer[ScheduleShown]:
    """Change parts of a schedule. Status `paused` pauses the schedule, `active` resumes it and
    resets the failure count. Times of the pause are fired later only with `catchup`. A target is
    replaced as a whole. Returns 200: The schedule."""
    given = given_members(body, body.__struct_fields__)
    forms = {form: given[form] for form in schedule_rules.FORMS if form in given}
    target = given.get("target")
    options = {name: given[name] for name in _OPTIONS if name in given}
    if "status" in given:
        options["is_active"] = wanted_activity(given["status"])
    request = schedule_rules.PatchSchedule(
        call.path.name,
        chosen_form(forms) if forms else None,
        given.get("timezone"),
        None if target is None else wanted_target(target),
        options,
    )
    return Answer(
        200, _shown(await schedule_rules.patch_schedule(call.engine, call.caller, request))
    )


@endpoint("GET /v1/schedules/{name}", "scheduler:GetSchedule", resource="schedule/{name}")
async def get_schedule(call: Call) -> Answer[ScheduleShown]:
    """Get a schedule. Returns the schedule as it was sent, its meaning, next times and state.
    Returns 200: The schedule."""
    view = await schedule_rules.get_schedule(call.engine, call.caller, call.path.name)
    return Answer(200, _shown(view))


@endpoint(
    "GET /v1/schedules",
    "scheduler:ListSchedules",
    resource="schedule/*",
    refusals=(),
    headers=PAGED,
)
async def list_schedules(call: Call, query: ScheduleQuery) -> Answer[list[ListedSchedule]]:
    """List schedules. Lists schedules by name in byte order, up to a cap of the gateway and a size
    limit. The header Link leads to the next page. Returns 200: Schedules."""
    wanted = stored_schedules.ListSchedules(
        is_active=wanted_activity(query.status),
        target_kind=query.target_kind,
        name_prefix=query.name_prefix,
        after=(0, query.after),
    )
    page = await schedule_rules.list_schedules(call.engine, call.caller, wanted, query.limit)
    headers = next_page(
        "/v1/schedules",
        status=query.status,
        target_kind=query.target_kind,
        name_prefix=query.name_prefix or None,
        limit=query.limit,
        after=None if page.last is None else page.shown[-1].schedule.name,
    )
    return Answer(200, [ListedSchedule(**_members(view)) for view in page.shown], headers)


@endpoint(
    "DELETE /v1/schedules/{name}",
    "scheduler:DeleteSchedule",
    resource="schedule/{name}",
    refusals=(),
)
async def delete_schedule(call: Call) -> Answer[None]:
    """Delete a schedule. Sent messages stay. Returns 204: The schedule does not exist any more."""
    await schedule_rules.delete_schedule(call.engine, call.caller, call.path.name)
    return Answer(204)


class RunQuery(Struct, forbid_unknown_fields=True):
    """The API of a schedule."""

    group: Annotated[
        Annotated[str, Meta(min_length=1, max_length=64)] | None,
        about("The group of a schedule of EventBridge Scheduler. Absent: a schedule of this API."),
    ] = None


@endpoint("POST /v1/schedules/{name}/runs", "scheduler:UpdateSchedule")
async def run_schedule(call: Call, query: RunQuery) -> Answer[RunShown]:
    """Run a schedule manually. Fires at once and out of band, also while paused. The next time is
    unchanged. Returns 202: The schedule has fired."""
    group = query.group
    place = "/".join(filter(None, ("schedule", group, call.path.name)))
    check_right(call.engine, call.caller, call.right, own_arn(call.caller, call.right, place))
    schedule = await stored_schedules.find(call.engine, call.caller, call.path.name, group=group)
    run = await dispatch.run_now(
        call.engine, call.caller, schedule, base_url=call.request.links_url
    )
    copies = [QueueCopy(one.queue_name, one.sequence) for one in run.messages]
    ids = [copy.id for copy in copies]
    shown = RunShown(run.run_id, schedule.name, ids, copies, run.scheduled_for, run.out_of_band)
    return Answer(202, shown)
