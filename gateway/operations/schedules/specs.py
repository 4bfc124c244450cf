"""What a schedule is to do, as its author wrote it in one of our forms (docs/seeds.md 1.4).

A specification has an expression in one of four forms, a target, and options for times that were
missed and for what fails. It is kept as written, beside what the engine of schedules needs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from queuegate.storage.errors import InvalidParameterValue

if TYPE_CHECKING:
    from queuegate.storage.model import Schedule

FORMS = ("cron", "every", "when", "fire_at")
"""The members that say when; exactly one of them."""
DEFAULT_TIMEZONE = "UTC"
DEFAULT_CATCHUP_LIMIT = 100
DEFAULT_FAILURE_THRESHOLD = 10

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}").fullmatch


@dataclass(frozen=True, slots=True)
class Expression:
    """When to fire: the text of one of FORMS, and the timezone in which it is to be read."""

    form: str
    text: str
    timezone: str = DEFAULT_TIMEZONE


@dataclass(frozen=True, slots=True)
class QueueTarget:
    """A message for a queue. ``message`` is JSON text, ``headers`` are JSON texts by name.

    ``delay`` in seconds; None: the queue's.
    """

    queue_name: str
    message: bytes
    headers: Mapping[str, bytes]
    delay: int | None = None
    group_id: str | None = None
    deduplication_id: str | None = None


@dataclass(frozen=True, slots=True)
class TopicTarget:
    """An event for all who subscribed to its routing key."""

    routing_key: str
    message: bytes
    headers: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class WorkflowTarget:
    """A kind that is reserved: understood, and refused until there are workflows."""


Target = QueueTarget | TopicTarget | WorkflowTarget


@dataclass(frozen=True, slots=True)
class Options:
    """What else a schedule can be told; ranges are checked by the face.

    ``is_active`` None: at first, and later whatever it is then. ``failure_threshold`` None: one
    that keeps failing is never paused.
    """

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
    options: Options = Options()


def check_name(name: str) -> None:
    """Letters, digits, `_`, `.` and `-`, 1 to 128 of them. Raises InvalidParameterValue."""
    if _NAME(name) is None:
        raise InvalidParameterValue(
            "The name of a schedule is 1 to 128 letters, digits, underscores, periods and hyphens."
        )


def expression_of(schedule: Schedule) -> Expression:
    """The expression as it was written."""
    form = next(form for form in FORMS if form in schedule.spec)
    return Expression(form, schedule.spec[form], schedule.spec["timezone"])


def options_of(schedule: Schedule) -> Options:
    """The options as they are."""
    return Options(
        schedule.catchup, schedule.catchup_limit, schedule.failure_threshold, schedule.is_active
    )
