"""SQS actions on messages as operations that reply: checks, work, answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from queuegate.gateway.faces.aws.sqs import sqs_messages
from queuegate.gateway.faces.aws.sqs.sqs_messages import Outcomes, ReceiveMessage
from queuegate.gateway.faces.aws.sqs.sqs_sending import (
    SendMessage,
    SendResult,
    send_message,
    send_messages,
)
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.queues.receives import Receiving
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.runtime.replies import Reply, answered
from queuegate.storage.queue_model import Queue, ReceiptOutcome, Received
from queuegate.storage.storage_errors import Rejected

__all__ = [
    "ReceiveMessage",
    "SendMessage",
    "SendResult",
    "answered",
    "change_message_visibilities",
    "change_message_visibility",
    "delete_message",
    "delete_messages",
    "receive_message",
    "send_message",
    "send_messages",
]


Refuse = Callable[[str, ReceiptOutcome], Rejected | None]


class _Checked:
    """A reply that hears what the face says of the outcome."""

    def __init__(self, refuse: Refuse, handle: str | None, reply: Reply[Any]) -> None:
        self._refuse, self._handle, self._reply = refuse, handle or "", reply
        self.failed = reply.failed

    def done(self, outcomes: list[ReceiptOutcome]) -> None:
        if (refusal := self._refuse(self._handle, outcomes[0])) is not None:
            self._reply.failed(refusal)
        else:
            self._reply.done(None)


def receive_message(
    engine: Engine,
    caller: Caller,
    queue: Queue,
    request: ReceiveMessage,
    reply: Reply[list[Received]],
) -> Receiving:
    return sqs_messages.receive_message(engine, queue, request, reply)


def delete_message(
    engine: Engine, caller: Caller, queue: Queue, handle: str | None, reply: Reply[None]
) -> None:
    answer = _Checked(sqs_messages.expired, handle, reply)
    sqs_messages.delete_message(engine, queue, handle, answer)


def delete_messages(
    engine: Engine, caller: Caller, queue: Queue, handles: list[str | None], reply: Reply[Outcomes]
) -> None:
    sqs_messages.delete_messages(engine, queue, handles, reply)


def change_message_visibility(
    engine: Engine,
    caller: Caller,
    queue: Queue,
    handle: str | None,
    seconds: int | None,
    reply: Reply[None],
) -> None:
    answer = _Checked(sqs_messages.unavailable, handle, reply)
    sqs_messages.change_message_visibility(engine, queue, handle, seconds, answer)


def change_message_visibilities(
    engine: Engine,
    caller: Caller,
    queue: Queue,
    entries: list[tuple[str | None, int | None]],
    reply: Reply[Outcomes],
) -> None:
    sqs_messages.change_message_visibilities(engine, queue, entries, reply)
