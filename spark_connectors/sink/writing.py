"""The writers that Spark runs: a task for each partition, then a word on the driver."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.taskcontext import TaskContext

from spark_connectors.errors import ConnectorError, Refused
from spark_connectors.options.connecting import QueuePlace
from spark_connectors.sink.columns import Columns
from spark_connectors.sink.dead_letters import dead_letter
from spark_connectors.sink.deduplication import Identity
from spark_connectors.sink.entries import EntryBuilder, Unsendable
from spark_connectors.sink.options import Settings
from spark_connectors.sink.packing import Destination, Outgoing
from spark_connectors.sink.sending import Pace, Sender, Totals
from spark_connectors.sink.summaries import Written, announce, check_groups, written_by
from spark_connectors.transport.aws import Transport, shared_transport
from spark_connectors.transport.aws.wire import Fault

if TYPE_CHECKING:
    import pyarrow as pa

# A task remembers at most this many groups for checkGroups: what it sends to the driver is bounded.
MOST_GROUPS = 100_000


class RowRefused(ConnectorError):
    """A row that can never be sent, and no dead-letter queue for it."""


class Plan(NamedTuple):
    """What every task of a write needs to know; it can be pickled."""

    name: str
    settings: Settings
    columns: Columns


class PartitionWrite:
    """The write of one partition."""

    def __init__(self, plan: Plan, identity: Identity, transport: Transport) -> None:
        settings = plan.settings
        self._settings = settings
        self._identity = identity
        self._order_by = plan.columns.order_by
        self._letters = settings.dead_letter_url and Destination.of(settings.dead_letter_url)
        self._builder = EntryBuilder(
            settings,
            plan.columns,
            destination=_destination(settings, transport),
            identity=identity,
        )
        self._sender = Sender(
            transport,
            settings.batching,
            Pace(
                window=settings.window,
                max_retries=settings.connection.max_retries,
                most_per_second=settings.most_per_second,
                concurrency=settings.concurrency,
                most_groups=MOST_GROUPS if settings.checks_groups else 0,
                is_routed=plan.columns.destination is not None and bool(self._letters),
            ),
            on_refusal=self._refused,
        )

    def run(self, batches: Iterable[pa.RecordBatch]) -> Totals:
        """Send every row. Raises ConnectorError when one could not be sent."""
        if self._order_by:
            batches = _sorted(batches, self._order_by)
        return self._sender.send(self._rows(batches))

    def _rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Outgoing]:
        for batch in batches:
            for row in self._builder.rows(batch):
                yield self._set_aside(*row) if isinstance(row, Unsendable) else row

    def _refused(self, row: Outgoing, fault: Fault) -> Outgoing:
        return self._set_aside(row, row.entry.body.encode(), fault)

    def _set_aside(self, row: Outgoing, raw: bytes | None, fault: Fault) -> Outgoing:
        """The dead letter for a row that was refused, or RowRefused where none can be."""
        if self._letters and not row.is_dead_letter:
            return dead_letter(row, raw, fault, self._letters)
        where = f"row {row.position} of partition {self._identity.partition}"
        if row.is_dead_letter:
            where += " was refused, and so was its dead letter"
        elif row.entry.group_id:
            where += f", group '{row.entry.group_id}'"
        advice = "" if self._letters else "; deadLetterQueueUrl would set such rows aside"
        raise RowRefused(f"{where}: {fault.code}: {fault.message}{advice}")


def _destination(settings: Settings, transport: Transport) -> Destination | None:
    if settings.place is not None:
        return Destination(_queue_url(settings.place, transport), is_fifo=settings.place.is_fifo)
    if settings.topic_arn is not None:
        return Destination.of(settings.topic_arn, is_topic=True)
    return None


def _queue_url(place: QueuePlace, transport: Transport) -> str:
    try:
        return place.url(transport)
    except Refused as no:
        raise Refused(no.code, f"{no.message} (asking for the URL of '{place.name}')") from None


def _sorted(batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    held = list(batches)
    if held:
        order = [(name, "ascending") for name in names]
        yield from pa.Table.from_batches(held).sort_by(order).combine_chunks().to_batches()


def _written(plan: Plan, job: str, batches: Iterator[pa.RecordBatch]) -> Written:
    context = TaskContext.get()
    partition = 0 if context is None else context.partitionId()
    first = next(batches, None)
    if first is None:  # as most partitions of a small micro-batch: call nobody for them
        return Written(partition, Totals())
    write = PartitionWrite(
        plan, Identity(job, partition), shared_transport(plan.settings.connection)
    )
    return Written(partition, write.run(itertools.chain([first], batches)))


def _announce_failed(what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    if tasks := written_by(messages):
        announce(f"{what} failed, and these of its tasks had sent all of theirs", tasks, None)


class BatchWriter(DataSourceArrowWriter):
    """Sends a DataFrame once."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        # Tasks that are tried again share it; another write, or this one run again, does not.
        self._job = str(uuid.uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send a partition, on an executor."""
        return _written(self._plan, self._job, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Say what was sent. Raises SplitGroups."""
        tasks = written_by(messages)
        settings = self._plan.settings
        announce(self._plan.name, tasks, settings.summary_path)
        if settings.checks_groups:
            check_groups(tasks)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Say what was sent all the same: nobody can take it back."""
        _announce_failed(self._plan.name, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Sends each micro-batch of a query."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send a partition of a micro-batch, on an executor."""
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        return _written(self._plan, f"{query}|{batch}", iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Say what was sent. Raises SplitGroups."""
        tasks = written_by(messages)
        settings = self._plan.settings
        announce(f"{self._plan.name} batch {batchId}", tasks, settings.summary_path, batch=batchId)
        if settings.checks_groups:
            check_groups(tasks)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Say what was sent all the same: the batch will be sent again."""
        _announce_failed(f"{self._plan.name} batch {batchId}", messages)
