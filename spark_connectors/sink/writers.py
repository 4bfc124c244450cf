"""The writers that Spark runs: a task for each partition, and a summary on the driver."""

from __future__ import annotations

import itertools
import json
import logging
import sys
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.taskcontext import TaskContext

from spark_connectors.errors import ConnectorError
from spark_connectors.sink.deduplication import Identity
from spark_connectors.sink.packing import Batching
from spark_connectors.sink.sender import Pace, Sender, SendTarget, SendTotals

if TYPE_CHECKING:
    import pyarrow as pa


_log = logging.getLogger("spark_connectors.sink")


class SplitGroups(ConnectorError):
    """Rows of one FIFO group came from several partitions."""


@dataclass
class TaskSummary(WriterCommitMessage):
    """The counts of one task."""

    partition: int
    totals: SendTotals


def written_by(messages: Sequence[WriterCommitMessage | None]) -> list[TaskSummary]:
    """Return the summaries of the tasks; a failed task has none."""
    return [message for message in messages if isinstance(message, TaskSummary)]


def summed(tasks: Sequence[TaskSummary]) -> dict[str, int]:
    """Return the sums over tasks, by their public names."""
    return {
        "partitions": len(tasks),
        "rows": sum(task.totals.rows for task in tasks),
        "bytes": sum(task.totals.byte_count for task in tasks),
        "calls": sum(task.totals.calls for task in tasks),
        "retries": sum(task.totals.retries for task in tasks),
        "deadLetters": sum(task.totals.dead_letters for task in tasks),
    }


def announce(what: str, tasks: Sequence[TaskSummary], path: str | None, **labels: int) -> None:
    """Log the sums on the driver, and append a line of JSON to the file at ``path`` if there is
    one."""
    sums = summed(tasks)
    _say(
        f"{what}: {sums['rows']} rows, {sums['bytes']} bytes, {sums['calls']} calls, "
        f"{sums['retries']} retries, {sums['deadLetters']} dead letters "
        f"from {sums['partitions']} partitions"
    )
    if path is not None:
        with Path(path.removeprefix("file://")).open("a", encoding="utf-8") as file:
            file.write(json.dumps({**labels, **sums}) + "\n")


def _say(line: str) -> None:
    """Log at INFO. Spark runs this code in a process without logging: there the line goes to
    standard error, which Spark copies to the driver's."""
    if _log.hasHandlers():
        if _log.level == logging.NOTSET:
            _log.setLevel(logging.INFO)
        _log.info(line)
    else:
        print(f"spark_connectors.sink: {line}", file=sys.stderr, flush=True)


def check_groups(tasks: Sequence[TaskSummary]) -> None:
    """Raise SplitGroups when a group came from two of these tasks. Logs a line if it cannot
    know."""
    owners: dict[tuple[str, str], int] = {}
    for task in tasks:
        if not task.totals.has_all_groups:
            _say(
                f"checkGroups: partition {task.partition} had more groups than are remembered "
                f"({len(task.totals.groups)}); the others were not checked"
            )
        for group in task.totals.groups:
            other = owners.setdefault(group, task.partition)
            if other != task.partition:
                raise SplitGroups(
                    f"group '{group[1]}' came from partitions {other} and {task.partition}, so "
                    f"its order at {group[0]} is not the DataFrame's. The messages have been sent "
                    "already; repartition by the group's column before the next write"
                )


class SendSettings(NamedTuple):
    """Settings of a sink's sends. ``order_by``: columns that sort each partition; ``summary_path``:
    a file that gets the counts."""

    batching: Batching
    pace: Pace
    order_by: tuple[str, ...] = ()
    summary_path: str | None = None


class Sink(Protocol):
    """The plan of a sink, which every task opens. Picklable."""

    @property
    def name(self) -> str:
        """The name for messages."""
        ...

    @property
    def manner(self) -> SendSettings: ...

    def open(self, identity: Identity) -> SendTarget[Any]:
        """Return the target for the rows of one partition."""
        ...


def send(
    target: SendTarget[Any], manner: SendSettings, batches: Iterable[pa.RecordBatch]
) -> SendTotals:
    """Send the rows of one partition. Raises ConnectorError when one could not be sent."""
    if manner.order_by:
        batches = _sorted(batches, manner.order_by)
    rows = (row for batch in batches for row in target.pack(batch))
    return Sender(target, manner.batching, manner.pace).send(rows)


def _sorted(batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    held = list(batches)
    if held:
        order = [(name, "ascending") for name in names]
        yield from pa.Table.from_batches(held).sort_by(order).combine_chunks().to_batches()


def _written(sink: Sink, job: str, batches: Iterator[pa.RecordBatch]) -> TaskSummary:
    context = TaskContext.get()
    partition = 0 if context is None else context.partitionId()
    first = next(batches, None)
    if first is None:  # as most partitions of a small micro-batch: call nobody for them
        return TaskSummary(partition, SendTotals())
    target = sink.open(Identity(job, partition))
    return TaskSummary(partition, send(target, sink.manner, itertools.chain([first], batches)))


def _announce_failed(what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    if tasks := written_by(messages):
        announce(f"{what} failed, and these of its tasks had sent all of theirs", tasks, None)


class BatchWriter(DataSourceArrowWriter):
    """Sends a DataFrame once."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        # Retries of tasks share it; another write, or a second run of this one, does not.
        self._job = str(uuid.uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskSummary:
        """Send a partition, on an executor."""
        return _written(self._sink, self._job, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Announce the counts. Raises SplitGroups."""
        tasks = written_by(messages)
        manner = self._sink.manner
        announce(self._sink.name, tasks, manner.summary_path)
        if manner.pace.most_groups:
            check_groups(tasks)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Announce the counts: sent rows cannot be taken back."""
        _announce_failed(self._sink.name, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Sends each micro-batch of a query."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskSummary:
        """Send a partition of a micro-batch, on an executor."""
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        return _written(self._sink, f"{query}|{batch}", iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Announce the counts. Raises SplitGroups."""
        tasks = written_by(messages)
        manner = self._sink.manner
        announce(f"{self._sink.name} batch {batchId}", tasks, manner.summary_path, batch=batchId)
        if manner.pace.most_groups:
            check_groups(tasks)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Announce the counts: the batch will be sent again."""
        _announce_failed(f"{self._sink.name} batch {batchId}", messages)
