"""The status of refusals on the native API, by kind. The text is the refusal's own."""

from __future__ import annotations

from collections.abc import Mapping

from storage.errors import (
    Kind,
    OverLimit,
    QueueDoesNotExist,
    Rejected,
    ScheduleDoesNotExist,
    ScheduleExists,
)

_STATUSES: Mapping[Kind, int] = {
    Kind.ABSENT: 404,
    Kind.BUSY: 409,
    Kind.DISABLED: 409,
    Kind.EXISTS: 409,
    Kind.FORBIDDEN: 403,
    Kind.INVALID: 400,
    Kind.LIMIT: 409,
    Kind.MALFORMED: 400,
    Kind.TOO_LARGE: 413,
    Kind.UNKNOWN: 404,
    Kind.UNSUPPORTED: 400,
}


def status_of(refusal: Rejected) -> int:
    """The status of a refusal. Of messages in flight there may be fewer in a moment."""
    return 429 if isinstance(refusal, OverLimit) else _STATUSES[refusal.kind]


def text_of(refusal: Rejected) -> str:
    """What is said of a refusal: of a queue that is not there also its name, for example."""
    if isinstance(refusal, QueueDoesNotExist) and refusal.queue_name is not None:
        return f"Queue '{refusal.queue_name}' does not exist"
    if isinstance(refusal, ScheduleDoesNotExist):
        return f"Schedule '{refusal.name}' does not exist"
    if isinstance(refusal, ScheduleExists):
        name = refusal.name
        return f"Schedule '{name}' exists already. PUT /v1/schedules/{name} replaces it."
    return str(refusal)
