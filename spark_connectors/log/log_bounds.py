"""Bounds of logs, positions that options resolve to within them, and lost records."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

from spark_connectors.errors import DataLost, Refused
from spark_connectors.log.log_api import (
    NO_LOG,
    Bounds,
    LogCalls,
    OffsetSpan,
    Positions,
    created_of,
    of_json,
)
from spark_connectors.log.log_options import (
    EARLIEST,
    LATEST,
    LogOptions,
    PositionOption,
    Subscribed,
)
from spark_connectors.options import BadOption

_log = logging.getLogger(__name__)
# Log -> partition -> bounds.
LogBounds = dict[str, dict[int, Bounds]]
# Lifetime of a list of logs that a pattern matches.
_NAMES_SECONDS = 1.0
_PLAIN_START = re.compile(r"[A-Za-z0-9_-]*(?![*?{|])")
_GO_ON = "with failOnDataLoss=false the query goes on without them"


class LogWatcher:
    """The logs that a query reads."""

    def __init__(self, subscribed: Subscribed, calls: LogCalls) -> None:
        self._subscribed = subscribed
        self._calls = calls
        self.created: dict[str, str] = {}
        """The instants at which the logs were made, as of the last look."""
        self._named: tuple[str, ...] = ()
        self._named_until = 0.0

    def kept(self, *, may_lack: bool) -> LogBounds:
        """Return the bounds of all partitions now. Raises NotNow, and Refused
        for a named log that does not exist, unless ``may_lack``."""
        found: LogBounds = {}
        self.created = {}
        for log in self._names():
            try:
                bounds, created = self._calls.bounds(log)
            except Refused as no:
                if no.code == NO_LOG and (may_lack or self._subscribed.pattern is not None):
                    continue
                raise Refused(no.code, f"{no.message} (asking for log '{log}')") from None
            has = self._subscribed.has
            found[log] = {one: kept for one, kept in bounds.items() if has(log, one)}
            if created is not None:
                self.created[log] = created
        return found

    def _names(self) -> tuple[str, ...]:
        pattern = self._subscribed.pattern
        if pattern is None:
            return self._subscribed.names
        now = time.monotonic()
        if now >= self._named_until:
            names = self._calls.names(plain_start(pattern.pattern))
            self._named = tuple(sorted(name for name in names if pattern.fullmatch(name)))
            self._named_until = now + _NAMES_SECONDS
        return self._named


def plain_start(pattern: str) -> str:
    """Return the literal prefix of all names that match the pattern."""
    found = _PLAIN_START.match(pattern)
    return found[0] if found is not None and "|" not in pattern else ""


def resolved(
    where: PositionOption, kept: LogBounds, options: LogOptions, calls: LogCalls
) -> Positions:
    """Return the offsets that these words or times stand for, of every partition. Partitions that
    are not named start at their first record, and end at their last. Raises BadOption for a named
    partition that does not exist, and for a time after all records."""
    is_end = where is options.ending
    if where.time is not None or where.times is not None:
        return _at_times(where, kept, calls, may_be_late=is_end or not options.late_is_error)
    named, otherwise = where.offsets or {}, LATEST if is_end else EARLIEST
    if where.offset is not None:
        otherwise = where.offset
    _check_named(named, kept)
    found: Positions = {}
    for log, by in kept.items():
        found[log] = {}
        for partition, bounds in by.items():
            offset = named.get(log, {}).get(partition, otherwise)
            words = {EARLIEST: bounds.start, LATEST: bounds.end}
            found[log][partition] = words.get(offset, offset)
    return found


def _at_times(
    where: PositionOption, kept: LogBounds, calls: LogCalls, *, may_be_late: bool
) -> Positions:
    times = where.times or {}
    _check_named(times, kept)
    found: Positions = {}
    for log, by in kept.items():
        found[log] = {partition: bounds.start for partition, bounds in by.items()}
        asked: dict[int, list[int]] = {}
        for partition in by:
            at = where.time if where.time is not None else times.get(log, {}).get(partition)
            if at is not None:
                asked.setdefault(at, []).append(partition)
        for at, partitions in asked.items():
            found[log] |= calls.offsets_at(log, at, partitions)
            late = [one for one in partitions if found[log][one] >= by[one].end]
            if late and not may_be_late:
                raise BadOption(
                    f"log '{log}' has nothing in partition {late[0]} that was published at {at} or "
                    "later; with startingOffsetsByTimestampStrategy=latest it begins behind the "
                    "last record"
                )
    return found


def _check_named(named: dict[str, dict[int, int]], kept: LogBounds) -> None:
    for log, by in named.items():
        for partition in by:
            if partition not in kept.get(log, {}):
                raise BadOption(
                    f"partition {partition} of log '{log}' is named among the offsets, and is not "
                    "read, or not there"
                )


class DataLossPolicy:
    """The reaction to missing records: fail, or warn once for each partition."""

    def __init__(self, *, fails: bool) -> None:
        self._fails = fails
        self._told: set[tuple[str, int, int]] = set()

    def check(self, begun: Positions, kept: LogBounds) -> None:
        """Raise DataLost if records behind these positions are missing."""
        for log, offsets in begun.items():
            there = kept.get(log)
            if there is None:
                self.report(log, -1, 0, f"log '{log}' is gone, with what was not read of it")
                continue
            for partition, at in offsets.items():
                self._check(log, partition, at, there.get(partition))

    def _check(self, log: str, partition: int, at: int, bounds: Bounds | None) -> None:
        if bounds is None or bounds.end < at:
            end = 0 if bounds is None else bounds.end
            self.report(
                log,
                partition,
                at,
                f"partition {partition} of log '{log}' ends at {end}, and {at} was reached before: "
                "the log was deleted and made anew, and what was not read of the old one is gone",
            )
        elif at < bounds.start:
            self.report(log, partition, at, collected(log, partition, at, bounds.start))

    def of_same_logs(self, offset: Mapping[str, Any], created: Mapping[str, str]) -> Positions:
        """Return the positions of an offset without logs that were deleted and created anew. Raises
        DataLost if there is one."""
        found = of_json(offset)
        for log, before in created_of(offset).items():
            if created.get(log, before) != before:
                del found[log]
                what = (
                    f"log '{log}' was deleted and made anew at {created[log]}, and what was not "
                    "read of the old one is gone"
                )
                self.report(log, -1, -1, what)
        return found

    def report(self, log: str, partition: int, at: int, what: str) -> None:
        """Raise DataLost, or log a warning."""
        if self._fails:
            raise DataLost(f"{what}; {_GO_ON}")
        if (log, partition, at) not in self._told:
            self._told.add((log, partition, at))
            _log.warning("%s; with failOnDataLoss=false the query goes on", what)


def collected(log: str, partition: int, at: int, start: int) -> str:
    """Return the message for missing offsets before ``start``."""
    return (
        f"offsets {at} to {start - 1} of partition {partition} of log '{log}' are gone: they were "
        "collected or purged before they were read (groupId keeps what Spark has not committed)"
    )


def lifted(spans: Iterable[OffsetSpan], kept: LogBounds, *, fails: bool) -> list[OffsetSpan]:
    """Return the spans without offsets that are known to be missing, where that is no failure."""
    found = []
    for span in spans:
        bounds = kept.get(span.log, {}).get(span.partition)
        if bounds is not None and (span.may_begin_later or not fails):
            span = span._replace(start=min(max(span.start, bounds.start), span.stop))
        if span.size:
            found.append(span)
    return found
