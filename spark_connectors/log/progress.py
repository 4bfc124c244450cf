"""Positions in logs, in the JSON of Kafka's source, and the lag of a query behind them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from spark_connectors.errors import ConnectorError

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress


# Log -> partition -> next offset.
Positions = dict[str, dict[int, int]]


class BadOffset(ConnectorError):
    """The checkpoint is another source's."""


class Bounds(NamedTuple):
    """The offsets that a partition holds: from ``start`` up to, and without, ``end``."""

    start: int
    end: int


class OffsetSpan(NamedTuple):
    """Offsets of a partition from ``start`` up to, and without, ``stop``.

    ``may_begin_later``: missing records at the start are no loss, because no query had a claim to
    them.
    """

    log: str
    partition: int
    start: int
    stop: int
    may_begin_later: bool = False

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.stop - self.start


# Member beside the partitions of a log: its creation time, which tells logs of one name apart.
CREATED_AT = "created_at"


def to_json(positions: Positions, created: Mapping[str, str]) -> dict[str, Any]:
    """Return the positions as Spark stores and compares them, always in the same order.
    ``created``: by log."""
    return {
        log: {str(partition): offset for partition, offset in sorted(offsets.items())}
        | ({CREATED_AT: created[log]} if log in created else {})
        for log, offsets in sorted(positions.items())
    }


def of_json(given: Mapping[str, Any]) -> Positions:
    """Parse positions. Raises BadOffset for an offset of another source."""
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
    """Return the creation times of the logs in an offset, as far as known."""
    return {log: of[CREATED_AT] for log, of in given.items() if CREATED_AT in of}


def between(start: Positions, end: Positions) -> Iterator[OffsetSpan]:
    """Yield the spans between two positions, in order of log and partition.

    A partition that ``start`` lacks is read from its first record. So is one that ends before its
    ``start``: its log was deleted and created anew.
    """
    for log, ends in sorted(end.items()):
        begun = start.get(log)
        for partition, stop in sorted(ends.items()):
            at = (begun or {}).get(partition, 0)
            if stop < at:
                yield OffsetSpan(log, partition, 0, stop, may_begin_later=True)
            elif stop > at:
                yield OffsetSpan(log, partition, at, stop, may_begin_later=begun is None)


def lag_of(
    progress: StreamingQueryProgress | Mapping[str, Any], source: int = 0
) -> dict[str, float]:
    """Return the figures that Kafka's source has as metrics, of a source of this progress: the
    least, greatest and average number of records behind, over partitions. Empty before the first
    batch.

    A source in Python has no metrics of its own. Spark shows the end of its batch and the ends of
    the logs, in the form of Kafka's offsets.
    """
    shown = progress["sources"][source]
    latest, end = of_json(_read(shown["latestOffset"])), of_json(_read(shown["endOffset"]))
    behind = [
        max(0, offset - end.get(log, {}).get(partition, 0))
        for log, by in latest.items()
        for partition, offset in by.items()
    ]
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": float(min(behind)),
        "maxOffsetsBehindLatest": float(max(behind)),
        "avgOffsetsBehindLatest": sum(behind) / len(behind),
    }


def _read(shown: str | Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Parse an offset, which Spark has as JSON text or as a mapping."""
    return json.loads(shown) if isinstance(shown, str) else shown or {}
