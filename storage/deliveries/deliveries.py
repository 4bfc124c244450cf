"""Requests to web hooks that are still to be made: what is due, leases, and outcomes.

A lease is one attempt: (delivery_id, attempt_count). Outcomes are recorded only for leases that are
still the caller's; whoever was too late changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from queuegate.storage.clocks.whose import EVERYBODYS, Whose
from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction
    from queuegate.storage.model import NewDelivery

_SQL = load("deliveries/deliveries")


class Head(NamedTuple):
    """A subscription with pending deliveries, and in how many seconds the first is due; None: it
    belongs to somebody else than was asked for."""

    subscription_id: UUID
    due_in: float | None


class Policies(NamedTuple):
    """What is set for deliveries to a subscription, as texts, and where it belongs."""

    delivery_policy: str | None
    redrive_policy: str | None
    topic_delivery_policy: str | None
    topic_name: str
    """In the ARN of the subscription: of a pattern it is not the name that was published to."""
    gets_events: bool
    """The subscription was made to get events."""
    is_paused: bool
    """The subscription or its topic is paused: its deliveries wait."""


Source = tuple[str, str, str]
"""Account, region and name of the topic, or the routing key, that a delivery came from."""


class Claimed(NamedTuple):
    """One delivery, leased to this process."""

    delivery_id: int
    attempt_count: int
    """This attempt included."""
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
    """The lease before this one ran out just now."""

    @property
    def source(self) -> Source:
        """What it came from."""
        return self.account_id, self.region, self.topic_name


Lease = tuple[int, int]
"""(delivery_id, attempt_count)."""


class Failure(NamedTuple):
    """An attempt that failed; without a delay it was the last one."""

    delivery_id: int
    attempt_count: int
    delay_seconds: float | None
    status: int | None
    error: str


async def insert(tx: Transaction, now: datetime | None, rows: list[NewDelivery]) -> None:
    """Write requests that are due at once; after the commit tell ``wakeups.deliveries_written``."""
    if rows:
        *columns, attributes = (list(column) for column in zip(*rows, strict=True))
        await tx.execute(
            _SQL["insert"].text, now, *columns, attributes if any(attributes) else None
        )


async def find_heads(
    tx: Transaction, now: datetime | None, after: UUID, *, most: int, whose: Whose = EVERYBODYS
) -> list[Head]:
    """The next subscriptions behind ``after`` that have pending deliveries, in order of their ids;
    fewer than ``most``: there are no more. The caller has called ``planning.probe_by_key``, as for
    every function below."""
    return [Head(*row) for row in await tx.fetch(_SQL["find_heads"].text, now, after, most, *whose)]


async def find_policies(
    tx: Transaction, subscription_ids: Collection[UUID]
) -> dict[UUID, Policies]:
    """By subscription; one that is gone is missing."""
    rows = await tx.fetch(_SQL["find_policies"].text, list(subscription_ids))
    return {
        row["subscription_id"]: Policies(
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
    """In how many seconds the next delivery of each may begin; negative: since when. Held until the
    transaction ends; what another worker holds is missing."""
    rows = await tx.fetch(_SQL["hold_throttles"].text, now, list(subscription_ids))
    return {row["subscription_id"]: row["free_in"] for row in rows}


async def set_throttles(
    tx: Transaction, now: datetime | None, free_in: Mapping[UUID, float]
) -> None:
    """Let the next delivery of each begin in so many seconds."""
    if free_in:
        await tx.execute(_SQL["set_throttles"].text, now, list(free_in), list(free_in.values()))


async def claim(
    tx: Transaction,
    now: datetime | None,
    limits: Mapping[UUID, int],
    *,
    held_ids: Collection[int],
    lease_seconds: float,
) -> list[Claimed]:
    """Lease up to so many due deliveries of each subscription, passing over ``held_ids``."""
    rows = await tx.fetch(
        _SQL["claim"].text, now, list(limits), list(limits.values()), list(held_ids), lease_seconds
    )
    return [Claimed(*row) for row in rows]


async def remove(tx: Transaction, leases: Sequence[Lease]) -> None:
    """Delete what was delivered, moved, or is nobody's any more."""
    if leases:
        await tx.execute(_SQL["remove"].text, *_columns(leases))


async def record_failures(
    tx: Transaction, now: datetime | None, failures: Sequence[Failure]
) -> None:
    """End these leases: due again after the delay, or exhausted."""
    if failures:
        columns = [list(column) for column in zip(*failures, strict=True)]
        await tx.execute(_SQL["record_failures"].text, now, *columns)


async def give_back(tx: Transaction, now: datetime | None, leases: Sequence[Lease]) -> None:
    """End leases whose attempts were broken off: due at once, and counted as lost."""
    if leases:
        await tx.execute(_SQL["give_back"].text, now, *_columns(leases))


async def hold(tx: Transaction, leases: Sequence[Lease]) -> dict[int, str | None]:
    """Those that are still ours, held until the transaction ends: id -> message attributes, as
    ``NewDelivery`` has them."""
    rows = await tx.fetch(_SQL["hold"].text, *_columns(leases))
    return {row["delivery_id"]: row["attributes"] for row in rows}


def _columns(leases: Sequence[Lease]) -> tuple[list[int], list[int]]:
    return [lease[0] for lease in leases], [lease[1] for lease in leases]
