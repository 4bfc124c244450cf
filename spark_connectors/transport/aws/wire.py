"""What the connectors need of SQS and SNS, whoever carries it: the interface of all transports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from spark_connectors.errors import Fault

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


class Transport(Protocol):
    """Calls to one endpoint. Safe to use from several threads; each call retries what is passing.

    Every method raises Refused, or NotNow when retries (full jitter, 8 of them by default) are
    used up.
    """

    @property
    def most_per_call(self) -> int:
        """Messages that one call can receive, hide or delete: 10, or what the endpoint offers
        beyond SQS."""
        ...

    def receive(
        self,
        queue_url: str,
        *,
        most: int = MOST_PER_CALL,
        visibility_seconds: int | None = None,
        wait_seconds: int = 0,
        attempt_id: str | None = None,
        wanted: Wanted = EVERYTHING,
    ) -> list[Message]:
        """ReceiveMessage with the attributes that are wanted; fewer than
        ``most`` where that is more than one call can.

        ``attempt_id``: ReceiveRequestAttemptId of FIFO; a retry after a lost answer sends the same.
        """
        ...

    def delete(self, queue_url: str, receipts: Sequence[str]) -> list[Fault | None]:
        """DeleteMessageBatch, in as many calls as it needs; None where it was deleted, in their
        order."""
        ...

    def change_visibility(
        self, queue_url: str, receipts: Sequence[str], seconds: int
    ) -> list[Fault | None]:
        """ChangeMessageVisibilityBatch, likewise."""
        ...

    def send(self, queue_url: str, entries: Sequence[Entry]) -> list[Taken | Fault]:
        """SendMessageBatch of at most 10 entries, in their order."""
        ...

    def publish(self, topic_arn: str, entries: Sequence[Entry]) -> list[Taken | Fault]:
        """PublishBatch of at most 10 entries, in their order."""
        ...

    def figures(self, queue_url: str) -> QueueFigures:
        """GetQueueAttributes of the three counts."""
        ...

    def attributes(self, queue_url: str) -> dict[str, str]:
        """GetQueueAttributes: All."""
        ...

    def queue_url(self, name: str, owner_account_id: str | None = None) -> str:
        """GetQueueUrl."""
        ...

    def close(self) -> None:
        """Close connections. A call afterwards opens new ones."""
        ...
