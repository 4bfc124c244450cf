"""The writers that Spark runs: a task for each partition, then a word on the driver."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.taskcontext import TaskContext

from spark_connectors.sink.deduplication import Identity
from spark_connectors.sink.packing import Batching
from spark_connectors.sink.sending import Pace, Sender, Target, Totals
from spark_connectors.sink.summaries import Written, announce, check_groups, written_by

if TYPE_CHECKING:
    import pyarrow as pa


class Manner(NamedTuple):
    """How a sink goes about it, whatever it sends to. ``order_by``: columns that each partition is
    sorted by; ``summary_path``: a file that is told what was sent."""

    batching: Batching
    pace: Pace
    order_by: tuple[str, ...] = ()
    summary_path: str | None = None


class Sink(Protocol):
    """A sink as it was planned, which every task opens; it can be pickled."""

    @property
    def name(self) -> str:
        """Its name, for messages."""
        ...

    @property
    def manner(self) -> Manner: ...

    def open(self, identity: Identity) -> Target[Any]:
        """What the rows of one partition are sent to."""
        ...


def send(target: Target[Any], manner: Manner, batches: Iterable[pa.RecordBatch]) -> Totals:
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


def _written(sink: Sink, job: str, batches: Iterator[pa.RecordBatch]) -> Written:
    context = TaskContext.get()
    partition = 0 if context is None else context.partitionId()
    first = next(batches, None)
    if first is None:  # as most partitions of a small micro-batch: call nobody for them
        return Written(partition, Totals())
    target = sink.open(Identity(job, partition))
    return Written(partition, send(target, sink.manner, itertools.chain([first], batches)))


def _announce_failed(what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    if tasks := written_by(messages):
        announce(f"{what} failed, and these of its tasks had sent all of theirs", tasks, None)


class BatchWriter(DataSourceArrowWriter):
    """Sends a DataFrame once."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        # Tasks that are tried again share it; another write, or this one run again, does not.
        self._job = str(uuid.uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send a partition, on an executor."""
        return _written(self._sink, self._job, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Say what was sent. Raises SplitGroups."""
        tasks = written_by(messages)
        manner = self._sink.manner
        announce(self._sink.name, tasks, manner.summary_path)
        if manner.pace.most_groups:
            check_groups(tasks)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Say what was sent all the same: nobody can take it back."""
        _announce_failed(self._sink.name, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Sends each micro-batch of a query."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send a partition of a micro-batch, on an executor."""
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        return _written(self._sink, f"{query}|{batch}", iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Say what was sent. Raises SplitGroups."""
        tasks = written_by(messages)
        manner = self._sink.manner
        announce(f"{self._sink.name} batch {batchId}", tasks, manner.summary_path, batch=batchId)
        if manner.pace.most_groups:
            check_groups(tasks)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Say what was sent all the same: the batch will be sent again."""
        _announce_failed(f"{self._sink.name} batch {batchId}", messages)
