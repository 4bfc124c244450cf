"""The queue source that writes down what Spark asks it, and what was on disk at that moment."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from spark_connectors.data_sources import SqsDataSource
from spark_connectors.source.queue_options import stream_options
from spark_connectors.source.queue_stream_reader import QueueStreamReader
from tests.spark import clocks

Call = dict[str, Any]
# Every process of a query that reads the queue imports this.
clocks.follow()


class Recording:
    """Calls in the order in which they came. It lies beside the spool, and so does the checkpoint:
    that is how every process finds both."""

    def __init__(self, spool: str) -> None:
        self._file = Path(f"{spool}.calls")
        self._commits = Path(spool).parent / "checkpoint/commits"

    def add(self, name: str, **more: object) -> None:
        """Write down a call."""
        committed = sorted(int(e.name) for e in self._commits.glob("*") if e.name.isdigit())
        call = {"name": name, "process": os.getpid(), "committed": committed, **more}
        with open(self._file, "ab", buffering=0) as file:
            file.write(json.dumps(call).encode() + b"\n")

    def calls(self, *names: str) -> list[Call]:
        """Those of these names, or all."""
        found = [json.loads(line) for line in self._file.read_text().splitlines()]
        return [call for call in found if not names or call["name"] in names]


class RecordingReader(QueueStreamReader):
    @property
    def _recording(self) -> Recording:
        return Recording(self.options.spool_path)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._recording.add("prepare")
        super().prepareForTriggerAvailableNow()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        found = super().initialOffset()
        self._recording.add("initialOffset", offset=found)
        return found

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        self._recording.add("latestOffset", start=start)
        return super().latestOffset(start, limit)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._recording.add("partitions", start=start, end=end)
        return super().partitions(start, end)

    def commit(self, end: dict[str, Any]) -> None:
        self._recording.add("commit", end=end)
        super().commit(end)

    def stop(self) -> None:
        self._recording.add("stop")
        super().stop()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        self._recording.add(
            "read",
            is_open=self._opened,
            thread=threading.get_ident(),
            batch=context.getLocalProperty("streaming.sql.batchId"),
            query=context.getLocalProperty("sql.streaming.queryId"),
        )
        return super().read(partition)


class RecordingSqs(SqsDataSource):
    """Format ``recording``."""

    @classmethod
    def name(cls) -> str:
        return "recording"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return RecordingReader(stream_options(self.options))
