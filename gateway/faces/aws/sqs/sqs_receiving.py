"""ReceiveMessage, DeleteMessage and ChangeMessageVisibility, with SQS's limits and texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.faces.aws.aws_rules import AWS
from queuegate.gateway.operations.queues import deletions
from queuegate.gateway.operations.queues.deletions import check_visibility
from queuegate.gateway.operations.queues.receives import Receiving
from queuegate.protocol import names
from queuegate.storage.storage_errors import (
    IdInvalid,
    InvalidParameterValue,
    MissingParameter,
    ReceiptHandleIsInvalid,
    Rejected,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from queuegate.gateway.operations.queues.receipt_handles import Receipt
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.gateway.operations.runtime.replies import Reply
    from queuegate.storage.queue_model import Handle, Queue, ReceiptOutcome, Received


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
        raise InvalidParameterValue(
            f"Value {maximum} for parameter MaxNumberOfMessages is invalid. Reason: Must be "
            f"between 1 and {AWS.received_messages}, if provided."
        )
    wait = request.wait_seconds
    if wait is None:
        wait = queue.receive_wait_seconds
    elif not 0 <= wait <= limits.receive_wait_seconds:
        raise InvalidParameterValue(
            f"Value {wait} for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= "
            f"{limits.receive_wait_seconds}, if provided."
        )
    visibility = request.visibility_timeout_seconds
    if visibility is None:
        visibility = queue.visibility_timeout_seconds
    else:
        check_visibility(visibility, limits.visibility_timeout_seconds)
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
    """Delete the message of this receipt, if it still exists. ``check_deleted`` reads the
    outcome."""
    receipt = _receipt(engine, queue, receipt_handle)
    deletions.finish(engine, queue, [receipt.handle], reply)


def check_deleted(receipt_handle: str, outcomes: list[ReceiptOutcome]) -> None:
    """Refuse an expired receipt on a FIFO queue (docs/contract/sqs.md 2.6)."""
    refusal = _expired(receipt_handle, outcomes[0])
    if refusal is not None:
        raise refusal


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
        answer = _Batch([text for text, _ in good], outcomes, _expired, reply)
        deletions.finish(engine, queue, [handle for _, handle in good], answer)
    else:
        reply.done(outcomes)


def _expired(handle: str, outcome: ReceiptOutcome) -> Rejected | None:
    if outcome != "expired":
        return None
    return InvalidParameterValue(
        f"Value {handle} for parameter ReceiptHandle is invalid. Reason: The receipt handle has "
        "expired."
    )


def change_message_visibility(
    engine: Engine,
    queue: Queue,
    receipt_handle: str | None,
    visibility_timeout_seconds: int | None,
    reply: Reply[list[ReceiptOutcome]],
) -> None:
    """Hide the message for this many seconds from now; 0 shows it. ``check_changed`` reads the
    outcome.

    A standard queue accepts the handle of any receive, a FIFO queue that of the last one
    (docs/contract/sqs.md 2.6).
    """
    change = _changed(engine, queue, receipt_handle, visibility_timeout_seconds)
    deletions.change(engine, queue, [change], reply)


def check_changed(receipt_handle: str, outcomes: list[ReceiptOutcome]) -> None:
    """Refuse the change of a deleted message."""
    refusal = _unavailable(receipt_handle, outcomes[0])
    if refusal is not None:
        raise refusal


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
        answer = _Batch([text for text, _ in good], outcomes, _unavailable, reply)
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
        raise InvalidParameterValue(
            f"Value {seconds} for parameter VisibilityTimeout is invalid. Reason: Total "
            f"VisibilityTimeout for the message is beyond the limit [{most} seconds]"
        )
    return receipt.handle, seconds


def _unavailable(handle: str, outcome: ReceiptOutcome) -> Rejected | None:
    if outcome == "ok":
        return None
    return InvalidParameterValue(
        f"Value {handle} for parameter ReceiptHandle is invalid. Reason: Message does not exist or "
        "is not available for visibility timeout change."
    )
