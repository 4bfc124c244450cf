"""What a replay sends: archived messages as copies for a queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import orjson

from protocol import envelopes, filter_policies, sequence_numbers
from protocol.attribute_values import MOST_OF_RAW_COPIES, counted_bytes, with_bytes
from protocol.envelopes import Published
from scheduler.delivery.dead_letters import target_of
from storage.model import NewMessage, Queue
from storage.queues.rows import QUEUE_ID, Row, row_of
from storage.topics.replays import Kept, Replay

if TYPE_CHECKING:
    from storage.database import Transaction


class Copy(NamedTuple):
    """One message for one queue."""

    queue: Queue
    kept: Kept
    body: str
    attributes: str | None


class CopyMaker:
    """Makes the copies of one replay as publishing would have made them."""

    def __init__(self, replay: Replay, queue: Queue) -> None:
        attributes = replay.attributes
        self._replay = replay
        self._queue = queue
        self._is_raw = attributes.get("RawMessageDelivery") == "true"
        self._by_body = attributes.get("FilterPolicyScope") == "MessageBody"
        policy = attributes.get("FilterPolicy")
        self._policy = filter_policies.stored(policy, by_body=self._by_body)
        self._subscription_arn = f"{replay.topic_arn}:{replay.subscription_id}"
        self.dead_letter_arn = target_of(attributes.get("RedrivePolicy")) or ""
        self.dead_letter_queue: Queue | None = None

    def copy(self, kept: Kept) -> Copy | None:
        """The copy of a message; None when the filter does not let it pass.

        One that the queue cannot take goes to the dead-letter queue, if there is one.
        """
        values = with_bytes(orjson.loads(kept.attributes)) if kept.attributes else {}
        if not self._passes(kept, values):
            return None
        body = kept.message if self._is_raw else self._envelope(kept, values)
        queue = self._queue if self._can_take(body, values) else self.dead_letter_queue
        if queue is None:
            return None
        return Copy(queue, kept, body, kept.attributes if self._is_raw else None)

    def _passes(self, kept: Kept, values: Mapping[str, Any]) -> bool:
        if self._policy is None:
            return True
        if self._by_body:
            return self._policy.matches(filter_policies.prepare_body(kept.message))
        return self._policy.matches(filter_policies.prepare_attributes(values))

    def _envelope(self, kept: Kept, values: Mapping[str, Any]) -> str:
        published = Published(
            kept.message_id,
            self._replay.topic_arn,
            kept.message,
            kept.published_at,
            kept.subject,
            sequence_numbers.of_topic(kept.sequence),
            values,
        )
        envelope = envelopes.notification(published, base_url=self._replay.asked.base_url)
        return envelope.to(self._subscription_arn)

    def _can_take(self, body: str, values: Mapping[str, Any]) -> bool:
        """Whether the queue takes the copy: as for what is published."""
        size = len(body.encode())
        if self._is_raw:
            if len(values) > MOST_OF_RAW_COPIES:
                return False
            size += counted_bytes(values)
        return size <= self._queue.maximum_message_size_bytes


async def send(tx: Transaction, now: datetime | None, copies: list[Copy]) -> dict[int, int]:
    """Send the copies in their order; how many each queue got. Queues that are gone are absent."""
    arrived: Counter[int] = Counter()
    for kind in {copy.queue.kind for copy in copies}:
        rows = [_row(copy) for copy in copies if copy.queue.kind is kind]
        sent = await kind.send(tx, now, rows)
        arrived.update([row[QUEUE_ID] for row in rows if row[QUEUE_ID] not in sent.gone])
    return arrived


def _row(copy: Copy) -> Row:
    """Standard queues behind FIFO topics get neither group nor deduplication id. On FIFO queues a
    copy keeps both, but its key is one of its own: it is meant to come again, also within five
    minutes of the message that it repeats, and the transaction sees to it that a replay sends it
    once."""
    queue, kept = copy.queue, copy.kept
    message = NewMessage(
        copy.body,
        copy.attributes,
        group_id=kept.group_id if queue.kind.has_groups else None,
        deduplication_id=kept.deduplication_id,
        dedup_key=uuid4().hex,
    )
    return row_of(queue, message, str(uuid4()), kept.sender_id)
