"""Assumptions of the queue source about Spark: run with every version of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.clocks import Clock
from tests.spark.crash.recording import Recording, RecordingSqs
from tests.spark.crash.tables import parquet_rows
from tests.spark.queues import client_of, counts, fill
from tests.spark.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.every_version
COUNT = 150
BATCH = 10
VISIBILITY_SECONDS = 60


class Query:
    """A stream with a recording, into a table of Parquet."""

    def __init__(self, spark: SparkSession, endpoint: str, url: str, directory: Path) -> None:
        self._spark = spark
        self._options = {
            "endpointUrl": endpoint,
            "region": "us-east-1",
            "queueUrl": url,
            "spoolPath": str(directory / "spool"),
            "maxOffsetsPerTrigger": str(BATCH),
            "visibilityTimeout": str(VISIBILITY_SECONDS),
            "waitTimeSeconds": "1",
        }
        self.directory = directory
        self.recording = Recording(str(directory / "spool"))
        spark.dataSource.register(RecordingSqs)

    def start(self, *, is_available_now: bool = False) -> StreamingQuery:
        """Run it."""
        frame = self._spark.readStream.format("recording").options(**self._options).load()
        writer = frame.writeStream.option("checkpointLocation", str(self.directory / "checkpoint"))
        if is_available_now:
            writer = writer.trigger(availableNow=True)
        return writer.start(str(self.directory / "table"), format="parquet")

    def run(self) -> StreamingQuery:
        """Run it as far as there is something."""
        query = self.start(is_available_now=True)
        assert query.awaitTermination(200)
        assert query.exception() is None
        return query

    def rows(self) -> list[str]:
        """The bodies in the table."""
        return [body for body, _, _ in parquet_rows(self.directory / "table")]

    def has_more_than(self, count: int) -> bool:
        """Return True if the table has more rows than that."""
        return len(self.rows()) > count

    def ends(self) -> dict[int, int]:
        """Batches by the segment with which they end."""
        found = {}
        for entry in (self.directory / "checkpoint/offsets").iterdir():
            if entry.name.isdigit():
                offset = json.loads(entry.read_text().splitlines()[-1])
                found[int(offset["seq"])] = int(entry.name)
        return found


@pytest.fixture(scope="module")
def ran(
    spark: SparkSession, gateway: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Query, StreamingQuery]:
    """A query that has read everything in batches, and what it sent."""
    created = client_of("sqs", gateway).create_queue(QueueName="spark-invariants")
    fill(gateway, created["QueueUrl"], [f"{number}" for number in range(COUNT)])
    query = Query(spark, gateway, created["QueueUrl"], tmp_path_factory.mktemp("ran"))
    run = query.run()
    assert counts(gateway, created["QueueUrl"]) == (0, 0)
    return query, run


def test_a_batch_is_committed_before_its_end_is_a_start(ran: tuple[Query, StreamingQuery]) -> None:
    query, _ = ran
    ends = query.ends()
    asked = [call for call in query.recording.calls("latestOffset") if call["start"]["seq"]]
    assert len(asked) >= COUNT // BATCH
    for call in asked:
        assert ends[call["start"]["seq"]] in call["committed"], call


def test_nobody_says_that_the_last_batch_is_committed(ran: tuple[Query, StreamingQuery]) -> None:
    query, _ = ran
    last = max(query.ends())
    said = [call["end"]["seq"] for call in query.recording.calls("commit")]
    assert said
    assert last not in said
    # This is how we know.
    assert query.recording.calls("latestOffset")[-1]["start"]["seq"] == last


def test_commit_is_no_earlier_than_the_commit(ran: tuple[Query, StreamingQuery]) -> None:
    query, _ = ran
    ends = query.ends()
    for call in query.recording.calls("commit"):
        assert ends[call["end"]["seq"]] in call["committed"], call


def test_the_end_is_announced_before_anything_is_asked(ran: tuple[Query, StreamingQuery]) -> None:
    query, _ = ran
    assert query.recording.calls()[0]["name"] == "prepare"


def test_the_initial_offset_is_the_same_however_often_it_is_asked(
    ran: tuple[Query, StreamingQuery],
) -> None:
    query, _ = ran
    offsets = [call["offset"] for call in query.recording.calls("initialOffset")]
    assert offsets
    assert all(offset == offsets[0] for offset in offsets)
    assert offsets[0]["seq"] == 0


def test_one_process_answers_and_others_read(ran: tuple[Query, StreamingQuery]) -> None:
    query, _ = ran
    answering = {call["process"] for call in query.recording.calls("latestOffset", "partitions")}
    reads = query.recording.calls("read")
    assert len(answering) == 1
    assert reads
    assert not answering & {call["process"] for call in reads}
    assert not any(call["is_open"] for call in reads)


def test_tasks_know_their_batch_and_query(ran: tuple[Query, StreamingQuery]) -> None:
    query, run = ran
    reads = query.recording.calls("read")
    assert {call["query"] for call in reads} == {str(run.id)}
    assert {int(call["batch"]) for call in reads} == set(query.ends().values())


def test_the_table_is_read_as_spark_reads_it(
    ran: tuple[Query, StreamingQuery], spark: SparkSession
) -> None:
    """The tests of crashes rely on it; the log of this table has been compacted."""
    query, _ = ran
    found = spark.read.parquet(str(query.directory / "table")).collect()
    bodies = sorted(row.body for row in found)
    assert sorted(query.rows()) == bodies
    assert bodies == sorted(f"{number}" for number in range(COUNT))


def test_a_query_that_is_stopped_goes_on(
    spark: SparkSession,
    gateway: str,
    make_queue: Callable[..., str],
    clock: Clock,
    tmp_path: Path,
) -> None:
    """A new query continues a begun batch, even if Spark never calls ``stop`` on the source."""
    url = make_queue(gateway)
    query = Query(spark, gateway, url, tmp_path)
    sent = [f"{number}" for number in range(80)]
    for part in (sent[:40], sent[40:]):
        running = query.start()
        before = query.rows()
        fill(gateway, url, part)
        # In the middle of it, whatever that is.
        wait_for(partial(query.has_more_than, len(before)))
        running.stop()
    clock.advance(VISIBILITY_SECONDS + 1)
    wait_for(lambda: counts(gateway, url)[1] == 0)
    query.run()
    assert sorted(query.rows()) == sorted(sent)
    assert counts(gateway, url) == (0, 0)
