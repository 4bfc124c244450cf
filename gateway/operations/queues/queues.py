"""Queues as a whole: create, find, list, delete, set, purge (docs/contract/sqs.md 2.2, 2.3)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.operations.caller import Caller
from gateway.operations.pagination import last_of, page_size, token_behind
from gateway.operations.queues import queue_attributes, queue_contents
from gateway.operations.queues.live_queues import current, locked
from gateway.operations.queues.redrive_policies import check_target
from gateway.operations.queues.tags import check_tags
from protocol import names
from protocol.arns import queue_arn
from storage.errors import (
    InvalidParameterValue,
    MissingParameter,
    PurgeQueueInProgress,
    QueueDeletedRecently,
    QueueDoesNotExist,
    QueueNameExists,
    Unavailable,
)
from storage.model import Queue
from storage.queues import fifo, queues

if TYPE_CHECKING:
    from gateway.operations.engine import Engine
    from storage.database import Transaction

_STANDARD_NAME = (
    "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
)
_FIFO_NAME = (
    "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, "
    "must end with .fifo suffix and be 1 to 80 in length"
)
_ACCOUNT = re.compile(r"[0-9]{12}")
_PREFIX = re.compile(r"[A-Za-z0-9_.-]{0,80}")
_CREATE_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Archiving:
    """Whether messages that receivers delete are kept, and for how many days; None: for good."""

    is_archiving: bool
    archive_days: int | None


@dataclass(frozen=True, slots=True)
class CreateQueue:
    """``attributes`` and ``tags`` as AWS names and spells them."""

    queue_name: str | None
    attributes: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    archiving: Archiving | None = None
    """None: off for a new queue, and not compared with what an existing one does."""
    may_follow_deletion: bool = False
    """Whether the name of a queue that was just deleted may be used again; not on AWS."""


async def create_queue(engine: Engine, caller: Caller, request: CreateQueue) -> Queue:
    """The new queue, or the existing one when every attribute of the request has its value there.

    Raises QueueNameExists with the first attribute that differs, QueueDeletedRecently, and the
    refusals of names, attributes and tags. Tags of an existing queue are neither compared nor
    changed. Any number of creators of one name get the same queue.
    """
    name = _checked_name(request.queue_name, request.attributes)
    is_fifo = name.endswith(".fifo")
    wanted = queue_attributes.normalise(request.attributes, is_fifo=is_fifo)
    stored = queue_attributes.merge({}, wanted)
    check_tags(name, request.tags, limits=engine.limits)
    default_timeout = str(engine.rules.default_visibility_timeout_seconds)
    if "VisibilityTimeout" not in wanted:
        stored = queue_attributes.merge(stored, {"VisibilityTimeout": default_timeout})
    archiving = request.archiving or Archiving(False, None)
    new = queues.NewQueue(
        caller.account_id,
        caller.region,
        name,
        is_fifo,
        stored,
        request.tags,
        archiving.is_archiving,
        archiving.archive_days,
    )
    # A queue that is deleted between a refused insert and the look at it is created after all.
    for _ in range(_CREATE_ATTEMPTS):
        async with engine.database.transaction() as tx:
            queue = await _existing(tx, new, wanted, request.archiving)
            if queue is not None:
                return queue
            queue = await _create(engine, tx, new, request)
        if queue is not None:
            engine.wakeups.queue_changed(queue.queue_id)
            return queue
    raise Unavailable("The queue is being created and deleted by others.")


def _checked_name(name: str | None, attributes: Mapping[str, str]) -> str:
    if name is None:
        raise MissingParameter("QueueName")
    wants_fifo = attributes.get("FifoQueue", "").lower() == "true"
    if wants_fifo or name.endswith(".fifo"):
        if not (wants_fifo and names.is_fifo_queue_name(name)):
            raise InvalidParameterValue(_FIFO_NAME)
    elif not names.is_standard_queue_name(name):
        raise InvalidParameterValue(_STANDARD_NAME)
    return name


async def _existing(
    tx: Transaction,
    new: queues.NewQueue,
    wanted: Mapping[str, str],
    archiving: Archiving | None,
) -> Queue | None:
    queue = await queues.find(tx, new.account_id, new.region, new.name)
    if queue is not None:
        differs = queue_attributes.first_difference(queue, wanted)
        if differs is None and archiving is not None:
            if queue.is_archiving != archiving.is_archiving:
                differs = "archive"
            elif queue.archive_days != archiving.archive_days:
                differs = "archive_days"
        if differs is not None:
            raise QueueNameExists(differs)
    return queue


async def _create(
    engine: Engine, tx: Transaction, new: queues.NewQueue, request: CreateQueue
) -> Queue | None:
    """The created queue, or None when another creator was faster."""
    now = engine.clock.of(new.account_id).now()
    seconds = engine.rules.queue_recreate_seconds
    if not request.may_follow_deletion and await queues.was_deleted_recently(
        tx, now, account_id=new.account_id, region=new.region, name=new.name, seconds=seconds
    ):
        raise QueueDeletedRecently(seconds)
    policy = new.attributes.get("RedrivePolicy")
    if policy is not None:
        await check_target(
            tx,
            policy=policy,
            source_arn=queue_arn(new.region, new.account_id, new.name),
            source_is_fifo=new.is_fifo,
            text=request.attributes["RedrivePolicy"],
        )
    return await queues.create(tx, now, new)


@dataclass(frozen=True, slots=True)
class GetQueueUrl:
    """``owner_account_id`` None: the caller's own account."""

    queue_name: str | None
    owner_account_id: str | None = None


