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

from spark_connectors.log.calls import shared_calls
from spark_connectors.log.kept import Losses, Watcher, lifted, resolved
from spark_connectors.log.options import LogOptions
from spark_connectors.log.positions import Span
from spark_connectors.log.reading import LogTask, rows_of, tasks_of
from spark_connectors.plainly import plainly

Narrowing = Callable[[Span], Span | None]


def batch_reader(options: LogOptions) -> DataSourceReader:
    """The reader for these options."""
    return FilteringReader(options) if options.pushes_filters else LogReader(options)


class LogReader(DataSourceReader):
    """What lies between two offsets when the first action is planned."""

    def __init__(self, options: LogOptions) -> None:
        self.options = options
        self._narrowing: list[Narrowing] = []

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks. Raises DataLost, BadOption, Refused and NotNow."""
        with plainly():
            return tasks_of(self._spans(), self.options)

    def _spans(self) -> list[Span]:
        options = self.options
        calls = shared_calls(options.connection)
        kept = Watcher(options.subscribed, calls).kept(may_lack=False)
        starts = resolved(options.starting, kept, options, calls)
        ends = resolved(options.ending, kept, options, calls)
        Losses(fails=options.fails_on_loss).check(starts, kept)
        spans = [
            Span(log, partition, start, min(ends[log][partition], kept[log][partition].end))
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


class FilteringReader(LogReader):
    """Reads no more than filters leave. A class of its own: Spark refuses ``pushFilters`` unless
    its setting ``spark.sql.python.filterPushdown.enabled`` is on."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Those that are left to Spark."""
        for one in filters:
            narrow = _narrowing(one)
            if narrow is None:
                yield one
            else:
                self._narrowing.append(narrow)


def _narrowing(one: Filter) -> Narrowing | None:
    """What the filter leaves of a range of offsets; None: it cannot be told by that."""
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

    def narrow(span: Span) -> Span | None:
        found = span._replace(start=max(span.start, first), stop=min(span.stop, stop))
        return found if found.size > 0 else None

    return narrow
