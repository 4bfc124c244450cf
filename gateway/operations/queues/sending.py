"""SendMessage and its batch: checks, digests, and the entry for the lane.

These operations hand an entry to a lane and return; ``reply`` gets the result or the exception when
the flush has been committed. Refusals that need no database are raised at once.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import orjson

from gateway.operations.identifiers import bad_id, new_id
from gateway.operations.queues import message_attributes
from gateway.operations.queues.message_attributes import Values
from protocol import names, sequence_numbers
from protocol.digests import md5_of_bytes
from storage.errors import (
    BatchRequestTooLong,
    InvalidMessageContents,
    InvalidParameterValue,
    MissingParameter,
    PriorEntryRefused,
    QueueDoesNotExist,
    Rejected,
)
from storage.model import NewMessage, Queue
from storage.queues.fifo_entries import FifoSend
from storage.queues.messages import Send
from storage.queues.rows import Row, row_of

if TYPE_CHECKING:
    from gateway.operations.caller import Caller
    from gateway.operations.engine import Engine
    from gateway.operations.limits import Limits
    from gateway.operations.queues.receiving import Reply

_CHARACTERS_TEXT = (
    "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | "
    "#xE000 to #xFFFD | #x10000 to #x10FFFF"
)
_DEDUPLICATION_TEXT = (
    "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId "
    "provided explicitly"
)
_SYSTEM_ATTRIBUTES = frozenset({"AWSTraceHeader"})


class SendMessage(NamedTuple):
    """One message to send. ``delay_seconds`` None: the queue's."""

    body: str | None
    delay_seconds: int | None = None
    attributes: Values | None = None
    system_attributes: Values | None = None
    group_id: str | None = None
    deduplication_id: str | None = None


class Sent(NamedTuple):
    """What the sender of one message gets to see."""

    message_id: str
    md5_of_body: str
    md5_of_attributes: str | None = None
    md5_of_system_attributes: str | None = None
    sequence_number: str | None = None


class _Checked(NamedTuple):
    """A message that passed every check: what its sender is told, and the row that it becomes."""

    sent: Sent
    row: Row
    size_bytes: int


def send_message(
    engine: Engine, caller: Caller, queue: Queue, request: SendMessage, reply: Reply
) -> None:
    """Send one message; the reply is Sent, after the commit.

    A duplicate of the last five minutes on a FIFO queue gets the first one's ids
    (docs/contract/sqs.md 2.7).
    """
    if queue.is_fifo and not request.group_id and request.group_id != "":
        raise MissingParameter("MessageGroupId")
    checked = _check(engine, caller, queue, request, "are invalid")
    if queue.is_fifo:
        _send_fifo(engine, queue, [checked], lambda result: reply(_first(result)))
        return
    started = perf_counter()

    def done(error: object) -> None:
        if error is None:
            engine.wakeups.arrived(queue.queue_id, 1)
            engine.series.sent(queue, 1, started)
            reply(checked.sent)
        else:
            _forget_deleted(engine, queue, error)
            reply(error)

    engine.standard.send.submit(Send([checked.row], done, checked.size_bytes))


def _forget_deleted(engine: Engine, queue: Queue, error: object) -> None:
    """The database knows better than the cache: the queue is gone, maybe there is a new one."""
    if isinstance(error, QueueDoesNotExist):
        engine.queues.forget(queue.queue_id)


def _first(result: object) -> object:
    return result[0] if isinstance(result, list) else result


def send_messages(
    engine: Engine, caller: Caller, queue: Queue, requests: list[SendMessage], reply: Reply
) -> None:
    """Send a batch in order; the reply is list[Sent | Rejected], one for each request.

    On a FIFO queue what follows a refused message in its group is not sent either, and refused with
    PriorEntryRefused: who sends the refused ones again keeps the order.
    """
    check_batch_ids(queue, requests)
    outcomes: list[Sent | Rejected] = []
    good: list[_Checked] = []
    total = 0
    for request in requests:
        try:
            checked = _check(engine, caller, queue, request, "cannot be validated")
        except Rejected as refusal:
            outcomes.append(refusal)
            total += _raw_size(request)
        else:
            outcomes.append(checked.sent)
            good.append(checked)
            total += checked.size_bytes
    if total > engine.limits.batch_bytes:
        raise BatchRequestTooLong(
            f"Batch requests cannot be longer than {engine.limits.batch_bytes} bytes. "
            f"You have sent {total} bytes."
        )
    if not good:
        reply(outcomes)
    elif queue.is_fifo:
        _send_fifo_batch(engine, queue, requests, outcomes=outcomes, good=good, reply=reply)
    else:
        started = perf_counter()

        def done(error: object) -> None:
            if error is None:
                engine.wakeups.arrived(queue.queue_id, len(good))
                engine.series.sent(queue, len(good), started)
            else:
                _forget_deleted(engine, queue, error)
            reply(outcomes if error is None else error)

        engine.standard.send.submit(Send([checked.row for checked in good], done, total))


def _send_fifo_batch(
    engine: Engine,
    queue: Queue,
    requests: list[SendMessage],
    *,
    outcomes: list[Sent | Rejected],
    good: list[_Checked],
    reply: Reply,
) -> None:
    closed: set[str | None] = set()
    left = iter(good)
    kept: list[_Checked] = []
    for place, request in enumerate(requests):
        if isinstance(outcomes[place], Rejected):
            closed.add(request.group_id)
            continue
        checked = next(left)
        if closed and request.group_id in closed:
            outcomes[place] = PriorEntryRefused(request.group_id or "")
        else:
            kept.append(checked)
    if kept:
        _send_fifo(engine, queue, kept, lambda result: reply(_merged(outcomes, result)))
    else:
        reply(outcomes)


