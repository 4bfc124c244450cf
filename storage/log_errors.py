"""Errors of logs (``storage.errors``)."""

from __future__ import annotations

from queuegate.storage.errors import Kind, Rejected

_MOST_SHOWN = 100


class LogDoesNotExist(Rejected):
    """The caller has no log of that name."""

    kind = Kind.ABSENT

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no log '{name[:_MOST_SHOWN]}'.")


class LogExists(Rejected):
    """The caller has a log of that name, with other settings."""

    kind = Kind.EXISTS

    def __init__(self, name: str) -> None:
        super().__init__(f"There is a log '{name}' with other settings.")


class LogNameInvalid(Rejected):
    """An invalid log name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"A log cannot be called '{name[:_MOST_SHOWN]}'. Allowed are 1 to 80 letters, digits, "
            "hyphens and underscores."
        )


class PartitionDoesNotExist(Rejected):
    """The log has no partition of that number."""

    kind = Kind.ABSENT

    def __init__(self, number: int) -> None:
        super().__init__(f"The log has no partition {number}.")


class RecordDoesNotExist(Rejected):
    """No record is kept at that offset."""

    kind = Kind.ABSENT

    def __init__(self, number: int, offset: int) -> None:
        super().__init__(f"Partition {number} has no record at offset {offset}.")


class RecordInvalid(Rejected):
    """A record that cannot be stored."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The record is refused: {reason}")


class TooManyPartitions(Rejected):
    """The log is at its limit of partitions."""

    kind = Kind.LIMIT

    def __init__(self, most: int) -> None:
        super().__init__(
            f"A log has at most {most} partitions, and each key one of its own. Make a log with "
            "`partitions`, which keys share."
        )


class TooManyGroups(Rejected):
    """The log is at its limit of groups."""

    kind = Kind.LIMIT

    def __init__(self, most: int) -> None:
        super().__init__(f"A log has at most {most} groups.")


class TooManySubscribers(Rejected):
    """The group is at its limit of subscribers."""

    kind = Kind.LIMIT

    def __init__(self, most: int) -> None:
        super().__init__(f"A group has at most {most} subscribers at once.")


class GroupDoesNotExist(Rejected):
    """The log has no group of that name."""

    kind = Kind.ABSENT

    def __init__(self, name: str) -> None:
        super().__init__(f"The log has no group '{name[:_MOST_SHOWN]}'.")


class GroupExists(Rejected):
    """The log has a group of that name, with other settings."""

    kind = Kind.EXISTS

    def __init__(self, name: str) -> None:
        super().__init__(f"The log has a group '{name}' with other settings.")


class GroupInvalid(Rejected):
    """Invalid settings of a group."""


class SubscriberFenced(Rejected):
    """Another session of this subscriber is live, or it left, or its lease expired."""

    kind = Kind.EXISTS

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The subscriber '{name[:_MOST_SHOWN]}' has another session, or none: send a heartbeat "
            "without one to begin anew, which ends any other."
        )


class PartitionHeld(Rejected):
    """A live subscriber holds a partition that another client wants to move."""

    kind = Kind.EXISTS

    def __init__(self, number: int) -> None:
        super().__init__(f"A live subscriber of the group holds partition {number}.")
