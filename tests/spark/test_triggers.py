"""When a batch begins and how large it is; and what a query's progress says of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_connectors.options import BadOption
from spark_connectors.source.queue_options import stream_options
from tests.spark.clocks import Clock
from tests.spark.queues import bodies_of, counts, fill, queue_with
from tests.spark.readers import Run, reader_of
from tests.spark.test_stream import run_available, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Maker = Callable[..., str]
FIELDS = {
    *("queue", "seq", "visible", "notVisible", "delayed", "behind", "oldestAgeSeconds"),
    *("received", "redeliveriesDropped", "rememberedIds", "prefetchedRows", "spoolBytes"),
    *("pendingDeletes", "lastError"),
}


def run_of(endpoint: str, url: str, spool: Path, **options: object) -> Run:
    return Run(reader_of(endpoint, url, spool, waitTimeSeconds=1, **options))


def report(run: Run) -> dict[str, Any]:
    found = run.reader.reportLatestOffset()
    assert found is not None
    return found


def test_its_progress_is_true(
    gateway: str, make_queue: Maker, tmp_path: Path, clock: Clock
) -> None:
    url = make_queue(gateway)
    fill(gateway, url, ["old"])
    clock.advance(100)
    fill(gateway, url, bodies_of(99))
    options = {"maxOffsetsPerTrigger": 40, "receiveThreads": 1, "maxPrefetchBatches": 0}
    run = run_of(gateway, url, tmp_path, deleteMode="commit", **options)
    run.reader.prepareForTriggerAvailableNow()
    found = []
    seen = 0
    while (end := run.plan()) != run.offset:
        found.append(report(run))
        seen += sum(len(rows) for rows in run.rows(run.offset, end))
        run.offset = end
    assert seen == 100
    assert counts(gateway, url) == (0, 0)
    assert [one["behind"] for one in found] == [60, 20, 0]
    assert [one["seq"] for one in found] == [1, 2, 3]
    assert all(one.keys() == FIELDS for one in found)
    assert {one["queue"] for one in found} == {url.rpartition("/")[2]}
    # Nothing is deleted before it is committed.
    assert 100 <= found[0]["oldestAgeSeconds"] < 160


def test_an_endpoint_that_knows_no_age_is_asked_once(
    moto: str, make_queue: Maker, tmp_path: Path
) -> None:
    url = queue_with(3, moto, make_queue)
    run = run_of(moto, url, tmp_path)
    run.plan_some()
    assert report(run)["oldestAgeSeconds"] is None
    assert run.reader._gauge._service is None


def test_spark_shows_it(
    spark: SparkSession, gateway: str, make_queue: Maker, tmp_path: Path
) -> None:
    url = queue_with(100, gateway, make_queue)
    options = {"maxOffsetsPerTrigger": 40}
    progress = run_available(stream(spark, gateway, url, tmp_path / "spool", **options), tmp_path)
    found = [json.loads(one["sources"][0]["latestOffset"]) for one in progress]
    assert all(one.keys() == FIELDS for one in found)
    assert found[-1]["behind"] == 0


def test_once_reads_what_is_there(
    spark: SparkSession, gateway: str, make_queue: Maker, tmp_path: Path
) -> None:
    url = queue_with(130, gateway, make_queue)
    options = {"maxOffsetsPerTrigger": 40, "minOffsetsPerTrigger": 30}
    for count in (130, 150):
        query = (
            stream(spark, gateway, url, tmp_path / "spool", **options)
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("path", str(tmp_path / "table"))
            .trigger(once=True)
            .start()
        )
        assert query.awaitTermination(240)
        assert query.exception() is None
        assert spark.read.parquet(str(tmp_path / "table")).count() == count
        fill(gateway, url, [f"later {number}" for number in range(20)])
    found = {row.body for row in spark.read.parquet(str(tmp_path / "table")).collect()}
    assert found == {*bodies_of(130), *(f"later {number}" for number in range(20))}


@pytest.mark.parametrize("fifo", [False, True])
def test_once_is_one_batch(gateway: str, make_queue: Maker, tmp_path: Path, fifo: bool) -> None:
    url = make_queue(gateway, fifo=fifo)
    group = (lambda body: f"g{int(body.split()[1]) % 30}") if fifo else None
    fill(gateway, url, bodies_of(90), group=group)
    more = {"minPartitions": 1} if fifo else {}
    run = run_of(gateway, url, tmp_path, maxOffsetsPerTrigger=25, **more)
    end = run.reader.latestOffset(run.offset, ReadAllAvailable())
    rows = [row["body"] for rows in run.rows(run.offset, end) for row in rows]
    assert sorted(rows) == sorted(bodies_of(90))


def test_once_takes_no_more_than_may_be_in_flight(
    gateway: str, make_queue: Maker, tmp_path: Path
) -> None:
    url = queue_with(60, gateway, make_queue)
    options = {"maxInFlight": 30, "receiveThreads": 1, "deleteMode": "commit"}
    run = run_of(gateway, url, tmp_path, **options)
    end = run.reader.latestOffset(run.offset, ReadAllAvailable())
    assert sum(len(rows) for rows in run.rows(run.offset, end)) == 30


def test_a_batch_waits_for_as_many_as_it_needs(
    gateway: str, make_queue: Maker, tmp_path: Path
) -> None:
    url = queue_with(5, gateway, make_queue)
    options = {"minOffsetsPerTrigger": 20, "maxTriggerDelay": "1h", "receiveThreads": 1}
    run = run_of(gateway, url, tmp_path, **options)
    # As in Kafka's source, the first one is not delayed.
    seen = sum(len(rows) for rows in run.next_batch())
    assert seen >= 1
    fill(gateway, url, [f"more {number}" for number in range(10)])
    for _ in range(15):
        assert run.plan() == run.offset
    fill(gateway, url, [f"and more {number}" for number in range(10)])
    rows = run.all_rows(25 - seen)
    assert len(rows) == 25 - seen


def test_a_batch_does_not_wait_for_ever(gateway: str, make_queue: Maker, tmp_path: Path) -> None:
    url = queue_with(1, gateway, make_queue)
    options = {"minOffsetsPerTrigger": 20, "maxTriggerDelay": "300ms"}
    run = run_of(gateway, url, tmp_path, **options)
    run.all_rows(1)
    fill(gateway, url, ["two"])
    assert [row["body"] for row in run.all_rows(1)] == ["two"]


@pytest.mark.parametrize(
    ("text", "found"), [("15m", 900), ("90", 90), ("1500ms", 1.5), ("2h", 7200), ("1d", 86400)]
)
def test_delays_are_written_as_in_kafka(text: str, found: float) -> None:
    given = {"queueUrl": "http://q/1/q", "spoolPath": "/spool", "maxTriggerDelay": text}
    assert stream_options(given).trigger_delay_seconds == found


@pytest.mark.parametrize(
    "wrong",
    [{"maxTriggerDelay": "soon"}, {"maxTriggerDelay": "0"}, {"minOffsetsPerTrigger": 20_000}],
)
def test_what_is_no_trigger_is_refused(wrong: dict[str, object]) -> None:
    given = {"queueUrl": "http://q/1/q", "spoolPath": "/spool"}
    with pytest.raises(BadOption, match=next(iter(wrong))):
        stream_options(given | {name: str(value) for name, value in wrong.items()})
