"""What storage returns: frozen records, one class per noun."""

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
"""What an attribute of a queue that is not stored means (docs/contract/sqs.md 2.2)."""
if TYPE_CHECKING:
    from queuegate.storage.queues.kinds import QueueKind


@dataclass(frozen=True, slots=True)
class Queue:
    """One live queue as every process caches it.

    ``attributes`` holds the settable attributes under AWS's names as strings, defaults left out;
    the typed fields below are the same facts with defaults filled in, for the hot path.
    """

    queue_id: int
    account_id: str
    region: str
    name: str
    arn: str
    is_fifo: bool
    kind: QueueKind
    """What it does as its kind does it; ``is_fifo`` is for showing and comparing."""
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
    """Whether what its receivers delete is kept in ``message_archive``."""
    archive_days: int | None
    """For how many days it is kept; None: until somebody deletes it."""
    grouped_from: datetime | None = None
    """From when on ``deduplication_per_group`` counts; None: it always did."""
    title: str = ""
    """As its owner calls it: its name, unless that could not be one."""
    is_serial: bool = False
    """Of a queue with groups: one message of a group is out at a time, and a deduplication id is
    new when its message is deleted. Such a queue is no FIFO queue for those who see it."""
    has_priorities: bool = False
    """Whether a message with a priority or an end was ever sent to it."""
    most_messages: int | None = None
    """How many messages it may hold; None: any number."""
    max_deliveries: int | None = None
    """After how many deliveries a message moves to the dead-letter queue of its own that is made
    for the first of them; None: only a redrive policy says so."""
    paused_at: datetime | None = None
    """Start of the pause in which receives find nothing; None: the queue is not paused."""

    @property
    def makes_deduplication_ids(self) -> bool:
        """Whether a message needs none: the queue makes one of the content."""
        return self.content_based_deduplication or self.is_serial

    def deduplicates_per_group(self, at: datetime) -> bool:
        """Whether an id that comes at that instant is new unless its own group has had it. After a
        change of the scope the whole queue counts for five minutes more, as long as what it has
        seen (docs/contract/sqs.md 2.7)."""
        return self.deduplication_per_group and (
            self.grouped_from is None or at >= self.grouped_from
        )


class NewMessage(NamedTuple):
    """A message to send, as ``storage.queues.rows.row_of`` takes it. It was checked."""

    body: str
    attributes: str | None = None
    """Message attributes as JSON: {name: {"DataType", "StringValue" | "BinaryValue" base64}}."""
    system: str | None = None
    """Rare system attributes as a JSON object; the group id of standard queues is added to it."""
    delay_seconds: int | None = None
    """None: the queue's."""
    group_id: str | None = None
    deduplication_id: str | None = None
    """None: by content where the queue wants that, else the message is nobody's duplicate."""
    digest: bytes | None = None
    """The MD5 of the body, or UNSIGNED; None: nobody has worked it out yet."""
    dedup_key: str | None = None
    """In place of the key that the deduplication id makes: this one comes again on purpose."""
    priority: int | None = None
    """1 to 10, the most urgent; None: 0, the least. Standard queues only."""
    ttl_seconds: int | None = None
    """After how long nobody may get it any more; None: only the queue's retention ends it."""


UNSIGNED = bytes(16)
"""In place of the MD5 of a body: it is an envelope of SNS whose signature is filled in when it is
received (``protocol.envelopes``)."""


class SentMessage(NamedTuple):
    """What one message became. Of a duplicate: id and number of the first one."""

    message_id: str
    sequence: int | None
    """None: it was not asked for."""
    is_duplicate: bool = False
    sent_at_us: int | None = None
    """When it was sent, in microseconds since the epoch; queues with groups only."""


Handle = tuple[int, str | None, int, int]
"""(queue_id, group_id, sequence, receive_count): what a receipt says. A standard queue has no
groups, and takes the receipt of any receive."""

Outcome = Literal["ok", "gone", "expired"]
"""Of one handle: done, the message was gone before, or its handle has expired and it stays."""


class Received(NamedTuple):
    """One message as one receive returned it. Instants are milliseconds since the epoch.

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
    """As its sender was told; None where it is not kept (FIFO); or UNSIGNED."""
    priority: int | None = None
    """0 to 10; None: its queue has no priorities, which is as good as 0."""
    expires_at_ms: int | None = None
    """From then on nobody gets it; None: only its queue's retention ends it."""

    @property
    def sent_at_us(self) -> int:
        """In microseconds since the epoch; exact in serial queues."""
        return self.sent_at_ms * 1000

    def system_members(self) -> Mapping[str, str]:
        """The rare system attributes that it carries."""
        members: dict[str, str] = json.loads(self.system) if self.system else {}
        return members


class ReceivedInTurn(Received):
    """Of a serial queue: it says to the microsecond when it was sent. A copy of it does not."""

    exact_us = 0

    @property
    def sent_at_us(self) -> int:
        return self.exact_us or super().sent_at_us


