"""SQS actions on messages: request members to operations, and results to response members. The
ordinary path and the fast path share these hot actions, so both give the same answers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, NamedTuple

import orjson

from queuegate.gateway.faces.aws import aws_message_attributes
from queuegate.gateway.faces.aws.aws_face import AwsCall, Binding, HotAction, Members
from queuegate.gateway.faces.aws.aws_refusals import failed_entry
from queuegate.gateway.faces.aws.aws_rules import AWS, invalid_value
from queuegate.gateway.faces.aws.sqs.sqs_sending import (
    SendMessage,
    SendResult,
    check_batch_ids,
    send_message,
    send_messages,
)
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.queues import deletions
from queuegate.gateway.operations.queues.receipt_handles import Receipt
from queuegate.gateway.operations.queues.receives import Receiving
from queuegate.gateway.operations.runtime.background_tasks import run_in_steps
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.runtime.replies import Reply, answered
from queuegate.protocol import names, opaque_tokens
from queuegate.protocol.digests import md5_of_attributes, md5_of_body, with_bytes
from queuegate.storage.queue_model import Handle, Queue, ReceiptOutcome, Received
from queuegate.storage.storage_errors import (
    BatchEntryIdsNotDistinct,
    EmptyBatchRequest,
    IdInvalid,
    InvalidBatchEntryId,
    MissingParameter,
    ReceiptHandleIsInvalid,
    Rejected,
    TooManyEntriesInBatchRequest,
)


class ReceiveMessage(NamedTuple):
    """The parameters of a receive; None: the queue's setting, or AWS's default."""

    max_messages: int | None = None
    visibility_timeout_seconds: int | None = None
    wait_seconds: int | None = None
    attempt_id: str | None = None


def receive_message(
    engine: Engine, queue: Queue, request: ReceiveMessage, reply: Reply[list[Received]]
) -> Receiving:
    """Lease up to ten messages, oldest first. A long poll answers with the first message and never
    waits to fill the maximum."""
    limits = engine.limits
    maximum = request.max_messages
    if maximum is None:
        maximum = 1
    elif not 1 <= maximum <= AWS.received_messages:
        reason = f"Must be between 1 and {AWS.received_messages}, if provided."
        raise invalid_value("MaxNumberOfMessages", maximum, reason)
    wait = request.wait_seconds
    if wait is None:
        wait = queue.receive_wait_seconds
    elif not 0 <= wait <= limits.receive_wait_seconds:
        reason = f"Must be >= 0 and <= {limits.receive_wait_seconds}, if provided."
        raise invalid_value("WaitTimeSeconds", wait, reason)
    visibility = request.visibility_timeout_seconds
    if visibility is None:
        visibility = queue.visibility_timeout_seconds
    else:
        deletions.check_visibility(visibility, limits.visibility_timeout_seconds)
    if request.attempt_id is not None and not names.is_fifo_id(request.attempt_id):
        raise IdInvalid("attempt_id", request.attempt_id)
    receiving = Receiving(engine, queue, limit=maximum, visibility_seconds=visibility, reply=reply)
    receiving.attempt_id = request.attempt_id
    receiving.start(wait)
    return receiving


Outcomes = list[Rejected | None]


class _Batch:
    """A reply that merges results with refused handles of a batch."""

    __slots__ = ("_handles", "_outcomes", "_refuse", "_reply", "failed")

    def __init__(
        self,
        handles: list[str],
        outcomes: Outcomes,
        refuse: Callable[[str, ReceiptOutcome], Rejected | None],
        reply: Reply[Outcomes],
    ) -> None:
        self._handles = handles
        self._outcomes = outcomes
        self._refuse = refuse
        self._reply = reply
        self.failed = reply.failed

    def done(self, outcomes: Sequence[ReceiptOutcome]) -> None:
        results = iter([self._refuse(*pair) for pair in zip(self._handles, outcomes, strict=True)])
        self._reply.done([next(results) if one is None else one for one in self._outcomes])


def _receipt(engine: Engine, queue: Queue, handle: str | None) -> Receipt:
    if not handle:
        raise MissingParameter("ReceiptHandle")
    receipt = engine.receipts.read(queue, handle, engine.clock)
    if receipt is None:
        raise ReceiptHandleIsInvalid(handle)
    return receipt


def delete_message(
    engine: Engine, queue: Queue, receipt_handle: str | None, reply: Reply[list[ReceiptOutcome]]
) -> None:
    """Delete the message of this receipt, if it still exists. ``expired`` reads the outcome."""
    receipt = _receipt(engine, queue, receipt_handle)
    deletions.finish(engine, queue, [receipt.handle], reply)


def delete_messages(
    engine: Engine, queue: Queue, handles: list[str | None], reply: Reply[Outcomes]
) -> None:
    """Delete a batch; the reply has one outcome for each handle."""
    outcomes: Outcomes = []
    good = []
    for handle in handles:
        try:
            good.append((handle or "", _receipt(engine, queue, handle).handle))
        except Rejected as refusal:
            outcomes.append(refusal)
        else:
            outcomes.append(None)
    if good:
        answer = _Batch([text for text, _ in good], outcomes, expired, reply)
        deletions.finish(engine, queue, [handle for _, handle in good], answer)
    else:
        reply.done(outcomes)


def expired(handle: str, outcome: ReceiptOutcome) -> Rejected | None:
    """Refuse an expired receipt on a FIFO queue (docs/contract/sqs.md 2.6)."""
    if outcome != "expired":
        return None
    return invalid_value("ReceiptHandle", handle, "The receipt handle has expired.")


def change_message_visibility(
    engine: Engine,
    queue: Queue,
    receipt_handle: str | None,
    visibility_timeout_seconds: int | None,
    reply: Reply[list[ReceiptOutcome]],
) -> None:
    """Hide the message for this many seconds from now; 0 shows it. ``unavailable`` reads the
    outcome.

    A standard queue accepts the handle of any receive, a FIFO queue that of the last one
    (docs/contract/sqs.md 2.6).
    """
    change = _changed(engine, queue, receipt_handle, visibility_timeout_seconds)
    deletions.change(engine, queue, [change], reply)


def change_message_visibilities(
    engine: Engine,
    queue: Queue,
    entries: list[tuple[str | None, int | None]],
    reply: Reply[Outcomes],
) -> None:
    """Change a batch of (receipt handle, seconds); the reply has one outcome for each."""
    outcomes: Outcomes = []
    good = []
    for handle, seconds in entries:
        try:
            good.append((handle or "", _changed(engine, queue, handle, seconds)))
        except Rejected as refusal:
            outcomes.append(refusal)
        else:
            outcomes.append(None)
    if good:
        answer = _Batch([text for text, _ in good], outcomes, unavailable, reply)
        deletions.change(engine, queue, [change for _, change in good], answer)
    else:
        reply.done(outcomes)


def _changed(
    engine: Engine, queue: Queue, handle: str | None, seconds: int | None
) -> tuple[Handle, int]:
    if seconds is None:
        raise MissingParameter("VisibilityTimeout")
    receipt = _receipt(engine, queue, handle)
    most = engine.limits.visibility_timeout_seconds
    deletions.check_visibility(seconds, most)
    present = engine.clock.of(queue.account_id).seconds()
    if present + seconds > receipt.received_at + most + 1:
        reason = f"Total VisibilityTimeout for the message is beyond the limit [{most} seconds]"
        raise invalid_value("VisibilityTimeout", seconds, reason)
    return receipt.handle, seconds


def unavailable(handle: str, outcome: ReceiptOutcome) -> Rejected | None:
    """Refuse the change of a deleted message."""
    if outcome == "ok":
        return None
    reason = "Message does not exist or is not available for visibility timeout change."
    return invalid_value("ReceiptHandle", handle, reason)


# Calling the class of a named tuple takes three times as long.
_new = tuple.__new__

_ID_TEXT = (
    "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be "
    "at most 80 letters long."
)


def to_send(members: Members, trace_header: str | None) -> SendMessage:
    """Return the request of SendMessage, or of one entry of a batch. A trace header of the HTTP
    request replaces an absent AWSTraceHeader (2.5)."""
    system = members.get("MessageSystemAttributes")
    if trace_header and not (system and "AWSTraceHeader" in system):
        system = {
            **(system or {}),
            "AWSTraceHeader": {"DataType": "String", "StringValue": trace_header},
        }
    get = members.get
    return _new(
        SendMessage,
        (
            get("MessageBody"),
            get("DelaySeconds"),
            get("MessageAttributes"),
            system,
            get("MessageGroupId"),
            get("MessageDeduplicationId"),
        ),
    )


def sent_members(
    sent: SendResult, *, explicit_system: bool, entry_id: str | None = None
) -> Members:
    """Return the answer to one send or one entry of a batch, without members that do not apply."""
    members: Members = {} if entry_id is None else {"Id": entry_id}
    members["MessageId"] = sent.message_id
    members["MD5OfMessageBody"] = sent.md5_of_body
    if sent.md5_of_attributes is not None:
        members["MD5OfMessageAttributes"] = sent.md5_of_attributes
    if explicit_system and sent.md5_of_system_attributes is not None:
        members["MD5OfMessageSystemAttributes"] = sent.md5_of_system_attributes
    if sent.sequence_number is not None:
        members["SequenceNumber"] = sent.sequence_number
    return members


def check_entries(entries: Sequence[Members] | None, kind: str) -> Sequence[Members]:
    """Apply the rules that fail a batch as a whole, in AWS's order (docs/contract/sqs.md 2.8)."""
    if not entries:
        raise EmptyBatchRequest(f"There should be at least one {kind} in the request.")
    if len(entries) > AWS.batch_entries:
        raise TooManyEntriesInBatchRequest(
            f"Maximum number of entries per request are {AWS.batch_entries}. "
            f"You have sent {len(entries)}."
        )
    for entry in entries:
        if not names.is_batch_entry_id(entry.get("Id") or ""):
            raise InvalidBatchEntryId(_ID_TEXT)
    return entries


