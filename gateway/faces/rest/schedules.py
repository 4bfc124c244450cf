"""Schedules: create, list, look at, put, patch, delete, fire by hand."""

from __future__ import annotations

from msgspec import UNSET

from queuegate.gateway.faces.json.endpoints import (
    PAGED,
    Answer,
    Answered,
    Call,
    Endpoint,
    next_page,
)
from queuegate.gateway.faces.rest.events import Copy
from queuegate.gateway.faces.rest.schedule_shapes import (
    ListedSchedule,
    NewSchedule,
    NewScheduleBody,
    PatchSchedule,
    PatchScheduleBody,
    PutSchedule,
    PutScheduleBody,
    RunShown,
    SchedulePath,
    ScheduleQuery,
    ScheduleShown,
    chosen_form,
    given_members,
    listed,
    shown,
    wanted_activity,
    wanted_target,
)
from queuegate.gateway.operations.schedules import dispatch, schedule_changes, stored_schedules
from queuegate.gateway.operations.schedules.schedule_specs import (
    FORMS,
    Expression,
    ScheduleOptions,
    ScheduleSpec,
)
from queuegate.storage.errors import InvalidParameterValue

_TAG = "schedules"
_OPTIONS = ("catchup", "catchup_limit", "failure_threshold")


def _spec(name: str, body: NewSchedule | PutSchedule) -> ScheduleSpec:
    form, text = chosen_form(given_members(body, FORMS))
    return ScheduleSpec(
        name,
        Expression(form, text, body.timezone),
        wanted_target(body.target),
        ScheduleOptions(
            body.catchup, body.catchup_limit, body.failure_threshold, wanted_activity(body.status)
        ),
    )


async def _create(call: Call) -> Answer:
    body: NewSchedule = call.body
    view = await schedule_changes.create_schedule(call.engine, call.caller, _spec(body.name, body))
    return Answer(201, shown(view), {"location": f"/v1/schedules/{body.name}"})


async def _put(call: Call) -> Answer:
    body: PutSchedule = call.body
    name: str = call.path.name
    if body.name is not UNSET and body.name != name:
        raise InvalidParameterValue(
            f"The name in the body is '{body.name[:128]}', the one in the path is '{name[:128]}'. "
            "A schedule keeps its name: leave it out of the body."
        )
    view, is_new = await schedule_changes.put_schedule(call.engine, call.caller, _spec(name, body))
    if is_new:
        return Answer(201, shown(view), {"location": f"/v1/schedules/{name}"})
    return Answer(200, shown(view))


async def _patch(call: Call) -> Answer:
    body: PatchSchedule = call.body
    given = given_members(body, body.__struct_fields__)
    forms = {form: given[form] for form in FORMS if form in given}
    target = given.get("target")
    options = {name: given[name] for name in _OPTIONS if name in given}
    if "status" in given:
        options["is_active"] = wanted_activity(given["status"])
    request = schedule_changes.PatchSchedule(
        call.path.name,
        chosen_form(forms) if forms else None,
        given.get("timezone"),
        None if target is None else wanted_target(target),
        options,
    )
    return Answer(
        200, shown(await schedule_changes.patch_schedule(call.engine, call.caller, request))
    )


async def _get(call: Call) -> Answer:
    view = await schedule_changes.get_schedule(call.engine, call.caller, call.path.name)
    return Answer(200, shown(view))


async def _list(call: Call) -> Answer:
    query: ScheduleQuery = call.query
    wanted = stored_schedules.Wanted(
        is_active=wanted_activity(query.status),
        target_kind=query.target_kind,
        name_prefix=query.name_prefix,
        after=(0, query.after),
    )
    page = await schedule_changes.list_schedules(call.engine, call.caller, wanted, query.limit)
    headers = {}
    if page.last is not None:
        headers = next_page(
            "/v1/schedules",
            status=query.status,
            target_kind=query.target_kind,
            name_prefix=query.name_prefix or None,
            limit=query.limit,
            after=page.shown[-1].schedule.name,
        )
    return Answer(200, [listed(view) for view in page.shown], headers)


async def _delete(call: Call) -> Answer:
    await schedule_changes.delete_schedule(call.engine, call.caller, call.path.name)
    return Answer(204)


