"""One published message and its copies: which subscriptions get it, and what each of them gets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import orjson

from queuegate.gateway.operations.identifiers import new_id
from queuegate.gateway.operations.queues.priorities import NOT_URGENT, Urgency
from queuegate.gateway.operations.queues.queue_cache import QueueName
from queuegate.gateway.operations.topics.topic_cache import Target
from queuegate.gateway.operations.turns import give_way
from queuegate.protocol import envelopes, filter_policies, sequence_numbers
from queuegate.protocol.attribute_values import MOST_OF_RAW_COPIES
from queuegate.protocol.digests import md5_of_bytes
from queuegate.protocol.endpoint_urls import WEB
from queuegate.protocol.envelopes import Notification, Published, Signing
from queuegate.storage.log_model import NewRecord
from queuegate.storage.model import (
    UNSIGNED,
    NewDelivery,
    NewMessage,
    NewOutboxMessage,
    Queue,
    Topic,
)
from queuegate.storage.queues.kinds import KINDS, QueueKind
from queuegate.storage.queues.rows import Row, row_of
from queuegate.storage.queues.waiting import Addressed, Copy
from queuegate.storage.topics.publishing import Archived, Copies, LogRecord

if TYPE_CHECKING:
    from queuegate.gateway.operations.queues.message_attributes import Values

# What JSON makes of a byte at most, and of everything else in an envelope but the message and its
# attributes.
_MOST_ESCAPED = 6
_ENVELOPE_BYTES = 8_192

_HERE = WEB | {"log"}

Queues = dict[QueueName, Queue | None]
"""What was found out about queues; None: it does not exist."""


class Outgoing(NamedTuple):
    """A message that passed every check."""

    message_id: str
    message: str
    texts: dict[str, str] | None
    """By protocol, of a message in JSON."""
    subject: str | None
    attributes: Values | None
    stored_attributes: str | None
    """As a queue keeps them, for raw delivery."""
    published_at: datetime
    group_id: str | None
    deduplication_id: str | None
    size_bytes: int
    """Of the message and its attributes."""
    attribute_bytes: int
    delay_seconds: int | None = None
    """Before copies in standard queues become visible. None: what each queue has."""
    urgency: Urgency = NOT_URGENT
    """Of copies in queues; those in groups have no priority."""

    @property
    def most_bytes(self) -> int:
        """What no copy of it is longer than."""
        return self.size_bytes * _MOST_ESCAPED + _ENVELOPE_BYTES

    @property
    def has_many_attributes(self) -> bool:
        """More than a queue takes with raw delivery."""
        return self.attributes is not None and len(self.attributes) > MOST_OF_RAW_COPIES

    def text_for(self, key: str) -> str:
        """What subscriptions of this protocol or push platform get."""
        if self.texts is None:
            return self.message
        return self.texts.get(key, self.texts["default"])


class LogCopy(NamedTuple):
    """The copy for a log."""

    target: Target
    partition_id: int
    key: str | None
    """None: it is that of the partition."""
    metadata: str | None
    signature: tuple[str, str] | None
    """Of an envelope that has one: the signature, and the fingerprint of the certificate."""


class Chosen(NamedTuple):
    """The subscriptions that get a message."""

    outgoing: Outgoing
    targets: Sequence[Target]
    failures: Sequence[Target] = ()
    """Those whose queue or log cannot take its copy: the client's error, for the dead-letter
    queue."""
    logs: Sequence[LogCopy] = ()
    """The copies for logs, whose subscriptions are among the targets."""


class Origin(NamedTuple):
    """What all copies of a publish share."""

    topic: Topic
    known_live: int
    """Of its audience."""
    sender_id: str
    trace_header: str | None
    base_url: str
    signing: Signing | None
    """None: envelopes for web hooks are not signed (or there are none)."""
    queue_signing: Signing | None
    """The same for envelopes in queues."""


def _system(trace_header: str | None) -> str | None:
    """The system attributes of copies in queues, as JSON."""
    return orjson.dumps({"AWSTraceHeader": trace_header}).decode() if trace_header else None


def _passing(targets: Sequence[Target], outgoing: Outgoing) -> Iterator[Target | None]:
    """Each subscription in turn, or None where its filter does not let the message pass. What
    policies look at is prepared once for all of them."""
    by_attributes = None
    by_text: dict[str, filter_policies.Subject] = {}
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


def choose(targets: Sequence[Target], outgoing: Outgoing) -> list[Target]:
    """The subscriptions whose filter lets the message pass."""
    return [target for target in _passing(targets, outgoing) if target is not None]


async def choose_gently(targets: Sequence[Target], outgoing: Outgoing) -> list[Target]:
    """The same with others having their turn in between: a policy may look at every element of a
    long array, which takes milliseconds."""
    chosen: list[Target] = []
    for target in _passing(targets, outgoing):
        if target is not None:
            chosen.append(target)
        await give_way()
    return chosen


class CopyMaker:
    """Makes the copies of one message. ``sequence`` is its number on a FIFO topic."""

    def __init__(self, origin: Origin, outgoing: Outgoing, sequence: int | None = None) -> None:
        self.outgoing = outgoing
        self._origin = origin
        self._sequence = sequence
        self._envelopes: dict[tuple[str, bool], Notification] = {}
        self._sizes: dict[tuple[str, bool, int], int] = {}
        self._raw_text = ""
        self._raw_digest = b""
        self._system = _system(origin.trace_header)
        # Standard queues take a group id for a tenant's; those behind FIFO topics get none.
        self._tenant = None if origin.topic.is_fifo else outgoing.group_id

    @property
    def is_of_fifo(self) -> bool:
        """Whether the topic is FIFO."""
        return self._origin.topic.is_fifo

    @property
    def is_signed(self) -> bool:
        """Whether envelopes that are not sent at once have signatures."""
        return self._origin.queue_signing is not None

    def without_end(self) -> CopyMaker:
        """Makes copies that do not expire."""
        priority, ttl_seconds = self.outgoing.urgency
        if ttl_seconds is None:
            return self
        outgoing = self.outgoing._replace(urgency=(priority, None))
        return CopyMaker(self._origin, outgoing, self._sequence)

    def body_for(self, target: Target) -> str:
        """What the subscription gets: the text, or its envelope."""
        text = self.outgoing.text_for(target.text_key)
        if target.is_raw:
            return text
        return self._envelope(text, target.protocol not in WEB).to(target.arn)

    def size_for(self, target: Target) -> int:
        """The bytes that the copy counts in its queue. One of each kind is measured: ARNs of one
        length make no difference."""
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
            published = Published(
                outgoing.message_id,
                origin.topic.arn,
                text,
                outgoing.published_at,
                outgoing.subject,
                None if self._sequence is None else sequence_numbers.of_topic(self._sequence),
                outgoing.attributes,
            )
            signing = origin.queue_signing if in_queue else origin.signing
            envelope = self._envelopes[key] = envelopes.notification(
                published, base_url=origin.base_url, signing=signing
            )
        return envelope

    def row(self, target: Target, queue: Queue, dedup_key: str | None = None) -> Row:
        """The copy for a queue. Behind a FIFO topic group and deduplication id are passed on, to
        FIFO queues; otherwise a group id is a tenant's. ``dedup_key``: see ``NewMessage``."""
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

    def delivery(self, target: Target) -> NewDelivery:
        """The request to a web hook."""
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

    def record(self, copy: LogCopy) -> NewRecord:
        """The record in a log. Its id is the message's: whoever writes it again, or for another
        subscription, adds nothing."""
        body = self.body_for(copy.target)
        if copy.signature is not None:
            body = envelopes.with_signature(body, *copy.signature)
        return NewRecord(
            copy.partition_id, body.encode(), copy.key, self.outgoing.message_id, copy.metadata
        )

    def outbox(self, target: Target) -> NewOutboxMessage:
        """What AWS would send elsewhere."""
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


