"""Fan-out: the subscriptions whose filters a published message passes, the copy for each, and its
effects after the commit. For publishes, schedules and replays."""

from __future__ import annotations

import binascii
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import orjson

from queuegate.gateway.operations.logs.log_records import RecordToPublish, check, partitions_of
from queuegate.gateway.operations.queues.queue_cache import QueueName
from queuegate.gateway.operations.queues.sends import NOT_URGENT, Urgency
from queuegate.gateway.operations.runtime.background_tasks import yield_to_loop
from queuegate.gateway.operations.runtime.identifiers import new_id
from queuegate.gateway.operations.topics.topic_cache import (
    Audience,
    LogName,
    SubscriptionSettings,
    SubscriptionTarget,
)
from queuegate.protocol import arns, filter_policies, opaque_tokens, sns_envelopes
from queuegate.protocol.digests import MOST_OF_RAW_COPIES, counted_bytes, md5_of_bytes, with_bytes
from queuegate.protocol.sns_envelopes import Notification, NotificationContent, Signing
from queuegate.protocol.urls import WEB
from queuegate.storage.model import (
    LogPartition,
    NewDelivery,
    NewLogRecord,
    NewOutboxMessage,
    StoredLog,
    Topic,
)
from queuegate.storage.queue_model import UNSIGNED, NewMessage, Queue, QueueKind, Row
from queuegate.storage.queues.capacity import Addressed, CopyToQueue
from queuegate.storage.queues.kinds import KINDS
from queuegate.storage.queues.messages import dedup_key, row_of
from queuegate.storage.storage_errors import RecordInvalid, TooManyPartitions
from queuegate.storage.topics.publishing import (
    ArchivedPublication,
    Copies,
    CopyPosition,
    LogRecord,
    Message,
    Numbering,
)

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.queues.json_messages import Values
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.storage.topics.replays import Kept, TopicReplay


# Maximum length of a byte in JSON, and of all in an envelope except the message and its attributes.
_MOST_ESCAPED = 6
_ENVELOPE_BYTES = 8_192
_HERE = WEB | {"log"}
Queues = dict[QueueName, Queue | None]


class FanOutMessage(NamedTuple):
    """A checked message."""

    message_id: str
    message: str
    texts: dict[str, str] | None
    """Texts by protocol, of a message in JSON."""
    subject: str | None
    attributes: Values | None
    stored_attributes: str | None
    """In stored form, for raw delivery."""
    published_at: datetime
    group_id: str | None
    deduplication_id: str | None
    size_bytes: int
    attribute_bytes: int
    delay_seconds: int | None = None
    """Delay of copies in standard queues; None: each queue's own."""
    urgency: Urgency = NOT_URGENT
    """Urgency of copies in queues. Copies in groups have no priority."""

    @property
    def most_bytes(self) -> int:
        """Return an upper bound of the size of copies."""
        return self.size_bytes * _MOST_ESCAPED + _ENVELOPE_BYTES

    @property
    def has_many_attributes(self) -> bool:
        """Return True if raw delivery exceeds a queue's maximum of attributes."""
        return self.attributes is not None and len(self.attributes) > MOST_OF_RAW_COPIES

    def text_for(self, key: str) -> str:
        """Return the text for subscriptions of this protocol or push platform."""
        if self.texts is None:
            return self.message
        return self.texts.get(key, self.texts["default"])


class LogCopy(NamedTuple):
    """A copy for a log."""

    target: SubscriptionTarget
    partition_id: int
    key: str | None
    """None: that of the partition."""
    metadata: str | None
    signature: tuple[str, str] | None
    """Signature of an envelope, and fingerprint of the certificate."""


class ChosenCopies(NamedTuple):
    """The subscriptions that get a message."""

    outgoing: FanOutMessage
    targets: Sequence[SubscriptionTarget]
    failures: Sequence[SubscriptionTarget] = ()
    """Subscriptions whose queue or log cannot store the copy: a client-side error, for the
    dead-letter queue."""
    logs: Sequence[LogCopy] = ()
    """Copies for logs; their subscriptions are among the targets."""


