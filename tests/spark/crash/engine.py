"""A model of Spark's micro-batches without a JVM: the same calls in the same order, the same two
logs, a sink that writes a batch once. It starts in a second, so it can be killed very often.

    python -m tests.spark.crash.engine JOB.json
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from spark_connectors.log.log_readers import LogStreamReader
from spark_connectors.source.queue_stream_reader import QueueStreamReader
from tests.spark.clocks import Clock
from tests.spark.crash.jobs import Job
from tests.spark.crash.sources import dying

Row = tuple[str, str | None, str | None]
Reader = QueueStreamReader | LogStreamReader
# Of the time that a slow sink takes.
_STEPS = 10


class Log:
    """Numbered files, each written once and whole."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def last(self) -> int:
        """The highest number, or -1."""
        names = (entry.name for entry in self._directory.iterdir())
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def add(self, number: int, content: Any) -> None:
        """Raises FileExistsError when another process was first."""
        temporary = self._directory / f".{os.getpid()}"
        temporary.write_text(json.dumps(content))
        os.link(temporary, self._directory / str(number))
        temporary.unlink()

    def get(self, number: int) -> Any:
        return json.loads((self._directory / str(number)).read_text())

    def __iter__(self) -> Iterator[Any]:
        return (self.get(number) for number in range(self.last + 1))


class Engine:
    """One query, from its checkpoint on."""

    def __init__(self, job: Job) -> None:
        source = dying(job.options)
        self._columns = source.row_columns
        schema = source.schema()
        self._planner = cast("Reader", source.streamReader(schema))
        self._executed = pickle.dumps(cast("Reader", source.streamReader(schema)))
        self._offsets = Log(Path(job.checkpoint) / "offsets")
        self._commits = Log(Path(job.checkpoint) / "commits")
        self._table = Log(Path(job.table))
        self._is_available_now = job.is_available_now
        self._batch_seconds = job.batch_seconds
        self._clock = Clock.here(job.options["endpointUrl"])
        self._idle = threading.Event()

    def run(self) -> None:
        """Until it is idle (AvailableNow), otherwise until it is killed."""
        planner = self._planner
        limit = planner.getDefaultReadLimit()
        if self._is_available_now:
            planner.prepareForTriggerAvailableNow()
        number = self._offsets.last
        start = self._offsets.get(number - 1) if number > 0 else None
        if number >= 0:
            if number != self._commits.last:
                self._batch(number, start or planner.initialOffset(), self._offsets.get(number))
            start = self._offsets.get(number)
        while True:
            start = start or planner.initialOffset()
            end = planner.latestOffset(start, limit)
            if end != start:
                number += 1
                self._offsets.add(number, end)
                if number:
                    planner.commit(start)
                self._batch(number, start, end)
                start = end
            elif self._is_available_now:
                return
            else:
                self._idle.wait(0.01)

    def _batch(self, number: int, start: dict[str, Any], end: dict[str, Any]) -> None:
        # A sink that knows the batch does not run the plan again.
        if number > self._table.last:
            tasks = [pickle.dumps(one) for one in self._planner.partitions(start, end)]
            with ThreadPoolExecutor(2) as executors:
                found = list(executors.map(self._task, tasks))
            self._take(self._batch_seconds)
            self._table.add(number, found)
        self._commits.add(number, {})

    def _take(self, seconds: float) -> None:
        """Let that much time pass, quickly, but so that those who receive have a turn meanwhile."""
        for _ in range(_STEPS if seconds else 0):
            self._clock.advance(seconds / _STEPS)
            self._idle.wait(0.02)

    def _task(self, pickled: bytes) -> list[Row]:
        reader: Reader = pickle.loads(self._executed)
        task: InputPartition = pickle.loads(pickled)
        rows: list[Row] = []
        for batch in reader.read(task):
            texts = (batch.column(name).cast(pa.string()) for name in self._columns)
            rows += zip(*(column.to_pylist() for column in texts), strict=True)
        return rows


def rows_of(table: Path) -> list[Row]:
    """The rows in the order of batches, partitions, and within these."""
    return [tuple(row) for batch in Log(table) for part in batch for row in part]


if __name__ == "__main__":
    Engine(Job.read(Path(sys.argv[1]))).run()
