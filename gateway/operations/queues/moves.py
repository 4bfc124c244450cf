"""Tasks that move dead letters to another queue, or back to where they came from: start, cancel,
list (docs/contract/sqs.md 2.10). A worker does the moving. One message is moved back at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from queuegate.gateway.operations.access import SEND, check_found, check_right, own_arn
from queuegate.storage.errors import (
    MoveQueueAbsent,
    MoveRefused,
    OverLimit,
    QueueFull,
    ResourceNotFound,
    UnsupportedOperation,
)
from queuegate.storage.model import MoveTask, Queue
from queuegate.storage.queues import message_ids, moves, queues
from queuegate.storage.queues.rooms import rooms

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.database import Transaction


TAKE: Final = ("sqs:ReceiveMessage", "sqs:DeleteMessage")
"""What moving messages takes of the queue that they leave, as on AWS ("Configuring queue
permissions for dead-letter queue redrive"): nobody gets at messages by moving them."""
_START: Final = ("sqs:StartMessageMoveTask", *TAKE)
_CANCEL: Final = "sqs:CancelMessageMoveTask"
_LIST: Final = "sqs:ListMessageMoveTasks"
_MOST_HOMES = 1_000


async def _queue(
    engine: Engine,
    tx: Transaction,
    caller: Caller,
    arn: str,
    *rights: str,
    is_source: bool = True,
) -> Queue:
    """The caller's queue of that ARN, for whoever has these rights. Raises AccessDenied and
    MoveQueueAbsent."""
    queue = await queues.find_by_arn(tx, arn)
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
    """Raise AccessDenied unless the caller may send to all of these queues, to which messages go
    back."""
    if engine.authority is not None:
        place = caller.account_id, caller.region
        for home in await queues.find_many(tx, *place, sorted(names)):
            check_found(engine, caller, SEND, home)


async def start_move(
    engine: Engine,
    caller: Caller,
    source_arn: str,
    destination_arn: str | None = None,
    max_per_second: int | None = None,
) -> MoveTask:
    """The started task. ``destination_arn`` None: each message goes back to its own source.

    Raises AccessDenied, MoveQueueAbsent, OverLimit, and MoveRefused when the source is nobody's
    dead-letter queue, the destination cannot take its messages, or a task runs already.
    """
    now = engine.clock.of_arn(source_arn).now()
    limits = engine.limits
    async with engine.database.transaction() as tx:
        source = await _queue(engine, tx, caller, source_arn, *_START)
        homes = await queues.dead_letter_sources(
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
    """The task with how many messages it had moved: exactly those, none after this returns.

    Raises AccessDenied, MoveQueueAbsent, ResourceNotFound, and MoveRefused for a task that has
    ended.
    """
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
    """The newest tasks of a source. Raises AccessDenied and MoveQueueAbsent."""
    async with engine.database.transaction() as tx:
        source = await _queue(engine, tx, caller, source_arn, _LIST)
        return await moves.list_newest(tx, source.queue_id, limit=limit)


async def requeue(engine: Engine, caller: Caller, queue: Queue, number: int) -> Queue | None:
    """Move a message, whoever holds it, back to where it came from as a dead letter: there it is
    visible at once, and counts as never received. The queue that it went to; None: there is no such
    message, or it is no dead letter.

    Raises AccessDenied, MoveQueueAbsent when it came from a queue that is gone, QueueFull, and
    UnsupportedOperation for messages that are in order.
    """
    if queue.kind.has_groups:
        raise UnsupportedOperation(
            f"The messages of '{queue.name}' are in order: have a move task move all of them."
        )
    if not 0 < number <= message_ids.LAST:
        return None
    now = engine.clock.of(queue.account_id).now()
    async with engine.database.transaction() as tx:
        home = await moves.find_home(tx, queue.queue_id, number)
        if home is None or (home.arn is None and home.parent_id is None):
            return None
        target = await _home(tx, home)
        if target is None or target.kind.has_groups:
            raise MoveQueueAbsent(is_source=False)
        check_found(engine, caller, SEND, target)
        if (await rooms(tx, [target.queue_id], now)).get(target.queue_id) == 0:
            raise QueueFull(target)
        moved = await moves.requeue(
            tx, now, source_id=queue.queue_id, sequence=number, target_id=target.queue_id
        )
    if not moved:
        return None
    engine.wakeups.arrived(target.queue_id)
    return target


async def _home(tx: Transaction, home: moves.Home) -> Queue | None:
    if home.arn is not None:
        return await queues.find_by_arn(tx, home.arn)
    return None if home.parent_id is None else await queues.find_by_id(tx, home.parent_id)
