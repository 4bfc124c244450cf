"""Refusals of schedules and their groups."""

from __future__ import annotations

from queuegate.storage.errors import Kind, Rejected


class ScheduleInvalid(Rejected):
    """A member of a schedule or a group is absent, breaks a rule or does not fit the others."""


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
    """A group of that name, or one that is being deleted; a client token with other parameters."""

    kind = Kind.EXISTS


class ScheduleQuotaExceeded(Rejected):
    """More groups of schedules than an account may have."""

    kind = Kind.LIMIT
