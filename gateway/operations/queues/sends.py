"""Sends: checks that all faces share, and entries for the lane; priorities and times to live.

``send`` submits an entry to a lane and returns; the reply follows the commit of the flush.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from queuegate.gateway.operations.runtime.identifiers import new_id
from queuegate.protocol import names
from queuegate.storage.queues.kinds import PRIORITISED, prioritised
from queuegate.storage.queues.messages import BoundedSend, Send, row_of
from queuegate.storage.storage_errors import (
    DeduplicationIdMissing,
    DeduplicationIdUnfit,
    DelayOutOfRange,
    DelayUnfit,
    IdInvalid,
    InvalidMessageContents,
    InvalidParameterValue,
    MessageIncomplete,
    MessageTooLarge,
    PriorityOutOfRange,
    PriorityUnfit,
    QueueFull,
    Rejected,
    TtlOutOfRange,
)

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.queues.json_messages import Values
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.gateway.operations.runtime.limits import Limits
    from queuegate.storage.lanes import Reply
    from queuegate.storage.queue_model import NewMessage, Queue, SentMessage


class SendRequest(NamedTuple):
    """Options of a send."""

    wants_sequences: bool = False
    """Return sequences of standard queues, too."""
    is_async: bool = False
    """Reply before the result is on disk if the whole flush allows it. Standard queues only."""
    is_partial: bool = False
    """Send as many messages as a bounded queue has capacity for; the reply has a QueueFull for each
    other one. No effect on other queues."""


_PLAIN = SendRequest()


def send(
    engine: Engine,
    caller: Caller,
    queue: Queue,
    messages: list[NewMessage],
    size_bytes: int,
    reply: Reply[list[SentMessage]],
    how: SendRequest = _PLAIN,
) -> None:
    """Send checked messages in order, all or none. On a FIFO queue, a duplicate within five minutes
    gets the ids of the first message (docs/contract/sqs.md 2.7); on a strict FIFO queue, while the
    first message exists. Fails with QueueDoesNotExist or QueueFull."""
    if engine.faults is not None and queue.most_messages is None:
        messages, how, reply = engine.faults.late_send(queue, messages, how, reply)
    instant = None
    if queue.grouped_from is not None:
        instant = engine.clock.of(queue.account_id).instant
    sender_id = caller.principal
    rows = [row_of(queue, one, new_id(), sender_id, instant) for one in messages]
    if queue.most_messages is not None:
        sent = _SentBounded(engine, queue, reply, len(rows))
        bounded = BoundedSend(queue, rows, sent, size_bytes)
        bounded.wants_sequences, _, bounded.is_partial = how
        engine.publish.lane.submit(bounded)
        return
    entry = Send(rows, _Sent(engine, queue, reply), size_bytes)
    if queue.kind is PRIORITISED:
        entry.variant = PRIORITISED
    if how is not _PLAIN:
        entry.wants_sequences, entry.is_async, _ = how
    engine.lanes_of[queue.kind].send.submit(entry)


class _Sent:
    """The reply to a send: wakes receivers, counts, and replies to the sender."""

    __slots__ = ("_engine", "_queue", "_reply", "_started", "failed")

    def __init__(self, engine: Engine, queue: Queue, reply: Reply[list[SentMessage]]) -> None:
        self._engine = engine
        self._queue = queue
        self._reply = reply
        self._started = perf_counter()
        self.failed = reply.failed

    def done(self, sent: list[SentMessage]) -> None:
        fresh = len(sent)
        if self._queue.kind.has_groups:
            fresh -= sum([one.is_duplicate for one in sent])
        if fresh:
            engine, queue = self._engine, self._queue
            engine.wakeups.arrived(queue.queue_id, fresh)
            engine.series.sent(queue, fresh, self._started)
        self._reply.done(sent)


class _SentBounded:
    """``_Sent`` for a bounded queue: counts refusals, too."""

    __slots__ = ("_count", "_engine", "_queue", "_reply", "_started")

    def __init__(self, engine: Engine, queue: Queue, reply: Reply[list[Any]], count: int) -> None:
        self._engine = engine
        self._queue = queue
        self._reply = reply
        self._count = count
        self._started = perf_counter()

    def done(self, sent: list[SentMessage | QueueFull]) -> None:
        engine, queue = self._engine, self._queue
        written = [one for one in sent if not isinstance(one, QueueFull)]
        fresh = sum([not one.is_duplicate for one in written])
        if fresh:
            engine.wakeups.arrived(queue.queue_id, fresh)
            engine.series.sent(queue, fresh, self._started)
        if len(written) < len(sent):
            engine.series.was_full(queue, len(sent) - len(written))
        self._reply.done(sent)

    def failed(self, error: BaseException) -> None:
        if isinstance(error, QueueFull):
            self._engine.series.was_full(self._queue, self._count)
        self._reply.failed(error)


class MessageToSend(NamedTuple):
    """A message for ``send_all``."""

    message: NewMessage
    attribute_bytes: int = 0
    """Size of its checked attributes."""


def send_all(
    engine: Engine,
    caller: Caller,
    queue: Queue,
    messages: list[MessageToSend],
    is_async: bool,
    reply: Reply[list[SentMessage]],
) -> None:
    """Check messages and send them in order, all or none; the reply has their sequences. Raises
    errors of ``checked``; for several messages, InvalidParameterValue with the index of the
    message."""
    new: list[NewMessage] = []
    size = 0
    for number, (message, attribute_bytes) in enumerate(messages, 1):
        try:
            encoded = checked(engine, queue, message, attribute_bytes)
        except Rejected as refusal:
            if len(messages) == 1 or isinstance(refusal, IdInvalid):
                # The text of an id's error already identifies the message.
                raise
            raise InvalidParameterValue(f"Message {number}: {refusal}") from None
        size += len(encoded) + attribute_bytes
        new.append(message)
        queue = queue_for(queue, message)
    how = SendRequest(wants_sequences=True, is_async=is_async)
    send(engine, caller, queue, new, size, reply, how)


def utf8_of(body: str | None) -> bytes:
    """Return the bytes of a body that every face can represent (docs/contract/sqs.md 2.1). Raises
    MessageIncomplete and InvalidMessageContents."""
    if not body:
        raise MessageIncomplete("body")
    try:
        encoded = body.encode()
    except UnicodeEncodeError:
        raise InvalidMessageContents(is_unicode=False) from None
    if names.invalid_utf8(encoded):
        raise InvalidMessageContents(is_unicode=True)
    return encoded


def checked(engine: Engine, queue: Queue, message: NewMessage, attribute_bytes: int) -> bytes:
    """Return the bytes of a message's body, if the queue accepts the message. Raises errors of
    ``utf8_of`` and ``check``: the size first, then ids, then features that the queue lacks."""
    encoded = utf8_of(message.body)
    size_bytes = len(encoded) + attribute_bytes
    if size_bytes <= queue.maximum_message_size_bytes:
        _check_ids(queue, message.group_id, message.deduplication_id)
    check(engine, queue, message, size_bytes, makes_id=True)
    return encoded


def check(
    engine: Engine, queue: Queue, message: NewMessage, size_bytes: int, *, makes_id: bool = False
) -> None:
    """Check the size of body and attributes, the delay and the ids of a message. ``makes_id``:
    create a deduplication id on a FIFO queue that does not derive it from the content, as strict
    FIFO queues do. Raises leaves of InvalidParameterValue."""
    _, _, _, delay_seconds, group_id, deduplication_id, _, _, priority, ttl_seconds = message
    if size_bytes > queue.maximum_message_size_bytes:
        raise MessageTooLarge(size_bytes, queue.maximum_message_size_bytes, queue.name)
    has_groups = queue.kind.has_groups
    if has_groups and group_id is None:
        raise MessageIncomplete("group_id", queue.kind.order)
    if delay_seconds:
        _check_delay(engine, queue, delay_seconds)
    if priority is not None or ttl_seconds is not None:
        _check_urgency(engine, queue, priority, ttl_seconds)
    if deduplication_id is None:
        if has_groups and not (makes_id or queue.makes_deduplication_ids):
            raise DeduplicationIdMissing(queue.name)
    elif not has_groups:
        _check_ids(queue, group_id, None)
        raise DeduplicationIdUnfit(deduplication_id, queue.name)
    if group_id is not None or deduplication_id is not None:
        _check_ids(queue, group_id, deduplication_id)


def _check_ids(queue: Queue, group_id: str | None, deduplication_id: str | None) -> None:
    fits, allowed = names.is_fifo_id, IdInvalid.allowed
    if queue.is_serial:
        fits, allowed = names.is_text_id, "is text without control characters"
    if group_id is not None and not fits(group_id):
        raise IdInvalid("group_id", group_id, allowed)
    if deduplication_id is not None and not fits(deduplication_id):
        raise IdInvalid("deduplication_id", deduplication_id, allowed)


def _check_delay(engine: Engine, queue: Queue, seconds: int) -> None:
    if queue.kind.has_groups:
        raise DelayUnfit(seconds)
    if not 0 < seconds <= engine.limits.delay_seconds:
        raise DelayOutOfRange(seconds, engine.limits.delay_seconds)


PRIORITY = "Queuegate.Priority"
TTL = "Queuegate.TTL"
"""The message attributes for both, for producers on the AWS faces. Receivers see them like other
attributes."""
_MARK = "Queuegate."
_WHOLE = re.compile(r"[0-9]{1,9}").fullmatch

Urgency = tuple[int | None, int | None]
"""Priority, and time to live in seconds; None: unlimited."""
NOT_URGENT: Urgency = (None, None)


def _check_urgency(
    engine: Engine, queue: Queue, priority: int | None, ttl_seconds: int | None
) -> None:
    """Raise PriorityUnfit, PriorityOutOfRange or TtlOutOfRange."""
    most = engine.limits.priority
    if priority is not None and queue.kind.has_groups:
        raise PriorityUnfit(priority, queue.name)
    if priority is not None and not 0 <= priority <= most:
        raise PriorityOutOfRange(f"priority is {priority}; allowed is 0 to {most}.")
    most = engine.limits.ttl_seconds
    if ttl_seconds is not None and not 0 < ttl_seconds <= most:
        raise TtlOutOfRange(f"ttl is {ttl_seconds}; allowed is 1 to {most}.")


def queue_for(queue: Queue, message: NewMessage) -> Queue:
    """Return the queue as of the message's arrival: with priorities, if the message has a priority
    or a time to live. Pass it to ``sends.send``."""
    if not message.priority and message.ttl_seconds is None:
        return queue
    return prioritised(queue)


def urgency_of(values: Values, limits: Limits) -> Urgency:
    """Read priority and time to live from message attributes. Raises InvalidParameterValue with the
    attribute's name for an invalid value."""
    priority, ttl = values.get(PRIORITY), values.get(TTL)
    if priority is None and ttl is None:
        return NOT_URGENT
    return (
        None if priority is None else _number(PRIORITY, priority, 0, limits.priority),
        None if ttl is None else _number(TTL, ttl, 1, limits.ttl_seconds),
    )


def urgency_of_stored(stored: str | None, limits: Limits) -> Urgency:
    """Read priority and time to live from stored attributes."""
    if stored is None or _MARK not in stored:
        return NOT_URGENT
    return urgency_of(orjson.loads(stored), limits)


def _number(name: str, value: Mapping[str, Any], least: int, most: int) -> int:
    text = value.get("StringValue") or ""
    is_number = names.base_type(value.get("DataType") or "") == "Number"
    if not is_number or not _WHOLE(text) or not least <= int(text) <= most:
        raise InvalidParameterValue(
            f"Value {text} for message attribute {name} is invalid. Reason: {name} must be a whole "
            f"Number >= {least} and <= {most}."
        )
    return int(text)