async def _run(call: Call) -> Answer:
    schedule = await stored_schedules.find(call.engine, call.caller, call.path.name)
    run = await dispatch.run_now(
        call.engine, call.caller, schedule, base_url=call.request.links_url
    )
    copies = [Copy(one.queue_name, one.sequence) for one in run.messages]
    return Answer(
        202,
        RunShown(
            run.run_id,
            schedule.name,
            [copy.id for copy in copies],
            copies,
            run.scheduled_for,
            run.out_of_band,
        ),
    )


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
_LISTED = {
    "name": "nightly-report",
    **_TO_QUEUE,
    "catchup": False,
    "catchup_limit": 100,
    "failure_threshold": 10,
    "status": "active",
    "canonical": {"cron": "0 9 * * 1-5", "timezone": "Europe/Berlin"},
    "human_readable": "Every weekday at 09:00 (Europe/Berlin)",
    "next_fire_at": "2030-01-31T08:00:00Z",
    "failure_count": 0,
    "last_error": None,
    "last_fired_at": "2030-01-30T08:00:00.004Z",
    "fired_count": 21,
    "skipped_count": 0,
    "created_at": "2030-01-01T12:00:00Z",
    "updated_at": "2030-01-01T12:00:00Z",
}
_SCHEDULE = _LISTED | {"next_fires": ["2030-01-31T08:00:00Z", "2030-02-01T08:00:00Z"]}
_RUN = {
    "id": "0f8fad5b-d9cb-469f-a165-70867728950e",
    "schedule": "nightly-report",
    "msg_ids": [17],
    "messages": [{"queue": "jobs", "id": 17}],
    "scheduled_for": "2030-01-31T11:30:00Z",
    "out_of_band": True,
}
_TO_TOPIC = {
    "cron": "*/15 * * * *",
    "target": {"kind": "topic", "routing_key": "orders.check", "message": {"deep": True}},
    "catchup": True,
    "catchup_limit": 4,
}
_NAME = {"name": "$response.body#/name"}
_LINKS = {
    "getSchedule": _NAME,
    "patchSchedule": _NAME,
    "runSchedule": _NAME,
    "deleteSchedule": _NAME,
}
_LOCATION = {"Location": "Where the schedule is."}

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "POST",
        "/v1/schedules",
        "createSchedule",
        "Create a schedule",
        "The queue of its target must exist. A fired message carries the header `_schedule`: name, "
        "scheduled_for and out_of_band. 409 when the name is taken: PUT is for who does not care.",
        _TAG,
        _create,
        (
            Answered(
                201, ScheduleShown, "The schedule.", _SCHEDULE, headers=_LOCATION, links=_LINKS
            ),
        ),
        refusals=(404, 409),
        carries_messages=True,
        body=NewScheduleBody,
        example={
            "examples": {
                "queue": {"name": "nightly-report", **_TO_QUEUE},
                "topic": {"name": "order-check", **_TO_TOPIC},
            }
        },
        right="scheduler:CreateSchedule",
        resource="schedule/{name}",
    ),
    Endpoint(
        "GET",
        "/v1/schedules",
        "listSchedules",
        "List schedules",
        "By name, in byte order. When there are more than the cap of the gateway, or than fit, the "
        "header Link leads to them.",
        _TAG,
        _list,
        (Answered(200, list[ListedSchedule], "Schedules.", [_LISTED], headers=PAGED),),
        query=ScheduleQuery,
        refusals=(),
        right="scheduler:ListSchedules",
        resource="schedule/*",
    ),
    Endpoint(
        "GET",
        "/v1/schedules/{name}",
        "getSchedule",
        "Look at a schedule",
        "As it was written, what that means, when it fires next, and how it fared.",
        _TAG,
        _get,
        (Answered(200, ScheduleShown, "The schedule.", _SCHEDULE),),
        path_params=SchedulePath,
        right="scheduler:GetSchedule",
        resource="schedule/{name}",
    ),
    Endpoint(
        "PUT",
        "/v1/schedules/{name}",
        "putSchedule",
        "Create or replace a schedule",
        "To put what is there already changes nothing, not even the next time: do it as often as "
        "you like. A change that leaves the expression as it is keeps the timing. One that was "
        "paused stays so unless `status` says otherwise.",
        _TAG,
        _put,
        (
            Answered(200, ScheduleShown, "The schedule, which was there.", _SCHEDULE),
            Answered(
                201, ScheduleShown, "The new schedule.", _SCHEDULE, headers=_LOCATION, links=_LINKS
            ),
        ),
        path_params=SchedulePath,
        carries_messages=True,
        body=PutScheduleBody,
        example={"examples": {"queue": _TO_QUEUE, "topic": _TO_TOPIC}},
        right="scheduler:CreateSchedule",
        resource="schedule/{name}",
    ),
    Endpoint(
        "PATCH",
        "/v1/schedules/{name}",
        "patchSchedule",
        "Change parts of a schedule",
        "Pause it with `paused`, resume it with `active`: it does not fire for the time between, "
        "unless it catches up, and its failures are counted anew. A target is replaced as a whole.",
        _TAG,
        _patch,
        (Answered(200, ScheduleShown, "The schedule.", _SCHEDULE),),
        path_params=SchedulePath,
        carries_messages=True,
        body=PatchScheduleBody,
        example={"examples": {"pause": {"status": "paused"}, "sooner": {"every": "5 minutes"}}},
        right="scheduler:UpdateSchedule",
        resource="schedule/{name}",
    ),
    Endpoint(
        "DELETE",
        "/v1/schedules/{name}",
        "deleteSchedule",
        "Delete a schedule",
        "What it fired stays where it is.",
        _TAG,
        _delete,
        (Answered(204, None, "There is no such schedule now."),),
        path_params=SchedulePath,
        refusals=(),
        right="scheduler:DeleteSchedule",
        resource="schedule/{name}",
    ),
    Endpoint(
        "POST",
        "/v1/schedules/{name}/runs",
        "runSchedule",
        "Fire a schedule by hand",
        "At once and out of band: its next time stays, and a paused one can be fired, too.",
        _TAG,
        _run,
        (Answered(202, RunShown, "It was fired.", _RUN),),
        path_params=SchedulePath,
        right="scheduler:UpdateSchedule",
        resource="schedule/{name}",
    ),
)
