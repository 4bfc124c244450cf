"""What a replay sends: archived messages, as publishing made copies of them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import orjson

from queuegate.gateway.operations.topics.fan_out import (
    CopyMaker,
    Origin,
    Outgoing,
    can_take,
    choose,
)
from queuegate.gateway.operations.topics.preparing import lets_in
from queuegate.gateway.operations.topics.subscription_settings import Settings
from queuegate.gateway.operations.topics.topic_cache import Target
from queuegate.protocol import filter_policies
from queuegate.protocol.attribute_values import counted_bytes, with_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.model import Queue, Topic
    from queuegate.storage.queues.rows import Row
    from queuegate.storage.topics.replays import Kept, Replay


def copier_by_policies(
    engine: Engine, replay: Replay, topic: Topic, queue: Queue, dead_letters: Queue | None
) -> Callable[[Kept], tuple[Queue, Row] | None]:
    """The same of what the policies of both queues let in."""

    def takes(taker: Queue) -> bool:
        return lets_in(engine, taker, topic.arn)

    return copier(replay, topic, queue, dead_letters, takes)


def copier(
    replay: Replay,
    topic: Topic,
    queue: Queue,
    dead_letters: Queue | None,
    takes: Callable[[Queue], bool] = lambda _: True,
) -> Callable[[Kept], tuple[Queue, Row] | None]:
    """Makes the copy of a message and says where it goes: to the queue, or, where that cannot take
    it, to the one for dead letters. None: the filter does not let it pass, or no queue takes it.

    The copy keeps group and deduplication id, but its key is one of its own: it is meant to come
    again, also within five minutes of the message that it repeats, and the transaction sees to it
    that a replay sends it once. Its envelope is not signed.
    """
    settings = Settings.of(replay.attributes)
    place = queue.account_id, queue.region, queue.name
    target = Target(
        str(replay.subscription_id),
        f"{replay.topic_arn}:{replay.subscription_id}",
        "sqs",
        "sqs",
        replay.endpoint,
        settings.is_raw,
        filter_policies.stored(settings.filter_policy, by_body=settings.filters_body),
        settings.filters_body,
        place,
        None,
        settings.is_raw,
    )

    def copy(kept: Kept) -> tuple[Queue, Row] | None:
        values = with_bytes(orjson.loads(kept.attributes)) if kept.attributes else {}
        attribute_bytes = counted_bytes(values)
        outgoing = Outgoing(
            kept.message_id,
            kept.message,
            None,
            kept.subject,
            values,
            kept.attributes,
            kept.published_at,
            kept.group_id,
            kept.deduplication_id,
            len(kept.message.encode()) + attribute_bytes,
            attribute_bytes,
        )
        origin = Origin(topic, 0, kept.sender_id, None, replay.asked.base_url, None, None)
        maker = CopyMaker(origin, outgoing, kept.sequence)
        if not choose([target], outgoing):
            return None
        is_taken = can_take(maker, target, {place: queue}) and takes(queue)
        taker = queue if is_taken else dead_letters
        if taker is None or (taker is not queue and not takes(taker)):
            return None
        return taker, maker.row(target, taker, uuid4().hex)

    return copy
