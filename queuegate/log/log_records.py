"""Records to publish and to read, and descriptions of logs, groups and partitions."""

from __future__ import annotations

import base64
import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cache
from typing import Any, Literal, Self, TypedDict, cast

_INSTANTS = ("_at", "_until")


class Backoff(TypedDict):
    """The pause before a released record is delivered again: ``initial`` seconds the first time,
    ``factor`` times as long each time after, at most ``most`` seconds."""

    initial: float
    factor: float
    most: float


class LogSettings(TypedDict, total=False):
    """Settings of a log, in seconds and bytes; None: no bound."""

    retain_consumed: int | None
    """For how long records stay that all groups are done with."""
    max_age: int | None
    max_bytes: int | None


class GroupSettings(TypedDict, total=False):
    """Settings of a group; omitted ones keep the gateway's values."""

    batch_size: int
    """The most outstanding records of a partition; 1 is strict order."""
    visibility_timeout: float
    """Seconds for which a delivered record is hidden from others."""
    max_attempts: int
    backoff: Backoff
    lease: float
    """Seconds after the last sign of life until a subscriber's partitions go to others."""
    dead_letter_log: str
    queue: str | None
    """A queue that gets the records of the group, as messages, instead of subscribers."""


class NewGroup(GroupSettings, total=False):
    """Settings of a new group, and its start."""

    start: Literal["earliest", "latest"] | datetime


class _Built:
    """Built from JSON. Unknown members are ignored."""

    @classmethod
    def of(cls, members: Mapping[str, Any], **more: Any) -> Self:
        """Build one from an answer of a gateway."""
        known, instants = _members(cast("Hashable", cls))
        given = {name: members[name] for name in known if name in members} | more
        for name in instants:
            value = given.get(name)
            if isinstance(value, str):
                given[name] = datetime.fromisoformat(value)
        return cls(**given)


@cache
def _members(kind: Hashable) -> tuple[list[str], list[str]]:
    """Return all members, and those that are instants."""
    names = [one.name for one in fields(cast("Any", kind))]
    return names, [name for name in names if name.endswith(_INSTANTS)]


@dataclass(frozen=True)
class NewRecord:
    """A record to publish. Records of one key stay in order.

    ``id``: a record with the same key and id is not added again. Without one the client makes an
    id.
    """

    payload: str | bytes
    key: str = ""
    id: str | None = None
    metadata: Mapping[str, str] | None = None

    def members(self, new_id: str) -> dict[str, Any]:
        """Return the members of the request."""
        members: dict[str, Any] = {"key": self.key, "id": self.id or new_id}
        payload = self.payload
        if isinstance(payload, bytes):
            try:
                members["payload"] = payload.decode()
            except UnicodeDecodeError:
                members |= {"payload": base64.b64encode(payload).decode(), "encoding": "base64"}
        elif isinstance(payload, str):
            members["payload"] = payload
        else:
            raise TypeError(f"a payload is str or bytes, and not {type(payload).__name__}")
        if self.metadata:
            members["metadata"] = dict(self.metadata)
        return members


@dataclass(frozen=True)
class Published(_Built):
    """The position of a published record. ``duplicate``: a record with the publisher's id
    existed."""

    partition: int
    offset: int
    id: str
    duplicate: bool = False


@dataclass(frozen=True)
class Failure(_Built):
    """The failures of a dead letter."""

    failed_at: datetime
    failure_count: int
    last_error: str | None = None
    original_topic: str | None = None
    original_group: str | None = None
    original_partition: int | None = None
    original_offset: int | None = None


@dataclass
class Record(_Built):
    """A record of a log. ``failure`` is a dead letter's."""

    partition: int
    offset: int
    key: str
    payload: bytes
    id: str | None
    metadata: dict[str, str]
    published_at: datetime
    failure: Failure | None = field(default=None, kw_only=True)

    @property
    def text(self) -> str:
        """Return the payload as text. Raises UnicodeDecodeError for other payloads."""
        return self.payload.decode()

    def json(self) -> Any:
        """Return the payload parsed as JSON."""
        return json.loads(self.payload)

    @classmethod
    def of(cls, members: Mapping[str, Any], **more: Any) -> Self:
        """Build one from an answer of a gateway."""
        payload = members["payload"]
        # A delivery has these among the others.
        failure = members.get("failure") or ("failed_at" in members and members)
        known = {
            "payload": base64.b64decode(payload)
            if members.get("encoding") == "base64"
            else payload.encode(),
            "key": members.get("key") or "",
            "id": members.get("id"),
            "metadata": members.get("metadata") or {},
            "failure": Failure.of(failure) if failure else None,
        }
        return super().of(members, **known, **more)


@dataclass(frozen=True)
class Log(_Built):
    """A log and its size. ``partitions`` is None where each key has its own."""

    log: str
    created_at: datetime
    partitions: int | None
    partition_count: int
    records: int
    bytes: int
    groups: int
    oldest_at: datetime | None = None
    retain_consumed: int | None = None
    max_age: int | None = None
    max_bytes: int | None = None


@dataclass(frozen=True)
class Partition(_Built):
    """A partition: its records have offsets from ``start`` to before ``end``. ``key`` is None
    where keys share it."""

    partition: int
    key: str | None
    start: int
    end: int
    last_published_at: datetime | None = None


@dataclass(frozen=True)
class Subscriber(_Built):
    """A live subscriber of a group, and the number of its partitions."""

    subscriber: str
    live_until: datetime
    partitions: int


@dataclass(frozen=True)
class Group(_Built):
    """A group: its settings and progress. ``lag``: records that it has not finished."""

    group: str
    lag: int
    in_flight: int
    batch_size: int
    visibility_timeout: float
    max_attempts: int
    backoff: Backoff
    lease: float
    dead_letter_log: str | None = None
    queue: str | None = None
    watermark_age_seconds: float | None = None
    subscribers: tuple[Subscriber, ...] = ()

    @classmethod
    def of(cls, members: Mapping[str, Any], **more: Any) -> Self:
        """Build one from an answer of a gateway."""
        found = tuple(Subscriber.of(one) for one in members.get("subscribers", ()))
        return super().of(members, subscribers=found, **more)


@dataclass(frozen=True)
class Progress(_Built):
    """The progress of a group in one partition: finished up to and including offset
    ``watermark``."""

    partition: int
    key: str | None
    watermark: int
    end: int
    lag: int
    in_flight: int
    held_by: str | None = None
    barrier_until: datetime | None = None
