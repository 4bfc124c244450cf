"""Dead-letter queues: which queue may be whose (docs/contract/sqs.md 2.10), and which is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuegate.protocol import arns
from queuegate.protocol.errors import Malformed
from queuegate.storage.errors import DeadLetterQueueUnfit, QueueDoesNotExist
from queuegate.storage.queues import queues

if TYPE_CHECKING:
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.database import Transaction
    from queuegate.storage.model import Queue
    from queuegate.storage.queues.kinds import Order


async def check_dead_letter_queue(
    tx: Transaction, arn: str, source_arn: str, *, order: Order
) -> None:
    """Refuse a queue that cannot take the messages that the source gives up.

    It must exist, be in the same account and region and of the same kind, and allow the source.
    Only now: later changes of it undo nothing. Raises DeadLetterQueueUnfit.
    """
    target, source = arns.parse_queue(arn), arns.parse_queue(source_arn)
    if target.account_id != source.account_id:
        raise DeadLetterQueueUnfit("account")
    if target.region != source.region:
        raise DeadLetterQueueUnfit("region")
    queue = await queues.find(tx, target.account_id, target.region, target.resource)
    if queue is None:
        raise DeadLetterQueueUnfit("absent")
    if queue.kind.order != order:
        raise DeadLetterQueueUnfit("kind")
    if not queues.takes_dead_letters_of(queue, source_arn):
        raise DeadLetterQueueUnfit("forbidden")


async def dead_letter_queue(engine: Engine, queue: Queue) -> Queue | None:
    """The target of the queue's redrive policy, if it is (still) there."""
    try:
        arn = arns.parse_queue(queue.dead_letter_arn or "")
        return await engine.queues.find(arn.account_id, arn.region, arn.resource)
    except (Malformed, QueueDoesNotExist):
        return None