class CopyOrigin(NamedTuple):
    """The common parts of all copies of a publish."""

    topic: Topic
    known_live: int
    """The known queues of the audience."""
    sender_id: str
    trace_header: str | None
    base_url: str
    signing: Signing | None
    """None: envelopes for web hooks are not signed, or there are none."""
    queue_signing: Signing | None
    """The same for envelopes in queues."""


def _passing(
    targets: Sequence[SubscriptionTarget], outgoing: FanOutMessage
) -> Iterator[SubscriptionTarget | None]:
    """Yield each subscription, or None if its filter rejects the message. The inputs of filters are
    prepared once."""
    by_attributes = None
    by_text: dict[str, filter_policies.FilterSubject] = {}
    for target in targets:
        policy = target.policy
        if policy is None:
            yield target
            continue
        if target.by_body:
            text = outgoing.text_for(target.text_key)
            subject = by_text.get(text)
            if subject is None:
                subject = by_text[text] = filter_policies.prepare_body(text)
        else:
            if by_attributes is None:
                by_attributes = filter_policies.prepare_attributes(outgoing.attributes or {})
            subject = by_attributes
        yield target if policy.matches(subject) else None


def choose(
    targets: Sequence[SubscriptionTarget], outgoing: FanOutMessage
) -> list[SubscriptionTarget]:
    """Return the subscriptions whose filters accept the message."""
    return [target for target in _passing(targets, outgoing) if target is not None]


async def choose_gently(
    targets: Sequence[SubscriptionTarget], outgoing: FanOutMessage
) -> list[SubscriptionTarget]:
    """Choose subscriptions, yielding to the event loop in between: filters of long arrays may take
    milliseconds."""
    chosen: list[SubscriptionTarget] = []
    for target in _passing(targets, outgoing):
        if target is not None:
            chosen.append(target)
        await yield_to_loop()
    return chosen


