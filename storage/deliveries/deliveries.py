"""Pending requests to web hooks: due deliveries, leases and outcomes.

A lease is one attempt: (delivery_id, attempt_count). Outcomes are recorded only for leases that the
caller still holds; an expired lease changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from queuegate.storage.clocks.whose import ALL_ACCOUNTS, AccountFilter
from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction
    from queuegate.storage.model import NewDelivery

_SQL = load("deliveries/deliveries")


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
        await tx.execute(
            _SQL["insert"].text, now, *columns, attributes if any(attributes) else None
        )


async def find_heads(
    tx: Transaction,
    now: datetime | None,
    after: UUID,
    *,
    most: int,
    whose: AccountFilter = ALL_ACCOUNTS,
) -> list[DeliveryHead]:
    """Return the next subscriptions behind ``after`` with pending deliveries, by id. A result
    shorter than ``most`` is the last. The caller has called ``planning.probe_by_key``, as for every
    function below."""
    return [
        DeliveryHead(*row)
        for row in await tx.fetch(_SQL["find_heads"].text, now, after, most, *whose)
    ]


async def find_policies(
    tx: Transaction, subscription_ids: Collection[UUID]
) -> dict[UUID, DeliveryPolicies]:
    """Return the policies by subscription; deleted ones are missing."""
    rows = await tx.fetch(_SQL["find_policies"].text, list(subscription_ids))
    return {
        row["subscription_id"]: DeliveryPolicies(
            row["own_policy"],
            row["redrive_policy"],
            row["topic_policy"],
            row["topic_name"],
            row["is_native"],
            row["is_paused"],
        )
        for row in rows
    }


async def hold_throttles(
    tx: Transaction, now: datetime | None, subscription_ids: Collection[UUID]
) -> dict[UUID, float]:
    """Lock the subscriptions and return the seconds until each may start its next delivery.
    Negative values are in the past. Subscriptions locked by another worker are missing."""
    rows = await tx.fetch(_SQL["hold_throttles"].text, now, list(subscription_ids))
    return {row["subscription_id"]: row["free_in"] for row in rows}


async def set_throttles(
    tx: Transaction, now: datetime | None, free_in: Mapping[UUID, float]
) -> None:
    """Set the seconds until the next delivery of each may start."""
    if free_in:
        await tx.execute(_SQL["set_throttles"].text, now, list(free_in), list(free_in.values()))


async def claim(
    tx: Transaction,
    now: datetime | None,
    limits: Mapping[UUID, int],
    *,
    held_ids: Collection[int],
    lease_seconds: float,
) -> list[ClaimedDelivery]:
    """Lease due deliveries up to the limit of each subscription, except ``held_ids``."""
    rows = await tx.fetch(
        _SQL["claim"].text, now, list(limits), list(limits.values()), list(held_ids), lease_seconds
    )
    return [ClaimedDelivery(*row) for row in rows]


async def remove(tx: Transaction, leases: Sequence[Lease]) -> None:
    """Delete deliveries that were delivered, moved or orphaned."""
    if leases:
        await tx.execute(_SQL["remove"].text, *_columns(leases))


async def record_failures(
    tx: Transaction, now: datetime | None, failures: Sequence[DeliveryFailure]
) -> None:
    """End these leases: due again after the delay, or exhausted."""
    if failures:
        columns = [list(column) for column in zip(*failures, strict=True)]
        await tx.execute(_SQL["record_failures"].text, now, *columns)


async def release(tx: Transaction, now: datetime | None, leases: Sequence[Lease]) -> None:
    """Release leases of aborted attempts: due at once, and counted as lost."""
    if leases:
        await tx.execute(_SQL["give_back"].text, now, *_columns(leases))


async def postpone(tx: Transaction, leases: Sequence[Lease]) -> dict[int, str | None]:
    """Lock the leases still held until the transaction ends: id -> message attributes, as in
    ``NewDelivery``."""
    rows = await tx.fetch(_SQL["hold"].text, *_columns(leases))
    return {row["delivery_id"]: row["attributes"] for row in rows}


def _columns(leases: Sequence[Lease]) -> tuple[list[int], list[int]]:
    return [lease[0] for lease in leases], [lease[1] for lease in leases]
