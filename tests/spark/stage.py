"""The stage of a row of the guide to trouble: a queue, a spool, and the words of the row."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from spark_connectors.errors import ConnectorError
from spark_connectors.sink.deduplication import Identity
from spark_connectors.sink.message_columns import find_columns
from spark_connectors.sink.message_sink import Messages, MessageSinkPlan
from spark_connectors.sink.sender import SendTotals
from spark_connectors.sink.sink_options import queue_settings
from spark_connectors.sink.writers import send
from spark_connectors.spool.spool import SegmentPlace, segment_name
from spark_connectors.transport.aws import open_transport
from tests.spark.clocks import Clock
from tests.spark.queues import bodies_of, counts, fill, queue_with
from tests.spark.readers import Run, reader_of
from tests.spark.waiting import wait_for

COUNT = 10


class Stage:
    """A queue with COUNT messages, a place for its spool, and the row that is played."""

    def __init__(self, row: str, request: pytest.FixtureRequest) -> None:
        self.request = request
        self.gateway: str = request.getfixturevalue("gateway")
        self.make_queue: Callable[..., str] = request.getfixturevalue("make_queue")
        self.here: Path = request.getfixturevalue("tmp_path")
        self.spool = self.here / "spool"
        self.pattern = ".*".join(re.escape(part) for part in row.split("…"))
        self.url = queue_with(COUNT, self.gateway, self.make_queue)

    @property
    def given(self) -> dict[str, str]:
        return {"endpointUrl": self.gateway, "queueUrl": self.url, "waitTimeSeconds": "1"}

    @contextmanager
    def says(self) -> Iterator[list[str]]:
        """Expect an error with the words of the row; the error is in the list."""
        said: list[str] = []
        with pytest.raises(ConnectorError) as raised:
            yield said
        said.append(f"{type(raised.value).__name__}: {raised.value}")
        assert re.match(self.pattern, said[0]), said

    def run(self, start: dict[str, Any] | None = None, **options: Any) -> Run:
        return Run(reader_of(self.gateway, self.url, self.spool, **options), start)

    def more(self, *bodies: str) -> None:
        fill(self.gateway, self.url, list(bodies))

    def goes_on(self, run: Run, *bodies: str) -> None:
        """The stream gives these, or one more that is sent now."""
        if not bodies:
            bodies = ("one more",)
            self.more(*bodies)
        found: list[str] = []
        while len(found) < len(bodies):
            end = run.plan_some()
            # None, where something was left out.
            found += [row["body"] for rows in run.rows(run.offset, end) for row in rows]
            run.offset = end
        assert sorted(found) == sorted(bodies)

    def ran(self, **options: Any) -> dict[str, Any]:
        """The offset behind a query that has read all, and that the spool knows to be committed."""
        run = self.run(**options)
        self.goes_on(run, *bodies_of(COUNT))
        assert run.plan() == run.offset
        wait_for(lambda: list((self.spool / "acknowledged").glob("*")))
        wait_for(lambda: counts(self.gateway, self.url) == (0, 0))
        run.reader.stop()
        return run.offset

    def planned(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start and end of the first batch, which has all; its driver is gone."""
        run = self.run(**options)
        start, end = run.offset, run.plan_some()
        assert sum(len(rows) for rows in run.rows(start, end)) == COUNT
        if options.get("deleteMode") == "spool":
            wait_for(lambda: list((self.spool / "done").glob("*")))
            wait_for(lambda: counts(self.gateway, self.url) == (0, 0))
        run.reader.stop()
        return start, end

    def damage(self, seq: int = 1) -> None:
        file = self.spool / segment_name(SegmentPlace(seq))
        shutil.copy(file, self.here / "copy")
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)

    def put_back(self, seq: int = 1) -> None:
        shutil.copy(self.here / "copy", self.spool / segment_name(SegmentPlace(seq)))

    def later(self) -> None:
        """Advance the clock until no message is in flight."""
        clock: Clock = self.request.getfixturevalue("clock")
        clock.advance(1_000)
        wait_for(lambda: counts(self.gateway, self.url)[1] == 0)

    def write(self, columns: Mapping[str, object], **options: object) -> SendTotals:
        """Send one partition of these columns."""
        table = pa.table(columns)
        given = {"endpointUrl": self.gateway, "queueUrl": self.url}
        given |= {name: str(value) for name, value in options.items()}
        settings = queue_settings(given)
        plan = MessageSinkPlan(
            "test", settings, find_columns(from_arrow_schema(table.schema), settings)
        )
        transport = open_transport(settings.connection)
        try:
            target = Messages(plan, Identity("job", 0), transport)
            return send(target, plan.manner, table.to_batches())
        finally:
            transport.close()


PLAYS: dict[str, Callable[[Stage], None]] = {}


def play(row: str) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
    """Register the function that provokes the sentence of that row and takes the way out."""

    def noted(function: Callable[[Stage], None]) -> Callable[[Stage], None]:
        PLAYS[row] = function
        return function

    return noted
