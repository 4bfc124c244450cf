"""Which queue may be the dead-letter queue of which (docs/contract/sqs.md 2.10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol import arns
from storage.errors import DeadLetterQueueUnfit
from storage.queues import queues

if TYPE_CHECKING:
    from storage.database import Transaction


async def check_dead_letter_queue(
    tx: Transaction, arn: str, source_arn: str, *, source_is_fifo: bool
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
    if queue.is_fifo != source_is_fifo:
        raise DeadLetterQueueUnfit("kind")
    if not queues.takes_dead_letters_of(queue, source_arn):
        raise DeadLetterQueueUnfit("forbidden")
