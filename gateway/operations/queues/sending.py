"""Sends: the checks that hold for every face, and the entry for the lane.

``send`` hands an entry to a lane and returns; its reply comes when the flush has been committed.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from queuegate.gateway.operations.identifiers import new_id
from queuegate.gateway.operations.queues import priorities
from queuegate.protocol import names
from queuegate.storage.errors import (
    DeduplicationIdMissing,
    DeduplicationIdUnfit,
    DelayOutOfRange,
    DelayUnfit,
    IdInvalid,
    InvalidMessageContents,
    InvalidParameterValue,
    MessageIncomplete,
    MessageTooLarge,
    QueueFull,
    Rejected,
)
from queuegate.storage.queues.message_entries import BoundedSend, Send
from queuegate.storage.queues.rows import row_of

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.lanes import Reply
    from queuegate.storage.model import NewMessage, Queue, SentMessage
    from queuegate.storage.queues.rows import Row


class Sending(NamedTuple):
    """How messages are sent."""

    wants_sequences: bool = False
    """Whether the reply is to tell the sequences of standard queues, too."""
    is_async: bool = False
    """The reply need not wait for the disk, if all of its flush agree. Standard queues."""
    is_partial: bool = False
    """To a queue that holds only so many, as many as fit: the reply has a QueueFull for each other
    one. To any other queue it makes no difference."""


_PLAIN = Sending()


def send(
    engine: Engine,
    caller: Caller,
    queue: Queue,
    messages: list[NewMessage],
    size_bytes: int,
    reply: Reply[list[SentMessage]],
    how: Sending = _PLAIN,
) -> None:
    """Send messages in order, all or none of them. They were checked.

    A duplicate of the last five minutes on a FIFO queue gets the first one's ids
    (docs/contract/sqs.md 2.7), on a serial queue one whose first is still there. Refused with
    QueueDoesNotExist and QueueFull.
    """
    instant = None
    if queue.grouped_from is not None:
        instant = engine.clock.of(queue.account_id).instant
    sender_id = caller.principal
    rows = [row_of(queue, one, new_id(), sender_id, instant) for one in messages]
    if queue.most_messages is not None:
        _send_bounded(engine, queue, rows, size_bytes, reply, how)
        return
    entry = Send(rows, _Sent(engine, queue, reply), size_bytes)
    if how is not _PLAIN:
        entry.wants_sequences, entry.is_async, _ = how
    engine.lanes_of[queue.kind].send.submit(entry)


class _Sent:
    """Waits for a send: wakes who waits for messages, counts, and tells the sender."""

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


def _send_bounded(
    engine: Engine,
    queue: Queue,
    rows: list[Row],
    size_bytes: int,
    reply: Reply[list[Any]],
    how: Sending,
) -> None:
    entry = BoundedSend(queue, rows, _SentBounded(engine, queue, reply, len(rows)), size_bytes)
    entry.wants_sequences, _, entry.is_partial = how
    engine.bounded.send.submit(entry)


class _SentBounded:
    """``_Sent`` of a queue that may be full: refusals are counted, too."""

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


class Outgoing(NamedTuple):
    """A message for ``send_all``."""

    message: NewMessage
    attribute_bytes: int = 0
    """What its attributes count; they were checked."""


def send_all(
    engine: Engine,
    caller: Caller,
    queue: Queue,
    messages: list[Outgoing],
    is_async: bool,
    reply: Reply[list[SentMessage]],
) -> None:
    """Check messages and send them in order, all or none; the reply tells their sequences.

    Raises what ``checked`` raises; when there are several, InvalidParameterValue with the number of
    the message.
    """
    new: list[NewMessage] = []
    size = 0
    for number, (message, attribute_bytes) in enumerate(messages, 1):
        try:
            encoded = checked(engine, queue, message, attribute_bytes)
        except Rejected as refusal:
            if len(messages) == 1 or isinstance(refusal, IdInvalid):
                # A bad id is quoted, and says itself which message it is of.
                raise
            raise InvalidParameterValue(f"Message {number}: {refusal}") from None
        size += len(encoded) + attribute_bytes
        new.append(message)
        queue = priorities.queue_for(queue, message)
    how = Sending(wants_sequences=True, is_async=is_async)
    send(engine, caller, queue, new, size, reply, how)


def utf8_of(body: str | None) -> bytes:
    """The bytes of a body that any wire can carry (docs/contract/sqs.md 2.1). Raises
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
    """The bytes of the body of a message that the queue takes.

    Raises what ``utf8_of`` and ``check`` raise: of several faults the size first, then ids, then
    what does not go with the queue.
    """
    encoded = utf8_of(message.body)
    size_bytes = len(encoded) + attribute_bytes
    if size_bytes <= queue.maximum_message_size_bytes:
        _check_ids(queue, message.group_id, message.deduplication_id)
    check(engine, queue, message, size_bytes, makes_id=True)
    return encoded


def check(
    engine: Engine, queue: Queue, message: NewMessage, size_bytes: int, *, makes_id: bool = False
) -> None:
    """Refuse a message that the queue does not take: the size of its body with its attributes, its
    delay, its ids. ``makes_id``: on a FIFO queue that makes no deduplication id of the content, one
    is made of it all the same, as serial queues do. Raises leaves of InvalidParameterValue."""
    _, _, _, delay_seconds, group_id, deduplication_id, _, _, priority, ttl_seconds = message
    if size_bytes > queue.maximum_message_size_bytes:
        raise MessageTooLarge(size_bytes, queue.maximum_message_size_bytes, queue.name)
    has_groups = queue.kind.has_groups
    if has_groups and group_id is None:
        raise MessageIncomplete("group_id", queue.kind.order)
    if delay_seconds:
        _check_delay(engine, queue, delay_seconds)
    if priority is not None or ttl_seconds is not None:
        priorities.check(engine, queue, priority, ttl_seconds)
    if deduplication_id is None:
        if has_groups and not (makes_id or queue.makes_deduplication_ids):
            raise DeduplicationIdMissing(queue.name)
    elif not has_groups:
        _check_ids(queue, group_id, None)
        raise DeduplicationIdUnfit(deduplication_id, queue.name)
    if group_id is not None or deduplication_id is not None:
        _check_ids(queue, group_id, deduplication_id)


def _check_ids(queue: Queue, group_id: str | None, deduplication_id: str | None) -> None:
    fits, allowed = names.is_fifo_id, ""
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
