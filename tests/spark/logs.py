"""Steps on a log without the connectors, and reads of one without a JVM."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_connectors.log.log_api import LogCalls
from spark_connectors.log.log_batch_reader import batch_reader
from spark_connectors.log.log_options import batch_options, stream_options
from spark_connectors.log.log_stream_reader import LogStreamReader
from spark_connectors.transport.aws import Connection
from spark_connectors.transport.http import json_text
from tests.spark.waiting import wait_for

Rows = list[dict[str, Any]]
_MOST = 500
_names = itertools.count()


def new_name() -> str:
    """Return an unused name of a log."""
    return f"log-{os.getpid()}-{next(_names)}"


def calls_of(endpoint: str) -> LogCalls:
    """Calls as the connectors make them."""
    return LogCalls(Connection(endpoint, "us-east-1"))


def ask(endpoint: str, method: str, path: str, body: object = None) -> Any:
    """Any other call below /v1/logs."""
    return calls_of(endpoint)._json(method, path, b"" if body is None else json_text.dumps(body))


def publish(endpoint: str, log: str, records: Iterable[tuple[str, str]], **members: object) -> None:
    """Keys and payloads, in this order; ``members`` are of each."""
    calls = calls_of(endpoint)
    made = [json_text.dumps({"key": key, "payload": one, **members}) for key, one in records]
    for at in range(0, len(made), _MOST):
        calls.publish(log, made[at : at + _MOST])


def log_with(count: int, endpoint: str, *, keys: int = 1) -> str:
    """A new log of so many records, by turns of so many keys."""
    log = new_name()
    publish(endpoint, log, [(f"k{one % keys}", f"value {one}") for one in range(count)])
    return log


def _given(endpoint: str, options: dict[str, object]) -> dict[str, str]:
    texts = {name: str(value) for name, value in options.items()}
    place = {"endpointUrl": endpoint} if endpoint else {}
    return {**place, "region": "us-east-1", **texts}


def batch_of(endpoint: str, **options: object) -> DataSourceReader:
    """A batch of these options."""
    return batch_reader(batch_options(_given(endpoint, options)))


def rows_of(reader: DataSourceReader | LogStreamReader, tasks: Iterable[InputPartition]) -> Rows:
    """The rows of these tasks."""
    return list(_rows(reader, tasks))


def _rows(
    reader: DataSourceReader | LogStreamReader, tasks: Iterable[InputPartition]
) -> Iterator[dict[str, Any]]:
    for task in tasks:
        for batch in reader.read(task):
            assert hasattr(batch, "to_pylist")
            yield from batch.to_pylist()


def batch_rows(endpoint: str, **options: object) -> Rows:
    """All rows of a batch."""
    reader = batch_of(endpoint, **options)
    return rows_of(reader, reader.partitions())


def values_of(rows: Rows) -> list[str]:
    return [row["value"].decode() for row in rows]


class LogRun:
    """One life of a driver. ``start``: the offset in its checkpoint."""

    def __init__(
        self, endpoint: str, start: dict[str, Any] | None = None, /, **options: object
    ) -> None:
        self.reader = LogStreamReader(stream_options(_given(endpoint, options)))
        self.offset = self.reader.initialOffset() if start is None else start

    def plan(self) -> dict[str, Any]:
        """Return the end of the next batch."""
        return self.reader.latestOffset(self.offset, self.reader.getDefaultReadLimit())

    def begin(self) -> None:
        """The first batch, which has nothing and says where the query begins."""
        end = self.plan()
        assert self.reader.partitions(self.offset, end) == []
        self.offset = end

    def rows(self, end: dict[str, Any]) -> Rows:
        """Those up to there."""
        return rows_of(self.reader, self.reader.partitions(self.offset, end))

    def next_rows(self) -> Rows:
        """Those of the next batch, which is committed; none when there is nothing."""
        end = self.plan()
        if end == self.offset:
            return []
        found = self.rows(end)
        self.offset = end
        self.reader.commit(end)
        return found

    def some_rows(self) -> Rows:
        """The same when there is something, which may take a moment."""
        found: Rows = []

        def is_there() -> bool:
            found.extend(self.next_rows())
            return bool(found)

        wait_for(is_there)
        return found
