"""Rows of messages: from a transport to the batches of a segment, and to the shape of a query."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from spark_connectors.endpoints import json_value
from spark_connectors.transport import MOST_PER_CALL, Message

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


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


def arrow_schema(shape: RowShape) -> pa.Schema:
    """Return the schema of a query's batches. Spark refuses one that differs in name, order or
    type."""
    if shape.columns:
        whole = arrow_schema(shape._replace(columns=()))
        return pa.schema([whole.field(name) for name in shape.columns])
    if shape.value_format == "kafka":
        return pa.schema(_KAFKA)
    receipt = _RECEIPT if shape.include_receipt_handle else ()
    return pa.schema(_ROW + receipt + (_SNS if shape.unwrap_sns else ()))


def kept_columns(shape: RowShape) -> frozenset[str]:
    """Return the columns of STORED_SCHEMA that rows of this shape need, and those that are always
    needed. All others are null in segments."""
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
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


_LONGEST_NUMBER = 18  # digits that fit 64 bits whatever they are


class Attribute(NamedTuple):
    """A message attribute: text, or bytes."""

    name: str
    data_type: str | None
    text: str | None
    binary: bytes | None


def texts(values: Sequence[str | None]) -> pa.Array:
    """Return a column of texts."""
    return _column(values, TEXT)


def _column(values: Sequence[Any], of: pa.DataType) -> pa.Array:
    """Return a column of this type. Half a surrogate pair, which JSON can carry and UTF-8 cannot,
    becomes U+FFFD."""
    try:
        return pa.array(values, of)
    except UnicodeEncodeError:
        return pa.array(_without_surrogates(values), of)


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_without_surrogates, value))
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return value


def attribute_maps(rows: Sequence[Sequence[Attribute]]) -> pa.Array:
    """Return a column of maps by name: empty, never null, for a message without attributes."""
    return _column([[(one.name, one[1:]) for one in row] for row in rows], ATTRIBUTES)


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


UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def message_key(message_id: str) -> bytes:
    """Return 16 bytes for the message: the UUID's own, otherwise the MD5 of the text. Two spellings
    of an id (upper case, braces) never share a key: a shared key would drop a distinct message as a
    redelivery. So only the canonical form is a UUID here."""
    if UUID.fullmatch(message_id):
        return bytes.fromhex(message_id.replace("-", ""))
    text = message_id.encode("utf-8", "surrogatepass")
    return hashlib.md5(text, usedforsecurity=False).digest()


_NONE: Mapping[str, Any] = {}
_MEMBERS = {
    "message_id": "MessageId",
    "body": "Body",
    "md5_of_body": "MD5OfBody",
    "receipt_handle": "ReceiptHandle",
}


class FetchedMessage(NamedTuple):
    """A message and its receive time: seconds since the epoch. ``content``: the message itself, or
    the batch of STORED_SCHEMA that has it as row ``row``. ``asked_at``: no later than the start of
    its visibility timeout. ``older``: receipts of it that came before this one, or at the same
    time."""

    content: Any
    key: bytes
    receipt: str
    received_at: float
    asked_at: float
    group: str
    body_bytes: int
    row: int = 0
    older: tuple[str, ...] = ()

    @property
    def receipts(self) -> tuple[str, ...]:
        """All receipts of it, the newest last."""
        return (*self.older, self.receipt)

    @property
    def batch_id(self) -> int | None:
        """The identity of its batch; None: it is in none."""
        return id(self.content) if isinstance(self.content, pa.RecordBatch) else None


def received_of(message: Message, received_at: float, asked_at: float = 0.0) -> FetchedMessage:
    """Return a message that was received now."""
    body: str = message["Body"] or ""
    size = len(body) if body.isascii() else len(body.encode("utf-8", "surrogatepass"))
    group = (message.get("Attributes") or _NONE).get("MessageGroupId") or ""
    key = message_key(message["MessageId"])
    # A browsed message has no receipt.
    receipt = message.get("ReceiptHandle") or ""
    return FetchedMessage(message, key, receipt, received_at, asked_at, group, size)


def packed(
    queue_name: str, messages: Sequence[FetchedMessage], kept: Collection[str]
) -> Sequence[FetchedMessage]:
    """Return the messages as rows of one batch: half the memory, in one allocation instead of
    dozens for each message. At most 10 messages stay as they are: a batch of so few is larger."""
    if len(messages) <= MOST_PER_CALL:
        return messages
    batch = _batch(queue_name, messages, kept)
    # Not by _replace, which takes longer than all the rest.
    return [
        FetchedMessage(batch, key, receipt, received_at, asked_at, group, size, row)
        for row, (_, key, receipt, received_at, asked_at, group, size, *_) in enumerate(messages)
    ]


def stored_batch(
    queue_name: str, messages: Sequence[FetchedMessage], kept: Collection[str] = STORED_SCHEMA.names
) -> pa.RecordBatch:
    """Return the messages in STORED_SCHEMA, in their order. Columns that are not ``kept`` are null,
    and so are members that the service omitted, and invalid numbers. ``packed`` messages already
    have only the kept columns."""
    parts = []
    for batch_id, run in groupby(messages, attrgetter("batch_id")):
        found = list(run)
        if batch_id is None:
            parts.append(_batch(queue_name, found, kept))
        else:
            parts.append(_rows(found[0].content, [one.row for one in found]))
    if len(parts) == 1:
        return parts[0]
    whole = pa.Table.from_batches(parts, STORED_SCHEMA).combine_chunks()
    return whole.to_batches()[0] if messages else _batch(queue_name, (), kept)


def _rows(batch: pa.RecordBatch, rows: list[int]) -> pa.RecordBatch:
    """Return these rows of the batch; no copy where they are consecutive."""
    first = rows[0]
    if rows == [*range(first, first + len(rows))]:
        return batch.slice(first, len(rows))
    return batch.take(pa.array(rows, pa.int32()))


def _batch(
    queue_name: str, messages: Sequence[FetchedMessage], kept: Collection[str]
) -> pa.RecordBatch:
    """Build by column: a call of Arrow for each message costs more than receiving it."""
    plain: list[Message] = [received.content for received in messages]
    system = [message.get("Attributes") or _NONE for message in plain]

    def column(field: pa.Field) -> pa.Array:
        name: str = field.name
        if name not in kept:
            return pa.nulls(len(plain), field.type)
        if name in SYSTEM_NAMES:
            said = [attributes.get(SYSTEM_NAMES[name]) for attributes in system]
            return _read(said, field.type)
        if name in _MEMBERS:
            return texts([message.get(_MEMBERS[name]) for message in plain])
        if name == "queue":
            return texts([queue_name] * len(plain))
        if name == "message_attributes":
            return attribute_maps([_attributes(message) for message in plain])
        instants = [round(received.received_at * 1_000_000) for received in messages]
        return pa.array(instants, pa.int64()).cast(INSTANT)

    return pa.RecordBatch.from_arrays(
        [column(field) for field in STORED_SCHEMA], schema=STORED_SCHEMA
    )


def _read(said: list[str | None], of: pa.DataType) -> pa.Array:
    """Return a column of system attributes: texts, counts, or instants from milliseconds since the
    epoch. A number that is none, or does not fit, is null."""
    if of == TEXT:
        return texts(said)
    # More than 16 digits would overflow as microseconds.
    limit, factor = (10**15, 1000) if of == INSTANT else (2**31 - 1, 1)
    parsed = [
        int(text) if text and text.isdecimal() and len(text) <= _LONGEST_NUMBER else None
        for text in said
    ]
    fitting = [None if n is None or n > limit else n * factor for n in parsed]
    return pa.array(fitting, LONG).cast(of)


def _attributes(message: Message) -> Sequence[Attribute]:
    given: Mapping[str, Mapping[str, Any]] | None = message.get("MessageAttributes")
    if not given:
        return ()
    return [
        Attribute(name, value.get("DataType"), value.get("StringValue"), value.get("BinaryValue"))
        for name, value in given.items()
    ]


class Envelope(NamedTuple):
    """The content of an SNS envelope, the document around a message without raw delivery."""

    message: str
    topic_arn: str
    subject: str | None
    attributes: list[Attribute]


def envelope_of(body: str | None) -> Envelope | None:
    """Parse a body as an envelope; None for any other body, however broken. Raises nothing."""
    # Most bodies of a queue without envelopes end here, without being parsed.
    if body is None or '"Notification"' not in body or '"TopicArn"' not in body:
        return None
    try:
        document = json_value(body.encode())
    except (ValueError, RecursionError):  # a body of a million brackets is the latter
        return None
    if not isinstance(document, dict) or document.get("Type") != "Notification":
        return None
    message, topic_arn = document.get("Message"), document.get("TopicArn")
    if not isinstance(message, str) or not isinstance(topic_arn, str):
        return None
    given = document.get("MessageAttributes")
    pairs = given.items() if isinstance(given, dict) else ()
    attributes = [_attribute(name, value) for name, value in pairs if isinstance(value, dict)]
    return Envelope(message, topic_arn, _text(document.get("Subject")), attributes)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _attribute(name: str, value: dict[str, Any]) -> Attribute:
    """Return one attribute. Invalid base64 stays text."""
    kind, text = _text(value.get("Type")), _text(value.get("Value"))
    if kind is not None and text is not None and kind.split(".")[0] == "Binary":
        try:
            return Attribute(name, kind, None, base64.b64decode(text, validate=True))
        except ValueError:
            pass
    return Attribute(name, kind, text, None)


def shaped(stored: pa.RecordBatch, shape: RowShape) -> pa.RecordBatch:
    """Return a batch of STORED_SCHEMA in exactly ``arrow_schema(shape)``: the same rows in the same
    order. With ``unwrap_sns`` a body that is an envelope of SNS becomes its message, with the
    envelope's attributes where the message itself has none. ``md5_of_body`` stays that of the
    received body."""
    wanted = arrow_schema(shape)
    columns = dict(zip(stored.schema.names, stored.columns, strict=True))
    if shape.unwrap_sns and "body" in kept_columns(shape):
        columns |= _unwrapped(columns["body"], columns["message_attributes"])
    if shape.value_format == "kafka":
        columns = _as_kafka(columns, shape, with_headers="headers" in wanted.names)
    return pa.RecordBatch.from_arrays([columns[name] for name in wanted.names], schema=wanted)


def _unwrapped(bodies: pa.Array, attributes: pa.Array) -> dict[str, pa.Array]:
    """Return the columns that unwrapping changes or adds."""
    plain: list[str | None] = bodies.to_pylist()
    envelopes = [envelope_of(body) for body in plain]
    columns = {
        "body": texts(
            [
                body if envelope is None else envelope.message
                for body, envelope in zip(plain, envelopes, strict=True)
            ]
        ),
        "topic_arn": texts([None if e is None else e.topic_arn for e in envelopes]),
        "subject": texts([None if e is None else e.subject for e in envelopes]),
    }
    if any(e is not None and e.attributes for e in envelopes):
        columns["message_attributes"] = attribute_maps(
            [
                own if own or envelope is None else envelope.attributes
                for own, envelope in zip(attributes_of(attributes), envelopes, strict=True)
            ]
        )
    return columns


def _as_kafka(
    columns: dict[str, pa.Array], shape: RowShape, *, with_headers: bool
) -> dict[str, pa.Array]:
    """Return Kafka's columns. Partition and offset have no counterpart in a queue and are left
    out."""
    extras = SNS_COLUMNS if shape.unwrap_sns else ()
    if shape.include_receipt_handle:
        extras = (*extras, RECEIPT_COLUMN)
    found = {
        "key": columns["message_group_id"].cast(BINARY),
        "value": columns["body"].cast(BINARY),
        "topic": columns["queue"],
        "timestamp": columns["sent_timestamp"],
    }
    return found | {"headers": _headers(columns, extras)} if with_headers else found


def _headers(columns: dict[str, pa.Array], extras: Sequence[str]) -> pa.Array:
    """Return attributes by name, then the extra columns where they are not null. Null for a row
    without any, as in Spark's Kafka source."""
    further = [(name, columns[name].cast(BINARY).to_pylist()) for name in extras]
    rows: list[list[tuple[str, bytes | None]] | None] = []
    for number, attributes in enumerate(attributes_of(columns["message_attributes"])):
        row = [
            (one.name, one.binary if one.text is None else one.text.encode())
            for one in sorted(attributes, key=attrgetter("name"))
        ]
        row += [(name, values[number]) for name, values in further if values[number] is not None]
        rows.append(row or None)
    return header_lists(rows)


def header_lists(rows: Sequence[Sequence[tuple[str, bytes | None]] | None]) -> pa.Array:
    """Return a column of headers: names and values; None: null."""
    return _column(rows, HEADERS)
