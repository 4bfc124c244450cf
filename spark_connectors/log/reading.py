"""What a task does: read ranges of partitions, many with a call, the next one while Spark works."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from operator import attrgetter

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from spark_connectors.errors import Refused
from spark_connectors.log.calls import NO_LOG, LogCalls, shared_calls
from spark_connectors.log.columns import Part, batch_of
from spark_connectors.log.kept import Losses, collected
from spark_connectors.log.options import LogOptions
from spark_connectors.log.positions import Span
from spark_connectors.log.shares import shared_out

_MOST_RANGES = 1_000
# So many records are worth a task, when nobody says how many tasks.
_ROWS_PER_TASK = 100_000


class LogTask(InputPartition):
    """Ranges of partitions, of one log or several, in order."""

    def __init__(self, spans: tuple[Span, ...]) -> None:
        self.spans = spans


def tasks_of(spans: Sequence[Span], options: LogOptions) -> list[LogTask]:
    """The tasks that read these."""
    total = sum(span.size for span in spans)
    otherwise = max(options.tasks, -(-total // _ROWS_PER_TASK))
    return [LogTask(tuple(one)) for one in shared_out(spans, options.least_tasks, otherwise)]


def rows_of(task: LogTask, options: LogOptions) -> Iterator[pa.RecordBatch]:
    """The records of a task. Raises DataLost, Refused and NotNow."""
    calls, losses = shared_calls(options.connection), Losses(fails=options.fails_on_loss)
    for log, spans in groupby(task.spans, attrgetter("log")):
        try:
            for parts in _answers(log, list(spans), calls, losses):
                if any(part.size for part in parts):
                    yield batch_of(log, parts, has_headers=options.has_headers)
        except Refused as no:
            if no.code != NO_LOG:
                raise
            losses.tell(log, -1, 0, f"log '{log}' is gone, with what was not read of it")


def _answers(
    log: str, waiting: list[Span], calls: LogCalls, losses: Losses
) -> Iterator[list[Part]]:
    with ThreadPoolExecutor(1) as ahead:
        asked = ahead.submit(calls.read, log, waiting[:_MOST_RANGES])
        while waiting:
            parts = asked.result()
            waiting = _left(waiting[: len(parts)], parts, losses) + waiting[len(parts) :]
            if waiting:
                asked = ahead.submit(calls.read, log, waiting[:_MOST_RANGES])
            yield parts


def _left(spans: Sequence[Span], parts: Sequence[Part], losses: Losses) -> list[Span]:
    """What is still to be read of these after an answer. Raises DataLost."""
    left = []
    for number, (span, part) in enumerate(zip(spans, parts, strict=True)):
        if span.start < part.start and not span.may_begin_later:
            what = collected(span.log, span.partition, span.start, min(part.start, span.stop))
            losses.tell(span.log, span.partition, span.start, what)
        if part.next >= span.stop:
            continue
        if not number and not part.size:
            what = (
                f"partition {span.partition} of log '{span.log}' ends at {part.next}, and was to "
                f"be read up to {span.stop}: the log was deleted and made anew"
            )
            losses.tell(span.log, span.partition, span.start, what)
        else:
            left.append(span._replace(start=max(span.start, part.next)))
    return left
