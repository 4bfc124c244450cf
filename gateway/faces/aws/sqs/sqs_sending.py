"""SendMessage and SendMessageBatch: SQS's checks and digests, and the answer to the sender."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import orjson

from queuegate.gateway.faces.aws import aws_message_attributes
from queuegate.gateway.faces.aws.aws_rules import AWS
from queuegate.gateway.operations.queues import sends
from queuegate.gateway.operations.queues.json_messages import Values
from queuegate.gateway.operations.queues.sends import NOT_URGENT, SendRequest
from queuegate.protocol import opaque_tokens
from queuegate.protocol.digests import md5_of_attributes, md5_of_bytes
from queuegate.storage.queue_model import NewMessage, Queue, SentMessage
from queuegate.storage.storage_errors import (
    BatchRequestTooLong,
    DeduplicationIdMissing,
    InvalidParameterValue,
    MessageIncomplete,
    PriorEntryRefused,
    QueueFull,
    Rejected,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.gateway.operations.runtime.limits import Limits
    from queuegate.gateway.operations.runtime.replies import Reply


_NOTHING_MORE = NewMessage("")[7:]
SYSTEM_ATTRIBUTES = frozenset({"AWSTraceHeader"})


class SendMessage(NamedTuple):
    """One message to send. ``delay_seconds`` None: the queue's."""

    body: str | None
    delay_seconds: int | None = None
    attributes: Values | None = None
    system_attributes: Values | None = None
    group_id: str | None = None
    deduplication_id: str | None = None


class SendResult:
    """The answer to one send, and the reply that waits for the stored message. One object serves
    both, because sends are the hottest path."""

    __slots__ = (
        "_reply",
        "failed",
        "md5_of_attributes",
        "md5_of_body",
        "md5_of_system_attributes",
        "message_id",
        "sequence_number",
    )

    def __init__(
        self, md5_of_body: str, md5_of_attributes: str | None, md5_of_system: str | None
    ) -> None:
        self.md5_of_body = md5_of_body
        self.md5_of_attributes = md5_of_attributes
        self.md5_of_system_attributes = md5_of_system
        self.message_id = ""
        self.sequence_number: str | None = None

    def answering(self, reply: Reply[SendResult]) -> SendResult:
        """Complete this reply once the message is stored."""
        self._reply = reply
        self.failed = reply.failed
        return self

    def done(self, sent: list[SentMessage]) -> None:
        """Complete the reply with the only message."""
        self._reply.done(self.of(sent[0]))

    def of(self, sent: SentMessage) -> SendResult:
        """Complete the answer with the stored message."""
        self.message_id = sent.message_id
        if sent.sequence is not None:
            self.sequence_number = opaque_tokens.queue_sequence_number(sent.sequence)
        return self


class _Batch:
    """A reply that merges stored messages with refused entries of a batch."""

    __slots__ = ("_outcomes", "_reply", "failed")

    def __init__(
        self, outcomes: list[SendResult | Rejected], reply: Reply[list[SendResult | Rejected]]
    ) -> None:
        self._outcomes = outcomes
        self._reply = reply
        self.failed = reply.failed

    def done(self, sent: list[SentMessage]) -> None:
        left = iter(sent)
        self._reply.done(
            [one.of(next(left)) if isinstance(one, SendResult) else one for one in self._outcomes]
        )


class _BoundedBatch(_Batch):
    """The same for a bounded queue: the last messages may be refused with QueueFull."""

    __slots__ = ()

    def done(self, sent: Sequence[SentMessage | QueueFull]) -> None:
        left = iter(sent)
        self._reply.done(
            [
                _outcome_of(one, next(left)) if isinstance(one, SendResult) else one
                for one in self._outcomes
            ]
        )


def _outcome_of(one: SendResult, became: SentMessage | QueueFull) -> SendResult | QueueFull:
    return became if isinstance(became, QueueFull) else one.of(became)


def send_message(
    engine: Engine, caller: Caller, queue: Queue, request: SendMessage, reply: Reply[SendResult]
) -> None:
    """Send one message. A duplicate within 5 minutes on a FIFO queue gets the ids of the first
    message (docs/contract/sqs.md 2.7)."""
    if queue.kind.has_groups and request.group_id is None:
        raise MessageIncomplete("group_id")
    sent, new, size = _checked(engine, queue, request)
    if request.attributes:
        queue = sends.queue_for(queue, new)
    sends.send(engine, caller, queue, [new], size, sent.answering(reply))


