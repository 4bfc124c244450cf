"""The columns of rows, stored and as a query asks for them, and builders of Arrow columns."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


TEXT = pa.string()
BINARY = pa.binary()
INTEGER = pa.int32()
LONG = pa.int64()
# Spark's TimestampType, whatever the session's time zone is.
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

# The columns of a segment: all of them, because deletes need the receipts.
STORED_SCHEMA = pa.schema(_ROW + _RECEIPT)


# Columns that are system attributes, by SQS's names.
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
# Needed for any shape: a redelivery is recognized by its id and count and deleted by its receipt,
# groups choose their slots, and the progress shows the age of the oldest.
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


class RowShape(NamedTuple):
    """The columns that a query requests. Kafka's shape has the same columns whatever the next two
    are: they add headers there. ``columns``: only these; empty means all."""

    value_format: str = "sqs"  # or kafka
    include_receipt_handle: bool = False
    unwrap_sns: bool = False
    columns: tuple[str, ...] = ()

    @property
    def is_kafka(self) -> bool:
        return self.value_format == "kafka"


def arrow_schema(shape: RowShape) -> pa.Schema:
    """Return the schema of a query's batches. Spark refuses one that differs in name, order or
    type."""
    if shape.columns:
        whole = arrow_schema(shape._replace(columns=()))
        return pa.schema([whole.field(name) for name in shape.columns])
    if shape.is_kafka:
        return pa.schema(_KAFKA)
    receipt = _RECEIPT if shape.include_receipt_handle else ()
    return pa.schema(_ROW + receipt + (_SNS if shape.unwrap_sns else ()))


def kept_columns(shape: RowShape) -> frozenset[str]:
    """Return the columns of STORED_SCHEMA that rows of this shape need, and those that are always
    needed.

    All others are null in segments.
    """
    if not shape.columns:
        return frozenset(STORED_SCHEMA.names)
    kept = {*_NEEDED_COLUMNS, *(_MADE_OF.get(name, name) for name in shape.columns)}
    if shape.unwrap_sns and "message_attributes" in kept:
        kept.add("body")
    return frozenset(kept)


def system_names(shape: RowShape) -> tuple[str, ...]:
    """Return the system attributes to request from the queue."""
    if not shape.columns:
        return ("All",)
    asked = {SYSTEM_NAMES[name] for name in kept_columns(shape) if name in SYSTEM_NAMES}
    return tuple(sorted(asked.union(_NEEDED_NAMES)))


def spark_schema(shape: RowShape) -> StructType:
    """Return the same schema for Spark."""
    return spark_schema_of(arrow_schema(shape))


def spark_schema_of(schema: pa.Schema) -> StructType:
    """Return a schema for Spark."""
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


_LONGEST_NUMBER = 18  # digits that fit 64 bits whatever they are


class Attribute(NamedTuple):
    """A message attribute: text, or bytes."""

    name: str
    data_type: str | None
    text: str | None
    binary: bytes | None


def texts(values: Sequence[str | None]) -> pa.Array:
    """Return a column of texts.

    Half a surrogate pair, which JSON can carry and UTF-8 cannot, becomes U+FFFD.
    """
    try:
        return pa.array(values, TEXT)
    except UnicodeEncodeError:
        return pa.array([None if v is None else _without_surrogates(v) for v in values], TEXT)


def _without_surrogates(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def numbers(values: Sequence[str | None]) -> list[int | None]:
    """Parse texts of digits; anything else is None."""
    return [
        int(v) if v is not None and v.isdecimal() and len(v) <= _LONGEST_NUMBER else None
        for v in values
    ]


def counts(values: Sequence[str | None]) -> pa.Array:
    """Return a column of 32-bit integers from texts; null where a number does not fit."""
    return pa.array([n if n is None or n < 2**31 else None for n in numbers(values)], INTEGER)


def milliseconds(values: Sequence[str | None], of: pa.DataType) -> pa.Array:
    """Return a column of instants from texts of milliseconds since the epoch."""
    # More than 16 digits would overflow as microseconds.
    limit = 10**15
    found = [None if n is None or n > limit else n * 1000 for n in numbers(values)]
    return pa.array(found, pa.int64()).cast(of)


def attribute_maps(rows: Sequence[Sequence[Attribute]]) -> pa.Array:
    """Return a column of maps by name: empty, never null, for a message without attributes."""
    offsets = [0]
    for row in rows:
        offsets.append(offsets[-1] + len(row))
    found = [attribute for row in rows for attribute in row]
    values = pa.StructArray.from_arrays(
        [
            texts([a.data_type for a in found]),
            texts([a.text for a in found]),
            pa.array([a.binary for a in found], BINARY),
        ],
        fields=list(ATTRIBUTE),
    )
    keys = texts([a.name for a in found])
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, values, type=ATTRIBUTES)


def attributes_of(maps: pa.Array) -> list[list[Attribute]]:
    """Return the attributes of each row of such a column, in their order there."""
    offsets = maps.offsets.to_pylist() or [0]
    first, last = offsets[0], offsets[-1]
    if first == last:
        return [[] for _ in range(len(maps))]
    fields = [maps.items.field(n).slice(first, last - first).to_pylist() for n in range(3)]
    names = maps.keys.slice(first, last - first).to_pylist()
    found = list(map(Attribute, names, *fields))
    return [found[start - first : end - first] for start, end in itertools.pairwise(offsets)]
