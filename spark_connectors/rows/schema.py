"""The columns of a row: as stored in a segment, and in each shape that a query can ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

TEXT = pa.string()
BINARY = pa.binary()
INTEGER = pa.int32()
LONG = pa.int64()
# What Spark makes of TimestampType, whatever the session's time zone is.
INSTANT = pa.timestamp("us", tz="UTC")
ATTRIBUTE = pa.struct([("data_type", TEXT), ("string_value", TEXT), ("binary_value", BINARY)])
ATTRIBUTES = pa.map_(TEXT, ATTRIBUTE)
HEADER = pa.struct([("key", TEXT), ("value", BINARY)])
HEADERS = pa.list_(pa.field("element", HEADER))

_ROW: tuple[tuple[str, pa.DataType], ...] = (
    ("queue", TEXT),
    ("message_id", TEXT),
    ("body", TEXT),
    ("sent_timestamp", INSTANT),
    ("first_receive_timestamp", INSTANT),
    ("approximate_receive_count", INTEGER),
    ("message_group_id", TEXT),
    ("message_deduplication_id", TEXT),
    ("sequence_number", TEXT),
    ("sender_id", TEXT),
    ("message_attributes", ATTRIBUTES),
    ("aws_trace_header", TEXT),
    ("dead_letter_source", TEXT),
    ("md5_of_body", TEXT),
    ("receive_timestamp", INSTANT),
)
_RECEIPT = (("receipt_handle", TEXT),)
_SNS = (("topic_arn", TEXT), ("subject", TEXT))
_KAFKA: tuple[tuple[str, pa.DataType], ...] = (
    ("key", BINARY),
    ("value", BINARY),
    ("topic", TEXT),
    ("timestamp", INSTANT),
    ("headers", HEADERS),
)

ROW_COLUMNS = tuple(name for name, _ in _ROW)
SNS_COLUMNS = tuple(name for name, _ in _SNS)
KAFKA_COLUMNS = tuple(name for name, _ in _KAFKA)
RECEIPT_COLUMN = "receipt_handle"

# What a segment holds: every column, because the receipts are needed to delete.
STORED_SCHEMA = pa.schema(_ROW + _RECEIPT)


# Columns that are system attributes, as SQS calls them.
SYSTEM_NAMES = {
    "sent_timestamp": "SentTimestamp",
    "first_receive_timestamp": "ApproximateFirstReceiveTimestamp",
    "approximate_receive_count": "ApproximateReceiveCount",
    "message_group_id": "MessageGroupId",
    "message_deduplication_id": "MessageDeduplicationId",
    "sequence_number": "SequenceNumber",
    "sender_id": "SenderId",
    "aws_trace_header": "AWSTraceHeader",
    "dead_letter_source": "DeadLetterQueueSourceArn",
}
# Whatever the rows are: a redelivery is known by its id and its count and deleted by its receipt,
# groups go to their slots, and the progress says how old the oldest is.
_NEEDED_COLUMNS = ("message_id", RECEIPT_COLUMN)
_NEEDED_NAMES = ("ApproximateReceiveCount", "MessageGroupId", "SentTimestamp")
_MADE_OF = {
    "key": "message_group_id",
    "value": "body",
    "topic": "queue",
    "timestamp": "sent_timestamp",
    "headers": "message_attributes",
    "topic_arn": "body",
    "subject": "body",
}


class Shape(NamedTuple):
    """What a query asked for. Kafka's shape has the same columns whatever the next two say: they
    add headers there. ``columns``: only these; none means all."""

    value_format: str = "sqs"  # or kafka
    include_receipt_handle: bool = False
    unwrap_sns: bool = False
    columns: tuple[str, ...] = ()

    @property
    def is_kafka(self) -> bool:
        return self.value_format == "kafka"


def arrow_schema(shape: Shape) -> pa.Schema:
    """The schema of a query's batches. Spark refuses one that differs in name, order or type."""
    if shape.columns:
        whole = arrow_schema(shape._replace(columns=()))
        return pa.schema([whole.field(name) for name in shape.columns])
    if shape.is_kafka:
        return pa.schema(_KAFKA)
    receipt = _RECEIPT if shape.include_receipt_handle else ()
    return pa.schema(_ROW + receipt + (_SNS if shape.unwrap_sns else ()))


def kept_columns(shape: Shape) -> frozenset[str]:
    """The columns of STORED_SCHEMA that rows of this shape are made of, and what is always needed.

    All others are null in segments.
    """
    if not shape.columns:
        return frozenset(STORED_SCHEMA.names)
    kept = {*_NEEDED_COLUMNS, *(_MADE_OF.get(name, name) for name in shape.columns)}
    if shape.unwrap_sns and "message_attributes" in kept:
        kept.add("body")
    return frozenset(kept)


def system_names(shape: Shape) -> tuple[str, ...]:
    """The system attributes to ask the queue for."""
    if not shape.columns:
        return ("All",)
    asked = {SYSTEM_NAMES[name] for name in kept_columns(shape) if name in SYSTEM_NAMES}
    return tuple(sorted(asked.union(_NEEDED_NAMES)))


def spark_schema(shape: Shape) -> StructType:
    """The same schema for Spark."""
    return spark_schema_of(arrow_schema(shape))


def spark_schema_of(schema: pa.Schema) -> StructType:
    """A schema for Spark."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(f.name, _spark_type(f.type)) for f in schema])


def _spark_type(of: pa.DataType) -> DataType:
    from pyspark.sql import types

    if pa.types.is_struct(of):
        return types.StructType([types.StructField(f.name, _spark_type(f.type)) for f in of])
    if pa.types.is_map(of):
        return types.MapType(_spark_type(of.key_type), _spark_type(of.item_type))
    if pa.types.is_list(of):
        return types.ArrayType(_spark_type(of.value_type))
    plain: dict[pa.DataType, DataType] = {
        TEXT: types.StringType(),
        BINARY: types.BinaryType(),
        INTEGER: types.IntegerType(),
        LONG: types.LongType(),
        INSTANT: types.TimestampType(),
    }
    return plain[of]