class CopyMaker:
    """A maker of the copies of one message. ``sequence`` is its number on a FIFO topic."""

    def __init__(
        self, origin: CopyOrigin, outgoing: FanOutMessage, sequence: int | None = None
    ) -> None:
        self.outgoing = outgoing
        self._origin = origin
        self._sequence = sequence
        self._envelopes: dict[tuple[str, bool], Notification] = {}
        self._sizes: dict[tuple[str, bool, int], int] = {}
        self._raw_text = ""
        self._raw_digest = b""
        trace = origin.trace_header
        self._system = orjson.dumps({"AWSTraceHeader": trace}).decode() if trace else None
        # Standard queues use a group id for fair queueing; copies from FIFO topics have none there.
        self._tenant = None if origin.topic.is_fifo else outgoing.group_id

    @property
    def is_of_fifo(self) -> bool:
        return self._origin.topic.is_fifo

    @property
    def is_signed(self) -> bool:
        return self._origin.queue_signing is not None

    def without_end(self) -> CopyMaker:
        priority, ttl_seconds = self.outgoing.urgency
        if ttl_seconds is None:
            return self
        outgoing = self.outgoing._replace(urgency=(priority, None))
        return CopyMaker(self._origin, outgoing, self._sequence)

    def body_for(self, target: SubscriptionTarget) -> str:
        """Return the text or the envelope for a subscription."""
        text = self.outgoing.text_for(target.text_key)
        if target.is_raw:
            return text
        return self._envelope(text, target.protocol not in WEB).to(target.arn)

    def size_for(self, target: SubscriptionTarget) -> int:
        """Return the size of a queue's copy. One copy of each kind is measured: the ARNs have equal
        lengths."""
        kind = (target.text_key, target.is_raw, len(target.arn))
        size = self._sizes.get(kind)
        if size is None:
            size = len(self.body_for(target).encode())
            if target.is_raw:
                size += self.outgoing.attribute_bytes
            self._sizes[kind] = size
        return size

    def _envelope(self, text: str, in_queue: bool) -> Notification:
        key = (text, in_queue)
        envelope = self._envelopes.get(key)
        if envelope is None:
            outgoing, origin = self.outgoing, self._origin
            published = NotificationContent(
                outgoing.message_id,
                origin.topic.arn,
                text,
                outgoing.published_at,
                outgoing.subject,
                None
                if self._sequence is None
                else opaque_tokens.topic_sequence_number(self._sequence),
                outgoing.attributes,
            )
            signing = origin.queue_signing if in_queue else origin.signing
            envelope = self._envelopes[key] = sns_envelopes.notification(
                published, base_url=origin.base_url, signing=signing
            )
        return envelope

    def row(self, target: SubscriptionTarget, queue: Queue, dedup_key: str | None = None) -> Row:
        """Return the copy for a queue. FIFO topics pass group and deduplication id on to FIFO
        queues; otherwise a group id is for fair queueing. ``dedup_key``: see ``NewMessage``."""
        outgoing, origin = self.outgoing, self._origin
        body = self.body_for(target)
        attributes = digest = None
        if target.is_raw:
            attributes = outgoing.stored_attributes
            # All copies in queues have the same text.
            if body is not self._raw_text:
                self._raw_text, self._raw_digest = body, md5_of_bytes(body.encode())
            digest = self._raw_digest
        elif origin.queue_signing:
            digest = UNSIGNED
        message = NewMessage(
            body,
            attributes,
            self._system,
            outgoing.delay_seconds,
            outgoing.group_id if queue.kind.has_groups else self._tenant,
            outgoing.deduplication_id,
            digest,
            dedup_key,
            *outgoing.urgency,
        )
        return row_of(queue, message, new_id(), origin.sender_id, lambda: outgoing.published_at)

    def delivery(self, target: SubscriptionTarget) -> NewDelivery:
        topic = self._origin.topic
        return NewDelivery(
            target.subscription_id,
            "Notification",
            target.is_raw,
            self.outgoing.message_id,
            topic.account_id,
            topic.region,
            topic.name,
            target.endpoint,
            self.body_for(target),
            self.outgoing.stored_attributes if target.is_raw and target.dead_letter else None,
        )

    def record(self, copy: LogCopy) -> NewLogRecord:
        """Return the record for a log. Its id is the message's, so repeated writes, also for other
        subscriptions, add no record."""
        body = self.body_for(copy.target)
        if copy.signature is not None:
            body = sns_envelopes.with_signature(body, *copy.signature)
        return NewLogRecord(
            copy.partition_id, body.encode(), copy.key, self.outgoing.message_id, copy.metadata
        )

    def outbox(self, target: SubscriptionTarget) -> NewOutboxMessage:
        """Return the copy for the outbox, for endpoints that only AWS reaches."""
        outgoing, topic = self.outgoing, self._origin.topic
        return NewOutboxMessage(
            topic.account_id,
            topic.region,
            target.protocol,
            target.endpoint,
            "Notification",
            topic.arn,
            target.arn,
            outgoing.message_id,
            outgoing.subject,
            outgoing.text_for(target.text_key),
            outgoing.stored_attributes,
        )


def archived(
    origin: CopyOrigin, outgoing: FanOutMessage, sequence: int | None
) -> ArchivedPublication | None:
    """Return the message for the topic's archive; None: no archive."""
    topic = origin.topic
    if not topic.archive_days or sequence is None:
        return None
    return ArchivedPublication(
        topic.topic_id,
        sequence,
        outgoing.message_id,
        outgoing.group_id or "",
        outgoing.deduplication_id or "",
        outgoing.subject,
        outgoing.text_for("sqs"),
        outgoing.stored_attributes,
        origin.sender_id,
        outgoing.published_at,
        origin.known_live,
    )


def can_take(maker: CopyMaker, target: SubscriptionTarget, queues: Queues) -> bool:
    """Return False if the subscription's queue does not exist or cannot store the message. For logs
    see ``copy_for``."""
    if target.protocol != "sqs":
        return True
    outgoing = maker.outgoing
    queue = None if target.queue is None else queues[target.queue]
    if queue is None or (target.has_few_attributes and outgoing.has_many_attributes):
        return False
    most = queue.maximum_message_size_bytes
    return outgoing.most_bytes <= most or maker.size_for(target) <= most


