"""SQS actions on queues: action -> binding. Decoded members in, response members out."""

from __future__ import annotations

from gateway.faces.aws.face import Binding, Call, Members
from gateway.operations.queues import moves, permissions, queues, tags


async def create_queue(call: Call) -> Members:
    members = call.members
    request = queues.CreateQueue(
        members.get("QueueName"), members.get("Attributes") or {}, members.get("tags") or {}
    )
    queue = await queues.create_queue(call.engine, call.caller, request)
    return {"QueueUrl": call.queue_url(queue.region, queue.account_id, queue.name)}


async def get_queue_url(call: Call) -> Members:
    members = call.members
    request = queues.GetQueueUrl(members.get("QueueName"), members.get("QueueOwnerAWSAccountId"))
    queue = await queues.get_queue_url(call.engine, call.caller, request)
    return {"QueueUrl": call.queue_url(queue.region, queue.account_id, queue.name)}


def _urls(call: Call, page: queues.QueuePage) -> list[str] | None:
    return [call.queue_url(page.region, page.account_id, name) for name in page.queue_names] or None


async def list_queues(call: Call) -> Members:
    members = call.members
    request = queues.ListQueues(
        members.get("QueueNamePrefix"), members.get("MaxResults"), members.get("NextToken")
    )
    page = await queues.list_queues(call.engine, call.caller, request)
    return {"QueueUrls": _urls(call, page), "NextToken": page.next_token}


async def list_dead_letter_source_queues(call: Call) -> Members:
    members = call.members
    request = queues.ListDeadLetterSourceQueues(
        await call.queue(), members.get("MaxResults"), members.get("NextToken")
    )
    page = await queues.list_dead_letter_source_queues(call.engine, call.caller, request)
    return {"queueUrls": _urls(call, page), "NextToken": page.next_token}


async def delete_queue(call: Call) -> None:
    request = queues.DeleteQueue(await call.queue())
    await queues.delete_queue(call.engine, call.caller, request)


async def purge_queue(call: Call) -> None:
    request = queues.PurgeQueue(await call.queue())
    await queues.purge_queue(call.engine, call.caller, request)


async def get_queue_attributes(call: Call) -> Members:
    names = call.members.get("AttributeNames") or ()
    request = queues.GetQueueAttributes(await call.queue(), names)
    attributes = await queues.get_queue_attributes(call.engine, call.caller, request)
    return {"Attributes": attributes or None}


async def set_queue_attributes(call: Call) -> None:
    attributes = call.members.get("Attributes")
    request = queues.SetQueueAttributes(await call.queue(), attributes)
    await queues.set_queue_attributes(call.engine, call.caller, request)


async def tag_queue(call: Call) -> None:
    request = tags.TagQueue(await call.queue(), call.members.get("Tags"))
    await tags.tag_queue(call.engine, call.caller, request)


async def untag_queue(call: Call) -> None:
    request = tags.UntagQueue(await call.queue(), call.members.get("TagKeys"))
    await tags.untag_queue(call.engine, call.caller, request)


async def list_queue_tags(call: Call) -> Members:
    request = tags.ListQueueTags(await call.queue())
    return {"Tags": dict(await tags.list_queue_tags(call.engine, call.caller, request)) or None}


async def add_permission(call: Call) -> None:
    members = call.members
    request = permissions.AddPermission(
        await call.queue(),
        members.get("Label"),
        members.get("AWSAccountIds"),
        members.get("Actions"),
    )
    await permissions.add_permission(call.engine, call.caller, request)


async def remove_permission(call: Call) -> None:
    request = permissions.RemovePermission(await call.queue(), call.members.get("Label"))
    await permissions.remove_permission(call.engine, call.caller, request)


async def start_message_move_task(call: Call) -> Members:
    members = call.members
    request = moves.StartMessageMoveTask(
        members.get("SourceArn"),
        members.get("DestinationArn"),
        members.get("MaxNumberOfMessagesPerSecond"),
    )
    handle = await moves.start_message_move_task(call.engine, call.caller, request)
    return {"TaskHandle": handle}


async def cancel_message_move_task(call: Call) -> Members:
    request = moves.CancelMessageMoveTask(call.members.get("TaskHandle"))
    moved = await moves.cancel_message_move_task(call.engine, call.caller, request)
    return {"ApproximateNumberOfMessagesMoved": moved}


async def list_message_move_tasks(call: Call) -> Members:
    members = call.members
    request = moves.ListMessageMoveTasks(members.get("SourceArn"), members.get("MaxResults"))
    tasks = await moves.list_message_move_tasks(call.engine, call.caller, request)
    return {"Results": [_task(task) for task in tasks] or None}


def _task(task: moves.MoveTaskView) -> Members:
    return {
        "TaskHandle": task.task_handle,
        "Status": task.status,
        "SourceArn": task.source_arn,
        "DestinationArn": task.destination_arn,
        "MaxNumberOfMessagesPerSecond": task.max_per_second,
        "ApproximateNumberOfMessagesMoved": task.moved_count,
        "ApproximateNumberOfMessagesToMove": task.to_move_count,
        "FailureReason": task.failure_reason,
        "StartedTimestamp": task.started_at_ms,
    }


BINDINGS: dict[str, Binding] = {
    "CreateQueue": create_queue,
    "GetQueueUrl": get_queue_url,
    "ListQueues": list_queues,
    "ListDeadLetterSourceQueues": list_dead_letter_source_queues,
    "DeleteQueue": delete_queue,
    "PurgeQueue": purge_queue,
    "GetQueueAttributes": get_queue_attributes,
    "SetQueueAttributes": set_queue_attributes,
    "TagQueue": tag_queue,
    "UntagQueue": untag_queue,
    "ListQueueTags": list_queue_tags,
    "AddPermission": add_permission,
    "RemovePermission": remove_permission,
    "StartMessageMoveTask": start_message_move_task,
    "CancelMessageMoveTask": cancel_message_move_task,
    "ListMessageMoveTasks": list_message_move_tasks,
}
