"""SQS actions on message move tasks (docs/contract/sqs.md 2.10)."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Mapping
from uuid import UUID

import orjson

from queuegate.gateway.faces.aws.face import Binding, Call, Members
from queuegate.gateway.faces.aws.limits import AWS
from queuegate.gateway.faces.aws.sqs.pages import check_range
from queuegate.gateway.operations.queues import dead_letter_moves
from queuegate.protocol import arns
from queuegate.protocol.errors import Malformed
from queuegate.storage.errors import InvalidParameterValue, MissingParameter
from queuegate.storage.model import MoveFailure, MoveTask

_FAILURES: Mapping[str, str] = {
    MoveFailure.QUEUE_GONE: "AWS.SimpleQueueService.NonExistentQueue",
    MoveFailure.SOURCE_UNKNOWN: "CouldNotDetermineMessageSource",
    MoveFailure.TOO_LONG: "The task ran longer than 36 hours.",
}


async def start_message_move_task(call: Call) -> Members:
    members = call.members
    rate = members.get("MaxNumberOfMessagesPerSecond")
    most = AWS.move_rate_per_second
    check_range("MaxNumberOfMessagesPerSecond", rate, most)
    source, destination = _source(call), members.get("DestinationArn")
    task = await dead_letter_moves.start_move(call.engine, call.caller, source, destination, rate)
    return {"TaskHandle": _handle(task)}


def _source(call: Call) -> str:
    arn: str | None = call.members.get("SourceArn")
    if arn is None:
        raise MissingParameter("SourceArn")
    return arn


async def cancel_message_move_task(call: Call) -> Members:
    handle = call.members.get("TaskHandle")
    if handle is None:
        raise MissingParameter("TaskHandle")
    task_id, source_arn = _read_handle(handle)
    task = await dead_letter_moves.cancel_move(call.engine, call.caller, source_arn, task_id)
    return {"ApproximateNumberOfMessagesMoved": task.moved_count}


async def list_message_move_tasks(call: Call) -> Members:
    """The newest tasks of a source, one unless more are asked for."""
    source, max_results = _source(call), call.members.get("MaxResults")
    check_range("MaxResults", max_results, call.engine.limits.move_tasks_listed)
    limit = 1 if max_results is None else max_results
    tasks = await dead_letter_moves.list_moves(call.engine, call.caller, source, limit)
    return {"Results": [_task(task) for task in tasks] or None}


def _task(task: MoveTask) -> Members:
    reason = task.failure_reason
    return {
        "TaskHandle": _handle(task) if task.status == "RUNNING" else None,
        "Status": task.status,
        "SourceArn": task.source_arn,
        "DestinationArn": task.destination_arn,
        "MaxNumberOfMessagesPerSecond": task.max_per_second,
        "ApproximateNumberOfMessagesMoved": task.moved_count,
        "ApproximateNumberOfMessagesToMove": task.to_move_count,
        # Tasks that failed before there were codes have their reason as it is.
        "FailureReason": reason and _FAILURES.get(reason, reason),
        "StartedTimestamp": int(task.started_at.timestamp() * 1000),
    }


def _handle(task: MoveTask) -> str:
    content = {"taskId": str(task.task_id), "sourceArn": task.source_arn}
    return b64encode(orjson.dumps(content)).decode("ascii")


def _read_handle(handle: str) -> tuple[UUID, str]:
    """(task id, ARN of its source) of a handle."""
    try:
        if len(handle) > AWS.move_handle_length:
            raise ValueError(handle)
        content = orjson.loads(b64decode(handle, validate=True))
        source_arn = content["sourceArn"]
        arns.parse_queue(source_arn)
        return UUID(content["taskId"]), source_arn
    except (binascii.Error, ValueError, KeyError, TypeError, AttributeError, Malformed):
        raise InvalidParameterValue("Value for parameter TaskHandle is invalid.") from None


BINDINGS: dict[str, Binding] = {
    "StartMessageMoveTask": start_message_move_task,
    "CancelMessageMoveTask": cancel_message_move_task,
    "ListMessageMoveTasks": list_message_move_tasks,
}
