"""Records that storage returns: frozen classes, one per noun."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from uuid import UUID

QUEUE_DEFAULTS: Mapping[str, str] = {
    "VisibilityTimeout": "30",
    "MaximumMessageSize": "1048576",
    "MessageRetentionPeriod": "345600",
    "DelaySeconds": "0",
    "ReceiveMessageWaitTimeSeconds": "0",
    "ContentBasedDeduplication": "false",
    "DeduplicationScope": "queue",
    "FifoThroughputLimit": "perQueue",
    "SqsManagedSseEnabled": "true",
    "KmsDataKeyReusePeriodSeconds": "300",
}
"""Defaults of queue attributes that are not stored (docs/contract/sqs.md 2.2)."""
if TYPE_CHECKING:
    from queuegate.storage.queues.kinds import QueueKind


@dataclass(frozen=True, slots=True)
class Queue:
    """One live queue as every process caches it.

    ``attributes`` has the settable attributes under AWS's names as strings, without defaults; the
    typed fields below have the same values with defaults, for the hot path.
    """

    queue_id: int
    account_id: str
    region: str
    name: str
    arn: str
    is_fifo: bool
    kind: QueueKind
    """The behaviour of the queue; ``is_fifo`` is for display and comparison."""
    attributes: Mapping[str, str]
    tags: Mapping[str, str]
    created_at: datetime
    modified_at: datetime
    visibility_timeout_seconds: int
    delay_seconds: int
    maximum_message_size_bytes: int
    retention_seconds: int
    receive_wait_seconds: int
    content_based_deduplication: bool
    deduplication_per_group: bool
    dead_letter_arn: str | None
    max_receive_count: int
    """Deliveries before a message moves to the dead-letter queue; 0 without a redrive policy."""
    is_archiving: bool
    """Deleted messages are kept in ``message_archive``."""
    archive_days: int | None
    """Days in the archive; None: unlimited."""
    grouped_from: datetime | None = None
    """Start of ``deduplication_per_group``; None: it always applied."""
    title: str = ""
    """The owner's name for the queue: its name, unless that would be invalid."""
    is_serial: bool = False
    """A strict FIFO queue: one message of a group in flight, and a deduplication id is new when its
    message is deleted. Faces do not show such a queue as FIFO."""
    has_priorities: bool = False
    """A message with a priority or an expiry was ever sent to it."""
    most_messages: int | None = None
    """Capacity in messages; None: unbounded."""
    max_deliveries: int | None = None
    """Deliveries before a message moves to the queue's own dead-letter queue, created for the first
    of them; None: only by redrive policy."""
    paused_at: datetime | None = None
    """Start of the pause in which receives find nothing; None: the queue is not paused."""

    @property
    def makes_deduplication_ids(self) -> bool:
        """Return True if the queue derives missing deduplication ids from the content."""
        return self.content_based_deduplication or self.is_serial

    def deduplicates_per_group(self, at: datetime) -> bool:
        """Return True if an id at that instant is new unless its own group has had it. After a
        change of the scope, ids of the whole queue stay valid for 5 minutes (docs/contract/sqs.md
        2.7)."""
        return self.deduplication_per_group and (
            self.grouped_from is None or at >= self.grouped_from
        )


class NewMessage(NamedTuple):
    """A validated message to send, for ``storage.queues.rows.row_of``."""

    body: str
    attributes: str | None = None
    """Message attributes as JSON: {name: {"DataType", "StringValue" | "BinaryValue" base64}}."""
    system: str | None = None
    """Rare system attributes as a JSON object; the group id of standard queues is added to it."""
    delay_seconds: int | None = None
    """None: the queue's delay."""
    group_id: str | None = None
    deduplication_id: str | None = None
    """None: by content if the queue says so, else the message has no duplicates."""
    digest: bytes | None = None
    """The MD5 of the body, or UNSIGNED; None: not computed yet."""
    dedup_key: str | None = None
    """Replaces the key of the deduplication id: an intentional repetition."""
    priority: int | None = None
    """1 to 10, the most urgent; None: 0, the least. Standard queues only."""
    ttl_seconds: int | None = None
    """Lifetime; None: only the queue's retention ends it."""


UNSIGNED = bytes(16)
"""Replaces the MD5 of a body: an SNS envelope, signed when it is received
(``protocol.envelopes``)."""


class SentMessage(NamedTuple):
    """The result of one message. For a duplicate: id and number of the first one."""

    message_id: str
    sequence: int | None
    """None: not requested."""
    is_duplicate: bool = False
    sent_at_us: int | None = None
    """Send time in microseconds since the epoch; queues with groups only."""


Handle = tuple[int, str | None, int, int]
"""(queue_id, group_id, sequence, receive_count): the contents of a receipt. A standard queue has no
groups, and accepts the receipt of any receive."""

ReceiptOutcome = Literal["ok", "gone", "expired"]
"""The result of one handle: done, deleted before, or expired handle of an existing message."""


