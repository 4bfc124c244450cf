"""Moves failed web hook deliveries to the dead-letter queues of their subscriptions."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import orjson

from queuegate.protocol import sns_envelopes
from queuegate.scheduler.delivery.outcomes import Outcome
from queuegate.storage.queue_model import UNSIGNED, NewMessage, Row
from queuegate.storage.queues.capacity import Addressed, send_or_wait
from queuegate.storage.queues.messages import row_of
from queuegate.storage.queues.stored_queues import find_by_arn
from queuegate.storage.topics import web_hook_deliveries
from queuegate.storage.topics.web_hook_deliveries import ClaimedDelivery

if TYPE_CHECKING:
    from queuegate.scheduler.delivery.attempts import LetsIn
    from queuegate.storage.database import Transaction
    from queuegate.storage.queue_model import Queue


class DeadLetter(NamedTuple):
    """A delivery whose last attempt failed, with the body for the dead-letter queue."""

    claimed: ClaimedDelivery
    outcome: Outcome
    body: str
    queue_arn: str
    topic_arn: str | None
    """None: the delivery belongs to the native API, which has no queue policies."""


def target_of(redrive_policy: str | None) -> str | None:
    """Return the ARN of the queue in a subscription's RedrivePolicy."""
    if not redrive_policy:
        return None
    try:
        policy = orjson.loads(redrive_policy)
    except orjson.JSONDecodeError:
        return None
    arn = policy.get("deadLetterTargetArn") if isinstance(policy, dict) else None
    return arn if isinstance(arn, str) else None


async def move(
    tx: Transaction, now: datetime | None, letters: list[DeadLetter], lets_in: LetsIn
) -> tuple[Counter[int], list[DeadLetter]]:
    """Write deliveries whose lease is still valid as messages to their dead-letter queues.

    Return the count of each queue, and the letters that stay: their queue does not exist, denies
    the topic, or is a FIFO queue, which accepts no web hook messages. Messages for a full queue
    wait.
    """
    held = await web_hook_deliveries.postpone(tx, [_lease(letter) for letter in letters])
    queues: dict[str, Queue | None] = {}
    messages = []
    stuck = []
    moved = []
    for letter in letters:
        if letter.claimed.delivery_id not in held:
            continue
        if letter.queue_arn not in queues:
            queues[letter.queue_arn] = await find_by_arn(tx, letter.queue_arn)
        queue = queues[letter.queue_arn]
        topic_arn = letter.topic_arn
        if (
            queue is None
            or queue.kind.has_groups
            or (topic_arn is not None and not lets_in(queue, topic_arn))
        ):
            stuck.append(letter)
        else:
            row = _row(letter, queue, held[letter.claimed.delivery_id])
            messages.append(Addressed(queue, row))
            moved.append(letter)
    counts, gone = await send_or_wait(tx, now, messages)
    written = [
        (letter, message.queue.queue_id not in gone)
        for letter, message in zip(moved, messages, strict=True)
    ]
    stuck += [letter for letter, is_written in written if not is_written]
    moved = [letter for letter, is_written in written if is_written]
    await web_hook_deliveries.remove(tx, [_lease(letter) for letter in moved])
    return counts, stuck


def _lease(letter: DeadLetter) -> web_hook_deliveries.Lease:
    return letter.claimed.delivery_id, letter.claimed.attempt_count


def _row(letter: DeadLetter, queue: Queue, attributes: str | None) -> Row:
    """Return the row with the body for the web hook, unchanged (docs/contract/sns.md 3.6)."""
    # A body that could not be signed without the key is signed at receive.
    is_unsigned = not letter.claimed.is_raw and sns_envelopes.is_unsigned(letter.body)
    digest = UNSIGNED if is_unsigned else None
    message = NewMessage(letter.body, attributes, digest=digest)
    return row_of(queue, message, str(uuid4()), letter.claimed.account_id)
