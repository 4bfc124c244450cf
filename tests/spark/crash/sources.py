"""The queue source with points to die at, around the calls to its store and its queue."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from spark_connectors.data_sources import LogDataSource, SqsDataSource
from spark_connectors.errors import Fault
from spark_connectors.log.log_options import stream_options as log_options
from spark_connectors.log.log_readers import LogStreamReader
from spark_connectors.source.queue_options import stream_options
from spark_connectors.source.queue_stream_reader import QueueStreamReader
from spark_connectors.stores import HIDDEN, LocalStore, Store
from spark_connectors.transport import Message, Transport
from tests.spark import clocks
from tests.spark.crash.points import Points

# Every process of a job that reads the queue imports this.
clocks.follow()


class DyingStore:
    """A directory; ``before X``, ``half X``, ``after X`` and ``removed X`` are its points, X being
    the first part of a name: segments, done, ids, acknowledged."""

    def __init__(self, root: str, points: Points) -> None:
        self._root = Path(root)
        self._points = points
        self._writing = threading.local()
        self._inner = LocalStore(root, self._probe)

    def _probe(self, step: str) -> None:
        if step == "written" and self._points.is_now(f"half {self._writing.kind}"):
            for entry in self._root.iterdir():
                if entry.name.startswith(HIDDEN):
                    with open(entry, "r+b") as file:
                        file.truncate(entry.stat().st_size // 2)
            self._points.act()

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        kind = name.partition("/")[0]
        self._writing.kind = kind
        self._points.reach(f"before {kind}")
        is_ours = self._inner.put_if_absent(name, data)
        self._points.reach(f"after {kind}")
        return is_ours

    def get(self, name: str) -> bytes:
        return self._inner.get(name)

    def part(self, name: str, start: int, stop: int | None = None) -> bytes:
        return self._inner.part(name, start, stop)

    def names(self, prefix: str) -> list[str]:
        return self._inner.names(prefix)

    def sizes(self, prefix: str) -> dict[str, int]:
        return self._inner.sizes(prefix)

    def remove(self, name: str) -> None:
        self._inner.remove(name)
        self._points.reach(f"removed {name.partition('/')[0]}")


class DyingTransport:
    """A transport; its points are ``received``, ``before delete`` and ``deleted``."""

    def __init__(self, inner: Transport, points: Points) -> None:
        self._inner = inner
        self._points = points

    def receive(self, queue_url: str, **how: Any) -> list[Message]:
        messages = self._inner.receive(queue_url, **how)
        if messages:
            self._points.reach("received")
        return messages

    def delete(self, queue_url: str, receipts: Sequence[str]) -> list[Fault | None]:
        self._points.reach("before delete")
        number = self._points.fails_delete()
        if number is not None:
            return [Fault("InternalError", "as planned", number % 2 == 0) for _ in receipts]
        faults = self._inner.delete(queue_url, receipts)
        self._points.reach("deleted")
        return faults

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


class DyingReader(QueueStreamReader):
    """Points of the reader: ``planned`` (Spark's offset log has the batch), ``read``, and
    ``committed`` (Spark has committed a batch, and we have not heard of it)."""

    def open_store(self) -> Store:
        path = self.options.spool_path
        return DyingStore(path, Points()) if path.startswith("/") else super().open_store()

    def open_transport(self) -> Transport:
        return cast("Transport", DyingTransport(super().open_transport(), Points()))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        Points().reach("planned")
        return super().partitions(start, end)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        if start["seq"]:
            Points().reach("committed")
        return super().latestOffset(start, limit)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from super().read(partition)
        Points().reach("read")


class DyingSqs(SqsDataSource):
    """Format ``dying``."""

    row_columns = ("body", "message_group_id", "sequence_number")

    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return DyingReader(stream_options(self.options))


class DyingLogReader(LogStreamReader):
    """Points of a log's reader: ``planned``, ``read`` and ``committed``, as above."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        Points().reach("planned")
        return super().partitions(start, end)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        if start:
            Points().reach("committed")
        return super().latestOffset(start, limit)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from super().read(partition)
        Points().reach("read")


class DyingLog(LogDataSource):
    """The same of a log."""

    row_columns = ("value", "key", "offset")

    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return DyingLogReader(log_options(self.options))


def dying(options: dict[str, str]) -> DyingSqs | DyingLog:
    """The source that these options are for."""
    return DyingLog(options) if "subscribe" in options else DyingSqs(options)
