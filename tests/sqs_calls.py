"""SQS actions on messages as operations that reply: checks, work, answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from queuegate.gateway.faces.aws.sqs import sqs_receiving
from queuegate.gateway.faces.aws.sqs.sqs_receiving import Outcomes, ReceiveMessage
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


class _Checked:
    """A reply that hears what the face says of the outcome."""

    def __init__(self, check: Callable[[list[ReceiptOutcome]], None], reply: Reply[Any]) -> None:
        self._check = check
        self._reply = reply
        self.failed = reply.failed

    def done(self, outcomes: list[ReceiptOutcome]) -> None:
        try:
            self._check(outcomes)
        except Exception as error:  # noqa: BLE001 - as the exchange does
            self._reply.failed(error)
        else:
            self._reply.done(None)


def receive_message(
    engine: Engine,
    caller: Caller,
    queue: Queue,
    request: ReceiveMessage,
    reply: Reply[list[Received]],
) -> Receiving:
    return sqs_receiving.receive_message(engine, queue, request, reply)


def delete_message(
    engine: Engine, caller: Caller, queue: Queue, handle: str | None, reply: Reply[None]
) -> None:
    answer = _Checked(lambda outcomes: sqs_receiving.check_deleted(handle or "", outcomes), reply)
    sqs_receiving.delete_message(engine, queue, handle, answer)


def delete_messages(
    engine: Engine, caller: Caller, queue: Queue, handles: list[str | None], reply: Reply[Outcomes]
) -> None:
    sqs_receiving.delete_messages(engine, queue, handles, reply)


def change_message_visibility(
    engine: Engine,
    caller: Caller,
    queue: Queue,
    handle: str | None,
    seconds: int | None,
    reply: Reply[None],
) -> None:
    answer = _Checked(lambda outcomes: sqs_receiving.check_changed(handle or "", outcomes), reply)
    sqs_receiving.change_message_visibility(engine, queue, handle, seconds, answer)


def change_message_visibilities(
    engine: Engine,
    caller: Caller,
    queue: Queue,
    entries: list[tuple[str | None, int | None]],
    reply: Reply[Outcomes],
) -> None:
    sqs_receiving.change_message_visibilities(engine, queue, entries, reply)
