"""Fan-out: the subscriptions whose filters a published message passes, and the copy for each."""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from queuegate.gateway.operations.logs.log_records import RecordToPublish, check, partitions_of
from queuegate.gateway.operations.queues.priorities import NOT_URGENT, Urgency
from queuegate.gateway.operations.queues.queue_cache import QueueName
from queuegate.gateway.operations.runtime.background_tasks import yield_to_loop
from queuegate.gateway.operations.runtime.identifiers import new_id
from queuegate.gateway.operations.topics.topic_cache import LogName, SubscriptionTarget
from queuegate.protocol import filter_policies, opaque_tokens, sns_envelopes
from queuegate.protocol.digests import MOST_OF_RAW_COPIES, md5_of_bytes
from queuegate.protocol.endpoint_urls import WEB
from queuegate.protocol.sns_envelopes import Notification, NotificationContent, Signing
from queuegate.storage.model import NewDelivery, NewLogRecord, NewOutboxMessage, Topic
from queuegate.storage.queue_model import UNSIGNED, NewMessage, Queue, QueueKind, Row
from queuegate.storage.queues.capacity import Addressed, CopyToQueue
from queuegate.storage.queues.kinds import KINDS
from queuegate.storage.queues.messages import row_of
from queuegate.storage.storage_errors import RecordInvalid, TooManyPartitions
from queuegate.storage.topics.publishing import ArchivedPublication, Copies, LogRecord

if TYPE_CHECKING:
    from queuegate.gateway.operations.queues.json_messages import Values
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.storage.model import LogPartition, StoredLog


# Maximum length of a byte in JSON, and of all in an envelope except the message and its attributes.
_MOST_ESCAPED = 6
_ENVELOPE_BYTES = 8_192
_HERE = WEB | {"log"}
Queues = dict[QueueName, Queue | None]
"""Queues by name; None: the queue does not exist."""


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
    """Size of the message and its attributes."""
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


def _system(trace_header: str | None) -> str | None:
    """Return the system attributes of copies in queues, as JSON."""
    return orjson.dumps({"AWSTraceHeader": trace_header}).decode() if trace_header else None


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
        self._system = _system(origin.trace_header)
        # Standard queues use a group id for fair queueing; copies from FIFO topics have none there.
        self._tenant = None if origin.topic.is_fifo else outgoing.group_id

    @property
    def is_of_fifo(self) -> bool:
        """Return True if the topic is FIFO."""
        return self._origin.topic.is_fifo

    @property
    def is_signed(self) -> bool:
        """Return True if envelopes that are stored are signed."""
        return self._origin.queue_signing is not None

    def without_end(self) -> CopyMaker:
        """Return a maker of copies without expiry."""
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
        return row_of(queue, message, new_id(), origin.sender_id, self._published_at)

    def _published_at(self) -> datetime:
        return self.outgoing.published_at

    def delivery(self, target: SubscriptionTarget) -> NewDelivery:
        """Return the request to a web hook."""
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
    message.

    Envelopes are signed here, because logs return them as stored.
    """
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