async def get_queue_url(engine: Engine, caller: Caller, request: GetQueueUrl) -> Queue:
    """The queue whose URL is asked for. Raises QueueDoesNotExist."""
    name = request.queue_name
    if not name:
        raise InvalidParameterValue(
            "Value for parameter QueueName is invalid. Reason: Must specify a queue name."
        )
    account_id = request.owner_account_id or caller.account_id
    known = names.is_standard_queue_name(name) or names.is_fifo_queue_name(name)
    if not known or _ACCOUNT.fullmatch(account_id) is None:
        raise QueueDoesNotExist
    return await engine.queues.find(account_id, caller.region, name)


@dataclass(frozen=True, slots=True)
class ListQueues:
    """A page of the caller's queues in the caller's region."""

    prefix: str | None = None
    max_results: int | None = None
    next_token: str | None = None


@dataclass(frozen=True, slots=True)
class QueuePage:
    """Queues of one region and account. ``next_token`` None: there are no more, or no MaxResults
    was given."""

    region: str
    account_id: str
    queue_names: list[str]
    next_token: str | None


async def list_queues(engine: Engine, caller: Caller, request: ListQueues) -> QueuePage:
    """Live queues by name, in byte order. Raises InvalidParameterValue."""
    size = page_size(request.max_results, engine.limits.list_queues_page)
    after = last_of("queues", request.next_token) or ""
    prefix = request.prefix or ""
    if _PREFIX.fullmatch(prefix) is None:
        return QueuePage(caller.region, caller.account_id, [], None)
    async with engine.database.transaction() as tx:
        found = await queues.list_names(
            tx,
            caller.account_id,
            caller.region,
            prefix=prefix,
            after_name=after,
            limit=size + 1,
        )
    token = None
    if request.max_results is not None and len(found) > size:
        token = token_behind("queues", found[size - 1])
    return QueuePage(caller.region, caller.account_id, found[:size], token)


@dataclass(frozen=True, slots=True)
class DeleteQueue:
    queue: Queue


async def delete_queue(engine: Engine, caller: Caller, request: DeleteQueue) -> None:
    """Delete the queue and all that it holds; its name is blocked for a while.

    From the commit on nothing is sent to it or received from it; a worker removes the messages.
    """
    now = engine.clock.of(request.queue.account_id).now()
    async with engine.database.transaction() as tx:
        deleted = await queues.delete(tx, now, request.queue.queue_id)
    engine.wakeups.queue_changed(request.queue.queue_id)
    if not deleted:
        raise QueueDoesNotExist
    # A receive that waits there finds out now, not at the end of its wait.
    engine.wakeups.arrived(request.queue.queue_id, 1 << 30)


@dataclass(frozen=True, slots=True)
class GetQueueAttributes:
    """``attribute_names`` may contain `All`."""

    queue: Queue
    attribute_names: Sequence[str] = ()


