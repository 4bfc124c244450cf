"""Spark takes the batches of every shape: it checks names, order and types itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spark_connectors.message_rows import RowShape, shaped, spark_schema
from tests.spark.test_rows_shapes import MIXED, SHAPES, TOPIC, stored

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


class Slots(DataSource):
    """The mixed rows of the tests of shapes, a batch without rows, and the first row again."""

    @classmethod
    def name(cls) -> str:
        return "slots"

    @property
    def _shape(self) -> RowShape:
        asked = self.options
        return RowShape(asked["format"], asked["receipt"] == "True", asked["unwrap"] == "True")

    def schema(self) -> StructType:
        return spark_schema(self._shape)

    def reader(self, schema: StructType) -> DataSourceReader:
        return SlotsReader(self._shape)


class SlotsReader(DataSourceReader):
    def __init__(self, shape: RowShape) -> None:
        self._shape = shape

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for batch in (stored(*MIXED), stored(), stored(MIXED[0])):
            yield shaped(batch, self._shape)


def collected(spark: SparkSession, shape: RowShape) -> list[Row]:
    spark.dataSource.register(Slots)
    reader = spark.read.format("slots").option("format", shape.value_format)
    reader = reader.option("receipt", str(shape.include_receipt_handle))
    return reader.option("unwrap", str(shape.unwrap_sns)).load().collect()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_spark_reads_every_shape(spark: SparkSession, shape: RowShape) -> None:
    rows = collected(spark, shape)

    body = "value" if shape.value_format == "kafka" else "body"
    as_text = [v.decode() if isinstance(v := row[body], bytearray | bytes) else v for row in rows]
    wrapped = "news" if shape.unwrap_sns else MIXED[3]["Body"]
    assert as_text == ["b", "", "b", wrapped, None, "b"]


def test_spark_has_instants_attributes_and_nulls_as_they_were(spark: SparkSession) -> None:
    rows = collected(spark, RowShape(include_receipt_handle=True, unwrap_sns=True))

    full, unwrapped, bare = rows[2], rows[3], rows[4]
    assert full.sent_timestamp.timestamp() == 1
    assert full.receive_timestamp.timestamp() == 1.5
    attributes = {n: tuple(value) for n, value in full.message_attributes.items()}
    assert attributes == {"b": ("Binary", None, bytearray(b"\xff")), "a": ("Number", "1", None)}
    assert (unwrapped.topic_arn, unwrapped.subject) == (TOPIC, "s")
    assert unwrapped.message_attributes["x"].string_value == "y"
    assert (bare.body, bare.receipt_handle, bare.message_attributes) == (None, None, {})


def test_spark_has_the_headers_of_kafka(spark: SparkSession) -> None:
    rows = collected(spark, RowShape("kafka"))

    assert rows[0].headers is None
    assert [(h.key, bytes(h.value)) for h in rows[2].headers] == [("a", b"1"), ("b", b"\xff")]