class Received(NamedTuple):
    """One message of one receive. Instants are milliseconds since the epoch.

    A named tuple, because receives build thousands of them a second straight from rows.
    """

    queue_id: int
    sequence: int
    message_id: UUID
    receive_count: int
    body: str
    sender_id: str
    attributes: str | None
    """Message attributes as JSON: {name: {"DataType", "StringValue" | "BinaryValue" base64}}."""
    system: str | None
    """Rare system attributes as a JSON object: AWSTraceHeader, MessageGroupId, ..."""
    sent_at_ms: int
    first_received_at_ms: int
    group_id: str | None = None
    """FIFO only, as is deduplication_id; a standard queue's group id is in ``system``."""
    deduplication_id: str | None = None
    leased_at: datetime | None = None
    """The ``now`` of the statement."""
    body_md5: bytes | None = None
    """As reported to the sender; None if not stored (FIFO); or UNSIGNED."""
    priority: int | None = None
    """0 to 10; None: its queue has no priorities, equivalent to 0."""
    expires_at_ms: int | None = None
    """End of its lifetime; None: only the queue's retention ends it."""

    @property
    def sent_at_us(self) -> int:
        """Return the send time in microseconds since the epoch; exact in strict FIFO queues."""
        return self.sent_at_ms * 1000

    def system_members(self) -> Mapping[str, str]:
        """Return the rare system attributes of the message."""
        members: dict[str, str] = json.loads(self.system) if self.system else {}
        return members


class ReceivedInTurn(Received):
    """A message of a strict FIFO queue, with its send time in exact microseconds, which copies
    lose."""

    exact_us = 0

    @property
    def sent_at_us(self) -> int:
        return self.exact_us or super().sent_at_us


class ArchivedCopy(NamedTuple):
    """One message of an archive, as its receiver deleted it."""

    sequence: int
    archived_at: datetime
    sent_at: datetime
    first_received_at: datetime | None
    receive_count: int
    message_id: UUID
    group_id: str | None
    """FIFO only, as is deduplication_id."""
    deduplication_id: str | None
    sender_id: str
    body: str
    attributes: str | None
    """As JSON: {name: {"DataType", "StringValue" | "BinaryValue" base64}}."""
    system: str | None
    """Rare system attributes as a JSON object."""
    body_md5: bytes | None
    """None if not stored (FIFO); or UNSIGNED."""


MessageState = Literal["visible", "in_flight", "delayed"]
"""The states of messages in the counters of queues (docs/contract/sqs.md 2.12)."""


class Browsed(NamedTuple):
    """One message of a queue. ``visible_at``: the instant from which it is receivable."""

    sequence: int
    message_id: UUID
    state: MessageState
    visible_at: datetime
    receive_count: int
    body: str
    sender_id: str
    attributes: str | None
    """As JSON: {name: {"DataType", "StringValue" | "BinaryValue" base64}}."""
    system: str | None
    """Rare system attributes as a JSON object."""
    sent_at_ms: int
    first_received_at_ms: int | None
    group_id: str | None
    """FIFO only, as is deduplication_id; a standard queue's group id is in ``system``."""
    deduplication_id: str | None
    body_md5: bytes | None
    """None if not stored (FIFO); or UNSIGNED."""
    priority: int | None
    """0 to 10; None: its queue has no priorities, equivalent to 0."""
    expires_at: datetime | None
    """End of its lifetime; None: only the queue's retention ends it."""


class MoveFailure(StrEnum):
    """The stored reason why a move task failed."""

    QUEUE_GONE = "queue gone"
    SOURCE_UNKNOWN = "source unknown"
    TOO_LONG = "too long"


class MoveTask(NamedTuple):
    """One message move task. ``destination_arn`` None: back to the source of each message."""

    task_id: UUID
    source_queue_id: int
    source_arn: str
    destination_arn: str | None
    max_per_second: int | None
    status: str
    """RUNNING, COMPLETED, CANCELLED or FAILED."""
    failure_reason: str | None
    """One of ``MoveFailure``; a text for a task that failed in an older version."""
    to_move_count: int
    moved_count: int
    started_at: datetime


@dataclass(frozen=True, slots=True)
class Counts:
    """Message counts of a queue; the three add up to all messages."""

    visible: int
    in_flight: int
    delayed: int


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic as every process caches it.

    ``attributes`` has the values that were set, under AWS's names; the typed fields below have the
    same values with defaults.
    """

    topic_id: int
    account_id: str
    region: str
    name: str
    arn: str
    is_fifo: bool
    attributes: Mapping[str, str]
    tags: Mapping[str, str]
    created_at: datetime
    subscriptions_deleted: int
    signature_version: str
    content_based_deduplication: bool
    deduplication_per_group: bool
    archive_days: int
    """0: nothing is archived."""
    maximum_message_bytes: int
    """Limit of one message with its attributes, and of all in one request together."""
    paused_at: datetime | None = None
    """Start of the pause in which deliveries to web hooks wait; None: the topic is not paused."""


TOPIC_DEFAULTS: Mapping[str, str] = {
    "DisplayName": "",
    "SignatureVersion": "1",
    "TracingConfig": "PassThrough",
    "ContentBasedDeduplication": "false",
    "FifoThroughputScope": "Topic",
    "MaximumMessageSize": "262144",
}
"""Defaults of topic attributes that are not stored (docs/contract/sns.md 3.3)."""


@dataclass(frozen=True, slots=True)
class TopicSubscription:
    """One subscription. ``attributes``: the values that were set, under AWS's names."""

    subscription_id: UUID
    arn: str
    topic_id: int
    topic_arn: str
    protocol: str
    endpoint: str
    account_id: str
    region: str
    attributes: Mapping[str, str]
    is_confirmed: bool
    was_authenticated: bool
    authenticate_on_unsubscribe: bool
    position: int
    """The order of creation, for pages of listings."""
    live_from: int
    """The order of confirmation among those of one topic."""
    gets_events: bool
    """Created for events: other delays before retries, and raw deliveries are JSON."""
    is_pattern: bool
    """A subscription to a pattern of routing keys, which is the name in the ARNs."""
    created_at: datetime
    user_name: str
    """The subscriber's name; the account if none was stored."""
    paused_at: datetime | None = None
    """Start of the pause in which its deliveries wait; None: it is not paused."""