async def get_queue_attributes(
    engine: Engine, caller: Caller, request: GetQueueAttributes
) -> dict[str, str]:
    """The attributes that were asked for and that the queue has; without names none.

    Raises InvalidAttributeName for a name that does not exist, QueueDoesNotExist.
    """
    wanted = queue_attributes.wanted_names(request.attribute_names)
    counts = None
    async with engine.database.transaction() as tx:
        queue = await current(tx, request.queue)
        if queue_attributes.need_counts(wanted):
            now = engine.clock.of(queue.account_id).now()
            counts = await queue_contents.count(tx, now, queue)
    return queue_attributes.read(queue, wanted, counts)


@dataclass(frozen=True, slots=True)
class SetQueueAttributes:
    """``attributes`` None: the caller sent none at all."""

    queue: Queue
    attributes: Mapping[str, str] | None


async def set_queue_attributes(engine: Engine, caller: Caller, request: SetQueueAttributes) -> None:
    """Change attributes at once and all together; "" unsets those that can be unset.

    Raises MissingParameter, InvalidAttributeName, InvalidAttributeValue, InvalidParameterValue (the
    redrive policies), QueueDoesNotExist.
    """
    if request.attributes is None:
        raise MissingParameter("Attributes")
    changes = queue_attributes.normalise(request.attributes, is_fifo=request.queue.is_fifo)
    now = engine.clock.of(request.queue.account_id).now()
    async with engine.database.transaction() as tx:
        queue = await locked(tx, request.queue)
        if changes.get("RedrivePolicy"):
            await check_target(
                tx,
                policy=changes["RedrivePolicy"],
                source_arn=queue.arn,
                source_is_fifo=queue.is_fifo,
                text=request.attributes["RedrivePolicy"],
            )
        attributes = queue_attributes.merge(queue.attributes, changes)
        await queues.set_attributes(tx, now, queue.queue_id, attributes)
        delay_seconds = int(changes.get("DelaySeconds", queue.delay_seconds))
        delay_changed = queue.is_fifo and delay_seconds != queue.delay_seconds
        if delay_changed:
            # In a FIFO queue the delay holds for what was sent before, too
            # (docs/contract/sqs.md 2.7).
            await fifo.set_delay(tx, now, queue.queue_id, delay_seconds)
    engine.wakeups.queue_changed(queue.queue_id)
    if delay_changed:
        engine.wakeups.arrived(queue.queue_id, engine.limits.receive_messages)


@dataclass(frozen=True, slots=True)
class PurgeQueue:
    queue: Queue


async def purge_queue(engine: Engine, caller: Caller, request: PurgeQueue) -> None:
    """Delete every message of the queue, in flight and delayed ones too, and forget its
    deduplication ids. What is sent while this runs stays.

    Refuses with PurgeQueueInProgress within 60 s of the last purge although we could do it: SQS
    refuses, and clients rely on it (docs/contract/sqs.md 2.1).
    """
    queue = request.queue
    seconds = engine.rules.purge_interval_seconds
    async with engine.database.transaction() as tx:
        await locked(tx, queue)
        now = engine.clock.of(queue.account_id).now()
        if not await queues.mark_purged(tx, now, queue.queue_id, interval_seconds=seconds):
            raise PurgeQueueInProgress(queue.name, seconds)
        last_sequence = await queue_contents.last_sequence(tx, queue)
    await queue_contents.empty(engine, queue, last_sequence)


@dataclass(frozen=True, slots=True)
class ListDeadLetterSourceQueues:
    queue: Queue
    max_results: int | None = None
    next_token: str | None = None


async def list_dead_letter_source_queues(
    engine: Engine, caller: Caller, request: ListDeadLetterSourceQueues
) -> QueuePage:
    """The queues whose redrive policy names this queue, oldest first."""
    size = page_size(request.max_results, engine.limits.list_queues_page)
    last = last_of("sources", request.next_token) or "0"
    if not last.isdigit() or len(last) > 9:
        raise InvalidParameterValue("Invalid or expired next token.")
    async with engine.database.transaction() as tx:
        queue = await current(tx, request.queue)
        found = await queues.dead_letter_sources(
            tx, queue.arn, after_queue_id=int(last), limit=size + 1
        )
    token = None
    if request.max_results is not None and len(found) > size:
        token = token_behind("sources", str(found[size - 1].queue_id))
    names = [source.name for source in found[:size]]
    return QueuePage(queue.region, queue.account_id, names, token)
