"""Moves of dead letters: tasks that a worker carries out (docs/contract/sqs.md 2.10), and moves of
selected messages, single or by page, at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID, uuid4

from queuegate.gateway.operations.access.authorization import (
    SEND,
    check_found,
    check_right,
    own_arn,
)
from queuegate.gateway.operations.queues.stored_messages import (
    Browse,
    Matching,
    browse,
    came_from,
    place_of,
    text_of,
)
from queuegate.storage.queue_model import LAST, ClaimedTask, MovedBatch, MoveTask, Queue, Received
from queuegate.storage.queues import moves, stored_queues
from queuegate.storage.queues.capacity import capacity_of
from queuegate.storage.storage_errors import (
    MoveQueueAbsent,
    MoveRefused,
    OverLimit,
    QueueFull,
    ResourceNotFound,
    UnsupportedOperation,
)

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.storage.database import Transaction


TAKE: Final = ("sqs:ReceiveMessage", "sqs:DeleteMessage")
"""Rights to the source of a move, as on AWS ("Configuring queue permissions for dead-letter queue
redrive"): moving messages must not grant access to them."""
_START: Final = ("sqs:StartMessageMoveTask", *TAKE)
_CANCEL: Final = "sqs:CancelMessageMoveTask"
_LIST: Final = "sqs:ListMessageMoveTasks"
_MOST_HOMES = 1_000


async def _queue(
    engine: Engine, tx: Transaction, caller: Caller, arn: str, *rights: str, is_source: bool = True
) -> Queue:
    """Return the caller's queue of that ARN after checking these rights. Raises AccessDenied and
    MoveQueueAbsent."""
    queue = await stored_queues.find_by_arn(tx, arn)
    place = (caller.account_id, caller.region)
    if queue is None or (queue.account_id, queue.region) != place:
        named = arn if arn.startswith("arn:") else own_arn(caller, rights[0], arn)
        check_right(engine, caller, rights[0], named)
        raise MoveQueueAbsent(is_source=is_source)
    for right in rights:
        check_found(engine, caller, right, queue)
    return queue


async def check_homes(
    engine: Engine, tx: Transaction, caller: Caller, names: Iterable[str]
) -> None:
    """Raise AccessDenied unless the caller may send to all of these source queues."""
    if engine.authority is not None:
        place = caller.account_id, caller.region
        for home in await stored_queues.find_many(tx, *place, sorted(names)):
            check_found(engine, caller, SEND, home)


async def start_move(
    engine: Engine,
    caller: Caller,
    source_arn: str,
    destination_arn: str | None = None,
    max_per_second: int | None = None,
) -> MoveTask:
    """Start a task and return it. ``destination_arn`` None: each message returns to its own source
    queue. Raises AccessDenied, MoveQueueAbsent, OverLimit, and MoveRefused if no queue has the
    source as its dead-letter queue, the destination cannot store its messages, or a task is
    running."""
    now = engine.clock.of_arn(source_arn).now()
    limits = engine.limits
    async with engine.database.transaction() as tx:
        source = await _queue(engine, tx, caller, source_arn, *_START)
        homes = await stored_queues.dead_letter_sources(
            tx, source.arn, after_queue_id=0, limit=_MOST_HOMES
        )
        if not homes:
            raise MoveRefused("not dead letters")
        if destination_arn is None:
            await check_homes(engine, tx, caller, [home.name for home in homes])
        else:
            target = await _queue(engine, tx, caller, destination_arn, SEND, is_source=False)
            if source.queue_id == target.queue_id:
                raise MoveRefused("same queue")
            if source.kind.order != target.kind.order:
                raise MoveRefused("other kind")
        running = await moves.count_running(tx, caller.account_id, caller.region)
        counts = await source.kind.count(tx, now, source.queue_id)
        task = await moves.start(
            tx,
            now,
            uuid4(),
            source=source,
            destination_arn=destination_arn,
            max_per_second=max_per_second,
            to_move_count=counts.visible + counts.delayed,
        )
        if task is None:
            raise MoveRefused("runs already")
        if running >= limits.move_tasks_per_account:
            raise OverLimit(
                f"Only {limits.move_tasks_per_account} active message move tasks are allowed."
            )
        await moves.forget_finished(tx, source.queue_id, keep=limits.move_tasks_listed)
    return task


async def cancel_move(engine: Engine, caller: Caller, source_arn: str, task_id: UUID) -> MoveTask:
    """Cancel a task and return it with the exact number of moved messages. Raises AccessDenied,
    MoveQueueAbsent, ResourceNotFound, and MoveRefused for a task that has ended."""
    async with engine.database.transaction() as tx:
        source = await _queue(engine, tx, caller, source_arn, _CANCEL)
        task = await moves.lock_task(tx, source.queue_id, task_id)
        if task is None:
            raise ResourceNotFound("Task does not exist.")
        if task.status != "RUNNING":
            raise MoveRefused("not running")
        await moves.finish(tx, engine.clock.of(source.account_id).now(), task, status="CANCELLED")
    return task


async def list_moves(engine: Engine, caller: Caller, source_arn: str, limit: int) -> list[MoveTask]:
    """Return the newest tasks of a source. Raises AccessDenied and MoveQueueAbsent."""
    async with engine.database.transaction() as tx:
        source = await _queue(engine, tx, caller, source_arn, _LIST)
        return await moves.list_newest(tx, source.queue_id, limit=limit)


async def requeue(engine: Engine, caller: Caller, queue: Queue, number: int) -> Queue | None:
    """Move a dead letter, even one in flight, to its source queue, where it is visible at once and
    its receive count is 0. Return this queue; None: there is no such message, or it is not a dead
    letter. Raises AccessDenied, MoveQueueAbsent if the source queue was deleted, QueueFull, and
    UnsupportedOperation for queues with groups."""
    if queue.kind.has_groups:
        raise UnsupportedOperation(
            f"The messages of '{queue.name}' are in order: have a move task move all of them."
        )
    if not 0 < number <= LAST:
        return None
    now = engine.clock.of(queue.account_id).now()
    async with engine.database.transaction() as tx:
        home = await moves.find_home(tx, queue.queue_id, number)
        if home is not None and home.arn is not None:
            target = await stored_queues.find_by_arn(tx, home.arn)
        elif home is not None and home.parent_id is not None:
            target = await stored_queues.find_by_id(tx, home.parent_id)
        else:
            return None
        if target is None or target.kind.has_groups:
            raise MoveQueueAbsent(is_source=False)
        check_found(engine, caller, SEND, target)
        if (await capacity_of(tx, [target.queue_id], now)).get(target.queue_id) == 0:
            raise QueueFull(target)
        moved = await moves.requeue(
            tx, now, source_id=queue.queue_id, sequence=number, target_id=target.queue_id
        )
    if not moved:
        return None
    engine.wakeups.arrived(target.queue_id)
    return target


_NOBODYS_TASK = UUID(int=0)
_AT_ONCE = 500


class RequeuedMessages(NamedTuple):
    """``has_more``: the time of one request was not enough."""

    moved_count: int
    has_more: bool


class Redrive(NamedTuple):
    """A request to move a page of dead letters. ``browse`` defines the page; ``target`` None: each
    message moves to its source queue."""

    browse: Browse
    matching: Matching = Matching()
    most: int = _AT_ONCE
    target: Queue | None = None
    is_dry_run: bool = False


class Redriven(NamedTuple):
    """The counts of a page: matching messages, moved ones, and ones whose source queue is unknown
    or deleted. Others stayed because they are in flight or the target is full. ``next``: continue
    here, with ``as_of``; None: that was all."""

    matched: int
    moved: int
    homeless: int
    next: str | None
    as_of: str


async def redrive(
    engine: Engine, caller: Caller, dead_letters: Queue, request: Redrive
) -> Redriven:
    """Move the matching messages of a page in one transaction, as new messages with receive counts
    of 0. Messages in flight stay; in queues with groups, so do later messages of their groups.
    Raises AccessDenied, MoveRefused for a target that cannot store them, and errors of
    ``browse``."""
    target = request.target
    if target is not None:
        if target.queue_id == dead_letters.queue_id:
            raise MoveRefused("same queue")
        if target.kind.order != dead_letters.kind.order:
            raise MoveRefused("other kind")
    for right in TAKE:
        check_found(engine, caller, right, dead_letters)
    page = await browse(engine, caller, dead_letters, request.browse, request.matching)
    chosen = [one.message for one in page.messages]
    following = page.next
    if len(chosen) > request.most:
        chosen = chosen[: request.most]
        following = text_of(place_of(chosen[-1]))
    if target is None and engine.authority is not None:
        homes = {arn for one in chosen if (arn := came_from(one))}
        for arn in homes:
            check_right(engine, caller, SEND, arn)
        async with engine.database.transaction() as tx:
            await check_homes(engine, tx, caller, {arn.rpartition(":")[2] for arn in homes})
    moved = homeless = 0
    if not request.is_dry_run:
        batch = await _redrive_batch(engine, dead_letters, chosen, target)
        moved, homeless = batch.moved_count, batch.without_source + batch.without_queue
    elif target is None:
        homeless = sum(came_from(one) is None for one in chosen)
    return Redriven(len(chosen), moved, homeless, following, page.as_of)


async def requeue_all(
    engine: Engine, caller: Caller, dead_letters: Queue, home: Queue, *, most: int
) -> RequeuedMessages:
    """Move up to about ``most`` dead letters to their source queue, as new messages with receive
    counts of 0. Messages in flight stay. From a dead-letter queue with groups, all messages move,
    each to its own source. Raises QueueFull if there is no capacity for any."""
    matching = Matching(source=None if dead_letters.kind.has_groups else home.arn)
    count = 0
    asked = Browse(_AT_ONCE)
    while True:
        page = await browse(engine, caller, dead_letters, asked, matching)
        chosen = [one.message for one in page.messages]
        batch = await _redrive_batch(engine, dead_letters, chosen, None)
        count += batch.moved_count
        if batch.is_short and not count:
            raise QueueFull(home)
        if page.next is None or count >= most:
            return RequeuedMessages(count, page.next is not None)
        asked = asked._replace(after=page.next, as_of=page.as_of)


async def _redrive_batch(
    engine: Engine, source: Queue, chosen: Sequence[Received], target: Queue | None
) -> MovedBatch:
    """Move these messages in one transaction, as far as their targets have capacity."""
    if not chosen:
        return MovedBatch(0, None, [], 0, 0)
    numbers = [one.sequence for one in chosen]
    # Moves of a batch take their bounds from a task.
    span, places = (min(numbers) - 1, max(numbers)), [place_of(one) for one in chosen]
    task = ClaimedTask(
        _NOBODYS_TASK, source.queue_id, source.arn, None, None, *span, timedelta(), places
    )
    async with engine.database.transaction() as tx:
        batch = await source.kind.move_batch(
            tx,
            engine.clock.of(source.account_id).now_of_sends(),
            task,
            source=source,
            target=target,
            find=stored_queues.find_by_arn,
            limit=len(chosen),
        )
    for queue_id, count in batch.arrived:
        engine.wakeups.arrived(queue_id, count)
    return batch
