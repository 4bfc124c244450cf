"""Logs as a batch: from offsets to offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from spark_connectors.errors import hiding_traceback
from spark_connectors.log.log_api import shared_calls
from spark_connectors.log.log_bounds import DataLossPolicy, LogWatcher, lifted, resolved
from spark_connectors.log.log_options import LogOptions
from spark_connectors.log.log_tasks import LogTask, rows_of, tasks_of
from spark_connectors.log.progress import OffsetSpan

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
    if column in (("partition",), ("topic",)):
        if isinstance(one, EqualTo):
            return _of_place(column[0], (value,))
        if isinstance(one, In):
            return _of_place(column[0], tuple(value))
    return None


def _of_place(column: str, values: tuple[object, ...]) -> Narrowing:
    name = "log" if column == "topic" else column
    return lambda span: span if getattr(span, name) in values else None


def _of_offsets(one: Filter, value: int) -> Narrowing | None:
    first, stop = -(1 << 63), 1 << 63
    if isinstance(one, EqualTo):
        first, stop = value, value + 1
    elif isinstance(one, GreaterThan | GreaterThanOrEqual):
        first = value + isinstance(one, GreaterThan)
    elif isinstance(one, LessThan | LessThanOrEqual):
        stop = value + isinstance(one, LessThanOrEqual)
    else:
        return None

    def narrow(span: OffsetSpan) -> OffsetSpan | None:
        found = span._replace(start=max(span.start, first), stop=min(span.stop, stop))
        return found if found.size > 0 else None

    return narrow
