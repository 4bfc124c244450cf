"""Actions of SQS on queues, for tests of its rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    """The members of the answer."""
    return await ask(engine, caller, "sqs", action, queue, **members)


async def _queue(engine: Engine, caller: Caller, url: str) -> Queue:
    address = queue_from_url(url)
    assert address is not None
    account_id, name, region = address
    async with engine.database.transaction() as tx:
        queue = await stored_queues.find(tx, account_id or "", region or caller.region, name)
    assert queue is not None
    return queue


@dataclass(frozen=True, slots=True)
class CreateQueue:
    queue_name: str | None
    attributes: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


async def create_queue(engine: Engine, caller: Caller, request: CreateQueue) -> Queue:
    answer = await act(
        engine,
        caller,
        "CreateQueue",
        QueueName=request.queue_name,
        Attributes=request.attributes,
        tags=request.tags,
    )
    return await _queue(engine, caller, answer["QueueUrl"])


@dataclass(frozen=True, slots=True)
class GetQueueUrl:
    queue_name: str | None
    owner_account_id: str | None = None


async def get_queue_url(engine: Engine, caller: Caller, request: GetQueueUrl) -> Queue:
    owner = request.owner_account_id
    members = {"QueueName": request.queue_name, "QueueOwnerAWSAccountId": owner}
    answer = await act(engine, caller, "GetQueueUrl", None, **members)
    return await _queue(engine, caller, answer["QueueUrl"])


@dataclass(frozen=True, slots=True)
class ListQueues:
    prefix: str | None = None
    max_results: int | None = None
    next_token: str | None = None


@dataclass(frozen=True, slots=True)
class QueuePage:
    queue_names: list[str]
    next_token: str | None


def _page(urls: Sequence[str] | None, next_token: str | None) -> QueuePage:
    return QueuePage([url.rpartition("/")[2] for url in urls or ()], next_token)


async def list_queues(engine: Engine, caller: Caller, request: ListQueues) -> QueuePage:
    answer = await act(
        engine,
        caller,
        "ListQueues",
        QueueNamePrefix=request.prefix,
        MaxResults=request.max_results,
        NextToken=request.next_token,
    )
    return _page(answer["QueueUrls"], answer["NextToken"])


@dataclass(frozen=True, slots=True)
class ListDeadLetterSourceQueues:
    queue: Queue
    max_results: int | None = None
    next_token: str | None = None


async def list_dead_letter_source_queues(
    engine: Engine, caller: Caller, request: ListDeadLetterSourceQueues
) -> QueuePage:
    members = {"MaxResults": request.max_results, "NextToken": request.next_token}
    answer = await act(engine, caller, "ListDeadLetterSourceQueues", request.queue, **members)
    return _page(answer["queueUrls"], answer["NextToken"])


@dataclass(frozen=True, slots=True)
class DeleteQueue:
    queue: Queue


async def delete_queue(engine: Engine, caller: Caller, request: DeleteQueue) -> None:
    await act(engine, caller, "DeleteQueue", request.queue)


@dataclass(frozen=True, slots=True)
class PurgeQueue:
    queue: Queue


async def purge_queue(engine: Engine, caller: Caller, request: PurgeQueue) -> None:
    await act(engine, caller, "PurgeQueue", request.queue)


@dataclass(frozen=True, slots=True)
class GetQueueAttributes:
    queue: Queue
    attribute_names: Sequence[str] = ()


async def get_queue_attributes(
    engine: Engine, caller: Caller, request: GetQueueAttributes
) -> dict[str, str]:
    names = request.attribute_names
    answer = await act(engine, caller, "GetQueueAttributes", request.queue, AttributeNames=names)
    return answer["Attributes"] or {}


@dataclass(frozen=True, slots=True)
class SetQueueAttributes:
    queue: Queue
    attributes: Mapping[str, str] | None


async def set_queue_attributes(engine: Engine, caller: Caller, request: SetQueueAttributes) -> None:
    given = request.attributes
    await act(engine, caller, "SetQueueAttributes", request.queue, Attributes=given)


@dataclass(frozen=True, slots=True)
class TagQueue:
    queue: Queue
    tags: Mapping[str, str] | None


async def tag_queue(engine: Engine, caller: Caller, request: TagQueue) -> None:
    await act(engine, caller, "TagQueue", request.queue, Tags=request.tags)


@dataclass(frozen=True, slots=True)
class UntagQueue:
    queue: Queue
    tag_keys: Sequence[str] | None


async def untag_queue(engine: Engine, caller: Caller, request: UntagQueue) -> None:
    await act(engine, caller, "UntagQueue", request.queue, TagKeys=request.tag_keys)


@dataclass(frozen=True, slots=True)
class ListQueueTags:
    queue: Queue


async def list_queue_tags(
    engine: Engine, caller: Caller, request: ListQueueTags
) -> Mapping[str, str]:
    return (await act(engine, caller, "ListQueueTags", request.queue))["Tags"] or {}


@dataclass(frozen=True, slots=True)
class AddPermission:
    queue: Queue
    label: str | None
    account_ids: Sequence[str] | None
    actions: Sequence[str] | None


async def add_permission(engine: Engine, caller: Caller, request: AddPermission) -> None:
    await act(
        engine,
        caller,
        "AddPermission",
        request.queue,
        Label=request.label,
        AWSAccountIds=request.account_ids,
        Actions=request.actions,
    )


@dataclass(frozen=True, slots=True)
class RemovePermission:
    queue: Queue
    label: str | None


async def remove_permission(engine: Engine, caller: Caller, request: RemovePermission) -> None:
    await act(engine, caller, "RemovePermission", request.queue, Label=request.label)


@dataclass(frozen=True, slots=True)
class StartMessageMoveTask:
    source_arn: str | None
    destination_arn: str | None = None
    max_per_second: int | None = None


async def start_message_move_task(
    engine: Engine, caller: Caller, request: StartMessageMoveTask
) -> str:
    answer = await act(
        engine,
        caller,
        "StartMessageMoveTask",
        SourceArn=request.source_arn,
        DestinationArn=request.destination_arn,
        MaxNumberOfMessagesPerSecond=request.max_per_second,
    )
    handle: str = answer["TaskHandle"]
    return handle


@dataclass(frozen=True, slots=True)
class CancelMessageMoveTask:
    task_handle: str | None


async def cancel_message_move_task(
    engine: Engine, caller: Caller, request: CancelMessageMoveTask
) -> int:
    answer = await act(engine, caller, "CancelMessageMoveTask", TaskHandle=request.task_handle)
    moved: int = answer["ApproximateNumberOfMessagesMoved"]
    return moved


@dataclass(frozen=True, slots=True)
class ListMessageMoveTasks:
    source_arn: str | None
    max_results: int | None = None


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
    engine: Engine, caller: Caller, request: ListMessageMoveTasks
) -> list[MoveTaskView]:
    answer = await act(
        engine,
        caller,
        "ListMessageMoveTasks",
        SourceArn=request.source_arn,
        MaxResults=request.max_results,
    )
    return [MoveTaskView(*task.values()) for task in answer["Results"] or ()]
