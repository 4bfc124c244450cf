"""Pending requests to web hooks: due deliveries, leases, outcomes; operators' lists and redrives.

A lease is one attempt: (delivery_id, attempt_count). Outcomes are recorded only for leases that the
caller still holds; an expired lease changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from queuegate.storage.notifications import Notice, notify
from queuegate.storage.queries import ALL_ACCOUNTS, AccountFilter, load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction
    from queuegate.storage.model import NewDelivery, Topic


_SQL = load("topics/web_hook_deliveries")


class DeliveryHead(NamedTuple):
    """A subscription with pending deliveries, and the seconds until the first is due; None: outside
    the account filter."""

    subscription_id: UUID
    due_in: float | None


class DeliveryPolicies(NamedTuple):
    """The delivery policies of a subscription as texts, and its topic."""

    delivery_policy: str | None
    redrive_policy: str | None
    topic_delivery_policy: str | None
    topic_name: str
    """The name in the subscription's ARN: for a pattern not the name published to."""
    gets_events: bool
    """The subscription was created for events."""
    is_paused: bool
    """The subscription or its topic is paused: its deliveries wait."""


Source = tuple[str, str, str]
"""Account, region and name of the source topic, or the routing key."""


class ClaimedDelivery(NamedTuple):
    """One delivery, leased to this process."""

    delivery_id: int
    attempt_count: int
    """Includes this attempt."""
    lost_count: int
    """Attempts that ended without an outcome."""
    subscription_id: UUID
    kind: str
    is_raw: bool
    message_id: UUID
    account_id: str
    region: str
    topic_name: str
    endpoint: str
    body: str
    was_lost: bool
    """The previous lease has just expired."""

    @property
    def source(self) -> Source:
        """Return the source topic or routing key."""
        return self.account_id, self.region, self.topic_name


Lease = tuple[int, int]
"""(delivery_id, attempt_count)."""


class DeliveryFailure(NamedTuple):
    """A failed attempt; the last one if it has no delay."""

    delivery_id: int
    attempt_count: int
    delay_seconds: float | None
    status: int | None
    error: str


async def insert(tx: Transaction, now: datetime | None, rows: list[NewDelivery]) -> None:
    """Write requests due at once; after the commit call ``wakeups.deliveries_written``."""
    if rows:
        *columns, attributes = (list(column) for column in zip(*rows, strict=True))
        await _SQL["insert"].run(tx, now, *columns, attributes if any(attributes) else None)


async def find_heads(
    tx: Transaction,
    now: datetime | None,
    after: UUID,
    *,
    most: int,
    whose: AccountFilter = ALL_ACCOUNTS,
) -> list[DeliveryHead]:
    """Return the next subscriptions behind ``after`` with pending deliveries, by id. A result
    shorter than ``most`` is the last. The caller has called ``database.probe_by_key``, as for every
    function below."""
    return await _SQL["find_heads"].all(tx, DeliveryHead._make, now, after, most, *whose)


async def find_policies(
    tx: Transaction, subscription_ids: Collection[UUID]
) -> dict[UUID, DeliveryPolicies]:
    """Return the policies by subscription; deleted ones are missing."""
    rows = await _SQL["find_policies"].rows(tx, list(subscription_ids))
    return {row[0]: DeliveryPolicies(*row[1:]) for row in rows}


async def hold_throttles(
    tx: Transaction, now: datetime | None, subscription_ids: Collection[UUID]
) -> dict[UUID, float]:
    """Lock the subscriptions and return the seconds until each may start its next delivery.
    Negative values are in the past. Subscriptions locked by another worker are missing."""
    rows = await _SQL["hold_throttles"].rows(tx, now, list(subscription_ids))
    return {row["subscription_id"]: row["free_in"] for row in rows}


async def set_throttles(
    tx: Transaction, now: datetime | None, free_in: Mapping[UUID, float]
) -> None:
    """Set the seconds until the next delivery of each may start."""
    if free_in:
        await _SQL["set_throttles"].run(tx, now, list(free_in), list(free_in.values()))


async def claim(
    tx: Transaction,
    now: datetime | None,
    limits: Mapping[UUID, int],
    *,
    held_ids: Collection[int],
    lease_seconds: float,
) -> list[ClaimedDelivery]:
    """Lease due deliveries up to the limit of each subscription, except ``held_ids``."""
    return await _SQL["claim"].all(
        tx,
        ClaimedDelivery._make,
        now,
        list(limits),
        list(limits.values()),
        list(held_ids),
        lease_seconds,
    )


async def remove(tx: Transaction, leases: Sequence[Lease]) -> None:
    """Delete deliveries that were delivered, moved or orphaned."""
    if leases:
        await _SQL["remove"].run(tx, *zip(*leases, strict=True))


async def record_failures(
    tx: Transaction, now: datetime | None, failures: Sequence[DeliveryFailure]
) -> None:
    """End these leases: due again after the delay, or exhausted."""
    if failures:
        await _SQL["record_failures"].run(tx, now, *zip(*failures, strict=True))


async def release(tx: Transaction, now: datetime | None, leases: Sequence[Lease]) -> None:
    """Release leases of aborted attempts: due at once, and counted as lost."""
    if leases:
        await _SQL["give_back"].run(tx, now, *zip(*leases, strict=True))


async def lock_leases(tx: Transaction, leases: Sequence[Lease]) -> dict[int, str | None]:
    """Lock the leases still held; return id -> message attributes, as in ``NewDelivery``."""
    rows = await _SQL["hold"].rows(tx, *zip(*leases, strict=True))
    return {row["delivery_id"]: row["attributes"] for row in rows}


