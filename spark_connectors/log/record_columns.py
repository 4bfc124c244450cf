"""Records in the API's columns, as batches in the columns of Kafka's source."""

from __future__ import annotations

import base64
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from spark_connectors.rows.row_columns import (
    BINARY,
    HEADERS,
    INSTANT,
    INTEGER,
    LONG,
    TEXT,
    spark_schema_of,
    texts,
)
from spark_connectors.rows.row_shapes import header_lists
from spark_connectors.transport.http import json_text
from spark_connectors.transport.http.http_retries import TransientFailure

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# Prefix of the headers that describe the failures of a dead letter, such as ``last_error``.
OF_FAILURE = "queuegate."
# Kafka's LogAppendTime: the log itself sets the time of a record.
_LOG_APPEND_TIME = 1
_SCHEMA = pa.schema(
    [
        ("key", BINARY),
        ("value", BINARY),
        ("topic", TEXT),
        ("partition", INTEGER),
        ("offset", LONG),
        ("timestamp", INSTANT),
        ("timestampType", INTEGER),
    ]
)


class PartitionRecords(NamedTuple):
    """The records of one range in an answer: up to ``next``, in columns. ``start``: the first
    offset that the partition holds."""

    partition: int
    start: int
    next: int
    offsets: list[int]
    published_at: list[int]
    payloads: list[str]
    columns: Mapping[str, Any]

    @property
    def size(self) -> int:
        """The number of records."""
        return len(self.offsets)


def log_arrow_schema(*, has_headers: bool) -> pa.Schema:
    """Return the columns of the source."""
    return _SCHEMA.append(pa.field("headers", HEADERS)) if has_headers else _SCHEMA


def log_spark_schema(*, has_headers: bool) -> StructType:
    """Return the columns of the source for Spark."""
    return spark_schema_of(log_arrow_schema(has_headers=has_headers))


def parts_of(body: bytes) -> list[PartitionRecords]:
    """Parse an answer of the API. Raises TransientFailure for a truncated one."""
    try:
        return [
            PartitionRecords(
                one["partition"],
                one["start"],
                one["next"],
                one["offsets"],
                one["published_at_us"],
                one["payloads"],
                one,
            )
            for one in json_text.loads(body)["ranges"]
        ]
    except (ValueError, KeyError, TypeError):
        raise TransientFailure("the answer has no records") from None


def batch_of(log: str, parts: Sequence[PartitionRecords], *, has_headers: bool) -> pa.RecordBatch:
    """Return all records of these parts, in their order."""
    parts = [part for part in parts if part.size]
    count = sum(part.size for part in parts)
    partitions = array("i")
    for part in parts:
        partitions.extend([part.partition] * part.size)
    arrays = [
        _keys(parts),
        _joined([_values(part) for part in parts]),
        pa.repeat(pa.scalar(log, TEXT), count),
        pa.array(partitions, INTEGER),
        _longs(part.offsets for part in parts),
        _longs(part.published_at for part in parts).cast(INSTANT),
        pa.repeat(pa.scalar(_LOG_APPEND_TIME, INTEGER), count),
    ]
    if has_headers:
        arrays.append(_headers(parts, count))
    return pa.RecordBatch.from_arrays(arrays, schema=log_arrow_schema(has_headers=has_headers))


def _joined(arrays: Sequence[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _longs(lists: Iterable[list[int]]) -> pa.Array:
    return pa.array(array("q", list(chain.from_iterable(lists))), LONG)


def _values(part: PartitionRecords) -> pa.Array:
    encodings = part.columns.get("encodings")
    if encodings is None:
        return texts(part.payloads).cast(BINARY)
    pairs = zip(part.payloads, encodings, strict=True)
    return pa.array(
        [text.encode() if how is None else base64.b64decode(text) for text, how in pairs], BINARY
    )


def _keys(parts: Sequence[PartitionRecords]) -> pa.Array:
    """Return the keys. An empty key is null, as in Kafka."""
    found = []
    for part in parts:
        key = part.columns.get("key")
        if key is None:
            found.append(texts([one or None for one in part.columns["keys"]]).cast(BINARY))
        else:
            found.append(pa.repeat(pa.scalar(key.encode() if key else None, BINARY), part.size))
    return _joined(found)


def _headers(parts: Sequence[PartitionRecords], count: int) -> pa.Array:
    if not any(part.columns.keys() & {"metadata", "failures"} for part in parts):
        return pa.nulls(count, HEADERS)
    return header_lists(
        [
            _header(metadata or {}, failure or {})
            for part in parts
            for metadata, failure in zip(
                part.columns.get("metadata") or [None] * part.size,
                part.columns.get("failures") or [None] * part.size,
                strict=True,
            )
        ]
    )


def _header(
    metadata: Mapping[str, str], failure: Mapping[str, object]
) -> list[tuple[str, bytes | None]] | None:
    """Return headers by name, with the failures of a dead letter, as in Kafka Connect; None for a
    record without any, as in Kafka's source."""
    found = {**metadata, **{f"{OF_FAILURE}{name}": str(told) for name, told in failure.items()}}
    return [(name, text.encode()) for name, text in sorted(found.items())] or None
