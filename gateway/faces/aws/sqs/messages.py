"""SQS actions on messages. Each is a pair: start the operation, and write its result as members.

Both the ordinary path and the fast path run these pairs, so the two cannot come apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gateway.faces.aws.face import Binding, Call, Members
from gateway.faces.aws.sqs import message_members as wire
from gateway.operations.caller import Caller
from gateway.operations.engine import Engine
from gateway.operations.queues import messages, sending
from gateway.operations.queues.messages import answered
from gateway.operations.queues.receiving import Receiving, Reply
from storage.errors import Rejected
from storage.model import Queue


class Context(NamedTuple):
    """What a pair may know of its request besides the members."""

    engine: Engine
    caller: Caller
    queue: Queue
    trace_header: str | None
    is_query: bool


class Hot(NamedTuple):
    """``start(context, members, reply)`` hands the work to a lane and may return a receive that can
    be cancelled; ``finish(context, members, result)`` makes the response members."""

    start: Callable[[Context, Members, Reply], Receiving | None]
    finish: Callable[[Context, Members, Any], Members | None]


def _start_send(context: Context, members: Members, reply: Reply) -> None:
    engine, caller, queue, trace_header, _ = context
    sending.send_message(engine, caller, queue, wire.to_send(members, trace_header), reply)


def _finish_send(_: Context, members: Members, sent: Any) -> Members:
    explicit = "MessageSystemAttributes" in members
    return wire.sent_members(sent, explicit_system=explicit)


def _start_send_batch(context: Context, members: Members, reply: Reply) -> None:
    engine, caller, queue, trace_header, _ = context
    entries = wire.check_entries(members.get("Entries"), "SendMessageBatchRequestEntry")
    requests = [wire.to_send(entry, trace_header) for entry in entries]
    sending.check_batch_ids(queue, requests)
    wire.check_distinct(entries)
    sending.send_messages(engine, caller, queue, requests, reply)


def _finish_send_batch(_: Context, members: Members, outcomes: Any) -> Members:
    entries = members["Entries"]
    successful = [
        None
        if isinstance(outcome, Rejected)
        else wire.sent_members(outcome, explicit_system="MessageSystemAttributes" in entry)
        for entry, outcome in zip(entries, outcomes, strict=True)
    ]
    return wire.batch_members(entries, outcomes, successful)


def _start_receive(context: Context, members: Members, reply: Reply) -> Receiving:
    engine, caller, queue, _, _ = context
    return messages.receive_message(engine, caller, queue, wire.to_receive(members), reply)


def _finish_receive(context: Context, members: Members, received: Any) -> Members:
    if not received:
        return {}
    want = wire.wanted(members, is_query=context.is_query)
    now = context.engine.clock.of(context.queue.account_id).seconds()
    handle_of = context.engine.receipts.handle_of
    return {
        "Messages": [
            wire.received_members(message, want, handle_of(message, now)) for message in received
        ]
    }


def _start_delete(context: Context, members: Members, reply: Reply) -> None:
    engine, caller, queue, _, _ = context
    messages.delete_message(engine, caller, queue, members.get("ReceiptHandle"), reply)


def _start_delete_batch(context: Context, members: Members, reply: Reply) -> None:
    engine, caller, queue, _, _ = context
    entries = wire.check_entries(members.get("Entries"), "DeleteMessageBatchRequestEntry")
    wire.check_distinct(entries)
    handles = [entry.get("ReceiptHandle") for entry in entries]
    messages.delete_messages(engine, caller, queue, handles, reply)


def _start_change(context: Context, members: Members, reply: Reply) -> None:
    engine, caller, queue, _, _ = context
    handle, seconds = members.get("ReceiptHandle"), members.get("VisibilityTimeout")
    messages.change_message_visibility(engine, caller, queue, handle, seconds, reply)


def _start_change_batch(context: Context, members: Members, reply: Reply) -> None:
    engine, caller, queue, _, _ = context
    kind = "ChangeMessageVisibilityBatchRequestEntry"
    entries = wire.check_entries(members.get("Entries"), kind)
    wire.check_distinct(entries)
    changes = [(entry.get("ReceiptHandle"), entry.get("VisibilityTimeout")) for entry in entries]
    messages.change_message_visibilities(engine, caller, queue, changes, reply)


def _finish_nothing(_: Context, __: Members, ___: Any) -> None:
    return None


def _finish_batch(_: Context, members: Members, outcomes: Any) -> Members:
    entries = members["Entries"]
    return wire.batch_members(entries, outcomes, [None] * len(entries))


HOT: dict[str, Hot] = {
    "SendMessage": Hot(_start_send, _finish_send),
    "SendMessageBatch": Hot(_start_send_batch, _finish_send_batch),
    "ReceiveMessage": Hot(_start_receive, _finish_receive),
    "DeleteMessage": Hot(_start_delete, _finish_nothing),
    "DeleteMessageBatch": Hot(_start_delete_batch, _finish_batch),
    "ChangeMessageVisibility": Hot(_start_change, _finish_nothing),
    "ChangeMessageVisibilityBatch": Hot(_start_change_batch, _finish_batch),
}


def _binding(hot: Hot) -> Binding:
    """The pair as a coroutine for the ordinary path."""

    async def bound(call: Call) -> Members | None:
        trace_header = call.request.headers.get("x-amzn-trace-id")
        queue = await call.queue()
        context = Context(call.engine, call.caller, queue, trace_header, call.is_query)
        result = await answered(hot.start, context, call.members)
        return hot.finish(context, call.members, result)

    return bound


BINDINGS: dict[str, Binding] = {action: _binding(hot) for action, hot in HOT.items()}
