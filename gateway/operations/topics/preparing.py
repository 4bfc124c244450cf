"""From the subscriptions that get a message to what the database is to write, and what to tell
afterwards: shared by publishing and by whatever publishes within a transaction of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.operations.queues.queue_cache import QueueName
from queuegate.gateway.operations.topics.fan_out import (
    Chosen,
    CopyMaker,
    LogCopy,
    Origin,
    Queues,
    archived,
    can_take,
    copies,
)
from queuegate.gateway.operations.topics.log_copies import copy_for
from queuegate.gateway.operations.topics.topic_cache import Audience, Target
from queuegate.protocol import arns, envelopes
from queuegate.protocol.endpoint_urls import WEB
from queuegate.protocol.envelopes import Signing
from queuegate.storage.model import Queue, Topic
from queuegate.storage.queues.rows import dedup_key
from queuegate.storage.topics.publishing import Copies, Message, Numbering, Place

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine


class Publisher(NamedTuple):
    """Who publishes, and how the request reached us: links in envelopes go the same way."""

    caller: Caller
    base_url: str
    trace_header: str | None = None


class Prepared(NamedTuple):
    """One message, ready to be written; every queue that it goes to was found, or set aside."""

    engine: Engine
    topic: Topic
    chosen: Chosen
    queues: Queues
    message: Message

    def committed(self, elsewhere: Counter[int], *, is_duplicate: bool = False) -> None:
        """It was written and committed: wake who waits for it. Of a duplicate nothing was written.
        ``elsewhere`` as in ``storage.topics.publishing.Outcome``."""
        if not is_duplicate:
            gone = Gone(frozenset(), frozenset())
            delivered(self.engine, self.topic, gone, [self.chosen], self.queues, elsewhere)


def origin_of(engine: Engine, publisher: Publisher, audience: Audience) -> Origin | None:
    """What all copies share. None: the key that signs is not loaded yet."""
    topic = audience.topic
    signing = None
    if audience.has_envelopes and not topic.is_fifo:
        fingerprint = engine.signer.loaded_fingerprint
        if fingerprint is None:
            return None
        base_url = engine.rules.cert_url_base or publisher.base_url
        signing = Signing(topic.signature_version, envelopes.cert_url(base_url, fingerprint))
    return Origin(
        topic,
        audience.known_live,
        publisher.caller.principal,
        publisher.trace_header,
        publisher.base_url,
        signing,
        signing if engine.rules.sign_queue_envelopes else None,
    )


async def look_up(
    engine: Engine, publisher: Publisher, audience: Audience, chosen: list[Chosen]
) -> tuple[Origin, list[Chosen], Queues]:
    """Load the key, find the queues, set aside what they cannot take, and count that."""
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
        # On a FIFO topic a number is part of the envelope; any will do to measure it.
        maker = CopyMaker(origin, outgoing, 0)
        left: list[Target] = []
        failures: list[Target] = []
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
        checked.append(Chosen(outgoing, left, failures, log_copies))
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


def takes_copies(engine: Engine, topic: Topic, target: Target, queue: Queue) -> bool:
    """Whether the policy of a subscription's queue lets SNS send to it. Those of the native API,
    which has no policies, need none."""
    policies = engine.policies
    return policies is None or target.gets_events or policies.takes_copies(queue, topic.arn)


def lets_in(engine: Engine, queue: Queue, topic_arn: str) -> bool:
    """Whether the policy of a queue lets in one message of SNS's, which is counted if it does
    not."""
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
    targets: Iterable[Target],
    meant: Iterable[QueueName | None],
) -> Queues:
    """The queues as they are to the topic: one whose policy does not let SNS send is none.
    ``meant`` has it as often as there are copies for it."""
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
    origin: Origin, one: Chosen, queues: Queues, sequence_before: int | None = None
) -> Message:
    """What the database must know of a message; ``sequence_before`` if it was numbered before."""
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


def may_be_full(queues: Queues, target: Target) -> bool:
    """Whether the target is a queue that holds only so many messages."""
    queue = None if target.queue is None else queues[target.queue]
    return queue is not None and queue.most_messages is not None


class Gone(NamedTuple):
    """What was not there any more when copies were written."""

    queues: frozenset[int]
    partitions: frozenset[int]


def delivered(
    engine: Engine,
    topic: Topic,
    gone: Gone,
    chosen: list[Chosen],
    queues: Queues,
    changes: Counter[int],
) -> None:
    """Copies were committed: wake receivers and those who deliver, and count. ``changes``: how
    many more than were meant for it a queue got."""
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


def named(places: Iterable[Place], queues: Queues) -> list[tuple[Queue, int]]:
    """The same places with the queues that were written to."""
    by_id = {queue.queue_id: queue for queue in queues.values() if queue is not None}
    return [(by_id[place.queue_id], place.sequence) for place in places]


def _copies_by_queue(chosen: list[Chosen]) -> dict[QueueName, int]:
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
