"""A queue as a stream: every message once, deleted when it may be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_connectors.data_sources import SqsDataSource
from tests.spark.queues import counts, fill
from tests.spark.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def stream(spark: SparkSession, endpoint: str, url: str, spool: Path, **options: Any) -> DataFrame:
    """The queue as a stream."""
    spark.dataSource.register(SqsDataSource)
    reader = spark.readStream.format("sqs").options(
        endpointUrl=endpoint, queueUrl=url, spoolPath=str(spool), region="us-east-1"
    )
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def run_available(frame: DataFrame, where: Path) -> list[Any]:
    """Run the stream as far as there is something; its progress."""
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(where / "checkpoint"))
        .option("path", str(where / "table"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(240)
    assert query.exception() is None
    return list(query.recentProgress)


def test_every_message_once(
    spark: SparkSession,
    endpoint: str,
    make_queue: Callable[..., str],
    tmp_path: Path,
) -> None:
    url = make_queue(endpoint)
    bodies = [f"body {number}" for number in range(200)]
    fill(endpoint, url, bodies)
    options = {"maxOffsetsPerTrigger": 60}
    progress = run_available(stream(spark, endpoint, url, tmp_path / "spool", **options), tmp_path)
    rows = spark.read.parquet(str(tmp_path / "table")).collect()
    assert sorted(row.body for row in rows) == sorted(bodies)
    assert {row.queue for row in rows} == {url.rpartition("/")[2]}
    assert max(one["numInputRows"] for one in progress) <= 60
    assert counts(endpoint, url) == (0, 0)
    assert json.loads(progress[-1]["sources"][0]["latestOffset"])["seq"] >= 4


def test_a_running_stream_gets_what_is_sent(
    spark: SparkSession, gateway: str, make_queue: Callable[..., str], tmp_path: Path
) -> None:
    url = make_queue(gateway)
    query = (
        stream(spark, gateway, url, tmp_path / "spool")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .option("path", str(tmp_path / "table"))
        .start()
    )
    try:
        for part in range(3):
            bodies = [f"{part}-{number}" for number in range(30)]
            fill(gateway, url, bodies)
            wait_for(lambda: counts(gateway, url) == (0, 0))
    finally:
        query.stop()
    assert spark.read.parquet(str(tmp_path / "table")).count() == 90


def test_sql_has_views_of_queues_and_says_why_not_tables(
    spark: SparkSession, gateway: str, make_queue: Callable[..., str]
) -> None:
    spark.dataSource.register(SqsDataSource)
    url = make_queue(gateway)
    fill(gateway, url, ["one", "two"])
    using = f"USING sqs OPTIONS (queueUrl '{url}', endpointUrl '{gateway}', region 'us-east-1')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW queue_view {using}")
    assert spark.sql("SELECT count(*) FROM queue_view").first() == (2,)
    spark.sql("INSERT INTO queue_view SELECT * FROM queue_view")
    assert counts(gateway, url) == (4, 0)
    with pytest.raises(Exception, match="CREATE TEMPORARY VIEW name USING sqs"):
        spark.sql(f"CREATE TABLE queue_table {using}")
    spark.sql(f"CREATE TABLE queue_with_columns (body STRING) {using}")
    try:
        with pytest.raises(Exception, match="CREATE TEMPORARY VIEW name USING sqs"):
            spark.sql("SELECT * FROM queue_with_columns").collect()
    finally:
        spark.sql("DROP TABLE queue_with_columns")
        spark.sql("DROP VIEW queue_view")
