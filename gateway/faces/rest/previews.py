"""Previews: what an expression means and when it fires, before a schedule is made of it."""

from __future__ import annotations

from queuegate.gateway.faces.json.endpoints import Answer, Answered, Call, Endpoint
from queuegate.gateway.faces.rest.schedule_shapes import (
    NewPreview,
    NewPreviewBody,
    PreviewShown,
    chosen_form,
    given_members,
    shown_canonical,
)
from queuegate.gateway.operations.schedules.schedule_changes import preview_schedule
from queuegate.gateway.operations.schedules.schedule_specs import FORMS, Expression


async def _preview(call: Call) -> Answer:
    body: NewPreview = call.body
    form, text = chosen_form(given_members(body, FORMS))
    expression = Expression(form, text, body.timezone)
    preview = await preview_schedule(call.engine, call.caller, expression, body.count, body.start)
    return Answer(
        200,
        PreviewShown(
            shown_canonical(preview.canonical), preview.human_readable, list(preview.next_fires)
        ),
    )


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "POST",
        "/v1/previews",
        "previewSchedule",
        "Try an expression",
        "Answers what a schedule with this expression would do. Nothing is kept.",
        "schedules",
        _preview,
        (
            Answered(
                200,
                PreviewShown,
                "What was understood.",
                {
                    "canonical": {"cron": "0 9 * * 1-5", "timezone": "Europe/Berlin"},
                    "human_readable": "Every weekday at 09:00 (Europe/Berlin)",
                    "next_fires": ["2030-01-31T08:00:00Z", "2030-02-01T08:00:00Z"],
                },
            ),
        ),
        body=NewPreviewBody,
        refusals=(),
        right="",
        example={
            "when": "every weekday at 9am",
            "timezone": "Europe/Berlin",
            "count": 2,
            "from": "2030-01-30T12:00:00Z",
        },
    ),
)
