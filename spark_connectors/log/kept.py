"""What logs keep: asked of the endpoint, and held against where a query wants to begin or end."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

from spark_connectors.errors import DataLost, Refused
from spark_connectors.log.calls import NO_LOG, LogCalls
from spark_connectors.log.options import EARLIEST, LATEST, LogOptions, Subscribed, Where
from spark_connectors.log.positions import Bounds, Positions, Span, created_of, of_json
from spark_connectors.options.declaring import BadOption

_log = logging.getLogger(__name__)
# Log -> partition -> what it keeps.
Kept = dict[str, dict[int, Bounds]]
# How long a list of logs is good for a pattern.
_NAMES_SECONDS = 1.0
_PLAIN_START = re.compile(r"[A-Za-z0-9_-]*(?![*?{|])")
_GO_ON = "with failOnDataLoss=false the query goes on without them"


class Watcher:
    """The logs that a query reads."""

    def __init__(self, subscribed: Subscribed, calls: LogCalls) -> None:
        self._subscribed = subscribed
        self._calls = calls
        self.created: dict[str, str] = {}
        """The instants at which the logs were made, as of the last look."""
        self._named: tuple[str, ...] = ()
        self._named_until = 0.0

    def kept(self, *, may_lack: bool) -> Kept:
        """As it is now. Raises NotNow, and Refused for a log that is named and not there, unless
        that may be."""
        found: Kept = {}
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
    """What every name that matches begins with, as far as that is plain to see."""
    found = _PLAIN_START.match(pattern)
    return found[0] if found is not None and "|" not in pattern else ""


def resolved(where: Where, kept: Kept, options: LogOptions, calls: LogCalls) -> Positions:
    """The offsets that these words or times stand for, of every partition.

    Partitions that are not named stand at their first record; as an end at their last. Raises
    BadOption for one that is named and not there, and for a time that is past everything.
    """
    is_end = where is options.ending
    if where.time is not None or where.times is not None:
        return _at_times(where, kept, calls, may_be_late=is_end or not options.late_is_error)
    named, otherwise = where.offsets or {}, LATEST if is_end else EARLIEST
    if where.offset is not None:
        otherwise = where.offset
    _check_named(named, kept)
    return {
        log: {
            partition: _standing(named.get(log, {}).get(partition, otherwise), bounds)
            for partition, bounds in by.items()
        }
        for log, by in kept.items()
    }


def _standing(offset: int, bounds: Bounds) -> int:
    if offset == EARLIEST:
        return bounds.start
    return bounds.end if offset == LATEST else offset


def _at_times(where: Where, kept: Kept, calls: LogCalls, *, may_be_late: bool) -> Positions:
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


def _check_named(named: dict[str, dict[int, int]], kept: Kept) -> None:
    for log, by in named.items():
        for partition in by:
            if partition not in kept.get(log, {}):
                raise BadOption(
                    f"partition {partition} of log '{log}' is named among the offsets, and is not "
                    "read, or not there"
                )


class Losses:
    """What to do about records that are gone: fail, or say so, of each partition once."""

    def __init__(self, *, fails: bool) -> None:
        self._fails = fails
        self._told: set[tuple[str, int, int]] = set()

    def check(self, begun: Positions, kept: Kept) -> None:
        """Raise DataLost when something behind these positions is gone."""
        for log, offsets in begun.items():
            there = kept.get(log)
            if there is None:
                self.tell(log, -1, 0, f"log '{log}' is gone, with what was not read of it")
                continue
            for partition, at in offsets.items():
                self._check(log, partition, at, there.get(partition))

    def _check(self, log: str, partition: int, at: int, bounds: Bounds | None) -> None:
        if bounds is None or bounds.end < at:
            end = 0 if bounds is None else bounds.end
            self.tell(
                log,
                partition,
                at,
                f"partition {partition} of log '{log}' ends at {end}, and {at} was reached before: "
                "the log was deleted and made anew, and what was not read of the old one is gone",
            )
        elif at < bounds.start:
            self.tell(log, partition, at, collected(log, partition, at, bounds.start))

    def of_same_logs(self, offset: Mapping[str, Any], created: Mapping[str, str]) -> Positions:
        """The positions of an offset without logs that were deleted and made anew since. Raises
        DataLost when there is one."""
        found = of_json(offset)
        for log, before in created_of(offset).items():
            if created.get(log, before) != before:
                del found[log]
                what = (
                    f"log '{log}' was deleted and made anew at {created[log]}, and what was not "
                    "read of the old one is gone"
                )
                self.tell(log, -1, -1, what)
        return found

    def tell(self, log: str, partition: int, at: int, what: str) -> None:
        """Raise DataLost, or say it."""
        if self._fails:
            raise DataLost(f"{what}; {_GO_ON}")
        if (log, partition, at) not in self._told:
            self._told.add((log, partition, at))
            _log.warning("%s; with failOnDataLoss=false the query goes on", what)


def collected(log: str, partition: int, at: int, start: int) -> str:
    """Why offsets before ``start`` are missing."""
    return (
        f"offsets {at} to {start - 1} of partition {partition} of log '{log}' are gone: they were "
        "collected or purged before they were read (groupId keeps what Spark has not committed)"
    )


def lifted(spans: Iterable[Span], kept: Kept, *, fails: bool) -> list[Span]:
    """The spans without what is known to be gone, where that is no reason to fail."""
    found = []
    for span in spans:
        bounds = kept.get(span.log, {}).get(span.partition)
        if bounds is not None and (span.may_begin_later or not fails):
            span = span._replace(start=min(max(span.start, bounds.start), span.stop))
        if span.size:
            found.append(span)
    return found
