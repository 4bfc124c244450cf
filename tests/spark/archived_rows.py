"""Rows as the queue source gives them, for what works on archives."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as fn

from spark_connectors.pipelines.queue_archive import (
    ArchiveDescription,
    ArchivePlace,
    begin,
    with_sent_date,
)
from spark_connectors.rows.row_columns import ROW_COLUMNS, RowShape, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BEGINNING = datetime.datetime(2026, 11, 1, 12, 0, tzinfo=datetime.UTC)
Row = dict[str, Any]


def row(number: int, **given: Any) -> Row:
    """A row of a standard queue: one a minute from BEGINNING, received 200 ms later."""
    sent = given.pop("sent", BEGINNING + datetime.timedelta(minutes=number))
    body = given.pop("body", f"body {number}")
    received = sent + datetime.timedelta(milliseconds=given.pop("latency_ms", 200))
    made: Row = dict.fromkeys(ROW_COLUMNS)
    made |= {
        "queue": "orders",
        "message_id": f"00000000-0000-4000-8000-{number:012}",
        "body": body,
        "sent_timestamp": sent,
        "first_receive_timestamp": received,
        "receive_timestamp": received,
        "approximate_receive_count": 1,
        "message_attributes": {},
        "md5_of_body": hashlib.md5(body.encode()).hexdigest(),
    }
    return made | given


def text_attributes(**given: str) -> Mapping[str, tuple[str, str, None]]:
    """Message attributes as a column holds them."""
    return {name: ("String", value, None) for name, value in given.items()}


def frame(spark: SparkSession, rows: Iterable[Row]) -> DataFrame:
    """The rows as a DataFrame."""
    values = [tuple(one[name] for name in ROW_COLUMNS) for one in rows]
    return spark.createDataFrame(values, spark_schema(RowShape()))


def append(spark: SparkSession, root: Path, rows: Sequence[Row], work: Path) -> None:
    """Archive one micro-batch as archive() does, from files instead of a queue."""
    place = ArchivePlace(str(root))
    inbox = work / "inbox"
    frame(spark, rows).repartition(2).write.mode("append").parquet(str(inbox))
    stream = with_sent_date(spark.readStream.schema(spark_schema(RowShape())).parquet(str(inbox)))
    begin(place, ArchiveDescription("parquet", json.loads(stream.schema.json())))
    writer = stream.writeStream.format("parquet").partitionBy("sent_date")
    writer = writer.option("checkpointLocation", place.below("checkpoint"))
    query = writer.option("path", place.below("data")).trigger(availableNow=True).start()
    query.awaitTermination()


def ids(found: DataFrame) -> list[str]:
    """The message ids, sorted, as often as they are there."""
    return sorted(str(one[0]) for one in found.select("message_id").collect())


def micros(moment: datetime.datetime) -> int:
    """Since the epoch."""
    return int(moment.timestamp() * 1_000_000)


def total(found: DataFrame, column: str) -> int:
    """The sum of a column."""
    first = found.agg(fn.sum(column)).first()
    assert first is not None
    return int(first[0])
