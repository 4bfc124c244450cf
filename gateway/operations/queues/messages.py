"""Receive, delete and change visibility.

These operations hand an entry to a lane and return; ``reply`` gets the result or the exception when
the flush has been committed. Refusals that need no database are raised at once. ``answered`` turns
such an operation into an awaitable for faces that are coroutines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from gateway.operations.identifiers import bad_id
from gateway.operations.queues.receiving import Receiving, Reply
from protocol import names
from protocol.receipts import FifoReceipt
from storage.errors import (
    InvalidParameterValue,
    MissingParameter,
    ReceiptHandleIsInvalid,
    Rejected,
)
from storage.model import Queue, Received
from storage.queues.deletes import ArchivingDelete, Delete
from storage.queues.fifo_entries import ArchivingFifoDelete, FifoChangeVisibility, FifoDelete
from storage.queues.message_entries import ChangeVisibility

if TYPE_CHECKING:
    from gateway.operations.caller import Caller
    from gateway.operations.engine import Engine


class ReceiveMessage(NamedTuple):
    """What to receive; None: the queue's setting, or AWS's default."""

    max_messages: int | None = None
    visibility_timeout_seconds: int | None = None
    wait_seconds: int | None = None
    attempt_id: str | None = None


async def answered(call: Callable[..., Any], *arguments: Any) -> Any:
    """Await a replying operation: ``call(*arguments, reply)``. Cancelling it cancels a receive."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def reply(result: object) -> None:
        if future.done():
            # Cancelled in the same moment.
            if isinstance(started, Receiving) and isinstance(result, list):
                started.give_back(result)
        elif isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)

    started: Any = None
    started = call(*arguments, reply)
    try:
        return await future
    except asyncio.CancelledError:
        if isinstance(started, Receiving):
            started.cancel()
            if future.done() and not future.cancelled() and future.exception() is None:
                # It was answered in the same moment, but nobody got it.
                started.give_back(future.result())
        raise


