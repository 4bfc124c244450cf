"""SQS actions on messages. Each is a pair: start the operation, and write its result as members.

Both the ordinary path and the fast path run these pairs, so the two cannot come apart.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

from queuegate.gateway.faces.aws.face import Binding, Call, Members
from queuegate.gateway.faces.aws.pairs import Pair
from queuegate.gateway.faces.aws.sqs import message_members as wire
from queuegate.gateway.faces.aws.sqs import receipts
from queuegate.gateway.faces.aws.sqs.receipts import Outcomes
from queuegate.gateway.faces.aws.sqs.receiving import receive_message
from queuegate.gateway.faces.aws.sqs.sending import (
    Sent,
    check_batch_ids,
    send_message,
    send_messages,
)
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.queues.receives import Receiving
from queuegate.gateway.operations.runtime.background_tasks import run_in_steps
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.runtime.replies import Reply, answered
from queuegate.storage.errors import Rejected
from queuegate.storage.model import Outcome, Queue, Received


class Context(NamedTuple):
    """What a pair may know of its request besides the members."""

    engine: Engine
    caller: Caller
    queue: Queue
    trace_header: str | None
    is_query: bool

    @property
    def arn(self) -> str:
        """Of what it is about."""
        return self.queue.arn


def _start_send(context: Context, members: Members, reply: Reply[Sent]) -> None:
    engine, caller, queue, trace_header, _ = context
    send_message(engine, caller, queue, wire.to_send(members, trace_header), reply)


def _finish_send(_: Context, members: Members, sent: Sent) -> Members:
    explicit = "MessageSystemAttributes" in members
    return wire.sent_members(sent, explicit_system=explicit)


def _start_send_batch(
    context: Context, members: Members, reply: Reply[list[Sent | Rejected]]
) -> None:
    engine, caller, queue, trace_header, _ = context
    entries = wire.check_entries(members.get("Entries"), "SendMessageBatchRequestEntry")
    requests = [wire.to_send(entry, trace_header) for entry in entries]
    check_batch_ids(queue, requests)
    wire.check_distinct(entries)
    send_messages(engine, caller, queue, requests, reply)


def _finish_send_batch(_: Context, members: Members, outcomes: list[Sent | Rejected]) -> Members:
    entries = members["Entries"]
    successful = [
        None
        if isinstance(outcome, Rejected)
        else wire.sent_members(
            outcome,
            explicit_system="MessageSystemAttributes" in entry,
            entry_id=entry["Id"],
        )
        for entry, outcome in zip(entries, outcomes, strict=True)
    ]
    return wire.batch_members(entries, outcomes, successful)


def _start_receive(context: Context, members: Members, reply: Reply[list[Received]]) -> Receiving:
    return receive_message(context.engine, context.queue, wire.to_receive(members), reply)


def _finish_receive(context: Context, members: Members, received: list[Received]) -> Members:
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


def _finish_receive_in_steps(
    context: Context, members: Members, received: list[Received]
) -> Generator[None, None, Members]:
    shown = []
    for message in received:
        # Of one in order the digest is worked out.
        shown += _finish_receive(context, members, [message])["Messages"]
        yield
    return {"Messages": shown}


def _start_delete(context: Context, members: Members, reply: Reply[list[Outcome]]) -> None:
    receipts.delete_message(context.engine, context.queue, members.get("ReceiptHandle"), reply)


def _finish_delete(_: Context, members: Members, outcomes: list[Outcome]) -> None:
    receipts.check_deleted(members["ReceiptHandle"], outcomes)


def _start_delete_batch(context: Context, members: Members, reply: Reply[Outcomes]) -> None:
    entries = wire.check_entries(members.get("Entries"), "DeleteMessageBatchRequestEntry")
    wire.check_distinct(entries)
    handles = [entry.get("ReceiptHandle") for entry in entries]
    receipts.delete_messages(context.engine, context.queue, handles, reply)


def _start_change(context: Context, members: Members, reply: Reply[list[Outcome]]) -> None:
    handle, seconds = members.get("ReceiptHandle"), members.get("VisibilityTimeout")
    receipts.change_message_visibility(context.engine, context.queue, handle, seconds, reply)


def _finish_change(_: Context, members: Members, outcomes: list[Outcome]) -> None:
    receipts.check_changed(members["ReceiptHandle"], outcomes)


def _start_change_batch(context: Context, members: Members, reply: Reply[Outcomes]) -> None:
    kind = "ChangeMessageVisibilityBatchRequestEntry"
    entries = wire.check_entries(members.get("Entries"), kind)
    wire.check_distinct(entries)
    changes = [(entry.get("ReceiptHandle"), entry.get("VisibilityTimeout")) for entry in entries]
    receipts.change_message_visibilities(context.engine, context.queue, changes, reply)


def _finish_batch(_: Context, members: Members, outcomes: Outcomes) -> Members:
    entries = members["Entries"]
    return wire.batch_members(entries, outcomes, [None] * len(entries))


HOT: dict[str, Pair[Context, Any]] = {
    "SendMessage": Pair(_start_send, _finish_send),
    "SendMessageBatch": Pair(_start_send_batch, _finish_send_batch),
    "ReceiveMessage": Pair(_start_receive, _finish_receive, _finish_receive_in_steps),
    "DeleteMessage": Pair(_start_delete, _finish_delete),
    "DeleteMessageBatch": Pair(_start_delete_batch, _finish_batch),
    "ChangeMessageVisibility": Pair(_start_change, _finish_change),
    "ChangeMessageVisibilityBatch": Pair(_start_change_batch, _finish_batch),
}


def _binding(hot: Pair[Context, Any]) -> Binding:
    """The pair as a coroutine for the ordinary path."""

    async def bound(call: Call) -> Members | None:
        trace_header = call.request.headers.get("x-amzn-trace-id")
        queue = await call.queue()
        context = Context(call.engine, call.caller, queue, trace_header, call.is_query)
        result = await answered(hot.start, context, call.members, holding=call.hold)
        if result and hot.finish_in_steps is not None:
            return await run_in_steps(hot.finish_in_steps(context, call.members, result))
        return hot.finish(context, call.members, result)

    return bound


BINDINGS: dict[str, Binding] = {action: _binding(hot) for action, hot in HOT.items()}
