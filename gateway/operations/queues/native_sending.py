"""Sends of the native API: whole batches or nothing, and callers get to know the sequences."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from gateway.operations.identifiers import bad_id, new_id
from protocol import names
from protocol.digests import md5_of_bytes
from storage.errors import (
    InvalidMessageContents,
    InvalidParameterValue,
    QueueDoesNotExist,
)
from storage.model import NewMessage
from storage.queues.fifo_entries import FifoSend
from storage.queues.messages import NativeSend
from storage.queues.rows import row_of

if TYPE_CHECKING:
    from gateway.operations.caller import Caller
    from gateway.operations.engine import Engine
    from gateway.operations.queues.receiving import Reply
    from storage.model import Queue


class NativeMessage(NamedTuple):
    """One message to send."""

    body: str
    attributes: str | None = None
    """As queues keep them (``operations.queues.message_attributes.stored``); checked already."""
    attribute_bytes: int = 0
    delay_seconds: int | None = None
    """None: the queue's."""
    group_id: str | None = None
    deduplication_id: str | None = None
    sync_commit: bool = True
    """False: the reply need not wait for the disk, if all of its flush agree. Standard queues."""


def send_native(
    engine: Engine, caller: Caller, queue: Queue, messages: list[NativeMessage], reply: Reply
) -> None:
    """Send messages in order, all or none; the reply is list[int], their sequences.

    A duplicate of the last five minutes on a FIFO queue gets the first one's. Raises
    InvalidParameterValue and its like, with the place of the message when there are several.
    """
    checked = [check(engine, queue, one, place) for place, one in _placed(messages)]
    size = sum([len(encoded) for encoded in checked]) + sum([m.attribute_bytes for m in messages])
    started = perf_counter()

    def done(result: object, count: int, sequences: list[int]) -> None:
        if isinstance(result, BaseException):
            if isinstance(result, QueueDoesNotExist):
                engine.queues.forget(queue.queue_id)
            reply(result)
            return
        if count:
            engine.wakeups.arrived(queue.queue_id, count)
            engine.series.sent(queue, count, started)
        reply(sequences)

    instant = engine.clock.of(queue.account_id).instant
    rows = [
        row_of(queue, _new(one, encoded), new_id(), caller.principal, instant)
        for one, encoded in zip(messages, checked, strict=True)
    ]
    if queue.is_fifo:

        def done_fifo(result: object) -> None:
            if isinstance(result, list):
                fresh = sum([1 for _, _, is_duplicate in result if not is_duplicate])
                done(None, fresh, [sequence for _, sequence, _ in result])
            else:
                done(result, 0, [])

        engine.fifo.send.submit(FifoSend(rows, done_fifo, size))
        return
    entry = NativeSend(
        rows,
        lambda result: done(result, len(messages), entry.sequences),
        size,
        is_async=not any(one.sync_commit for one in messages),
    )
    engine.standard.send.submit(entry)


def _placed(messages: list[NativeMessage]) -> list[tuple[str, NativeMessage]]:
    if len(messages) == 1:
        return [("", messages[0])]
    return [(f"Message {number}: ", one) for number, one in enumerate(messages, 1)]


def check(engine: Engine, queue: Queue, message: NativeMessage, place: str = "") -> bytes:
    """The UTF-8 of a message that the queue takes. Refusals, as of ``send_native``, begin with
    ``place``."""
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
    if len(encoded) + message.attribute_bytes > most:
        raise InvalidParameterValue(
            f"{place}the message and its headers have {len(encoded) + message.attribute_bytes} "
            f"bytes; queue '{queue.name}' takes {most}."
        )
    delay, most_delay = message.delay_seconds, engine.limits.delay_seconds
    if delay is not None and not 0 <= delay <= most_delay:
        raise InvalidParameterValue(f"{place}delay is {delay}; allowed is 0 to {most_delay}.")
    _check_ids(queue, message, place)
    return encoded


def _check_ids(queue: Queue, message: NativeMessage, place: str) -> None:
    group_id, deduplication_id = message.group_id, message.deduplication_id
    if group_id is not None and not names.is_fifo_id(group_id):
        raise bad_id("group_id", group_id)
    if deduplication_id is not None and not names.is_fifo_id(deduplication_id):
        raise bad_id("deduplication_id", deduplication_id)
    if not queue.is_fifo:
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


def _new(message: NativeMessage, encoded: bytes) -> NewMessage:
    return NewMessage(
        message.body,
        message.attributes,
        None,
        message.delay_seconds,
        message.group_id,
        message.deduplication_id,
        md5_of_bytes(encoded),
    )