def check_distinct(entries: Iterable[Members]) -> None:
    """Refuse repeated entry ids. AWS checks them after the FIFO ids."""
    seen: set[str] = set()
    for entry in entries:
        if entry["Id"] in seen:
            raise BatchEntryIdsNotDistinct(f"Id {entry['Id']} repeated.")
        seen.add(entry["Id"])


def batch_members(
    entries: Sequence[Members], outcomes: Sequence[Any], successful: Sequence[Members | None]
) -> Members:
    """Return Successful and Failed in the order of the entries, without empty lists. ``successful``
    holds the members of each successful entry; None: its id alone."""
    good = []
    failed = []
    for entry, outcome, members in zip(entries, outcomes, successful, strict=True):
        if isinstance(outcome, Rejected):
            failed.append(failed_entry("sqs", entry["Id"], outcome))
        else:
            good.append(members or {"Id": entry["Id"]})
    answer: Members = {}
    if good:
        answer["Successful"] = good
    if failed:
        answer["Failed"] = failed
    return answer


class ReceiveSelection:
    """The parts of a message that a receive requests. Few selections are in use, so they are
    cached."""

    __slots__ = ("attributes", "everything", "system")

    def __init__(self, system: tuple[str, ...], attributes: tuple[str, ...]) -> None:
        self.everything = "All" in system
        self.system = frozenset(system)
        self.attributes = (
            aws_message_attributes.AttributeSelection(attributes) if attributes else None
        )


