"""Logs as a stream or a batch, in tasks of one size.

Spark's checkpoint has the offsets of a stream, and nothing else is kept. A new query is at the
offset {}, and its first batch is empty: from there to the start of the query. So Spark's own log
records the start: a query that dies before its first rows are committed, or before anything is
published, starts there again, whatever was published or collected meanwhile.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from spark_connectors.errors import (
    ConnectorError,
    DataLost,
    NotNow,
    Refused,
    hide_traceback,
    hiding_traceback,
)
from spark_connectors.log.log_api import (
    NO_LOG,
    Bounds,
    LogCalls,
    OffsetSpan,
    PartitionRecords,
    Positions,
    batch_of,
    between,
    created_of,
    of_json,
    shared_calls,
    to_json,
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


def limited(sizes: Sequence[int], most: int, turn: int) -> list[int]:
    """Divide ``most`` records among partitions, in proportion to their sizes. The remainder goes by
    ones, first to partitions that would get nothing, from number ``turn`` on. A caller that
    advances ``turn`` with every batch leaves no partition out for long."""
    total = sum(sizes)
    if total <= most:
        return list(sizes)
    shares = [size * most // total for size in sizes]
    left = most - sum(shares)
    count = len(sizes)
    order = [(turn + number) % count for number in range(count)]
    without = [at for at in order if sizes[at] and not shares[at]]
    others = [at for at in order if shares[at] and shares[at] < sizes[at]]
    for at in (without + others)[:left]:
        shares[at] += 1
    return shares


def joined(spans: Sequence[OffsetSpan], tasks: int) -> list[list[OffsetSpan]]:
    """Divide the spans among at most that many tasks of about the same size, without cutting
    any."""
    total = sum(span.size for span in spans)
    found: list[list[OffsetSpan]] = [[] for _ in range(tasks)]
    before = 0
    for span in spans:
        # The task of the span's middle: never past the last task, because no span is empty.
        found[(2 * before + span.size) * tasks // (2 * total)].append(span)
        before += span.size
    return [task for task in found if task]


def cut(spans: Sequence[OffsetSpan], tasks: int) -> list[list[OffsetSpan]]:
    """Divide the spans among that many tasks of the same size, cutting them where needed; fewer
    tasks where there are fewer records."""
    total = sum(span.size for span in spans)
    tasks = min(tasks, total)
    found: list[list[OffsetSpan]] = [[] for _ in range(tasks)]
    number, left = 0, 0
    for span in spans:
        at = span.start
        while at < span.stop:
            if not left:
                left = (number + 1) * total // tasks - number * total // tasks
                number += 1
            stop = min(span.stop, at + left)
            left -= stop - at
            found[number - 1].append(span._replace(start=at, stop=stop))
            at = stop
    return found


def shared_out(
    spans: Sequence[OffsetSpan], least: int | None, otherwise: int
) -> list[list[OffsetSpan]]:
    """Return the tasks of a batch. ``least``: at least that many, more if there are more spans,
    each whole; None: ``otherwise``, or fewer where there are fewer spans."""
    if not spans:
        return []
    if least is not None and least > len(spans):
        return cut(spans, least)
    return joined(spans, least or otherwise)


_MOST_RANGES = 1_000
# Records that are worth a task, when no option sets the number of tasks.
_ROWS_PER_TASK = 100_000


@dataclass
class LogTask(InputPartition):
    """Ranges of partitions, of one log or several, in order."""

    spans: tuple[OffsetSpan, ...]


def tasks_of(spans: Sequence[OffsetSpan], options: LogOptions) -> list[LogTask]:
    """Return the tasks that read these spans."""
    total = sum(span.size for span in spans)
    otherwise = max(options.tasks, -(-total // _ROWS_PER_TASK))
    return [LogTask(tuple(one)) for one in shared_out(spans, options.least_tasks, otherwise)]


def rows_of(task: LogTask, options: LogOptions) -> Iterator[pa.RecordBatch]:
    """Yield the records of a task. Raises DataLost, Refused and NotNow."""
    calls, losses = shared_calls(options.connection), DataLossPolicy(fails=options.fails_on_loss)
    for log, spans in groupby(task.spans, attrgetter("log")):
        try:
            for parts in _answers(log, list(spans), calls, losses):
                if any(part.size for part in parts):
                    yield batch_of(log, parts, has_headers=options.has_headers)
        except Refused as no:
            if no.code != NO_LOG:
                raise
            losses.report(log, -1, 0, f"log '{log}' is gone, with what was not read of it")


def _answers(
    log: str, waiting: list[OffsetSpan], calls: LogCalls, losses: DataLossPolicy
) -> Iterator[list[PartitionRecords]]:
    with ThreadPoolExecutor(1) as ahead:
        asked = ahead.submit(calls.read, log, waiting[:_MOST_RANGES])
        while waiting:
            parts = asked.result()
            waiting = _left(waiting[: len(parts)], parts, losses) + waiting[len(parts) :]
            if waiting:
                asked = ahead.submit(calls.read, log, waiting[:_MOST_RANGES])
            yield parts


def _left(
    spans: Sequence[OffsetSpan], parts: Sequence[PartitionRecords], losses: DataLossPolicy
) -> list[OffsetSpan]:
    """Return the spans that remain to be read after an answer. Raises DataLost."""
    left = []
    for number, (span, part) in enumerate(zip(spans, parts, strict=True)):
        if span.start < part.start and not span.may_begin_later:
            what = collected(span.log, span.partition, span.start, min(part.start, span.stop))
            losses.report(span.log, span.partition, span.start, what)
        if part.next >= span.stop:
            continue
        if not number and not part.size:
            what = (
                f"partition {span.partition} of log '{span.log}' ends at {part.next}, and was to "
                f"be read up to {span.stop}: the log was deleted and made anew"
            )
            losses.report(span.log, span.partition, span.start, what)
        else:
            left.append(span._replace(start=max(span.start, part.next)))
    return left


Narrowing = Callable[[OffsetSpan], OffsetSpan | None]


def batch_reader(options: LogOptions) -> DataSourceReader:
    """Return the reader for these options."""
    return FilteredLogReader(options) if options.pushes_filters else LogReader(options)


class LogReader(DataSourceReader):
    """Reads the records between two offsets, as they are when the first action is planned."""

    def __init__(self, options: LogOptions) -> None:
        self.options = options
        self._narrowing: list[Narrowing] = []

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the tasks. Raises DataLost, BadOption, Refused and NotNow."""
        with hiding_traceback():
            return tasks_of(self._spans(), self.options)

    def _spans(self) -> list[OffsetSpan]:
        options = self.options
        calls = shared_calls(options.connection)
        kept = LogWatcher(options.subscribed, calls).kept(may_lack=False)
        starts = resolved(options.starting, kept, options, calls)
        ends = resolved(options.ending, kept, options, calls)
        DataLossPolicy(fails=options.fails_on_loss).check(starts, kept)
        spans = [
            OffsetSpan(log, partition, start, min(ends[log][partition], kept[log][partition].end))
            for log, by in sorted(starts.items())
            for partition, start in sorted(by.items())
        ]
        for narrow in self._narrowing:
            spans = [found for span in spans if (found := narrow(span)) is not None]
        return lifted([span for span in spans if span.size > 0], kept, fails=options.fails_on_loss)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a task."""
        assert isinstance(partition, LogTask)
        return rows_of(partition, self.options)


class FilteredLogReader(LogReader):
    """Reads only what filters leave. A separate class, because Spark refuses ``pushFilters`` unless
    its setting ``spark.sql.python.filterPushdown.enabled`` is on."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Apply filters by offset, partition and topic. Yields those that are left to Spark."""
        for one in filters:
            narrow = _narrowing(one)
            if narrow is None:
                yield one
            else:
                self._narrowing.append(narrow)


