"""Records that storage returns besides queues: frozen classes, one per noun."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, Final, Literal, NamedTuple
from uuid import UUID

from queuegate.protocol import arns


class GroupDeliveryPolicy(NamedTuple):
    """The delivery settings of a group."""

    batch_size: int
    """Limit of records of a partition in flight."""
    visibility_ms: int
    max_attempts: int
    backoff_ms: int
    """Delay after the first attempt, unless a nack gives another."""
    backoff_factor: float
    most_backoff_ms: int

    def delay_ms(self, attempts: int) -> int:
        """Return the delay of a record after so many attempts."""
        delay: float = self.backoff_ms
        for _ in range(attempts - 1):
            if delay >= self.most_backoff_ms:
                break
            delay *= self.backoff_factor
        return int(min(delay, self.most_backoff_ms))


class ReceiptAction(Enum):
    """The operations on a receipt."""

    ACK = "ack"
    NACK = "nack"
    POSTPONE = "postpone"
    EXTEND = "extend"
    REJECT = "reject"
    RELEASE = "release"
    """The record was not seen: it is visible at once, and the attempt does not count."""


class RecordOutcome(Enum):
    """The result of an operation."""

    DONE = "done"
    DEAD = "dead_lettered"
    """The record is done for the group. The code that stores the position writes the dead
    letter."""
    SUPERSEDED = "superseded"
    """The record was released or redelivered after the receipt was made."""
    GONE = "gone"
    """The record is done for the group: acked before, or a dead letter."""


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
    """The message, or its envelope without the signature (``protocol.sns_envelopes``)."""
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
    """``protocol.timing.Timing`` as JSON."""
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


API = "api"
ACCESS = "access"


class RateLimit(NamedTuple):
    """A number of requests per window in seconds."""

    requests: int
    window_seconds: int


@dataclass(frozen=True, slots=True)
class Key:
    """An API key or access key, without the data that verifies it."""

    key_id: int
    kind: str
    """``API``, a bearer key, or ``ACCESS``, whose secret signs requests."""
    account_id: str
    name: str
    limit: RateLimit | None
    """Rate limit of its producer; None: unlimited."""
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    is_administrator: bool = False
    """Allows everything, in every account."""
    disabled_at: datetime | None = None
    """Start of the disabled period; None: enabled."""
    access_key: str | None = None
    """The name of an access key in signatures."""
    previous_until: datetime | None = None
    """End of validity of the previous secret after a rotation."""
    policy: str | None = None
    """Permissions in JSON; None: everything in its account."""


CountedKind = Literal["queues", "topics", "subscriptions", "logs"]
"""Kinds of objects with a quota per account."""
KINDS: Final[tuple[CountedKind, ...]] = ("queues", "topics", "subscriptions", "logs")
ANY: Final = -1
"""Replaces a number: unlimited, regardless of the settings."""
UNLIMITED: Final = RateLimit(ANY, 1)


class Quota(NamedTuple):
    """Limits of one account or key; None: not set."""

    requests: RateLimit | None = None
    """All requests; ``UNLIMITED``: no limit."""
    queues: int | None = None
    topics: int | None = None
    subscriptions: int | None = None
    logs: int | None = None
    bytes: RateLimit | None = None
    """Bytes of requests and answers."""

    @property
    def counts(self) -> tuple[int | None, ...]:
        """Return the limits of ``KINDS``."""
        return self[1:5]


class LogRetention(NamedTuple):
    """Retention settings of a log."""

    retain_consumed_seconds: int | None = 3600
    """Retention of records that every group has read; None: not a reason to drop them."""
    max_age_seconds: int | None = None
    """Retention of all records; None: unlimited."""
    max_bytes: int | None = None
    """Size limit; None: unlimited."""


@dataclass(frozen=True, slots=True)
class StoredLog:
    """One live log, as every process caches it."""

    log_id: int
    account_id: str
    region: str
    name: str
    created_at: datetime
    partition_count: int | None
    """Partitions shared by all keys; None: each key has its own partition."""
    settings: LogRetention

    @property
    def arn(self) -> str:
        """Return the ARN for permissions, which contains the account."""
        return arns.log_arn(self.region, self.account_id, self.name)


class LogPartition(NamedTuple):
    """A partition of a log, immutable."""

    partition_id: int
    number: int
    key: str | None
    """None: keys share it."""


class PartitionState(NamedTuple):
    """The contents of a partition."""

    partition_id: int
    number: int
    key: str | None
    start_offset: int
    next_offset: int
    gap_count: int
    byte_count: int
    last_published_at: datetime | None
    """None: nothing was ever published to it."""


class LogCounts(NamedTuple):
    """The contents of a log."""

    partition_count: int
    record_count: int
    byte_count: int
    oldest_at: datetime | None
    """Publish time of the oldest retained record; None: there is none."""
    group_count: int


class NewLogRecord(NamedTuple):
    """A record to append, in the order of the columns of ``storage.logs.stored_records``."""

    partition_id: int
    payload: bytes
    key: str | None = None
    """None: the key of the partition."""
    record_id: str | None = None
    metadata: str | None = None
    """An object of texts, as JSON."""
    failure: str | None = None
    """JSON of a dead letter."""
    only_group_id: int | None = None


class Appended(NamedTuple):
    """The result of appends; both have one element for each record."""

    offsets: list[int]
    duplicates: list[bool] | None
    """True for a record whose id existed; None: no record has an id."""


class StoredRecord(NamedTuple):
    """A stored record."""

    offset: int
    published_at: datetime
    key: str | None
    record_id: str | None
    metadata: str | None
    failure: str | None
    payload: bytes


class ReadRange(NamedTuple):
    """A range of a partition: from an offset to before another one."""

    partition_id: int
    from_offset: int
    to_offset: int


class ConsumerGroupSettings(NamedTuple):
    """The settings of a group."""

    start: str | None = None
    """Start: `latest`, or a time; None: the first retained record."""
    batch_size: int = 10
    visibility_timeout_seconds: float = 30
    max_attempts: int = 5
    backoff_seconds: float = 1
    backoff_factor: float = 2
    most_backoff_seconds: float = 300
    lease_seconds: float = 30
    dead_letter_log: str | None = None
    """None: derived from the log's name."""
    queue: str | None = None
    """The queue that receives its records, instead of fetches."""


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """A group of a log, as every process caches it."""

    group_id: int
    log_id: int
    name: str
    created_at: datetime
    settings: ConsumerGroupSettings
    policy: GroupDeliveryPolicy = field(init=False, compare=False)
    """The delivery policy of the settings."""

    def __post_init__(self) -> None:
        settings = self.settings
        policy = GroupDeliveryPolicy(
            settings.batch_size,
            round(settings.visibility_timeout_seconds * 1000),
            settings.max_attempts,
            round(settings.backoff_seconds * 1000),
            settings.backoff_factor,
            round(settings.most_backoff_seconds * 1000),
        )
        object.__setattr__(self, "policy", policy)


class Feed(NamedTuple):
    """A group that feeds a queue."""

    log: StoredLog
    group: ConsumerGroup


class LogSubscriber(NamedTuple):
    """A live subscriber of a group."""

    name: str
    live_until: datetime
    partition_count: int


class GroupProgress(NamedTuple):
    """The progress of a group in its whole log."""

    lag: int
    """Offsets beyond its watermarks."""
    in_flight: int
    oldest_at: datetime | None
    """Publish time of the oldest record beyond a watermark; None: there is none."""
    now_ms: int


class PositionState(NamedTuple):
    """The position of a group in a partition."""

    number: int
    key: str | None
    watermark: int
    next_offset: int
    in_flight: int
    held_by: str | None
    barrier_until: datetime | None


class Delivered(NamedTuple):
    """A record that a fetch got."""

    partition_id: int
    number: int
    """The number of the partition."""
    key: str | None
    record: StoredRecord
    attempt: int
    delivery: int
    visible_until_ms: int