_MOST_WANTED = 1024
_MOST_NAMES = 32
_MOST_LETTERS = 2048
_wanted: dict[tuple[tuple[str, ...], tuple[str, ...]], ReceiveSelection] = {}


def wanted(members: Members, *, is_query: bool) -> ReceiveSelection:
    """Return the selection of a receive. JSON uses both lists of names; on Query AttributeName wins
    (2.5)."""
    system = members.get("AttributeNames") or ()
    newer = members.get("MessageSystemAttributeNames") or ()
    if newer and not (is_query and system):
        system = [*system, *newer]
    key = (tuple(system), tuple(members.get("MessageAttributeNames") or ()))
    found = _wanted.get(key)
    if found is None:
        found = ReceiveSelection(*key)
        names_asked = (*key[0], *key[1])
        if len(names_asked) <= _MOST_NAMES and sum(map(len, names_asked)) <= _MOST_LETTERS:
            if len(_wanted) >= _MOST_WANTED:
                _wanted.clear()
            _wanted[key] = found
    return found


def received_members(message: Received, want: ReceiveSelection, receipt_handle: str) -> Members:
    """Return one message as ReceiveMessage shows it."""
    digest = message.body_md5
    members: Members = {
        "MessageId": str(message.message_id),
        "ReceiptHandle": receipt_handle,
        "MD5OfBody": digest.hex() if digest is not None else md5_of_body(message.body),
        "Body": message.body,
    }
    if want.system:
        attributes = system_members(message)
        if not want.everything:
            attributes = {name: text for name, text in attributes.items() if name in want.system}
        if attributes:
            members["Attributes"] = attributes
    if want.attributes is not None and message.attributes is not None:
        chosen = want.attributes.of(message.attributes)
        if chosen:
            values = with_bytes(chosen)
            members["MD5OfMessageAttributes"] = md5_of_attributes(values)
            members["MessageAttributes"] = values
    return members