def _narrowing(one: Filter) -> Narrowing | None:
    """Return a function that narrows offset ranges to the filter; None: the filter is Spark's."""
    column = getattr(one, "attribute", ())
    value: Any = getattr(one, "value", None)
    if column == ("offset",) and type(value) is int:
        return _of_offsets(one, value)
    if column in (("partition",), ("topic",)) and isinstance(one, EqualTo | In):
        name = "log" if column == ("topic",) else "partition"
        values = (value,) if isinstance(one, EqualTo) else tuple(value)
        return lambda span: span if getattr(span, name) in values else None
    return None


def _of_offsets(one: Filter, value: int) -> Narrowing | None:
    firsts = {EqualTo: value, GreaterThan: value + 1, GreaterThanOrEqual: value}
    stops = {EqualTo: value + 1, LessThan: value, LessThanOrEqual: value + 1}
    kind = type(one)
    if kind not in firsts | stops:
        return None
    first, stop = firsts.get(kind, -(1 << 63)), stops.get(kind, 1 << 63)

    def narrow(span: OffsetSpan) -> OffsetSpan | None:
        found = span._replace(start=max(span.start, first), stop=min(span.stop, stop))
        return found if found.size > 0 else None

    return narrow


# Pauses between polls of an idle stream: the least, and the longest where polls are slow.
_IDLE_SECONDS = 0.1
_LONGEST_IDLE_SECONDS = 2.0
# An idle stream polls for a tenth of its time.
_IDLE_FACTOR = 10


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark asks one instance for offsets, in the driver's process. The others only read tasks, and
    must cost nothing to make or pickle."""

    def __init__(self, options: LogOptions) -> None:
        self.options = options
        self._losses = DataLossPolicy(fails=options.fails_on_loss)
        self._watcher: LogWatcher | None = None
        self._kept: LogBounds | None = None
        # The end of a run with AvailableNow: the bounds at its first poll.
        self._is_to_end = False
        self._target: LogBounds | None = None
        self._has_begun = False
        self._turn = 0
        self._batch_at = -math.inf
        self._rests_until = 0.0
        self._committed: Positions = {}
        self._last_refusal = ""

    # Methods that Spark calls

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the offset before everything, whatever ``startingOffsets`` says."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of ``maxOffsetsPerTrigger``."""
        most = self.options.most_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of this run."""
        self._is_to_end = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch; ``start`` itself when there is nothing new."""
        begun = of_json(start)
        self._commit_group(begun)
        kept = self._look()
        if kept is None:
            return start
        if not begun:
            return to_json(self._beginning(kept), self._created)
        begun = self._losses.of_same_logs(start, self._created)
        self._losses.check(begun, kept)
        end = self._end(begun, self._target or kept, limit)
        if end is None:
            # An empty batch adds the creation times to a checkpoint of an earlier version.
            known = to_json(begun, self._created)
            return start if known == start else known
        self._batch_at = time.monotonic()
        self._rests_until = 0.0
        return to_json(end, self._created)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the tasks between two offsets. Raises DataLost, Refused and NotNow."""
        begun = of_json(start)
        if not begun:
            return []
        if self._kept is None:
            self._kept = self._ask()
            self._losses.check(begun, self._kept)
        ends = self._losses.of_same_logs(end, self._created)
        for log, created in created_of(start).items():
            if created_of(end).get(log, created) != created:
                # Planned with failOnDataLoss=false: the new log is read from its first record.
                del begun[log]
        return tasks_of(self._spans(begun, ends, self._kept), self.options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a task."""
        assert isinstance(partition, LogTask)
        return rows_of(partition, self.options)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit everything up to here for the group: Spark has committed it."""
        self._commit_group(of_json(end))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the ends of the logs, for StreamingQueryProgress: ``sources[0].latestOffset``, of
        the same shape as ``endOffset`` beside it."""
        return None if self._kept is None else to_json(_ends(self._kept), self._created)

    def stop(self) -> None:
        """Close connections; a process that Spark kills does without."""
        hide_traceback()
        if self._watcher is not None:
            self._calls.close()

    # Bounds

    @property
    def _calls(self) -> LogCalls:
        return shared_calls(self.options.connection)

    @property
    def _created(self) -> dict[str, str]:
        return {} if self._watcher is None else self._watcher.created

    def _ask(self) -> LogBounds:
        """Read the bounds of all logs. A log that was known may be deleted."""
        if self._watcher is None:
            self._watcher = LogWatcher(self.options.subscribed, self._calls)
        return self._watcher.kept(may_lack=self._has_begun)

    def _look(self) -> LogBounds | None:
        """Read the bounds when it is time; None: the endpoint does not answer, and a running stream
        waits."""
        if self._target is not None:
            return self._kept
        time.sleep(max(0.0, self._rests_until - time.monotonic()))
        began = time.monotonic()
        try:
            self._kept = self._ask()
        except NotNow as away:
            if not self._has_begun or self._is_to_end:
                raise
            _log.warning("waiting: %s", away)
            return None
        now = time.monotonic()
        rest = min(_LONGEST_IDLE_SECONDS, max(_IDLE_SECONDS, _IDLE_FACTOR * (now - began)))
        self._rests_until = now + rest
        if self._is_to_end:
            self._target = self._kept
        return self._kept

    def _beginning(self, kept: LogBounds) -> Positions:
        """Return the start of a new query. If the query found no log, it reads all that are created
        later from their first record."""
        where = PositionOption(EARLIEST) if self._has_begun else self.options.starting
        found = resolved(where, kept, self.options, self._calls)
        self._has_begun = True
        return found

    # Batches

    def _spans(self, begun: Positions, ends: Positions, kept: LogBounds) -> list[OffsetSpan]:
        return lifted(between(begun, ends), kept, fails=self.options.fails_on_loss)

    def _end(self, begun: Positions, kept: LogBounds, limit: ReadLimit) -> Positions | None:
        """Return the end of a batch; None: there is nothing, or not enough."""
        self._has_begun = True
        ends = _ends(kept)
        spans = self._spans(begun, ends, kept)
        total = sum(span.size for span in spans)
        if not self._is_enough(total):
            return None
        if not isinstance(limit, ReadMaxRows) or total <= limit.max_rows:
            return ends if ends != begun else None
        shares = limited([span.size for span in spans], limit.max_rows, self._turn)
        self._turn += sum(share > 0 for share in shares)
        for span, share in zip(spans, shares, strict=True):
            # A log that was created anew has nothing left at the old position.
            at = begun.get(span.log, {}).get(span.partition, 0)
            is_anew = at > span.stop
            ends[span.log][span.partition] = at if is_anew and not share else span.start + share
        return ends

    def _is_enough(self, rows: int) -> bool:
        """Return True if that many records make a batch (minOffsetsPerTrigger), or the delay is
        over. As in Kafka's source the first batch is not delayed, nor a run that has an end."""
        if rows >= self.options.least_rows or self._is_to_end:
            return True
        return time.monotonic() - self._batch_at >= self.options.trigger_delay_seconds

    # The group, for lag alone

    def _commit_group(self, begun: Positions) -> None:
        """Commit Spark's position for the group. A failure does not end the query."""
        group = self.options.group
        if group is None:
            return
        try:
            for log, offsets in begun.items():
                committed = self._committed.get(log, {})
                news = {one: at for one, at in offsets.items() if committed.get(one) != at}
                if news:
                    self._calls.commit(log, group, news)
                    self._committed[log] = offsets
        except ConnectorError as no:
            if str(no) != self._last_refusal:
                self._last_refusal = str(no)
                _log.warning("group %s is not told of what Spark has committed: %s", group, no)


def _ends(kept: LogBounds) -> Positions:
    return {log: {one: bounds.end for one, bounds in by.items()} for log, by in kept.items()}
