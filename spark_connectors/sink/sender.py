"""Sending of rows: retries, dead letters, a rate limit; the writers that Spark runs for it."""

from __future__ import annotations

import itertools
import json
import logging
import random
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.taskcontext import TaskContext

from spark_connectors.errors import ConnectorError, Fault, Refused
from spark_connectors.sink.message_columns import Identity
from spark_connectors.sink.packing import (
    Batching,
    Content,
    Destination,
    OutgoingRow,
    Packer,
    Request,
)

if TYPE_CHECKING:
    import pyarrow as pa


_log = logging.getLogger("spark_connectors.sink")


class SendRate:
    """A rate limit. Time with fewer messages is not made up for by a burst. ``None``: no limit. Not
    to be shared between threads."""

    def __init__(
        self,
        per_second: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._per_second = per_second
        self._clock = clock
        self._pause = pause
        self._next_at = 0.0

    def wait(self, count: int) -> None:
        """Return when so many may be sent: at once for the first, then at the end of the time of
        those before."""
        if self._per_second is None:
            return
        now = self._clock()
        if self._next_at > now:
            self._pause(self._next_at - now)
        self._next_at = max(now, self._next_at) + count / self._per_second


# Large rows: the window is full at this many bytes, however few rows that is.
MOST_WINDOW_BYTES = 32 << 20
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 20.0
# Few at a time: each may be a megabyte.
_FILL = 16

# For each entry of a request, in order: a Fault, or any other value for an accepted one.
Answers = Sequence[object]


class SendTarget(Protocol[Content]):
    """The target for the rows of a partition: queues, topics, or another service."""

    def pack(self, batch: pa.RecordBatch) -> Iterator[OutgoingRow[Content]]:
        """Yield the rows of a batch as they will be sent, checked and measured, in their order. A
        row that cannot be sent is replaced by the result of ``refused``."""
        ...

    def send(self, destination: Destination, entries: Sequence[Content]) -> Answers:
        """Send one request. Raises Refused for all of it, and NotNow."""
        ...

    def refused(self, row: OutgoingRow[Content], fault: Fault) -> OutgoingRow[Content]:
        """Return the dead letter of a row that is refused for good, or raise."""
        ...


class NotTaken(ConnectorError):
    """An entry had more transient failures than retries."""


class SendSettings(NamedTuple):
    """Settings of a sink's sends. ``most_groups``: the number of FIFO groups to remember, 0 for
    none; ``is_routed``: rows name their destination, so a destination that refuses a request
    refuses only its own rows; ``order_by``: columns that sort each partition; ``summary_path``: a
    file for the counts."""

    batching: Batching
    window: int
    max_retries: int
    most_per_second: int | None = None
    concurrency: int = 1
    most_groups: int = 0
    is_routed: bool = False
    order_by: tuple[str, ...] = ()
    summary_path: str | None = None


@dataclass
class SendTotals:
    """Counts of a sender. ``rows`` excludes dead letters, ``byte_count`` is as the service
    counts."""

    rows: int = 0
    byte_count: int = 0
    calls: int = 0
    retries: int = 0
    dead_letters: int = 0
    groups: set[tuple[str, str]] = field(default_factory=set)
    has_all_groups: bool = True


class Sender(Generic[Content]):
    """Sends the rows of one partition. Not to be shared between threads."""

    def __init__(
        self,
        target: SendTarget[Content],
        settings: SendSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.totals = SendTotals()
        self._target = target
        self._packer: Packer[Content] = Packer(settings.batching)
        self._settings = settings
        self._clock = clock
        self._pause = pause
        self._limit = SendRate(settings.most_per_second, clock=clock, pause=pause)
        self._is_exhausted = False

    def send(self, rows: Iterator[OutgoingRow[Content]]) -> SendTotals:
        """Send all rows. Raises the target's errors, NotTaken, Refused and NotNow."""
        if self._settings.concurrency == 1:
            while request := self._next_request(rows, may_wait=True):
                self._settle(request, self._call(request))
            return self.totals
        with ThreadPoolExecutor(self._settings.concurrency) as pool:
            self._send_several(rows, pool)
        return self.totals

    def _send_several(self, rows: Iterator[OutgoingRow[Content]], pool: ThreadPoolExecutor) -> None:
        under_way: dict[Future[Answers], Request[Content]] = {}
        while True:
            request = self._next_request(rows, may_wait=not under_way)
            if request:
                under_way[pool.submit(self._call, request)] = request
            elif not under_way:
                return
            if not request or len(under_way) == self._settings.concurrency:
                done, _ = wait(under_way, return_when=FIRST_COMPLETED)
                for each in done:
                    self._settle(under_way.pop(each), each.result())

    def _next_request(
        self, rows: Iterator[OutgoingRow[Content]], *, may_wait: bool
    ) -> Request[Content]:
        """Return the next request; with ``may_wait``, after waiting for retries. Empty: nothing is
        left."""
        while True:
            self._fill(rows)
            request = self._packer.take(self._clock())
            if request:
                self._limit.wait(len(request))
                return request
            ready_at = self._packer.next_ready_at()
            if ready_at is None or not may_wait:
                return []
            self._pause(max(0.0, ready_at - self._clock()))

    def _fill(self, rows: Iterator[OutgoingRow[Content]]) -> None:
        """Fill the window once half of it is empty."""
        packer, window = self._packer, self._settings.window
        enough = max(window // 2, self._settings.batching.most_entries)
        if self._is_exhausted or packer.row_count > enough:
            return
        while packer.row_count < window and packer.byte_count < MOST_WINDOW_BYTES:
            some = list(islice(rows, min(_FILL, window - packer.row_count)))
            if not some:
                self._is_exhausted = True
                return
            packer.add(some)

    def _call(self, request: Request[Content]) -> Answers:
        destination = request[0].destination
        entries = [row.entry for row in request]
        try:
            return self._target.send(destination, entries)
        except Refused as no:
            if self._settings.is_routed and not request[0].is_dead_letter:
                return [Fault(no.code, no.message, is_senders=True)] * len(request)
            raise Refused(no.code, f"{no.message} (sending to {destination.address})") from None

    def _settle(self, request: Request[Content], answers: Answers) -> None:
        totals = self.totals
        totals.calls += 1
        failed: Request[Content] = []
        letters: Request[Content] = []
        for row, answer in zip(request, answers, strict=True):
            if not isinstance(answer, Fault):
                self._count(row)
            elif answer.is_senders:
                letters.append(self._target.refused(row, answer))
            else:
                self._put_off(row, answer)
                failed.append(row)
        self._packer.settle(request, failed)
        self._packer.add(letters)

    def _count(self, row: OutgoingRow[Content]) -> None:
        totals = self.totals
        if row.is_dead_letter:
            totals.dead_letters += 1
            return
        totals.rows += 1
        totals.byte_count += row.size
        if self._settings.most_groups and row.destination.is_fifo:
            if len(totals.groups) < self._settings.most_groups:
                totals.groups.add((row.destination.address, row.entry.group_id or ""))
            else:
                totals.has_all_groups = False

    def _put_off(self, row: OutgoingRow[Content], fault: Fault) -> None:
        if row.attempts >= self._settings.max_retries:
            raise NotTaken(
                f"row {row.position} of its partition failed {row.attempts + 1} times, the last "
                f"time with {fault.code}: {fault.message} (sending to {row.destination.address}; "
                "maxRetries says how often it is tried again)"
            )
        longest = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2**row.attempts)
        row.attempts += 1
        row.ready_at = self._clock() + random.uniform(0, longest)
        self.totals.retries += 1


class SplitGroups(ConnectorError):
    """Rows of one FIFO group came from several partitions."""


@dataclass
class TaskSummary(WriterCommitMessage):
    """The counts of one task."""

    partition: int
    totals: SendTotals


def announce(what: str, tasks: Sequence[TaskSummary], path: str | None, **labels: int) -> None:
    """Log the sums over tasks on the driver, and append them as a line of JSON to the file at
    ``path`` if there is one."""
    sums = {
        "partitions": len(tasks),
        "rows": sum(task.totals.rows for task in tasks),
        "bytes": sum(task.totals.byte_count for task in tasks),
        "calls": sum(task.totals.calls for task in tasks),
        "retries": sum(task.totals.retries for task in tasks),
        "deadLetters": sum(task.totals.dead_letters for task in tasks),
    }
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


class Sink(Protocol):
    """The plan of a sink, which every task opens. Picklable."""

    @property
    def name(self) -> str:
        """The name for messages."""
        ...

    @property
    def sending(self) -> SendSettings: ...

    def open(self, identity: Identity) -> SendTarget[Any]:
        """Return the target for the rows of one partition."""
        ...


def send(
    target: SendTarget[Any], settings: SendSettings, batches: Iterable[pa.RecordBatch]
) -> SendTotals:
    """Send the rows of one partition. Raises ConnectorError when one could not be sent."""
    if settings.order_by and (held := list(batches)):
        import pyarrow as pa

        order = [(name, "ascending") for name in settings.order_by]
        batches = pa.Table.from_batches(held).sort_by(order).combine_chunks().to_batches()
    rows = (row for batch in batches for row in target.pack(batch))
    return Sender(target, settings).send(rows)


def _written(sink: Sink, job: str, batches: Iterator[pa.RecordBatch]) -> TaskSummary:
    context = TaskContext.get()
    partition = 0 if context is None else context.partitionId()
    first = next(batches, None)
    if first is None:  # most partitions of a small micro-batch: makes no call
        return TaskSummary(partition, SendTotals())
    target = sink.open(Identity(job, partition))
    return TaskSummary(partition, send(target, sink.sending, itertools.chain([first], batches)))


class _Writer:
    """A writer of Spark. It announces counts on the driver: sent rows cannot be taken back."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def _ended(
        self, messages: Sequence[WriterCommitMessage | None], *, is_done: bool, **labels: int
    ) -> None:
        # A failed task has no summary.
        tasks = [message for message in messages if isinstance(message, TaskSummary)]
        what = " ".join([self._sink.name, *(f"{name} {one}" for name, one in labels.items())])
        settings = self._sink.sending
        if is_done:
            announce(what, tasks, settings.summary_path, **labels)
        elif tasks:
            announce(f"{what} failed, and these of its tasks had sent all of theirs", tasks, None)
        if is_done and settings.most_groups:
            check_groups(tasks)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Sends a DataFrame once."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        # Retries of tasks share it; another write, or a second run of this one, does not.
        self._job = str(uuid.uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskSummary:
        """Send a partition, on an executor."""
        return _written(self._sink, self._job, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Announce the counts. Raises SplitGroups."""
        self._ended(messages, is_done=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Announce the counts."""
        self._ended(messages, is_done=False)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Sends each micro-batch of a query."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskSummary:
        """Send a partition of a micro-batch, on an executor."""
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        return _written(self._sink, f"{query}|{batch}", iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Announce the counts. Raises SplitGroups."""
        self._ended(messages, is_done=True, batch=batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Announce the counts: the batch will be sent again."""
        self._ended(messages, is_done=False, batch=batchId)
