"""Sends: the checks that hold for every face, and the entry for the lane.

``send`` hands an entry to a lane and returns; its reply comes when the flush has been committed.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from gateway.operations.identifiers import bad_id, new_id
from protocol import names
from protocol.digests import md5_of_bytes
from storage.errors import InvalidMessageContents, InvalidParameterValue
from storage.queues.message_entries import Send
from storage.queues.rows import row_of

if TYPE_CHECKING:
    from gateway.operations.caller import Caller
    from gateway.operations.engine import Engine
    from storage.lanes import Reply
    from storage.model import NewMessage, Queue, SentMessage


class Sending(NamedTuple):
    """How messages are sent."""

    wants_sequences: bool = False
    """Whether the reply is to tell the sequences of standard queues, too."""
    is_async: bool = False
    """The reply need not wait for the disk, if all of its flush agree. Standard queues."""


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
    (docs/contract/sqs.md 2.7). Refused with QueueDoesNotExist.
    """
    instant = None
    if queue.grouped_from is not None:
        instant = engine.clock.of(queue.account_id).instant
    sender_id = caller.principal
    rows = [row_of(queue, one, new_id(), sender_id, instant) for one in messages]
    entry = Send(rows, _Sent(engine, queue, reply), size_bytes)
    if how is not _PLAIN:
        entry.wants_sequences, entry.is_async = how
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


class Outgoing(NamedTuple):
    """A message for ``check`` and ``send_all``."""

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

    Raises InvalidParameterValue and its like, with the place of the message when there are several.
    """
    new: list[NewMessage] = []
    size = 0
    for place, one in _placed(messages):
        encoded = check(engine, queue, one, place)
        size += len(encoded) + one.attribute_bytes
        new.append(one.message._replace(digest=md5_of_bytes(encoded)))
    how = Sending(wants_sequences=True, is_async=is_async)
    send(engine, caller, queue, new, size, reply, how)


def _placed(messages: list[Outgoing]) -> list[tuple[str, Outgoing]]:
    if len(messages) == 1:
        return [("", messages[0])]
    return [(f"Message {number}: ", one) for number, one in enumerate(messages, 1)]


def check(engine: Engine, queue: Queue, outgoing: Outgoing, place: str = "") -> bytes:
    """The UTF-8 of a message that the queue takes. Refusals begin with ``place``."""
    message, attribute_bytes = outgoing
    try:
        encoded = message.body.encode()
    except UnicodeEncodeError:
        raise InvalidMessageContents(f"{place}the message is not valid Unicode.") from None
    if names.invalid_utf8(encoded):
        raise InvalidMessageContents(
            f"{place}the message holds a character that XML, and so SQS, cannot express "
            "(U+FFFE, U+FFFF or a control character). Escape it, as in \\uffff."
        )
    most = queue.maximum_message_size_bytes
    if len(encoded) + attribute_bytes > most:
        raise InvalidParameterValue(
            f"{place}the message and its headers have {len(encoded) + attribute_bytes} "
            f"bytes; queue '{queue.name}' takes {most}."
        )
    delay, most_delay = message.delay_seconds, engine.limits.delay_seconds
    if delay is not None and not 0 <= delay <= most_delay:
        raise InvalidParameterValue(f"{place}delay is {delay}; allowed is 0 to {most_delay}.")
    _check_ids(queue, message, place)
    return encoded


def _check_ids(queue: Queue, message: NewMessage, place: str) -> None:
    group_id, deduplication_id = message.group_id, message.deduplication_id
    if group_id is not None and not names.is_fifo_id(group_id):
        raise bad_id("group_id", group_id)
    if deduplication_id is not None and not names.is_fifo_id(deduplication_id):
        raise bad_id("deduplication_id", deduplication_id)
    if not queue.kind.has_groups:
        if deduplication_id is not None:
            raise InvalidParameterValue(
                f"{place}deduplication_id is for FIFO queues, '{queue.name}' is none."
            )
        return
    if group_id is None:
        raise InvalidParameterValue(f"{place}a message for a FIFO queue needs a group_id.")
    if message.delay_seconds:
        raise InvalidParameterValue(
            f"{place}messages of FIFO queues have no delay of their own; set the queue's."
        )
