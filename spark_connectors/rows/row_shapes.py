"""Stored batches in the shape that a query asked for, SNS envelopes unwrapped."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa

from spark_connectors.rows.row_columns import (
    BINARY,
    HEADER,
    HEADERS,
    RECEIPT_COLUMN,
    SNS_COLUMNS,
    Attribute,
    RowShape,
    arrow_schema,
    attribute_maps,
    attributes_of,
    kept_columns,
    texts,
)
from spark_connectors.transport.http.json_text import loads


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
        document = loads(body.encode())
    except (ValueError, RecursionError):  # a body of a million brackets is the latter
        return None
    if not isinstance(document, dict) or document.get("Type") != "Notification":
        return None
    message, topic_arn = document.get("Message"), document.get("TopicArn")
    if not isinstance(message, str) or not isinstance(topic_arn, str):
        return None
    attributes = document.get("MessageAttributes")
    return Envelope(message, topic_arn, _text(document.get("Subject")), _attributes(attributes))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _attributes(given: object) -> list[Attribute]:
    if not isinstance(given, dict):
        return []
    return [_attribute(name, value) for name, value in given.items() if isinstance(value, dict)]


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
    order.

    With ``unwrap_sns`` a body that is an envelope of SNS becomes its message, with the envelope's
    attributes where the message itself has none. ``md5_of_body`` stays that of the received body.
    """
    wanted = arrow_schema(shape)
    columns = dict(zip(stored.schema.names, stored.columns, strict=True))
    if shape.unwrap_sns and "body" in kept_columns(shape):
        columns |= _unwrapped(columns["body"], columns["message_attributes"])
    if shape.is_kafka:
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
    """Return attributes by name, then the extra columns where they are not null.

    Null for a row without any, as in Spark's Kafka source.
    """
    further = [(name, columns[name].cast(BINARY).to_pylist()) for name in extras]
    rows: list[list[tuple[str, bytes | None]] | None] = []
    for number, attributes in enumerate(attributes_of(columns["message_attributes"])):
        row = [(a.name, _value(a)) for a in sorted(attributes, key=attrgetter("name"))]
        row += [(name, values[number]) for name, values in further if values[number] is not None]
        rows.append(row or None)
    return header_lists(rows)


def _value(attribute: Attribute) -> bytes | None:
    return attribute.binary if attribute.text is None else attribute.text.encode()


def header_lists(rows: Sequence[Sequence[tuple[str, bytes | None]] | None]) -> pa.Array:
    """Return a column of headers: names and values; None: null."""
    offsets = [0]
    for row in rows:
        offsets.append(offsets[-1] + len(row or ()))
    found = [header for row in rows for header in row or ()]
    headers = pa.StructArray.from_arrays(
        [texts([key for key, _ in found]), pa.array([value for _, value in found], BINARY)],
        fields=list(HEADER),
    )
    missing = pa.array([row is None for row in rows], pa.bool_())
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), headers, type=HEADERS, mask=missing
    )
