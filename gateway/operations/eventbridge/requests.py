"""Requests of EventBridge Scheduler. Their members keep the rules of the model already
(protocol.scheduler_shapes): the face refuses those that do not before any operation sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from storage.schedules import schedule_groups

DEFAULT_GROUP = schedule_groups.DEFAULT
"""The group of whoever names none."""


@dataclass(frozen=True, slots=True)
class PutSchedule:
    """CreateSchedule and UpdateSchedule: the same members, and both give what is absent its
    default. ``target`` and ``window`` as the model has them."""

    name: str
    expression: str
    target: Mapping[str, Any]
    window: Mapping[str, Any]
    group: str = DEFAULT_GROUP
    timezone: str = "UTC"
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    is_enabled: bool = True
    deletes_itself: bool = False
    description: str | None = None
    key_arn: str | None = None
    client_token: str | None = None


@dataclass(frozen=True, slots=True)
class ListSchedules:
    """``group`` None: of all groups; ``is_enabled`` None: whatever it is."""

    group: str | None = None
    name_prefix: str = ""
    is_enabled: bool | None = None
    next_token: str | None = None
    max_results: int | None = None


@dataclass(frozen=True, slots=True)
class CreateScheduleGroup:
    """``tags`` are pairs of key and value."""

    name: str
    tags: tuple[tuple[str, str], ...] = ()
    client_token: str | None = None


@dataclass(frozen=True, slots=True)
class ListScheduleGroups:
    name_prefix: str = ""
    next_token: str | None = None
    max_results: int | None = None
