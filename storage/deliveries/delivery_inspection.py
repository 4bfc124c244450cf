"""Deliveries to web hooks for operators, and operations on exhausted ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from queuegate.storage.notifications import notify_deliveries_written
from queuegate.storage.planning import probe_by_key
from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

_SQL = load("deliveries/delivery_inspection")

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
    await probe_by_key(tx)
    row = await tx.fetchrow(_SQL["gauge"].text, now, _MOST_COUNTED, _MOST_SUBSCRIPTIONS)
    assert row is not None
    return DeliveryGauges(*row)


async def list_some(
    tx: Transaction, now: datetime | None, wanted: DeliveryFilter, *, limit: int
) -> list[StoredDelivery]:
    """Return the oldest deliveries that match the filter."""
    topic = wanted.topic or _ANY_TOPIC
    rows = await tx.fetch(
        _SQL["list_some"].text, now, wanted.state, wanted.only_stuck, *topic, wanted.endpoint, limit
    )
    return [StoredDelivery(*row) for row in rows]


async def find_delivery(tx: Transaction, delivery_id: int) -> StoredDelivery | None:
    """Return one delivery with its body."""
    row = await tx.fetchrow(_SQL["find"].text, delivery_id)
    return None if row is None else StoredDelivery(*row)


async def summarise(
    tx: Transaction, now: datetime | None, topic: TopicName | None, *, limit: int
) -> list[EndpointSummary]:
    """Return summaries by endpoint, those with the most deliveries first."""
    rows = await tx.fetch(_SQL["summarise"].text, now, *(topic or _ANY_TOPIC), limit)
    return [EndpointSummary(*row) for row in rows]


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
    rows = await tx.fetch(
        _SQL["redrive"].text,
        now,
        None if ids is None else list(ids),
        after,
        *(topic or _ANY_TOPIC),
        limit,
    )
    if rows:
        await notify_deliveries_written(tx)
    return sorted(row["delivery_id"] for row in rows)


async def delete_some(
    tx: Transaction,
    ids: Sequence[int] | None,
    *,
    after: int,
    topic: TopicName | None,
    limit: int,
) -> list[int]:
    """Delete the next exhausted deliveries behind ``after``, or these ids in any state. Returns the
    ids found; fewer than ``limit`` are the last."""
    rows = await tx.fetch(
        _SQL["delete_some"].text,
        None if ids is None else list(ids),
        after,
        *(topic or _ANY_TOPIC),
        limit,
    )
    return sorted(row["delivery_id"] for row in rows)
