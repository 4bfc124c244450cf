"""Tags of queues: names with values that mean nothing to us (docs/contract/sqs.md 2.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.operations.caller import Caller
from gateway.operations.limits import Limits
from gateway.operations.queues.live_queues import current, locked
from protocol import names
from storage.errors import InvalidParameterValue, MissingParameter
from storage.model import Queue
from storage.queues import queues

if TYPE_CHECKING:
    from gateway.operations.engine import Engine


def check_tags(queue_name: str, tags: Mapping[str, str], *, limits: Limits) -> None:
    """Refuse keys and values that are too long or not text, and too many of them."""
    if len(tags) > limits.tags:
        raise InvalidParameterValue(f"Too many tags added for queue {queue_name}.")
    for key, value in tags.items():
        _check_key(key)
        if not names.is_tag_value(value):
            raise InvalidParameterValue(
                "Tag values must be between 0 and 256 characters in length."
            )


def _check_key(key: str) -> None:
    if not names.is_tag_key(key):
        raise InvalidParameterValue("Tag keys must be between 1 and 128 characters in length.")


@dataclass(frozen=True, slots=True)
class TagQueue:
    queue: Queue
    tags: Mapping[str, str] | None


async def tag_queue(engine: Engine, caller: Caller, request: TagQueue) -> None:
    """Add tags; one whose key is there already gets the new value. Keys are case-sensitive."""
    if not request.tags:
        raise MissingParameter("Tags")
    check_tags(request.queue.name, request.tags, limits=engine.limits)
    async with engine.database.transaction() as tx:
        queue = await locked(tx, request.queue)
        tags = {**queue.tags, **request.tags}
        check_tags(queue.name, tags, limits=engine.limits)
        await queues.set_tags(tx, queue.queue_id, tags)
    engine.wakeups.queue_changed(queue.queue_id)


@dataclass(frozen=True, slots=True)
class UntagQueue:
    queue: Queue
    tag_keys: Sequence[str] | None


async def untag_queue(engine: Engine, caller: Caller, request: UntagQueue) -> None:
    """Remove tags by key; keys that are not there are ignored."""
    if not request.tag_keys:
        raise MissingParameter("TagKeys")
    for key in request.tag_keys:
        _check_key(key)
    async with engine.database.transaction() as tx:
        queue = await locked(tx, request.queue)
        removed = frozenset(request.tag_keys)
        tags = {key: value for key, value in queue.tags.items() if key not in removed}
        await queues.set_tags(tx, queue.queue_id, tags)
    engine.wakeups.queue_changed(queue.queue_id)


@dataclass(frozen=True, slots=True)
class ListQueueTags:
    queue: Queue


async def list_queue_tags(
    engine: Engine, caller: Caller, request: ListQueueTags
) -> Mapping[str, str]:
    """All tags of the queue, maybe none."""
    async with engine.database.transaction() as tx:
        queue = await current(tx, request.queue)
    return queue.tags