class Archived(NamedTuple):
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
    """None where it is not kept (FIFO); or UNSIGNED."""


MessageState = Literal["visible", "in_flight", "delayed"]
"""As the counters of queues tell messages apart (docs/contract/sqs.md 2.12)."""


class Browsed(NamedTuple):
    """One message of a queue. ``visible_at``: from then on it can be received."""

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
    """None where it is not kept (FIFO); or UNSIGNED."""
    priority: int | None
    """0 to 10; None: its queue has no priorities, which is as good as 0."""
    expires_at: datetime | None
    """From then on it is not there; None: only its queue's retention ends it."""


class MoveFailure(StrEnum):
    """Why a move task failed, as it is stored."""

    QUEUE_GONE = "queue gone"
    SOURCE_UNKNOWN = "source unknown"
    TOO_LONG = "too long"


class MoveTask(NamedTuple):
    """One message move task. ``destination_arn`` None: back to where each message came from."""

    task_id: UUID
    source_queue_id: int
    source_arn: str
    destination_arn: str | None
    max_per_second: int | None
    status: str
    """RUNNING, COMPLETED, CANCELLED or FAILED."""
    failure_reason: str | None
    """One of ``MoveFailure``; a text of a task that failed before there were these."""
    to_move_count: int
    moved_count: int
    started_at: datetime


@dataclass(frozen=True, slots=True)
class Counts:
    """How many messages a queue holds; the three add up to all of them."""

    visible: int
    in_flight: int
    delayed: int


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic as every process caches it.

    ``attributes`` holds what was set, under AWS's names, as it is read back; the typed fields below
    are the same facts with defaults filled in.
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
    """Of one message with its attributes, and of those of one request together."""
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
"""What an attribute of a topic that is not stored means (docs/contract/sns.md 3.3)."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """One subscription. ``attributes``: what was set, under AWS's names, as it is read back."""

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
    """It was made to get events: other delays before retries, and raw deliveries are JSON."""
    is_pattern: bool
    """It is to a pattern of routing keys, which is the name in the ARNs."""
    created_at: datetime
    user_name: str
    """Of whoever subscribed; the account where that was not written down."""
    paused_at: datetime | None = None
    """Start of the pause in which its deliveries wait; None: it is not paused."""


class ApplicationName(NamedTuple):
    """What identifies a platform application."""

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
    """Of the topic, as are region and name."""
    region: str
    topic_name: str
    endpoint: str
    body: str
    """The message, or its envelope without the signature (``protocol.envelopes``)."""
    attributes: str | None = None
    """Those of the message, as a queue keeps them, for the dead letter of a raw delivery whose
    subscription has a redrive policy; None of any other."""


class NewOutboxMessage(NamedTuple):
    """What AWS would have sent elsewhere, in the order of the columns."""

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
    """A schedule to create, or what replaces one."""

    account_id: str
    region: str
    group_id: int | None = None
    """None: it is in no group."""
    name: str
    spec: Mapping[str, Any]
    """As its face reads it back; nothing here looks into it."""
    timing: Mapping[str, Any]
    """``protocol.expressions.Timing`` as JSON."""
    target: Mapping[str, Any]
    """Where to and what: ``kind`` is queue, topic or outbox; gateway/operations/schedules has the
    rest."""
    is_active: bool = True
    catchup: bool = False
    """Whether missed times are made up for, oldest first, ``catchup_limit`` of them at most."""
    catchup_limit: int = 1
    failure_threshold: int | None = None
    """Failures in a row after which it is paused; None: never."""
    deletes_itself: bool = False
    """Whether it goes after its last time."""
    window_seconds: int = 0
    """It is fired some time within this after the time; 0: at the time."""
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    max_attempts: int = 0
    """Repetitions of an invocation that failed, beside the first attempt."""
    max_age_seconds: int | None = None
    """How long after the first attempt an invocation is tried again; None: a day."""
    dead_letter: Mapping[str, str] | None = None
    """``account_id``, ``region`` and ``queue_name`` of the queue for what failed for good."""
    client_token: str | None = None
    next_fire_at: datetime | None
    """The next time; None: there is none."""
    due_at: datetime | None
    """When that is to be fired: not the time itself when there is a window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule(NewSchedule):
    """A stored schedule."""

    schedule_id: int
    group_name: str | None
    failure_count: int
    """In a row, since it was changed last."""
    last_error: str | None
    last_fired_at: datetime | None
    last_scheduled_for: datetime | None
    """The time for which it was fired last."""
    fired_count: int
    skipped_count: int
    """Times that were missed and not made up for."""
    created_at: datetime
    modified_at: datetime


@dataclass(frozen=True, slots=True)
class ScheduleGroup:
    """One group. ``is_deleting``: it takes no new schedules and goes when its last one is gone."""

    group_id: int
    account_id: str
    region: str
    name: str
    tags: Mapping[str, str]
    is_deleting: bool
    client_token: str | None
    created_at: datetime
    modified_at: datetime
