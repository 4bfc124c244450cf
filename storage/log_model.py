"""What storage returns of logs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from queuegate.protocol import arns
from queuegate.storage.logs.positions import Do as Do
from queuegate.storage.logs.positions import Outcome as Outcome
from queuegate.storage.logs.positions import Policy


class LogSettings(NamedTuple):
    """What a log may be told to keep."""

    retain_consumed_seconds: int | None = 3600
    """How long what every group has read; None: that is no reason to drop it."""
    max_age_seconds: int | None = None
    """How long anything; None: any time."""
    max_bytes: int | None = None
    """How much; None: any amount."""


@dataclass(frozen=True, slots=True)
class Log:
    """One live log, as every process caches it."""

    log_id: int
    account_id: str
    region: str
    name: str
    created_at: datetime
    partition_count: int | None
    """Shared by all keys; None: each key has a partition of its own."""
    settings: LogSettings

    @property
    def arn(self) -> str:
        """As rights name it; its account is in it."""
        return arns.log_arn(self.region, self.account_id, self.name)


class Partition(NamedTuple):
    """A partition of a log: these never change."""

    partition_id: int
    number: int
    key: str | None
    """None: keys share it."""


class PartitionState(NamedTuple):
    """What a partition holds."""

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
    """What a log holds."""

    partition_count: int
    record_count: int
    byte_count: int
    oldest_at: datetime | None
    """When the oldest record that is kept was published; None: there is none."""
    group_count: int


class NewRecord(NamedTuple):
    """A record to append, in the order of the columns of ``storage.logs.records``."""

    partition_id: int
    payload: bytes
    key: str | None = None
    """None: it is that of the partition."""
    record_id: str | None = None
    metadata: str | None = None
    """An object of texts, as JSON."""
    failure: str | None = None
    """Of a dead letter, as JSON."""
    only_group_id: int | None = None


class Appended(NamedTuple):
    """What became of records; both have one element for each."""

    offsets: list[int]
    duplicates: list[bool] | None
    """Whether the record was there, by its id; None: no record has one."""


class Record(NamedTuple):
    """A record as it is kept."""

    offset: int
    published_at: datetime
    key: str | None
    record_id: str | None
    metadata: str | None
    failure: str | None
    payload: bytes


class ReadRange(NamedTuple):
    """What to read of a partition: from an offset to before another one."""

    partition_id: int
    from_offset: int
    to_offset: int


class GroupSettings(NamedTuple):
    """What a group may be told."""

    start: str | None = None
    """Where it began: `latest`, or a time; None: with the first record that was kept."""
    batch_size: int = 10
    visibility_timeout_seconds: float = 30
    max_attempts: int = 5
    backoff_seconds: float = 1
    backoff_factor: float = 2
    most_backoff_seconds: float = 300
    lease_seconds: float = 30
    dead_letter_log: str | None = None
    """None: it is called after the log."""
    queue: str | None = None
    """Whose messages its records become, instead of being fetched."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group of a log, as every process caches it."""

    group_id: int
    log_id: int
    name: str
    created_at: datetime
    settings: GroupSettings
    policy: Policy = field(init=False, compare=False)
    """What its deliveries go by."""

    def __post_init__(self) -> None:
        settings = self.settings
        policy = Policy(
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

    log: Log
    group: Group


class Subscriber(NamedTuple):
    """A live subscriber of a group."""

    name: str
    live_until: datetime
    partition_count: int


class GroupProgress(NamedTuple):
    """Where a group is in its log as a whole."""

    lag: int
    """How many offsets there are beyond its watermarks."""
    in_flight: int
    oldest_at: datetime | None
    """When the oldest record beyond a watermark was published; None: there is none."""
    now_ms: int


class PositionState(NamedTuple):
    """Where a group is in a partition."""

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
    """Of the partition."""
    key: str | None
    record: Record
    attempt: int
    delivery: int
    visible_until_ms: int
