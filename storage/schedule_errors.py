"""Errors of schedules and their groups."""

from __future__ import annotations

from queuegate.storage.errors import Kind, Rejected


class ScheduleInvalid(Rejected):
    """An absent, invalid or conflicting member of a schedule or a group."""


class ScheduleDoesNotExist(Rejected):
    """No schedule of that name in the group."""

    kind = Kind.ABSENT

    def __init__(self, name: str) -> None:
        super().__init__(f"Schedule {name} does not exist.")
        self.name = name


class ScheduleExists(Rejected):
    """A schedule of that name in the group."""

    kind = Kind.EXISTS

    def __init__(self, name: str) -> None:
        super().__init__(f"Schedule {name} already exists.")
        self.name = name


class ScheduleConflict(Rejected):
    """A conflict: an existing or deleting group, or a client token with other parameters."""

    kind = Kind.EXISTS


class ScheduleQuotaExceeded(Rejected):
    """More groups of schedules than an account may have."""

    kind = Kind.LIMIT
