"""What can go wrong with logs (``storage.errors``)."""

from __future__ import annotations

from storage.errors import Kind, Rejected

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
    """No log can be called so."""

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
    """A record that cannot be kept as it is."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The record is refused: {reason}")


class TooManyPartitions(Rejected):
    """One more key than a log may have partitions."""

    kind = Kind.LIMIT

    def __init__(self, most: int) -> None:
        super().__init__(
            f"A log has at most {most} partitions, and each key one of its own. Make a log with "
            "`partitions`, which keys share."
        )
