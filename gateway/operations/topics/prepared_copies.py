"""Prepared messages: their queues are looked up, the rows are ready to write, and effects follow
the commit. For publishes, schedules and replays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import orjson

from queuegate.gateway.operations.queues.queue_cache import QueueName
from queuegate.gateway.operations.topics.fan_out import (
    ChosenCopies,
    CopyMaker,
    CopyOrigin,
    FanOutMessage,
    LogCopy,
    Queues,
    archived,
    can_take,
    choose,
    copies,
    copy_for,
)
from queuegate.gateway.operations.topics.subscription_settings import SubscriptionSettings
from queuegate.gateway.operations.topics.topic_cache import Audience, SubscriptionTarget
from queuegate.protocol import arns, filter_policies, sns_envelopes
from queuegate.protocol.digests import counted_bytes, with_bytes
from queuegate.protocol.endpoint_urls import WEB
from queuegate.protocol.sns_envelopes import Signing
from queuegate.storage.model import Topic
from queuegate.storage.queue_model import Queue
from queuegate.storage.queues.messages import dedup_key
from queuegate.storage.topics.publishing import Copies, CopyPosition, Message, Numbering

if TYPE_CHECKING:
    from collections.abc import Callable

    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.storage.queue_model import Row
    from queuegate.storage.topics.replays import Kept, TopicReplay


class Publisher(NamedTuple):
    """The publisher and the base URL of the request, which links in envelopes use."""

    caller: Caller
    base_url: str
    trace_header: str | None = None


class PreparedMessage(NamedTuple):
    """A message ready to be written; all its queues were found."""

    engine: Engine
    topic: Topic
    chosen: ChosenCopies
    queues: Queues
    message: Message

    def committed(self, elsewhere: Counter[int], *, is_duplicate: bool = False) -> None:
        """Wake receivers of the committed message. Nothing was written of a duplicate.
        ``elsewhere`` as in ``storage.topics.publishing.Outcome``."""
        if not is_duplicate:
            gone = StaleTargets(frozenset(), frozenset())
            delivered(self.engine, self.topic, gone, [self.chosen], self.queues, elsewhere)


def origin_of(engine: Engine, publisher: Publisher, audience: Audience) -> CopyOrigin | None:
    """Return the common parts of all copies; None: the signing key is not loaded yet."""
    topic = audience.topic
    signing = None
    if audience.has_envelopes and not topic.is_fifo:
        fingerprint = engine.signer.loaded_fingerprint
        if fingerprint is None:
            return None
        base_url = engine.rules.cert_url_base or publisher.base_url
        signing = Signing(topic.signature_version, sns_envelopes.cert_url(base_url, fingerprint))
    return CopyOrigin(
        topic,
        audience.known_live,
        publisher.caller.principal,
        publisher.trace_header,
        publisher.base_url,
        signing,
        signing if engine.rules.sign_queue_envelopes else None,
    )


async def look_up(
    engine: Engine, publisher: Publisher, audience: Audience, chosen: list[ChosenCopies]
) -> tuple[CopyOrigin, list[ChosenCopies], Queues]:
    """Load the key and find the queues; set aside copies that they cannot store, and count
    these."""
    if audience.has_envelopes:
        await engine.signer.ready()
    origin = origin_of(engine, publisher, audience)
    assert origin is not None
    everybody = [target for one in chosen for target in one.targets]
    names = {target.queue for target in everybody if target.queue}
    found = await engine.queues.find_many(names)
    meant = [target.queue for target in everybody]
    queues = _allowed(engine, origin.topic, found, everybody, meant)
    checked = []
    for outgoing, targets, *_ in chosen:
        # On a FIFO topic, the number is part of the envelope; any number measures the same.
        maker = CopyMaker(origin, outgoing, 0)
        left: list[SubscriptionTarget] = []
        failures: list[SubscriptionTarget] = []
        log_copies: list[LogCopy] = []
        for target in targets:
            if target.log is None:
                fits = can_take(maker, target, queues)
            else:
                log_copy = await copy_for(engine, maker, target)
                fits = log_copy is not None
                if log_copy is not None:
                    log_copies.append(log_copy)
            (left if fits else failures).append(target)
        checked.append(ChosenCopies(outgoing, left, failures, log_copies))
    failed = [target for one in checked for target in one.failures]
    buried = {target.dead_letter for target in failed if target.dead_letter}
    buried |= {
        target.dead_letter
        for one in checked
        for target in one.targets
        if target.dead_letter and may_be_full(queues, target)
    }
    found = await engine.queues.find_many(buried)
    meant = [target.dead_letter for target in failed]
    queues |= _allowed(engine, origin.topic, found, everybody, meant)
    if failed:
        kept = len([t for t in failed if t.dead_letter and queues.get(t.dead_letter)])
        series = engine.series.topics.of(audience.topic)
        series.copies_kept += kept
        series.copies_dropped += len(failed) - kept
    return origin, checked, queues


def takes_copies(engine: Engine, topic: Topic, target: SubscriptionTarget, queue: Queue) -> bool:
    """Return True if the policy of a subscription's queue allows SNS to send to it. Subscriptions
    of the native API need no policy."""
    policies = engine.policies
    return policies is None or target.gets_events or policies.takes_copies(queue, topic.arn)


def lets_in(engine: Engine, queue: Queue, topic_arn: str) -> bool:
    """Return True if the policy of a queue allows a message of SNS; otherwise count the message."""
    is_let_in = engine.policies is None or engine.policies.takes_copies(queue, topic_arn)
    if not is_let_in:
        topic = arns.parse(topic_arn)
        place = topic.account_id, topic.region, topic.resource
        engine.series.topics.of_delivery(*place).copies_barred += 1
    return is_let_in


def _allowed(
    engine: Engine,
    topic: Topic,
    queues: Queues,
    targets: Iterable[SubscriptionTarget],
    meant: Iterable[QueueName | None],
) -> Queues:
    """Return the queues for the topic: None for those whose policies forbid SNS to send. ``meant``
    has each as often as there are copies for it."""
    if engine.policies is None:
        return queues
    by_queue = {name: one for one in targets for name in (one.queue, one.dead_letter)}
    barred = {
        name
        for name, queue in queues.items()
        if queue is not None and not takes_copies(engine, topic, by_queue[name], queue)
    }
    if not barred:
        return queues
    engine.series.topics.of(topic).copies_barred += sum([name in barred for name in meant])
    return {name: None if name in barred else queue for name, queue in queues.items()}


def message_for(
    origin: CopyOrigin, one: ChosenCopies, queues: Queues, sequence_before: int | None = None
) -> Message:
    """Return the row of a message; ``sequence_before`` if it was numbered before."""
    outgoing, topic = one.outgoing, origin.topic

    def make(sequence: int | None) -> Copies:
        made = copies(origin, one, queues, sequence_before or sequence)
        if sequence_before is None:
            made.archived = archived(origin, outgoing, sequence)
        return made

    numbering = None
    if topic.is_fifo and sequence_before is None:
        assert outgoing.group_id is not None
        assert outgoing.deduplication_id is not None
        scope = outgoing.group_id if topic.deduplication_per_group else None
        key = dedup_key(scope, outgoing.deduplication_id)
        numbering = Numbering(topic.topic_id, outgoing.group_id, key)
    bounded = frozenset(
        queue.queue_id for queue in queues.values() if queue is not None and queue.most_messages
    )
    return Message(outgoing.message_id, numbering, make, 2 + len(one.targets), bounded)


def may_be_full(queues: Queues, target: SubscriptionTarget) -> bool:
    """Return True if the target is a bounded queue."""
    queue = None if target.queue is None else queues[target.queue]
    return queue is not None and queue.most_messages is not None


class StaleTargets(NamedTuple):
    """Targets that were deleted before copies were written."""

    queues: frozenset[int]
    partitions: frozenset[int]


def delivered(
    engine: Engine,
    topic: Topic,
    gone: StaleTargets,
    chosen: list[ChosenCopies],
    queues: Queues,
    changes: Counter[int],
) -> None:
    """Wake receivers and senders of committed copies, and count. ``changes`` are copies that a
    queue got in addition to those meant for it."""
    series = engine.series.topics.of(topic)
    elsewhere = [t.protocol for one in chosen for t in one.targets if t.queue is None]
    web_hooks = sum([protocol in WEB for protocol in elsewhere])
    if web_hooks:
        engine.wakeups.deliveries_written()
    series.web_hook_copies += web_hooks
    log_copies = [copy.partition_id for one in chosen for copy in one.logs]
    series.outbox_copies += len(elsewhere) - web_hooks - len(log_copies)
    if log_copies:
        engine.wakeups.appended({*log_copies} - gone.partitions)
        series.log_copies += sum([one not in gone.partitions for one in log_copies])
    counts = _copies_by_queue(chosen)
    for name, queue in queues.items():
        if queue is None:
            continue
        count = counts.get(name, 0) + changes[queue.queue_id]
        if queue.queue_id in gone.queues:
            engine.queues.forget(queue.queue_id)
        elif count > 0:
            engine.wakeups.arrived(queue.queue_id, count)
            engine.series.copied(queue, count)
            series.queue_copies += count


def named(places: Iterable[CopyPosition], queues: Queues) -> list[tuple[Queue, int]]:
    """Return the same places with the queues that were written to."""
    by_id = {queue.queue_id: queue for queue in queues.values() if queue is not None}
    return [(by_id[place.queue_id], place.sequence) for place in places]


def _copies_by_queue(chosen: list[ChosenCopies]) -> dict[QueueName, int]:
    counts: dict[QueueName, int] = {}
    for _, targets, failures, _ in chosen:
        for target in targets:
            name = target.queue
            if name is not None:
                counts[name] = counts.get(name, 0) + 1
        for target in failures:
            name = target.dead_letter
            if name is not None:
                counts[name] = counts.get(name, 0) + 1
    return counts


def copier_by_policies(
    engine: Engine, replay: TopicReplay, topic: Topic, queue: Queue, dead_letters: Queue | None
) -> Callable[[Kept], tuple[Queue, Row] | None]:
    """Return a copier that also checks the policies of both queues."""

    def takes(taker: Queue) -> bool:
        return lets_in(engine, taker, topic.arn)

    return copier(replay, topic, queue, dead_letters, takes)


def copier(
    replay: TopicReplay,
    topic: Topic,
    queue: Queue,
    dead_letters: Queue | None,
    takes: Callable[[Queue], bool] = lambda _: True,
) -> Callable[[Kept], tuple[Queue, Row] | None]:
    """Return a copier: it makes the copy of a message for the queue, or for the dead-letter queue
    if that cannot store it. None: the filter rejects the message, or no queue can store it.

    The copy has the group and the deduplication id, but a key of its own: replays repeat messages
    on purpose, also within five minutes, and the transaction ensures that a replay sends each once.
    The envelope is not signed.
    """
    settings = SubscriptionSettings.of(replay.attributes)
    place = queue.account_id, queue.region, queue.name
    target = SubscriptionTarget(
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
        outgoing = FanOutMessage(
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
        origin = CopyOrigin(topic, 0, kept.sender_id, None, replay.asked.base_url, None, None)
        maker = CopyMaker(origin, outgoing, kept.sequence)
        if not choose([target], outgoing):
            return None
        is_taken = can_take(maker, target, {place: queue}) and takes(queue)
        taker = queue if is_taken else dead_letters
        if taker is None or (taker is not queue and not takes(taker)):
            return None
        return taker, maker.row(target, taker, uuid4().hex)

    return copy
