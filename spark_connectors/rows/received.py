"""Messages as a transport gives them -> the batch that a segment stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from spark_connectors.rows.columns import Attribute, attribute_maps, counts, milliseconds, texts
from spark_connectors.rows.schema import INSTANT, STORED_SCHEMA
from spark_connectors.transport.aws.wire import Message

_NONE: Mapping[str, Any] = {}


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


def stored_batch(queue_name: str, messages: Sequence[Received]) -> pa.RecordBatch:
    """The messages in STORED_SCHEMA, in their order.

    What the service did not say is null, and so is a number that is none. By column, because a call
    of Arrow per message costs more than receiving it.
    """
    plain = [received.message for received in messages]
    system = [message.get("Attributes") or _NONE for message in plain]

    def named(name: str) -> list[str | None]:
        return [attributes.get(name) for attributes in system]

    instants = [round(received.received_at * 1_000_000) for received in messages]
    columns = {
        "queue": texts([queue_name] * len(plain)),
        "message_id": texts([message.get("MessageId") for message in plain]),
        "body": texts([message.get("Body") for message in plain]),
        "sent_timestamp": milliseconds(named("SentTimestamp"), INSTANT),
        "first_receive_timestamp": milliseconds(named("ApproximateFirstReceiveTimestamp"), INSTANT),
        "approximate_receive_count": counts(named("ApproximateReceiveCount")),
        "message_group_id": texts(named("MessageGroupId")),
        "message_deduplication_id": texts(named("MessageDeduplicationId")),
        "sequence_number": texts(named("SequenceNumber")),
        "sender_id": texts(named("SenderId")),
        "message_attributes": attribute_maps([_attributes(message) for message in plain]),
        "aws_trace_header": texts(named("AWSTraceHeader")),
        "dead_letter_source": texts(named("DeadLetterQueueSourceArn")),
        "md5_of_body": texts([message.get("MD5OfBody") for message in plain]),
        "receive_timestamp": pa.array(instants, pa.int64()).cast(INSTANT),
        "receipt_handle": texts([message.get("ReceiptHandle") for message in plain]),
    }
    return pa.RecordBatch.from_arrays(
        [columns[name] for name in STORED_SCHEMA.names], schema=STORED_SCHEMA
    )


def _attributes(message: Message) -> Sequence[Attribute]:
    given: Mapping[str, Mapping[str, Any]] | None = message.get("MessageAttributes")
    if not given:
        return ()
    return [
        Attribute(name, value.get("DataType"), value.get("StringValue"), value.get("BinaryValue"))
        for name, value in given.items()
    ]
