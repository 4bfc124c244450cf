"""What the native API says of refusals."""

from __future__ import annotations

from queuegate.storage.errors import QueueDoesNotExist, Rejected
from queuegate.storage.schedule_errors import ScheduleDoesNotExist, ScheduleExists


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