def system_members(message: Received) -> dict[str, str]:
    """Return the system attributes of a message."""
    attributes = {
        "SenderId": message.sender_id,
        "SentTimestamp": str(message.sent_at_ms),
        "ApproximateReceiveCount": str(message.receive_count),
    }
    if message.first_received_at_ms is not None:
        attributes["ApproximateFirstReceiveTimestamp"] = str(message.first_received_at_ms)
    if message.system is not None:
        attributes.update(orjson.loads(message.system))
    if message.group_id is not None:
        attributes["MessageGroupId"] = message.group_id
        attributes["MessageDeduplicationId"] = message.deduplication_id or ""
        attributes["SequenceNumber"] = opaque_tokens.queue_sequence_number(message.sequence)
    return attributes


class QueueContext(NamedTuple):
    """The context of a request on a queue."""

    engine: Engine
    caller: Caller
    queue: Queue
    trace_header: str | None
    is_query: bool

    @property
    def arn(self) -> str:
        """Return the ARN of the queue."""
        return self.queue.arn

    def traced(self, trace_header: str) -> QueueContext:
        """Return the context with this trace header, unless the client sent one."""
        return self if self.trace_header else self._replace(trace_header=trace_header)


def _start_send(context: QueueContext, members: Members, reply: Reply[SendResult]) -> None:
    engine, caller, queue, trace_header, _ = context
    send_message(engine, caller, queue, to_send(members, trace_header), reply)


def _finish_send(_: QueueContext, members: Members, sent: SendResult) -> Members:
    explicit = "MessageSystemAttributes" in members
    return sent_members(sent, explicit_system=explicit)


def _start_send_batch(
    context: QueueContext, members: Members, reply: Reply[list[SendResult | Rejected]]
) -> None:
    engine, caller, queue, trace_header, _ = context
    entries = check_entries(members.get("Entries"), "SendMessageBatchRequestEntry")
    requests = [to_send(entry, trace_header) for entry in entries]
    check_batch_ids(queue, requests)
    check_distinct(entries)
    send_messages(engine, caller, queue, requests, reply)


def _finish_send_batch(
    _: QueueContext, members: Members, outcomes: list[SendResult | Rejected]
) -> Members:
    entries = members["Entries"]
    successful = [
        None
        if isinstance(outcome, Rejected)
        else sent_members(
            outcome, explicit_system="MessageSystemAttributes" in entry, entry_id=entry["Id"]
        )
        for entry, outcome in zip(entries, outcomes, strict=True)
    ]
    return batch_members(entries, outcomes, successful)


def _start_receive(
    context: QueueContext, members: Members, reply: Reply[list[Received]]
) -> Receiving:
    request = ReceiveMessage(
        members.get("MaxNumberOfMessages"),
        members.get("VisibilityTimeout"),
        members.get("WaitTimeSeconds"),
        members.get("ReceiveRequestAttemptId"),
    )
    return receive_message(context.engine, context.queue, request, reply)


