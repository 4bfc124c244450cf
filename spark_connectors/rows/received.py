"""Messages from a transport, as the record batch that a segment stores."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa

from spark_connectors.rows.row_columns import (
    INSTANT,
    INTEGER,
    STORED_SCHEMA,
    SYSTEM_NAMES,
    Attribute,
    attribute_maps,
    counts,
    milliseconds,
    texts,
)
from spark_connectors.transport.aws.message_calls import MOST_PER_CALL, Message

_UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def message_key(message_id: str) -> bytes:
    """Return 16 bytes for the message: the UUID's own, otherwise the MD5 of the text.

    Two spellings of an id (upper case, braces) never share a key: a shared key would drop a
    distinct message as a redelivery. So only the canonical form is a UUID here.
    """
    if _UUID.fullmatch(message_id):
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
    """A message and its receive time: seconds since the epoch.

    ``content``: the message itself, or the batch of STORED_SCHEMA that has it as row ``row``.
    ``asked_at``: no later than the start of its visibility timeout. ``older``: receipts of it that
    came before this one, or at the same time.
    """

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
    dozens for each message.

    At most 10 messages stay as they are: a batch of so few is larger.
    """
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
    if of == INSTANT:
        return milliseconds(said, INSTANT)
    return counts(said) if of == INTEGER else texts(said)


def _attributes(message: Message) -> Sequence[Attribute]:
    given: Mapping[str, Mapping[str, Any]] | None = message.get("MessageAttributes")
    if not given:
        return ()
    return [
        Attribute(name, value.get("DataType"), value.get("StringValue"), value.get("BinaryValue"))
        for name, value in given.items()
    ]
