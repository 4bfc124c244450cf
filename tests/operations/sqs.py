"""Actions of SQS on queues, for tests of its rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from queuegate.gateway.faces.aws.aws_face import Members
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.protocol.urls import queue_from_url
from queuegate.storage.queue_model import Queue
from queuegate.storage.queues import stored_queues
from tests.operations.aws import ask


async def act(
    engine: Engine, caller: Caller, action: str, queue: Queue | None = None, **members: Any
) -> Members:
    """Call an action and return the members of its answer."""
    return await ask(engine, caller, "sqs", action, queue, **members)


async def _queue(engine: Engine, caller: Caller, url: str) -> Queue:
    address = queue_from_url(url)
    assert address is not None
    account_id, name, region = address
    async with engine.database.transaction() as tx:
        queue = await stored_queues.find(tx, account_id or "", region or caller.region, name)
    assert queue is not None
    return queue


async def create_queue(
    engine: Engine,
    caller: Caller,
    name: str | None,
    attributes: Mapping[str, str] | None = None,
    tags: Mapping[str, str] | None = None,
) -> Queue:
    members = {"QueueName": name, "Attributes": attributes or {}, "tags": tags or {}}
    answer = await act(engine, caller, "CreateQueue", None, **members)
    return await _queue(engine, caller, answer["QueueUrl"])


async def delete_queue(engine: Engine, caller: Caller, queue: Queue) -> None:
    await act(engine, caller, "DeleteQueue", queue)


async def purge_queue(engine: Engine, caller: Caller, queue: Queue) -> None:
    await act(engine, caller, "PurgeQueue", queue)


async def get_queue_attributes(
    engine: Engine, caller: Caller, queue: Queue, names: Sequence[str] = ()
) -> dict[str, str]:
    answer = await act(engine, caller, "GetQueueAttributes", queue, AttributeNames=names)
    return answer["Attributes"] or {}


async def set_queue_attributes(
    engine: Engine, caller: Caller, queue: Queue, attributes: Mapping[str, str]
) -> None:
    await act(engine, caller, "SetQueueAttributes", queue, Attributes=attributes)


async def tag_queue(engine: Engine, caller: Caller, queue: Queue, tags: Mapping[str, str]) -> None:
    await act(engine, caller, "TagQueue", queue, Tags=tags)


async def untag_queue(engine: Engine, caller: Caller, queue: Queue, keys: Sequence[str]) -> None:
    await act(engine, caller, "UntagQueue", queue, TagKeys=keys)


async def add_permission(
    engine: Engine,
    caller: Caller,
    queue: Queue,
    label: str,
    account_ids: Sequence[str],
    actions: Sequence[str],
) -> None:
    members = {"Label": label, "AWSAccountIds": account_ids, "Actions": actions}
    await act(engine, caller, "AddPermission", queue, **members)


async def start_message_move_task(
    engine: Engine,
    caller: Caller,
    source_arn: str,
    destination_arn: str | None = None,
    max_per_second: int | None = None,
) -> str:
    answer = await act(
        engine,
        caller,
        "StartMessageMoveTask",
        SourceArn=source_arn,
        DestinationArn=destination_arn,
        MaxNumberOfMessagesPerSecond=max_per_second,
    )
    handle: str = answer["TaskHandle"]
    return handle


async def cancel_message_move_task(engine: Engine, caller: Caller, handle: str | None) -> int:
    answer = await act(engine, caller, "CancelMessageMoveTask", TaskHandle=handle)
    moved: int = answer["ApproximateNumberOfMessagesMoved"]
    return moved


@dataclass(frozen=True, slots=True)
class MoveTaskView:
    task_handle: str | None
    status: str
    source_arn: str
    destination_arn: str | None
    max_per_second: int | None
    moved_count: int
    to_move_count: int
    failure_reason: str | None
    started_at_ms: int


async def list_message_move_tasks(
    engine: Engine, caller: Caller, source_arn: str, max_results: int | None = None
) -> list[MoveTaskView]:
    members = {"SourceArn": source_arn, "MaxResults": max_results}
    answer = await act(engine, caller, "ListMessageMoveTasks", None, **members)
    return [MoveTaskView(*task.values()) for task in answer["Results"] or ()]