_MOST_COUNTED = 10_000
_MOST_SUBSCRIPTIONS = 1_000

TopicName = tuple[str, str, str]
"""(account_id, region, name)."""
_ANY_TOPIC = (None, None, None)


class DeliveryGauges(NamedTuple):
    """The state of all deliveries; counts above 10,000 are estimates."""

    pending: int
    exhausted: int
    oldest_pending_seconds: float


class StoredDelivery(NamedTuple):
    """One delivery, as it is stored; ``body`` is None in lists."""

    delivery_id: int
    subscription_id: UUID
    kind: str
    state: str
    is_leased: bool
    is_raw: bool
    due_at: datetime
    created_at: datetime
    attempted_at: datetime | None
    attempt_count: int
    lost_count: int
    last_status: int | None
    last_error: str | None
    message_id: UUID
    account_id: str
    region: str
    topic_name: str
    endpoint: str
    body: str | None


class EndpointSummary(NamedTuple):
    """All deliveries to one endpoint."""

    endpoint: str
    pending: int
    oldest_pending_seconds: float
    exhausted: int
    lost: int
    last_error: str | None


class DeliveryFilter(NamedTuple):
    """A filter of deliveries; None leaves a condition out."""

    state: str | None = None
    only_stuck: bool = False
    """Pending, and failed or lost before, or a minute late."""
    topic: TopicName | None = None
    endpoint: str | None = None


async def gauges(tx: Transaction, now: datetime | None) -> DeliveryGauges:
    """Return the state of all deliveries; bounded work at any backlog."""
    return await _SQL["gauge"].by_key.only(
        tx, DeliveryGauges._make, now, _MOST_COUNTED, _MOST_SUBSCRIPTIONS
    )


async def list_some(
    tx: Transaction, now: datetime | None, wanted: DeliveryFilter, *, limit: int
) -> list[StoredDelivery]:
    """Return the oldest deliveries that match the filter."""
    topic = wanted.topic or _ANY_TOPIC
    return await _SQL["list_some"].all(
        tx,
        StoredDelivery._make,
        now,
        wanted.state,
        wanted.only_stuck,
        *topic,
        wanted.endpoint,
        limit,
    )


class DeliveryPlace(NamedTuple):
    """A place in the list of deliveries of a topic: the last pending and exhausted ones before."""

    due_at: datetime
    pending_id: int
    exhausted_id: int


FIRST_DELIVERY: Final = DeliveryPlace(datetime(1970, 1, 1, tzinfo=UTC), 0, 0)


async def list_of_topic(
    tx: Transaction,
    topic: Topic,
    subscription_ids: Sequence[str],
    after: DeliveryPlace,
    *,
    limit: int,
) -> tuple[list[StoredDelivery], DeliveryPlace | None]:
    """Return deliveries of the topic behind a place, pending ones by due time first, at most
    ``limit`` of each state, and the place to continue behind; None: that was all.
    ``subscription_ids`` are web hooks of patterns that match its name."""
    place = topic.account_id, topic.region, topic.name
    found = await _SQL["list_of_topic"].by_key.all(
        tx, StoredDelivery._make, topic.topic_id, subscription_ids, *place, limit, *after
    )
    exhausted = [one for one in found if one.state == "exhausted"]
    pending = found[: len(found) - len(exhausted)]
    following = after
    if pending:
        following = following._replace(
            due_at=pending[-1].due_at, pending_id=pending[-1].delivery_id
        )
    if exhausted:
        last = max(one.delivery_id for one in exhausted)
        following = following._replace(exhausted_id=last)
    kept = [one for one in found if one.topic_name == topic.name]
    has_more = limit in (len(pending), len(exhausted))
    return kept, following if has_more else None


async def find_delivery(tx: Transaction, delivery_id: int) -> StoredDelivery | None:
    """Return one delivery with its body."""
    return await _SQL["find"].first(tx, StoredDelivery._make, delivery_id)


async def summarise(
    tx: Transaction, now: datetime | None, topic: TopicName | None, *, limit: int
) -> list[EndpointSummary]:
    """Return summaries by endpoint, those with the most deliveries first."""
    return await _SQL["summarise"].all(
        tx, EndpointSummary._make, now, *(topic or _ANY_TOPIC), limit
    )


async def redrive(
    tx: Transaction,
    now: datetime | None,
    ids: Sequence[int] | None,
    *,
    after: int,
    topic: TopicName | None,
    limit: int,
) -> list[int]:
    """Make the next exhausted deliveries behind ``after`` due again with no attempts counted, and
    notify the workers. Returns the ids; fewer than ``limit`` are the last."""
    rows = await _SQL["redrive"].rows(
        tx,
        now,
        None if ids is None else list(ids),
        after,
        *(topic or _ANY_TOPIC),
        limit,
    )
    if rows:
        await notify(tx, Notice.DELIVERIES_WRITTEN)
    return sorted(row["delivery_id"] for row in rows)


async def delete_some(
    tx: Transaction, ids: Sequence[int] | None, *, after: int, topic: TopicName | None, limit: int
) -> list[int]:
    """Delete the next exhausted deliveries behind ``after``, or these ids in any state. Returns the
    ids found; fewer than ``limit`` are the last."""
    rows = await _SQL["delete_some"].rows(
        tx,
        None if ids is None else list(ids),
        after,
        *(topic or _ANY_TOPIC),
        limit,
    )
    return sorted(row["delivery_id"] for row in rows)