def _finish_receive(context: QueueContext, members: Members, received: list[Received]) -> Members:
    if not received:
        return {}
    want = wanted(members, is_query=context.is_query)
    now = context.engine.clock.of(context.queue.account_id).seconds()
    handle_of = context.engine.receipts.handle_of
    return {
        "Messages": [
            received_members(message, want, handle_of(message, now)) for message in received
        ]
    }


def _finish_receive_in_steps(
    context: QueueContext, members: Members, received: list[Received]
) -> Generator[None, None, Members]:
    shown = []
    for message in received:
        # A message without a stored digest costs an MD5 here.
        shown += _finish_receive(context, members, [message])["Messages"]
        yield
    return {"Messages": shown}


def _start_delete(
    context: QueueContext, members: Members, reply: Reply[list[ReceiptOutcome]]
) -> None:
    delete_message(context.engine, context.queue, members.get("ReceiptHandle"), reply)


def _finish_delete(_: QueueContext, members: Members, outcomes: list[ReceiptOutcome]) -> None:
    if (refusal := expired(members["ReceiptHandle"], outcomes[0])) is not None:
        raise refusal


def _start_delete_batch(context: QueueContext, members: Members, reply: Reply[Outcomes]) -> None:
    entries = check_entries(members.get("Entries"), "DeleteMessageBatchRequestEntry")
    check_distinct(entries)
    handles = [entry.get("ReceiptHandle") for entry in entries]
    delete_messages(context.engine, context.queue, handles, reply)


def _start_change(
    context: QueueContext, members: Members, reply: Reply[list[ReceiptOutcome]]
) -> None:
    handle, seconds = members.get("ReceiptHandle"), members.get("VisibilityTimeout")
    change_message_visibility(context.engine, context.queue, handle, seconds, reply)


def _finish_change(_: QueueContext, members: Members, outcomes: list[ReceiptOutcome]) -> None:
    if (refusal := unavailable(members["ReceiptHandle"], outcomes[0])) is not None:
        raise refusal


def _start_change_batch(context: QueueContext, members: Members, reply: Reply[Outcomes]) -> None:
    kind = "ChangeMessageVisibilityBatchRequestEntry"
    entries = check_entries(members.get("Entries"), kind)
    check_distinct(entries)
    changes = [(entry.get("ReceiptHandle"), entry.get("VisibilityTimeout")) for entry in entries]
    change_message_visibilities(context.engine, context.queue, changes, reply)


def _finish_batch(_: QueueContext, members: Members, outcomes: Outcomes) -> Members:
    entries = members["Entries"]
    return batch_members(entries, outcomes, [None] * len(entries))


HOT: dict[str, HotAction[QueueContext, Any]] = {
    "SendMessage": HotAction(_start_send, _finish_send),
    "SendMessageBatch": HotAction(_start_send_batch, _finish_send_batch),
    "ReceiveMessage": HotAction(_start_receive, _finish_receive, _finish_receive_in_steps),
    "DeleteMessage": HotAction(_start_delete, _finish_delete),
    "DeleteMessageBatch": HotAction(_start_delete_batch, _finish_batch),
    "ChangeMessageVisibility": HotAction(_start_change, _finish_change),
    "ChangeMessageVisibilityBatch": HotAction(_start_change_batch, _finish_batch),
}


def _binding(hot: HotAction[QueueContext, Any]) -> Binding:
    """Return a hot action as a coroutine for the ordinary path."""

    async def bound(call: AwsCall) -> Members | None:
        trace_header = call.request.headers.get("x-amzn-trace-id")
        queue = await call.queue()
        context = QueueContext(call.engine, call.caller, queue, trace_header, call.is_query)
        result = await answered(
            hot.start,
            context,
            call.members,
            holding=call.count_received,
            client=(call.caller, call.request.origin),
        )
        if result and hot.finish_in_steps is not None:
            if call.request.span is not None:
                call.request.span.note_received(result)
            return await run_in_steps(hot.finish_in_steps(context, call.members, result))
        return hot.finish(context, call.members, result)

    return bound


BINDINGS: dict[str, Binding] = {action: _binding(hot) for action, hot in HOT.items()}