def send_messages(
    engine: Engine,
    caller: Caller,
    queue: Queue,
    requests: list[SendMessage],
    reply: Reply[list[SendResult | Rejected]],
) -> None:
    """Send a batch in order; the reply has one outcome for each request.

    On a FIFO queue later messages in the group of a refused one are refused with PriorEntryRefused:
    clients keep the order by sending all refused ones again. A queue without room for all messages
    accepts the first ones; the others get QueueFull.
    """
    check_batch_ids(queue, requests)
    outcomes: list[SendResult | Rejected] = []
    good: list[NewMessage] = []
    closed: set[str | None] = set()
    total = 0
    for request in requests:
        try:
            sent, new, size = _checked(engine, queue, request)
        except Rejected as refusal:
            outcomes.append(refusal)
            total += _raw_size(request)
            if queue.kind.has_groups:
                closed.add(request.group_id)
            continue
        total += size
        if closed and request.group_id in closed:
            outcomes.append(PriorEntryRefused(request.group_id or ""))
        else:
            outcomes.append(sent)
            good.append(new)
            if request.attributes:
                queue = sends.queue_for(queue, new)
    if total > AWS.batch_bytes:
        raise BatchRequestTooLong(
            f"Batch requests cannot be longer than {AWS.batch_bytes} bytes. "
            f"You have sent {total} bytes."
        )
    if not good:
        reply.done(outcomes)
    elif queue.most_messages is None:
        sends.send(engine, caller, queue, good, total, _Batch(outcomes, reply))
    else:
        batch = _BoundedBatch(outcomes, reply)
        sends.send(engine, caller, queue, good, total, batch, SendRequest(is_partial=True))


def check_batch_ids(queue: Queue, requests: list[SendMessage]) -> None:
    """Refuse a FIFO batch as a whole if an entry lacks an id (docs/contract/sqs.md 2.8)."""
    if not queue.kind.has_groups:
        return
    for request in requests:
        if request.group_id is None:
            raise InvalidParameterValue("The request must contain the parameter MessageGroupId.")
    if queue.makes_deduplication_ids:
        return
    for request in requests:
        if request.deduplication_id is None:
            raise DeduplicationIdMissing(queue.name)


def _raw_size(request: SendMessage) -> int:
    """Return the bytes of a refused entry, which count towards the batch limit."""
    size = len((request.body or "").encode(errors="replace"))
    for name, value in (request.attributes or {}).items():
        payload = value.get("StringValue") or value.get("BinaryValue") or ""
        size += len(name) + len(value.get("DataType") or "") + len(payload)
    return size


def _checked(
    engine: Engine, queue: Queue, request: SendMessage
) -> tuple[SendResult, NewMessage, int]:
    """Check one message. Return its answer, the new message, and its size."""
    body, delay_seconds, values, system_values, group_id, deduplication_id = request
    encoded = sends.utf8_of(body)
    stored = md5 = system = system_md5 = None
    urgency = NOT_URGENT
    size = len(encoded)
    if values:
        stored, md5, attribute_bytes = aws_message_attributes.check(values, engine.limits)
        size += attribute_bytes
        urgency = sends.urgency_of(values, engine.limits)
    digest = md5_of_bytes(encoded)
    assert body is not None
    # Three times as fast as calling the class.
    new = tuple.__new__(
        NewMessage,
        (body, stored, None, delay_seconds, group_id, deduplication_id, digest, *_NOTHING_MORE),
    )
    if urgency is not NOT_URGENT:
        new = new._replace(priority=urgency[0], ttl_seconds=urgency[1])
    sends.check(engine, queue, new, size)
    if system_values:
        system, system_md5 = _system_attributes(system_values, engine.limits)
        new = new._replace(system=system)
    return SendResult(digest.hex(), md5, system_md5), new, size


def _system_attributes(values: Values, limits: Limits) -> tuple[str, str | None]:
    """Return the rare system attributes as JSON, and their MD5."""
    for name, value in values.items():
        if name not in SYSTEM_ATTRIBUTES:
            raise InvalidParameterValue(
                f"Message system attribute name '{name}' is invalid. Only AWSTraceHeader is "
                "supported."
            )
        if value.get("DataType") != "String":
            raise InvalidParameterValue(
                f"The type of message system attribute '{name}' is invalid. It must be String."
            )
    checked = aws_message_attributes.check(values, limits)
    system = {name: value["StringValue"] for name, value in values.items()}
    return orjson.dumps(system).decode(), checked.md5 or md5_of_attributes(values)
