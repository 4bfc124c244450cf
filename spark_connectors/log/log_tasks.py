"""Tasks that read logs: the shares of a batch, and the reads of each task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from operator import attrgetter

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from spark_connectors.errors import Refused
from spark_connectors.log.log_api import NO_LOG, LogCalls, shared_calls
from spark_connectors.log.log_bounds import DataLossPolicy, collected
from spark_connectors.log.log_options import LogOptions
from spark_connectors.log.progress import OffsetSpan
from spark_connectors.log.record_columns import PartitionRecords, batch_of


def limited(sizes: Sequence[int], most: int, turn: int) -> list[int]:
    """Divide ``most`` records among partitions, in proportion to their sizes.

    The remainder goes by ones, first to partitions that would get nothing, from number ``turn`` on.
    A caller that advances ``turn`` with every batch leaves no partition out for long.
    """
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


class LogTask(InputPartition):
    """Ranges of partitions, of one log or several, in order."""

    def __init__(self, spans: tuple[OffsetSpan, ...]) -> None:
        self.spans = spans


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
