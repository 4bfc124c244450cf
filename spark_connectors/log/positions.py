"""How far one is in logs: offsets by log and partition, written as Kafka's source writes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from spark_connectors.errors import ConnectorError

# Log -> partition -> the offset that comes next.
Positions = dict[str, dict[int, int]]


class BadOffset(ConnectorError):
    """A checkpoint of another source."""


class Bounds(NamedTuple):
    """What a partition keeps: offsets from ``start`` up to, and without, ``end``."""

    start: int
    end: int


class Span(NamedTuple):
    """Offsets of a partition from ``start`` up to, and without, ``stop``.

    ``may_begin_later``: that the oldest of them were collected is no loss, because nobody was
    promised them.
    """

    log: str
    partition: int
    start: int
    stop: int
    may_begin_later: bool = False

    @property
    def size(self) -> int:
        """How many offsets."""
        return self.stop - self.start


# Beside the partitions of a log: when it was made, which tells it from one of the same name.
CREATED_AT = "created_at"


def to_json(positions: Positions, created: Mapping[str, str]) -> dict[str, Any]:
    """As Spark stores and compares it: always in the same order. ``created``: by log."""
    return {
        log: {str(partition): offset for partition, offset in sorted(offsets.items())}
        | ({CREATED_AT: created[log]} if log in created else {})
        for log, offsets in sorted(positions.items())
    }


def of_json(given: Mapping[str, Any]) -> Positions:
    """Raises BadOffset when these are no offsets of logs."""
    try:
        return {
            log: {int(one): int(offset) for one, offset in offsets.items() if one != CREATED_AT}
            for log, offsets in given.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise BadOffset(
            f"the checkpoint has an offset that is of no log: {given}. A query with another source "
            "needs a checkpoint of its own"
        ) from None


def created_of(given: Mapping[str, Any]) -> dict[str, str]:
    """Return the instants at which the logs of these offsets were made, as far as known."""
    return {log: of[CREATED_AT] for log, of in given.items() if CREATED_AT in of}


def between(start: Positions, end: Positions) -> Iterator[Span]:
    """What lies between two positions, in order of log and partition.

    A partition that ``start`` has not is read from its first record; so is one that ends before
    where ``start`` is, for then its log was deleted and made anew.
    """
    for log, ends in sorted(end.items()):
        begun = start.get(log)
        for partition, stop in sorted(ends.items()):
            at = (begun or {}).get(partition, 0)
            if stop < at:
                yield Span(log, partition, 0, stop, may_begin_later=True)
            elif stop > at:
                yield Span(log, partition, at, stop, may_begin_later=begun is None)