class ApplicationName(NamedTuple):
    """The identity of a platform application."""

    account_id: str
    region: str
    platform: str
    name: str


@dataclass(frozen=True, slots=True)
class PlatformApplication:
    """An app on one push service. ``attributes`` hold credentials: they are never shown."""

    application_id: int
    identity: ApplicationName
    arn: str
    attributes: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class PlatformEndpoint:
    """A device of a platform application."""

    endpoint_id: UUID
    position: int
    """The order of creation, for pages of listings."""
    arn: str
    account_id: str
    region: str
    platform: str
    token: str
    attributes: Mapping[str, str]
    """Enabled, and CustomUserData if it was set."""
    is_application_enabled: bool


class NewDelivery(NamedTuple):
    """A request to a web hook, in the order of the columns of the statement that inserts it."""

    subscription_id: str
    kind: str
    """Notification, SubscriptionConfirmation or UnsubscribeConfirmation."""
    is_raw: bool
    message_id: str
    account_id: str
    """The topic's, as are region and name."""
    region: str
    topic_name: str
    endpoint: str
    body: str
    """The message, or its envelope without the signature (``protocol.envelopes``)."""
    attributes: str | None = None
    """The message's attributes in queue format, for the dead letter of a raw delivery whose
    subscription has a redrive policy; else None."""


class NewOutboxMessage(NamedTuple):
    """A message that AWS would send elsewhere, in the order of the columns."""

    account_id: str
    region: str
    protocol: str
    destination: str
    """Phone number, e-mail address or ARN."""
    kind: str
    """Notification, SubscriptionConfirmation, VerificationCode, or Invocation of a schedule."""
    topic_arn: str | None
    subscription_arn: str | None
    message_id: str
    subject: str | None
    body: str
    attributes: str | None
    """Message attributes as JSON: {name: {"DataType", "StringValue" | "BinaryValue" base64}}."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSchedule:
    """A schedule to create, or a replacement of one."""

    account_id: str
    region: str
    group_id: int | None = None
    """None: it is in no group."""
    name: str
    spec: Mapping[str, Any]
    """As its face returns it; opaque here."""
    timing: Mapping[str, Any]
    """``protocol.expressions.Timing`` as JSON."""
    target: Mapping[str, Any]
    """Target and payload: ``kind`` is queue, topic or outbox; see gateway/operations/schedules."""
    is_active: bool = True
    catchup: bool = False
    """Fire missed times, oldest first, at most ``catchup_limit`` of them."""
    catchup_limit: int = 1
    failure_threshold: int | None = None
    """Consecutive failures after which it is paused; None: never."""
    deletes_itself: bool = False
    """Delete the schedule after its last time."""
    window_seconds: int = 0
    """It fires within this window after the time; 0: at the time."""
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    max_attempts: int = 0
    """Repetitions of a failed invocation, besides the first attempt."""
    max_age_seconds: int | None = None
    """Period of repetitions after the first attempt; None: a day."""
    dead_letter: Mapping[str, str] | None = None
    """``account_id``, ``region`` and ``queue_name`` of the dead-letter queue."""
    client_token: str | None = None
    next_fire_at: datetime | None
    """The next time; None: there is none."""
    due_at: datetime | None
    """The instant to fire: differs from the time if there is a window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule(NewSchedule):
    """A stored schedule."""

    schedule_id: int
    group_name: str | None
    failure_count: int
    """Consecutive failures since the last change."""
    last_error: str | None
    last_fired_at: datetime | None
    last_scheduled_for: datetime | None
    """The last time for which it fired."""
    fired_count: int
    skipped_count: int
    """Missed times that were skipped."""
    created_at: datetime
    modified_at: datetime


@dataclass(frozen=True, slots=True)
class ScheduleGroup:
    """One group. ``is_deleting``: it accepts no new schedules and is deleted with its last one."""

    group_id: int
    account_id: str
    region: str
    name: str
    tags: Mapping[str, str]
    is_deleting: bool
    client_token: str | None
    created_at: datetime
    modified_at: datetime