def copies(
    origin: CopyOrigin, chosen: ChosenCopies, queues: Queues, sequence: int | None = None
) -> Copies:
    """Return all copies of one message, made during iteration, without that in the archive."""
    maker = CopyMaker(origin, chosen.outgoing, sequence)
    others = [target for target in chosen.targets if target.queue is None]
    return Copies(
        rows={kind: _rows(maker, chosen, queues, kind) for kind in KINDS},
        bounded=[*_bounded(maker, chosen, queues)],
        deliveries=(maker.delivery(target) for target in others if target.protocol in WEB),
        outbox=(maker.outbox(target) for target in others if target.protocol not in _HERE),
        records=[LogRecord(copy.partition_id, partial(maker.record, copy)) for copy in chosen.logs],
    )


def _rows(maker: CopyMaker, chosen: ChosenCopies, queues: Queues, kind: QueueKind) -> Iterator[Row]:
    for of_kind, target, queue in _in_queues(maker, chosen, queues):
        if queue.kind is kind and queue.most_messages is None:
            yield of_kind.row(target, queue)


def _bounded(maker: CopyMaker, chosen: ChosenCopies, queues: Queues) -> Iterator[CopyToQueue]:
    """Return copies for bounded queues, with the dead-letter queue of each subscription if it is
    full."""
    for of_kind, target, queue in _in_queues(maker, chosen, queues):
        if queue.most_messages is None:
            continue
        otherwise = None if target.dead_letter is None else queues.get(target.dead_letter)
        yield CopyToQueue(
            Addressed(queue, of_kind.row(target, queue)),
            None
            if otherwise is None or otherwise.queue_id == queue.queue_id
            else Addressed(otherwise, maker.without_end().row(target, otherwise)),
        )


def _in_queues(
    maker: CopyMaker, chosen: ChosenCopies, queues: Queues
) -> Iterator[tuple[CopyMaker, SubscriptionTarget, Queue]]:
    """Return the copies for queues, and for the dead-letter queues of subscriptions whose queue
    cannot store the message: these have the same text (docs/contract/sns.md 3.6) and no expiry."""
    for target in chosen.targets:
        queue = None if target.queue is None else queues[target.queue]
        if queue is not None:
            yield maker, target, queue
    if chosen.failures:
        maker = maker.without_end()
    for target in chosen.failures:
        queue = None if target.dead_letter is None else queues[target.dead_letter]
        if queue is not None:
            yield maker, target, queue


PARTITION_KEY = "Queuegate.PartitionKey"
"""The message attribute with the record's key; FIFO topics use the group id."""
_MOST_METADATA = 100
_TRIES = 3


async def copy_for(engine: Engine, maker: CopyMaker, target: SubscriptionTarget) -> LogCopy | None:
    """Return the partition and the copy for a log; None: the log does not exist or cannot store the
    message. Envelopes are signed here, because logs return them as stored."""
    publication = _publication(maker, target)
    if publication is None:
        return None
    try:
        check(engine, [publication])
        found = await _find_partition(engine, target, publication)
    except (RecordInvalid, TooManyPartitions):
        return None
    if found is None:
        return None
    log, partition = found
    signature = None
    if maker.is_signed and not target.is_raw:
        [text] = await engine.signer.sign_many([sns_envelopes.to_sign(maker.body_for(target))])
        signature = text, engine.signer.fingerprint
    return LogCopy(
        target,
        partition.partition_id,
        None if log.partition_count is None else publication.key,
        publication.metadata,
        signature,
    )


def _publication(maker: CopyMaker, target: SubscriptionTarget) -> RecordToPublish | None:
    """Return the copy as a record; None: it has more attributes than a record's maximum of
    metadata."""
    outgoing = maker.outgoing
    values = outgoing.attributes or {}
    metadata = None
    if target.is_raw and values:
        if len(values) > _MOST_METADATA:
            return None
        metadata = orjson.dumps({name: _text(value) for name, value in values.items()}).decode()
    key = outgoing.group_id if maker.is_of_fifo else _text(values.get(PARTITION_KEY, {}))
    payload = maker.body_for(target).encode()
    return RecordToPublish(key or "", payload, outgoing.message_id, metadata)