def receive_message(
    engine: Engine, caller: Caller, queue: Queue, request: ReceiveMessage, reply: Reply
) -> Receiving:
    """Lease up to ten messages; the reply is list[Received], oldest first, maybe empty.

    A long poll answers as soon as there is one message and never waits to fill the maximum.
    """
    limits = engine.limits
    maximum = request.max_messages
    if maximum is None:
        maximum = 1
    elif not 1 <= maximum <= limits.receive_messages:
        raise InvalidParameterValue(
            f"Value {maximum} for parameter MaxNumberOfMessages is invalid. Reason: Must be "
            f"between 1 and {limits.receive_messages}, if provided."
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
        raise bad_id("ReceiveRequestAttemptId", request.attempt_id)
    receiving = Receiving(engine, queue, limit=maximum, visibility_seconds=visibility, reply=reply)
    if queue.is_fifo:
        receiving.attempt_id = request.attempt_id
    receiving.start(wait)
    return receiving


def check_visibility(seconds: int, most: int) -> None:
    if not 0 <= seconds <= most:
        raise InvalidParameterValue(
            f"Value {seconds} for parameter VisibilityTimeout is invalid. Reason: Must be >= 0 and "
            f"<= {most}, if provided."
        )


def _receipt(engine: Engine, queue: Queue, handle: str | None) -> Any:
    if not handle:
        raise MissingParameter("ReceiptHandle")
    receipt = engine.receipts.read(queue, handle, engine.clock.of(queue.account_id).seconds())
    if receipt is None:
        raise ReceiptHandleIsInvalid(handle)
    return receipt


def delete_message(
    engine: Engine, caller: Caller, queue: Queue, receipt_handle: str | None, reply: Reply
) -> None:
    """Delete the message of this receipt; the reply is None, also when it is gone already.

    On a FIFO queue a receipt whose timeout has run out is refused (docs/contract/sqs.md 2.6). A
    queue that archives keeps the message in its archive, in the same transaction.
    """
    receipt = _receipt(engine, queue, receipt_handle)
    if queue.is_fifo:
        assert receipt_handle is not None
        _delete_fifo(engine, queue, [(receipt_handle, receipt)], lambda r: reply(_only(r)))
        return

    started = perf_counter()

    def done(error: object) -> None:
        if error is None:
            engine.series.deleted(queue, 1, started)
        reply(error)

    keys = [(receipt.queue_id, receipt.sequence)]
    entry = _archiving(keys, done) if queue.is_archiving else Delete(keys, done)
    engine.standard.delete.submit(entry)


def _archiving(keys: list[tuple[int, int]], done: Reply) -> Delete:
    return ArchivingDelete(keys, lambda result: done(None if isinstance(result, list) else result))


def _only(result: object) -> object:
    """One entry's outcome as a single call reports it."""
    return result[0] if isinstance(result, list) else result


def delete_messages(
    engine: Engine, caller: Caller, queue: Queue, handles: list[str | None], reply: Reply
) -> None:
    """Delete a batch; the reply is list[Rejected | None], one for each handle."""
    outcomes, good = _receipts(engine, queue, handles)
    if not good:
        reply(outcomes)
    elif queue.is_fifo:
        _delete_fifo(engine, queue, list(good), lambda result: reply(_filled(outcomes, result)))
    else:
        started = perf_counter()

        def done(error: object) -> None:
            if error is None:
                engine.series.deleted(queue, len(good), started)
            reply(outcomes if error is None else error)

        keys = [(receipt.queue_id, receipt.sequence) for _, receipt in good]
        entry = _archiving(keys, done) if queue.is_archiving else Delete(keys, done)
        engine.standard.delete.submit(entry)


def _receipts(
    engine: Engine, queue: Queue, handles: list[str | None]
) -> tuple[list[Rejected | None], list[tuple[str, Any]]]:
    outcomes: list[Rejected | None] = []
    good = []
    for handle in handles:
        try:
            receipt = _receipt(engine, queue, handle)
        except Rejected as refusal:
            outcomes.append(refusal)
        else:
            outcomes.append(None)
            good.append((handle or "", receipt))
    return outcomes, good


def _filled(outcomes: list[Rejected | None], result: object) -> object:
    if not isinstance(result, list):
        return result
    results = iter(result)
    return [next(results) if outcome is None else outcome for outcome in outcomes]


def _delete_fifo(
    engine: Engine, queue: Queue, good: list[tuple[str, FifoReceipt]], reply: Reply
) -> None:
    started = perf_counter()

    def done(states: object) -> None:
        if not isinstance(states, list):
            reply(states)
            return
        deleted = states.count("ok")
        if deleted:
            engine.series.deleted(queue, deleted, started)
            # What waited behind them in their groups may be receivable now.
            engine.wakeups.arrived(queue.queue_id, deleted)
        reply(
            [
                _expired(handle) if state == "expired" else None
                for (handle, _), state in zip(good, states, strict=True)
            ]
        )

    rows = [(r.queue_id, r.group_id, r.sequence, r.receive_count) for _, r in good]
    kind = ArchivingFifoDelete if queue.is_archiving else FifoDelete
    engine.fifo.delete.submit(kind(rows, done))


def _expired(handle: str) -> InvalidParameterValue:
    return InvalidParameterValue(
        f"Value {handle} for parameter ReceiptHandle is invalid. Reason: The receipt handle has "
        "expired."
    )


def change_message_visibility(
    engine: Engine,
    caller: Caller,
    queue: Queue,
    receipt_handle: str | None,
    visibility_timeout_seconds: int | None,
    reply: Reply,
) -> None:
    """Hide the message for so many seconds from now, 0 to show it; the reply is None.

    On a standard queue the handle of any receive will do, on a FIFO queue that of the last one
    (docs/contract/sqs.md 2.6).
    """
    row = _visibility_row(engine, queue, receipt_handle, visibility_timeout_seconds)
    _change(engine, queue, [row], lambda result: reply(_only(result)))


def change_message_visibilities(
    engine: Engine,
    caller: Caller,
    queue: Queue,
    entries: list[tuple[str | None, int | None]],
    reply: Reply,
) -> None:
    """Change a batch of (receipt handle, seconds); the reply is list[Rejected | None]."""
    outcomes: list[Rejected | None] = []
    rows = []
    for handle, seconds in entries:
        try:
            rows.append(_visibility_row(engine, queue, handle, seconds))
        except Rejected as refusal:
            outcomes.append(refusal)
        else:
            outcomes.append(None)
    if rows:
        _change(engine, queue, rows, lambda result: reply(_filled(outcomes, result)))
    else:
        reply(outcomes)


def _visibility_row(
    engine: Engine, queue: Queue, handle: str | None, seconds: int | None
) -> tuple[str, Any, int]:
    if seconds is None:
        raise MissingParameter("VisibilityTimeout")
    receipt = _receipt(engine, queue, handle)
    most = engine.limits.visibility_timeout_seconds
    check_visibility(seconds, most)
    present = engine.clock.of(queue.account_id).seconds()
    if present + seconds > receipt.received_at + most + 1:
        raise InvalidParameterValue(
            f"Value {seconds} for parameter VisibilityTimeout is invalid. Reason: Total "
            f"VisibilityTimeout for the message is beyond the limit [{most} seconds]"
        )
    return handle or "", receipt, seconds


def _change(engine: Engine, queue: Queue, rows: list[tuple[str, Any, int]], reply: Reply) -> None:
    def done(result: object) -> None:
        if not isinstance(result, list):
            reply(result)
            return
        changed = [state is True or state == "ok" for state in result]
        shown = sum(
            1 for ok, (_, _, seconds) in zip(changed, rows, strict=True) if ok and seconds == 0
        )
        if shown:
            engine.wakeups.arrived(queue.queue_id, shown)
        reply(
            [
                None if ok else _unavailable_for_change(handle)
                for ok, (handle, _, _) in zip(changed, rows, strict=True)
            ]
        )

    if queue.is_fifo:
        fifo_rows = [
            (r.queue_id, r.group_id, r.sequence, r.receive_count, seconds * 1000)
            for _, r, seconds in rows
        ]
        engine.fifo.visibility.submit(FifoChangeVisibility(fifo_rows, done))
    else:
        keys = [(r.queue_id, r.sequence, s * 1000) for _, r, s in rows]
        engine.standard.visibility.submit(ChangeVisibility(keys, done))


def _unavailable_for_change(handle: str) -> InvalidParameterValue:
    return InvalidParameterValue(
        f"Value {handle} for parameter ReceiptHandle is invalid. Reason: Message does not exist or "
        "is not available for visibility timeout change."
    )


def system_of(message: Received) -> Mapping[str, str]:
    """The rare system attributes that the message carries."""
    return orjson.loads(message.system) if message.system else {}
