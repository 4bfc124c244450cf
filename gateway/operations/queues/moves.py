"""Message move tasks: start, cancel, list (docs/contract/sqs.md 2.10). A worker does the moving."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import orjson

from gateway.operations.caller import Caller
from gateway.operations.queues import queue_contents
from protocol import arns
from protocol.errors import Malformed
from storage.errors import (
    InvalidParameterValue,
    MissingParameter,
    OverLimit,
    ResourceNotFound,
)
from storage.model import Queue
from storage.queues import moves, queues

if TYPE_CHECKING:
    from gateway.operations.engine import Engine
    from storage.database import Transaction

_LONGEST_HANDLE = 2_048


@dataclass(frozen=True, slots=True)
class MoveTaskView:
    """One task as its caller sees it. Instants are milliseconds since the epoch."""

    task_handle: str | None
    """Only while the task runs."""
    status: str
    source_arn: str
    destination_arn: str | None
    max_per_second: int | None
    moved_count: int
    to_move_count: int
    failure_reason: str | None
    started_at_ms: int


def _view(task: moves.MoveTask) -> MoveTaskView:
    return MoveTaskView(
        task_handle=_handle(task) if task.status == "RUNNING" else None,
        status=task.status,
        source_arn=task.source_arn,
        destination_arn=task.destination_arn,
        max_per_second=task.max_per_second,
        moved_count=task.moved_count,
        to_move_count=task.to_move_count,
        failure_reason=task.failure_reason,
        started_at_ms=int(task.started_at.timestamp() * 1000),
    )


def _handle(task: moves.MoveTask) -> str:
    content = {"taskId": str(task.task_id), "sourceArn": task.source_arn}
    return b64encode(orjson.dumps(content)).decode("ascii")


def _read_handle(handle: str) -> tuple[UUID, arns.Arn]:
    """(task id, source) of a handle. Raises InvalidParameterValue."""
    try:
        if len(handle) > _LONGEST_HANDLE:
            raise ValueError(handle)
        content = orjson.loads(b64decode(handle, validate=True))
        return UUID(content["taskId"]), arns.parse_queue(content["sourceArn"])
    except (binascii.Error, ValueError, KeyError, TypeError, AttributeError, Malformed):
        raise InvalidParameterValue("Value for parameter TaskHandle is invalid.") from None


async def _queue(tx: Transaction, caller: Caller, arn: arns.Arn | None, parameter: str) -> Queue:
    """The caller's queue of that ARN. Raises ResourceNotFound."""
    queue = None
    if arn is not None and (arn.account_id, arn.region) == (caller.account_id, caller.region):
        queue = await queues.find(tx, arn.account_id, arn.region, arn.resource)
    if queue is None:
        raise ResourceNotFound(
            f"The resource that you specified for the {parameter} parameter doesn't exist."
        )
    return queue


def _arn(text: str) -> arns.Arn | None:
    try:
        return arns.parse_queue(text)
    except Malformed:
        return None


@dataclass(frozen=True, slots=True)
class StartMessageMoveTask:
    """``destination_arn`` None: each message goes back to its own source."""

    source_arn: str | None
    destination_arn: str | None = None
    max_per_second: int | None = None


async def start_message_move_task(
    engine: Engine, caller: Caller, request: StartMessageMoveTask
) -> str:
    """The handle of the started task.

    Raises ResourceNotFound for a queue that is not there, and InvalidParameterValue when the source
    is nobody's dead-letter queue, the destination cannot take its messages, or a task runs already.
    """
    _check_rate(engine, request.max_per_second)
    if request.source_arn is None:
        raise MissingParameter("SourceArn")
    now = engine.clock.of_arn(request.source_arn).now()
    limits = engine.limits
    async with engine.database.transaction() as tx:
        source = await _queue(tx, caller, _arn(request.source_arn), "SourceArn")
        if not await queues.dead_letter_sources(tx, source.arn, after_queue_id=0, limit=1):
            raise InvalidParameterValue("Source queue must be configured as a Dead Letter Queue.")
        if request.destination_arn is not None:
            target = await _queue(tx, caller, _arn(request.destination_arn), "DestinationArn")
            _check_destination(source, target)
        running = await moves.count_running(tx, caller.account_id, caller.region)
        counts = await queue_contents.count(tx, now, source)
        task = await moves.start(
            tx,
            now,
            uuid4(),
            source=source,
            destination_arn=request.destination_arn,
            max_per_second=request.max_per_second,
            to_move_count=counts.visible + counts.delayed,
        )
        if task is None:
            raise InvalidParameterValue(
                "There is already a task running. Only one active task is allowed for a source "
                "queue arn at a given time."
            )
        if running >= limits.move_tasks_per_account:
            raise OverLimit(
                f"Only {limits.move_tasks_per_account} active message move tasks are allowed."
            )
        await moves.forget_finished(tx, source.queue_id, keep=limits.move_tasks_listed)
    return _handle(task)


def _check_rate(engine: Engine, max_per_second: int | None) -> None:
    most = engine.limits.move_rate_per_second
    if max_per_second is not None and not 1 <= max_per_second <= most:
        raise InvalidParameterValue(
            f"Value {max_per_second} for parameter MaxNumberOfMessagesPerSecond is invalid. "
            f"Reason: Must be between 1 and {most}, if provided."
        )


def _check_destination(source: Queue, target: Queue) -> None:
    if source.queue_id == target.queue_id:
        raise InvalidParameterValue(
            "Source queue arn and destination queue arn cannot be the same."
        )
    if source.is_fifo != target.is_fifo:
        raise InvalidParameterValue("Source queue and destination queue must be of the same type.")


@dataclass(frozen=True, slots=True)
class CancelMessageMoveTask:
    task_handle: str | None


async def cancel_message_move_task(
    engine: Engine, caller: Caller, request: CancelMessageMoveTask
) -> int:
    """How many messages the task had moved: exactly those, none after this returns.

    Raises ResourceNotFound when the source or the task does not exist, InvalidParameterValue for a
    handle that is none and for a task that has ended.
    """
    if request.task_handle is None:
        raise MissingParameter("TaskHandle")
    task_id, source_arn = _read_handle(request.task_handle)
    async with engine.database.transaction() as tx:
        source = await _queue(tx, caller, source_arn, "SourceArn")
        task = await moves.lock_task(tx, source.queue_id, task_id)
        if task is None:
            raise ResourceNotFound("Task does not exist.")
        if task.status != "RUNNING":
            raise InvalidParameterValue("Only tasks that are running can be cancelled.")
        await moves.finish(tx, engine.clock.of(source.account_id).now(), task, status="CANCELLED")
    return task.moved_count


@dataclass(frozen=True, slots=True)
class ListMessageMoveTasks:
    source_arn: str | None
    max_results: int | None = None


async def list_message_move_tasks(
    engine: Engine, caller: Caller, request: ListMessageMoveTasks
) -> list[MoveTaskView]:
    """The newest tasks of a source, one unless more are asked for. Raises ResourceNotFound."""
    if request.source_arn is None:
        raise MissingParameter("SourceArn")
    limit = 1 if request.max_results is None else request.max_results
    most = engine.limits.move_tasks_listed
    if not 1 <= limit <= most:
        raise InvalidParameterValue(
            f"Value {limit} for parameter MaxResults is invalid. "
            f"Reason: Must be between 1 and {most}, if provided."
        )
    async with engine.database.transaction() as tx:
        source = await _queue(tx, caller, _arn(request.source_arn), "SourceArn")
        tasks = await moves.list_newest(tx, source.queue_id, limit=limit)
    return [_view(task) for task in tasks]
