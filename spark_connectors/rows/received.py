"""Messages as a transport gives them -> the batch that a segment stores."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from spark_connectors.rows.columns import Attribute, attribute_maps, counts, milliseconds, texts
from spark_connectors.rows.schema import INSTANT, INTEGER, STORED_SCHEMA, SYSTEM_NAMES
from spark_connectors.transport.aws.wire import Message

_NONE: Mapping[str, Any] = {}
_MEMBERS = {
    "message_id": "MessageId",
    "body": "Body",
    "md5_of_body": "MD5OfBody",
    "receipt_handle": "ReceiptHandle",
}


class Received(NamedTuple):
    """A message, and when it came: seconds since the epoch.

    ``asked_at``: no later than the begin of its visibility timeout. ``older``: receipts of it that
    came before this one, or at the same time.
    """

    message: Message
    received_at: float
    asked_at: float = 0.0
    older: tuple[str, ...] = ()

    @property
    def receipts(self) -> tuple[str, ...]:
        """All receipts of it, the newest last."""
        return (*self.older, self.message["ReceiptHandle"])


def body_size(message: Message) -> int:
    """Of the body, in bytes."""
    body: str = message["Body"]
    return len(body) if body.isascii() else len(body.encode("utf-8", "surrogatepass"))


def stored_batch(
    queue_name: str, messages: Sequence[Received], kept: Collection[str] = STORED_SCHEMA.names
) -> pa.RecordBatch:
    """The messages in STORED_SCHEMA, in their order; what is not ``kept`` is null.

    What the service did not say is null, and so is a number that is none. By column, because a call
    of Arrow per message costs more than receiving it.
    """
    plain = [received.message for received in messages]
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