def archived(origin: Origin, outgoing: Outgoing, sequence: int | None) -> Archived | None:
    """What the topic's archive keeps of the message; None: it has no archive."""
    topic = origin.topic
    if not topic.archive_days or sequence is None:
        return None
    return Archived(
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


def can_take(maker: CopyMaker, target: Target, queues: Queues) -> bool:
    """False: the queue of the subscription is not there, or cannot take the message. About logs
    see ``log_copies``."""
    if target.protocol != "sqs":
        return True
    outgoing = maker.outgoing
    queue = None if target.queue is None else queues[target.queue]
    if queue is None or (target.has_few_attributes and outgoing.has_many_attributes):
        return False
    most = queue.maximum_message_size_bytes
    return outgoing.most_bytes <= most or maker.size_for(target) <= most


def copies(origin: Origin, chosen: Chosen, queues: Queues, sequence: int | None = None) -> Copies:
    """Everything that one message becomes; copies are made while they are walked. What
    the archive keeps is not among them."""
    maker = CopyMaker(origin, chosen.outgoing, sequence)
    others = [target for target in chosen.targets if target.queue is None]
    return Copies(
        rows={kind: _rows(maker, chosen, queues, kind) for kind in KINDS},
        bounded=[*_bounded(maker, chosen, queues)],
        deliveries=(maker.delivery(target) for target in others if target.protocol in WEB),
        outbox=(maker.outbox(target) for target in others if target.protocol not in _HERE),
        records=[LogRecord(copy.partition_id, partial(maker.record, copy)) for copy in chosen.logs],
    )


def _rows(maker: CopyMaker, chosen: Chosen, queues: Queues, kind: QueueKind) -> Iterator[Row]:
    for of_kind, target, queue in _in_queues(maker, chosen, queues):
        if queue.kind is kind and queue.most_messages is None:
            yield of_kind.row(target, queue)


def _bounded(maker: CopyMaker, chosen: Chosen, queues: Queues) -> Iterator[Copy]:
    """Copies for queues that may be full: then they go to the subscription's dead-letter queue."""
    for of_kind, target, queue in _in_queues(maker, chosen, queues):
        if queue.most_messages is None:
            continue
        otherwise = None if target.dead_letter is None else queues.get(target.dead_letter)
        yield Copy(
            Addressed(queue, of_kind.row(target, queue)),
            None
            if otherwise is None or otherwise.queue_id == queue.queue_id
            else Addressed(otherwise, maker.without_end().row(target, otherwise)),
        )


def _in_queues(
    maker: CopyMaker, chosen: Chosen, queues: Queues
) -> Iterator[tuple[CopyMaker, Target, Queue]]:
    """Where copies go, and those that their own queue cannot take: the latter as they would have
    gone there, with nothing added (docs/contract/sns.md 3.6). Only they do not expire."""
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
