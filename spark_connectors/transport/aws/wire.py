"""What the connectors send to SQS and SNS and receive of them, whoever carries it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

# A message as SQS's JSON protocol gives it: MessageId, ReceiptHandle, Body, MD5OfBody, Attributes
# (name -> text), MessageAttributes (name -> DataType, StringValue, BinaryValue as bytes).
Message = Mapping[str, Any]

MOST_PER_CALL = 10
"""Of SQS and SNS; ``Transport.most_per_call`` may be more."""


class Taken(NamedTuple):
    """An entry of a batch that the service has."""

    message_id: str
    sequence_number: str | None = None


class Entry(NamedTuple):
    """One message to send or publish. ``attributes``: name -> (data type, text or bytes)."""

    body: str
    attributes: Mapping[str, tuple[str, str | bytes]] = {}
    group_id: str | None = None
    deduplication_id: str | None = None
    delay_seconds: int | None = None  # queues only
    subject: str | None = None  # topics only
    message_structure: str | None = None  # topics only
    trace_header: str | None = None  # of AWS X-Ray; queues only


class Wanted(NamedTuple):
    """Names of attributes to receive with a message."""

    attributes: Sequence[str] = ("All",)
    system: Sequence[str] = ("All",)


EVERYTHING = Wanted()


class QueueFigures(NamedTuple):
    """Approximate counts of a queue, as GetQueueAttributes gives them."""

    visible: int
    in_flight: int
    delayed: int
