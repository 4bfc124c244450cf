"""TagQueue, UntagQueue, ListQueueTags (docs/contract/sqs.md 2.3)."""

from __future__ import annotations

from queuegate.gateway.faces.aws.face import Binding, Call, Members
from queuegate.gateway.faces.aws.limits import AWS
from queuegate.gateway.faces.aws.tags import Rules, removing
from queuegate.gateway.operations.queues import queues
from queuegate.storage.errors import InvalidParameterValue, MissingParameter


def rules(queue_name: str) -> Rules:
    """Of tags of the queue of that name."""
    return Rules(
        AWS.tags,
        lambda: InvalidParameterValue(f"Too many tags added for queue {queue_name}."),
        lambda: InvalidParameterValue("Tag keys must be between 1 and 128 characters in length."),
        lambda: InvalidParameterValue("Tag values must be between 0 and 256 characters in length."),
    )


async def tag_queue(call: Call) -> None:
    queue = await call.queue()
    tags = call.members.get("Tags")
    if not tags:
        raise MissingParameter("Tags")
    of_queue = rules(queue.name)
    of_queue.check_count(len(tags))
    added = of_queue.checked(tags.items())
    await queues.change_tags(call.engine, call.caller, queue, of_queue.adding(added))


async def untag_queue(call: Call) -> None:
    queue = await call.queue()
    keys = call.members.get("TagKeys")
    if not keys:
        raise MissingParameter("TagKeys")
    of_queue = rules(queue.name)
    for key in keys:
        of_queue.check_key(key)
    await queues.change_tags(call.engine, call.caller, queue, removing(keys))


async def list_queue_tags(call: Call) -> Members:
    queue = await queues.look(call.engine, call.caller, await call.queue())
    return {"Tags": dict(queue.tags) or None}


BINDINGS: dict[str, Binding] = {
    "TagQueue": tag_queue,
    "UntagQueue": untag_queue,
    "ListQueueTags": list_queue_tags,
}
