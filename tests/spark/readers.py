"""Drive a stream reader as Spark does, without a JVM: offsets, tasks, commits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from spark_connectors.source.queue_options import stream_options
from spark_connectors.source.queue_stream_reader import QueueStreamReader
from tests.spark.queues import counts, fill
from tests.spark.waiting import wait_for

Rows = list[dict[str, Any]]
_made: list[QueueStreamReader] = []


def reader_of(endpoint: str, url: str, spool: Path | None, **options: object) -> QueueStreamReader:
    """A reader as a new driver process makes it."""
    given = {"endpointUrl": endpoint, "queueUrl": url, "region": "us-east-1", "minPartitions": "2"}
    if spool is not None:
        given["spoolPath"] = str(spool)
    read = stream_options(given | {name: str(value) for name, value in options.items()})
    _made.append(QueueStreamReader(read))
    return _made[-1]


def stop_readers() -> None:
    """Stop every reader that was made, also those that a test has stopped."""
    while _made:
        _made.pop().stop()


def batches(reader: QueueStreamReader, task: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a reader for a task."""
    for batch in reader.read(task):
        assert isinstance(batch, pa.RecordBatch)
        yield batch


class Place(NamedTuple):
    """A queue, and a directory for its spool."""

    endpoint: str
    url: str
    spool: Path

    def fill(self, bodies: list[str], **how: Any) -> None:
        """Send these bodies, as ``queues.fill`` does."""
        fill(self.endpoint, self.url, bodies, **how)

    def counts(self) -> tuple[int, int]:
        """Messages visible and in flight."""
        return counts(self.endpoint, self.url)

    def at(self, spool: Path) -> Place:
        """The same queue, with another spool."""
        return self._replace(spool=spool)

    def reader(self, **options: object) -> QueueStreamReader:
        """A reader as a new driver process makes it."""
        return reader_of(self.endpoint, self.url, self.spool, **options)

    def run(self, *start: dict[str, Any], **options: object) -> Run:
        """One life of a driver with such a reader."""
        return Run(self.reader(**options), *start)


class Run:
    """One life of a driver. ``start``: the offset in its checkpoint, None for a new one."""

    def __init__(self, reader: QueueStreamReader, start: dict[str, Any] | None = None) -> None:
        self.reader = reader
        self.offset = reader.initialOffset() if start is None else start

    def plan(self) -> dict[str, Any]:
        """Return the end of the next batch; the present offset when there is none."""
        found: dict[str, Any] = self.reader.latestOffset(
            self.offset, self.reader.getDefaultReadLimit()
        )
        return found

    def plan_some(self) -> dict[str, Any]:
        """Wait for a batch and return its end: a single question waits only a moment."""
        found: list[dict[str, Any]] = []

        def is_there() -> bool:
            found.append(self.plan())
            return found[-1] != self.offset

        wait_for(is_there)
        return found[-1]

    def rows(self, start: dict[str, Any], end: dict[str, Any]) -> list[Rows]:
        """The rows of each task, read by a reader of another process, so to speak."""
        executor = type(self.reader)(self.reader.options)
        return [
            [row for batch in batches(executor, task) for row in batch.to_pylist()]
            for task in self.reader.partitions(start, end)
        ]

    def next_batch(self, polls: int = 100) -> list[Rows]:
        """Plan, read and commit a batch; nothing when so many questions found nothing."""
        for _ in range(polls):
            end = self.plan()
            if end != self.offset:
                found = self.rows(self.offset, end)
                self.offset = end
                return found
        return []

    def all_rows(self, count: int) -> Rows:
        """That many rows, in the order of batches."""
        return list(self._until(count))

    def _until(self, count: int) -> Iterator[dict[str, Any]]:
        seen = 0
        while seen < count:
            batch = self.next_batch()
            assert batch, f"{seen} of {count} rows, and then nothing"
            for rows in batch:
                seen += len(rows)
                yield from rows
