"""Records of logs that storage returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from queuegate.protocol import arns
from queuegate.storage.logs.positions import GroupDeliveryPolicy
from queuegate.storage.logs.positions import ReceiptAction as ReceiptAction
from queuegate.storage.logs.positions import RecordOutcome as RecordOutcome


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
    """A record to append, in the order of the columns of ``storage.logs.records``."""

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