def _merged(outcomes: list[Sent | Rejected], result: object) -> object:
    if not isinstance(result, list):
        return result
    sent = iter(result)
    return [o if isinstance(o, Rejected) else next(sent) for o in outcomes]


def _send_fifo(engine: Engine, queue: Queue, good: list[_Checked], reply: Reply) -> None:
    started = perf_counter()

    def done(result: object) -> None:
        if not isinstance(result, list):
            _forget_deleted(engine, queue, result)
            reply(result)
            return
        fresh = sum([1 for _, _, duplicate in result if not duplicate])
        if fresh:
            engine.wakeups.arrived(queue.queue_id, fresh)
            engine.series.sent(queue, fresh, started)
        reply(
            [
                checked.sent._replace(
                    message_id=message_id, sequence_number=sequence_numbers.of_queue(sequence)
                )
                for checked, (message_id, sequence, _) in zip(good, result, strict=True)
            ]
        )

    engine.fifo.send.submit(FifoSend([checked.row for checked in good], done))


def check_batch_ids(queue: Queue, requests: list[SendMessage]) -> None:
    """A FIFO batch fails as a whole when one entry lacks an id (docs/contract/sqs.md 2.8)."""
    if not queue.is_fifo:
        return
    for request in requests:
        if request.group_id is None:
            raise InvalidParameterValue("The request must contain the parameter MessageGroupId.")
    if queue.content_based_deduplication:
        return
    for request in requests:
        if request.deduplication_id is None:
            raise InvalidParameterValue(_DEDUPLICATION_TEXT)


def _raw_size(request: SendMessage) -> int:
    """What a refused entry counts towards the batch limit."""
    size = len((request.body or "").encode(errors="replace"))
    for name, value in (request.attributes or {}).items():
        payload = value.get("StringValue") or value.get("BinaryValue") or ""
        size += len(name) + len(value.get("DataType") or "") + len(payload)
    return size


def _check(
    engine: Engine, caller: Caller, queue: Queue, request: SendMessage, verb: str
) -> _Checked:
    """Check one message and work out everything about it that needs no database."""
    body, delay_seconds, values, system_values, group_id, deduplication_id = request
    if not body:
        raise MissingParameter("MessageBody")
    try:
        encoded = body.encode()
    except UnicodeEncodeError:
        raise InvalidMessageContents(_CHARACTERS_TEXT) from None
    if names.invalid_utf8(encoded):
        raise InvalidMessageContents(_CHARACTERS_TEXT)
    stored = md5 = None
    size = len(encoded)
    if values:
        stored, md5, attribute_bytes = message_attributes.check(values, engine.limits)
        size += attribute_bytes
    if size > queue.maximum_message_size_bytes:
        raise InvalidParameterValue(
            f"One or more parameters {verb}. Reason: Message must be shorter than "
            f"{queue.maximum_message_size_bytes} bytes."
        )
    if delay_seconds is not None:
        _check_delay(engine, queue, delay_seconds)
    if group_id is not None and not names.is_fifo_id(group_id):
        raise bad_id("MessageGroupId", group_id)
    _check_deduplication_id(queue, deduplication_id)
    system = system_md5 = None
    if system_values:
        system, system_md5 = _system_attributes(system_values, engine.limits)
    message_id = new_id()
    digest = md5_of_bytes(encoded)
    new = NewMessage(body, stored, system, delay_seconds, group_id, deduplication_id, digest)
    instant = engine.clock.of(queue.account_id).instant
    return _Checked(
        Sent(message_id, digest.hex(), md5, system_md5),
        row_of(queue, new, message_id, caller.principal, instant),
        size,
    )


def _check_delay(engine: Engine, queue: Queue, delay_seconds: int) -> None:
    if queue.is_fifo:
        if delay_seconds != 0:
            raise InvalidParameterValue(
                f"Value {delay_seconds} for parameter DelaySeconds is invalid. Reason: The request "
                "include parameter that is not valid for this queue type."
            )
        return
    most = engine.limits.delay_seconds
    if not 0 <= delay_seconds <= most:
        raise InvalidParameterValue(
            f"Value {delay_seconds} for parameter DelaySeconds is invalid. Reason: DelaySeconds "
            f"must be >= 0 and <= {most}."
        )


def _check_deduplication_id(queue: Queue, given: str | None) -> None:
    if not queue.is_fifo:
        if given is not None:
            raise InvalidParameterValue(
                f"Value {given} for parameter MessageDeduplicationId is invalid. Reason: The "
                "request includes a parameter that is not valid for this queue type."
            )
    elif given is None:
        if not queue.content_based_deduplication:
            raise InvalidParameterValue(_DEDUPLICATION_TEXT)
    elif not names.is_fifo_id(given):
        raise bad_id("MessageDeduplicationId", given)


def _system_attributes(values: Values, limits: Limits) -> tuple[str, str | None]:
    """The rare system attributes as JSON, and their MD5."""
    for name, value in values.items():
        if name not in _SYSTEM_ATTRIBUTES:
            raise InvalidParameterValue(
                f"Message system attribute name '{name}' is invalid. Only AWSTraceHeader is "
                "supported."
            )
        if value.get("DataType") != "String":
            raise InvalidParameterValue(
                f"The type of message system attribute '{name}' is invalid. It must be String."
            )
    checked = message_attributes.check(values, limits)
    system = {name: value["StringValue"] for name, value in values.items()}
    return orjson.dumps(system).decode(), checked.md5