def _text(value: Mapping[str, Any]) -> str:
    """Return the value of a message attribute, binary values in base64."""
    text: str | None = value.get("StringValue")
    if text is None:
        return binascii.b2a_base64(value.get("BinaryValue", b""), newline=False).decode()
    return text


async def _find_partition(
    engine: Engine, target: SubscriptionTarget, publication: RecordToPublish
) -> tuple[StoredLog, LogPartition] | None:
    assert target.log is not None
    for _ in range(_TRIES):
        log = await engine.logs.find(*target.log)
        if log is None:
            return None
        partitions = await partitions_of(engine, log, [publication])
        if partitions is not None:
            return log, partitions[0]
        # The log was deleted, and the notification has not arrived yet.
        engine.logs.forget(log)
    return None


def forget_gone(
    engine: Engine, chosen: Iterable[ChosenCopies], gone_partitions: frozenset[int]
) -> set[LogName]:
    """Invalidate logs whose partitions were deleted; return their names."""
    if not gone_partitions:
        return set()
    names = {
        copy.target.log
        for one in chosen
        for copy in one.logs
        if copy.partition_id in gone_partitions and copy.target.log is not None
    }
    for name in names:
        known = engine.logs.cached(*name)
        if known is not None:
            engine.logs.forget(known)
    return names


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
        ``elsewhere`` as in ``storage.topics.publishing.WrittenPublications``."""
        if not is_duplicate:
            delivered(self.engine, self.topic, [self.chosen], self.queues, elsewhere)


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
    dead_letter_queues = {target.dead_letter for target in failed if target.dead_letter}
    dead_letter_queues |= {
        target.dead_letter
        for one in checked
        for target in one.targets
        if target.dead_letter and may_be_full(queues, target)
    }
    found = await engine.queues.find_many(dead_letter_queues)
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


def allows_copy(engine: Engine, queue: Queue, topic_arn: str) -> bool:
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
    queue = None if target.queue is None else queues[target.queue]
    return queue is not None and queue.most_messages is not None


def delivered(
    engine: Engine,
    topic: Topic,
    chosen: list[ChosenCopies],
    queues: Queues,
    changes: Counter[int],
    gone: Set[int] = frozenset(),
    gone_partitions: Set[int] = frozenset(),
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
        engine.wakeups.appended({*log_copies} - gone_partitions)
        series.log_copies += sum([one not in gone_partitions for one in log_copies])
    counts: dict[QueueName | None, int] = {}
    for one in chosen:
        for name in [*[t.queue for t in one.targets], *[t.dead_letter for t in one.failures]]:
            counts[name] = counts.get(name, 0) + 1
    for name, queue in queues.items():
        if queue is None:
            continue
        count = counts.get(name, 0) + changes[queue.queue_id]
        if queue.queue_id in gone:
            engine.queues.forget(queue.queue_id)
        elif count > 0:
            engine.wakeups.arrived(queue.queue_id, count)
            engine.series.copied(queue, count)
            series.queue_copies += count


def named(places: Iterable[CopyPosition], queues: Queues) -> list[tuple[Queue, int]]:
    """Return the same places with the queues that were written to."""
    by_id = {queue.queue_id: queue for queue in queues.values() if queue is not None}
    return [(by_id[place.queue_id], place.sequence) for place in places]


def copier(
    replay: TopicReplay,
    topic: Topic,
    queue: Queue,
    dead_letters: Queue | None,
    engine: Engine | None = None,
) -> Callable[[Kept], tuple[Queue, Row] | None]:
    """Return a copier: it makes the copy of a message for the queue, or for the dead-letter queue
    if that cannot store it. None: the filter rejects the message, or no queue can store it.
    ``engine`` None: the policies of the queues are not checked.

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

    def takes(taker: Queue) -> bool:
        return engine is None or allows_copy(engine, taker, topic.arn)

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
        taker = queue if can_take(maker, target, {place: queue}) and takes(queue) else dead_letters
        if taker is None or (taker is not queue and not takes(taker)):
            return None
        return taker, maker.row(target, taker, uuid4().hex)

    return copy
