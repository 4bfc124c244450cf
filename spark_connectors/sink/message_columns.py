"""The DataFrame's columns of a message, checked at planning, and deduplication ids."""

from __future__ import annotations

import datetime
import hashlib
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.types import (
    ArrayType,
    AtomicType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from spark_connectors.errors import ConnectorError
from spark_connectors.sink.sink_options import MessageSinkSettings

if TYPE_CHECKING:
    import pyarrow as pa


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


class Identity(NamedTuple):
    """The identity of a task: equal for every attempt at the same rows."""

    job: str
    partition: int


def can_be_in_a_digest(kind: DataType) -> bool:
    """Return True if values of this Spark type have one encoding: maps and variants have not."""
    if isinstance(kind, ArrayType):
        return can_be_in_a_digest(kind.elementType)
    if isinstance(kind, StructType):
        return all(can_be_in_a_digest(field.dataType) for field in kind.fields)
    return isinstance(kind, AtomicType) and not isinstance(kind, VariantType)


def _framed(tag: bytes, data: bytes) -> bytes:
    return tag + struct.pack(">I", len(data)) + data


def encoded(value: object) -> bytes:
    """Encode a value with its kind and its length: no two values, nor two rows of them, are alike.
    Whole numbers of every width are one kind, so widening a column changes no id."""
    if value is None:
        return b"n"
    if isinstance(value, str):
        return _framed(b"s", value.encode())
    if isinstance(value, bool):
        return _framed(b"b", b"1" if value else b"0")
    if isinstance(value, int):
        return _framed(b"i", str(value).encode())
    if isinstance(value, bytes):
        return _framed(b"y", value)
    if isinstance(value, dict):
        return _framed(b"r", b"".join(encoded(each) for each in value.values()))
    if isinstance(value, list):
        return _framed(b"l", b"".join(encoded(each) for each in value))
    if isinstance(value, datetime.datetime):
        # Microseconds since 1970: the time zone of the session must not change an id.
        epoch = _EPOCH if value.tzinfo else _EPOCH.replace(tzinfo=None)
        return _framed(b"t", str((value - epoch) // _MICROSECOND).encode())
    # float, Decimal, date, time and timedelta: Python's texts of them are exact.
    return _framed(b"x", repr(value).encode())


def ids_of_columns(batch: pa.RecordBatch, names: Sequence[str], prefix: str = "") -> list[str]:
    """Return an id for each row, from the named columns: SHA-256 in 64 hexadecimal digits."""
    start = encoded(prefix) if prefix else b""
    columns = [map(encoded, batch.column(name).to_pylist()) for name in names]
    rows = zip(*columns, strict=True)
    return [hashlib.sha256(start + b"".join(parts)).hexdigest() for parts in rows]


def id_of_content(
    body: bytes, group_id: str | None, attributes: Mapping[str, tuple[str, str | bytes]]
) -> str:
    """Return the id of a message's content: equal messages of one group have equal ids."""
    parts: list[object] = [body, group_id]
    for name in sorted(attributes):
        parts += [name, *attributes[name]]
    return hashlib.sha256(b"".join(map(encoded, parts))).hexdigest()


def id_of_position(identity: Identity, position: int) -> str:
    """Return the id of a position in a write, in a readable form."""
    return f"{identity.job}|{identity.partition}|{position}"


class BadColumns(ConnectorError):
    """The columns of the DataFrame cannot be sent as they are."""


class MessageColumns(NamedTuple):
    """Names of the DataFrame's columns by purpose; None: the column is absent. ``deduplication``:
    the source of the ids: column, columns, content, position, replay, none."""

    body: str
    group_id: str | None
    deduplication_id: str | None
    attributes: str | None
    has_typed_attributes: bool
    delay_seconds: str | None
    destination: str | None
    subject: str | None
    message_structure: str | None
    trace_header: str | None
    order_by: tuple[str, ...]
    deduplication: str
    deduplication_columns: tuple[str, ...]


TEXT_OR_BYTES = (StringType, BinaryType)
_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_NO_IDS = (
    "messages to a FIFO {kind} need deduplication ids, and nothing says where they come from: "
    "give deduplicationColumns=<the columns that say what a row is>, or a column "
    "message_deduplication_id, or deduplication=content|position|none"
)


class SchemaColumns:
    """The columns of a schema by name, as Spark resolves them: in any case."""

    def __init__(self, schema: StructType) -> None:
        self._by_name: dict[str, list[StructField]] = {}
        for field in schema.fields:
            self._by_name.setdefault(field.name.lower(), []).append(field)

    def field(self, *names: str) -> StructField | None:
        """Return the one column of these names. Raises BadColumns when there are two."""
        found = [field for name in names for field in self._by_name.get(name.lower(), ())]
        if len(found) > 1:
            both = " and ".join(f"'{field.name}'" for field in found)
            raise BadColumns(f"columns {both} mean the same: drop one of them")
        return found[0] if found else None

    def name(
        self, names: Iterable[str], types: tuple[type[DataType], ...], expected: str
    ) -> str | None:
        """Return the name of that column. Raises BadColumns when it has another type."""
        field = self.field(*names)
        if field is None:
            return None
        if not isinstance(field.dataType, types):
            raise wrong_type(field, expected)
        return str(field.name)

    def listed(
        self, names: Iterable[str], option: str, fits: Callable[[DataType], bool]
    ) -> list[str]:
        """Return the columns that an option lists. Raises BadColumns."""
        found = []
        for name in names:
            field = self.field(name)
            if field is None:
                raise BadColumns(f"option '{option}': there is no column '{name}' among {self}")
            if not fits(field.dataType):
                shown = field.dataType.simpleString()
                raise BadColumns(
                    f"option '{option}': column '{name}' is {shown}, which cannot be used"
                )
            found.append(str(field.name))
        return found

    def __str__(self) -> str:
        return ", ".join(field.name for fields in self._by_name.values() for field in fields)


def wrong_type(field: StructField, expected: str) -> BadColumns:
    """Return the error for a column of another type than expected."""
    return BadColumns(
        f"column '{field.name}' is {field.dataType.simpleString()}, expected {expected}"
    )


def find_columns(schema: StructType, settings: MessageSinkSettings) -> MessageColumns:
    """Return the columns of a DataFrame that this sink sends; others are left out. Raises
    BadColumns, with the change to make, for a missing, doubled or wrongly typed column."""
    found = SchemaColumns(schema)
    body = found.name(("body", "value"), TEXT_OR_BYTES, "string or binary")
    if body is None:
        raise BadColumns(
            "a column 'body' (or 'value'), string or binary, is what will be sent; there is only "
            f"{found}. For whole rows: selectExpr('to_json(struct(*)) AS body')"
        )
    delay = found.name(("delay_seconds",), _WHOLE, "a whole number")
    if delay is not None and settings.is_topic:
        raise BadColumns("column 'delay_seconds': topics do not delay messages, drop it")
    attributes, are_typed = _attributes(found)
    deduplication_id = _text(found, "message_deduplication_id")
    return MessageColumns(
        body=body,
        group_id=_text(found, "message_group_id", "group_id"),
        deduplication_id=deduplication_id,
        attributes=attributes,
        has_typed_attributes=are_typed,
        delay_seconds=delay,
        destination=_destination(found, settings),
        subject=_text(found, "subject") if settings.is_topic else None,
        message_structure=_text(found, "message_structure") if settings.is_topic else None,
        trace_header=None if settings.is_topic else _text(found, "aws_trace_header"),
        order_by=tuple(found.listed(settings.order_by, "orderBy", can_be_sorted)),
        deduplication=_deduplication(found, settings, deduplication_id),
        deduplication_columns=tuple(_digested(found, settings)),
    )


def _text(found: SchemaColumns, *names: str) -> str | None:
    return found.name(names, (StringType,), "string")


def can_be_sorted(kind: DataType) -> bool:
    """Return True if values of this type have an order."""
    return isinstance(kind, AtomicType)


def _destination(found: SchemaColumns, settings: MessageSinkSettings) -> str | None:
    """Return the column that routes. As in Spark's Kafka sink a destination among the options
    wins."""
    if settings.place is not None or settings.topic_arn is not None:
        return None
    column = "topic_arn" if settings.is_topic else "queue_url"
    name = _text(found, column)
    if name is None:
        options = "topicArn" if settings.is_topic else "queueUrl or queueName"
        raise BadColumns(f"where to: give the option {options}, or a column {column}")
    return name


def _attributes(found: SchemaColumns) -> tuple[str | None, bool]:
    field = found.field("message_attributes", "msg_attributes")
    if field is None:
        return None, False
    kind = field.dataType
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        if isinstance(kind.valueType, StringType):
            return field.name, False
        if isinstance(kind.valueType, StructType) and _is_typed_value(kind.valueType):
            return field.name, True
    raise wrong_type(
        field,
        "map<string,string> or "
        "map<string,struct<data_type:string,string_value:string,binary_value:binary>>",
    )


def _is_typed_value(kind: StructType) -> bool:
    types = {"data_type": StringType, "string_value": StringType, "binary_value": BinaryType}
    names = {field.name for field in kind.fields}
    fit = all(isinstance(f.dataType, types.get(f.name, ())) for f in kind.fields)
    return fit and {"data_type", "string_value"} <= names


def _digested(found: SchemaColumns, settings: MessageSinkSettings) -> list[str]:
    if settings.replay_id is not None:
        for name in ("queue", "message_id"):
            if found.name((name,), (StringType,), "string") is None:
                raise BadColumns(
                    f"replayId makes ids of the rows' source: column '{name}' is missing"
                )
        return found.listed(("queue", "message_id"), "replayId", can_be_in_a_digest)
    return found.listed(settings.deduplication_columns, "deduplicationColumns", can_be_in_a_digest)


def _deduplication(found: SchemaColumns, settings: MessageSinkSettings, column: str | None) -> str:
    if settings.replay_id is not None:
        return "replay"
    if settings.deduplication_columns:
        return "columns"
    if settings.deduplication == "column" and column is None:
        raise BadColumns("deduplication=column: there is no column message_deduplication_id")
    if settings.deduplication is not None:
        return settings.deduplication
    if column is not None:
        return "column"
    if settings.is_fifo:
        raise BadColumns(_NO_IDS.format(kind="topic" if settings.is_topic else "queue"))
    return "none"
