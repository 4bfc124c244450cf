"""Subscribers of groups: liveness, and assigned partitions."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.log_model import LogPartition, LogSubscriber
from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

_SQL = load("logs/subscribers")
_BEAT = _SQL["beat"].text
_JOIN = _SQL["join_group"].text
_BALANCE = _SQL["balance"].text
_LEAVE = _SQL["leave"].text
_HELD = _SQL["held"].text
_LIST = _SQL["list_subscribers"].text


class SubscriberHeartbeat(NamedTuple):
    """The result of a heartbeat."""

    live_until: datetime
    share: int
    """The maximum of partitions that the subscriber should hold."""
    is_settled: bool
    """No rebalancing is needed."""
    live_subscribers: int
    """Subscribers not yet found dead."""


class Balanced(NamedTuple):
    """The result of a rebalancing."""

    share: int
    taken: int
    released: int
    removed: int
    """Removed dead subscribers."""


async def renew(
    tx: Transaction,
    now: datetime | None,
    group_id: int,
    name: str,
    session: int,
    *,
    lease_seconds: float,
) -> SubscriberHeartbeat | None:
    """Renew the lease of a subscriber; None: it is not in the group, or has another session."""
    row = await tx.fetchrow(_BEAT, now, group_id, name, session, lease_seconds)
    return None if row is None else SubscriberHeartbeat(*row)


async def join(
    tx: Transaction,
    now: datetime | None,
    group_id: int,
    name: str,
    session: int | None,
    *,
    lease_seconds: float,
) -> int | None:
    """Start a session, which ends earlier ones. None: ``session`` was given, and this subscriber is
    live with a later one; 0: the group is deleted."""
    joined: int | None = await tx.fetchval(_JOIN, now, group_id, name, session, lease_seconds)
    return joined


async def balance(
    tx: Transaction, now: datetime | None, group_id: int, name: str, session: int
) -> Balanced | None:
    """Assign a subscriber its share, and remove dead subscribers; None: it is not in the group."""
    row = await tx.fetchrow(_BALANCE, now, group_id, name, session)
    assert row is not None
    return None if row[0] is None else Balanced(*row)


async def leave(tx: Transaction, group_id: int, name: str, session: int) -> bool:
    """Free the partitions of a subscriber; return False if it was not in the group or had another
    session."""
    left: bool = await tx.fetchval(_LEAVE, group_id, name, session)
    return left


async def held_partitions(tx: Transaction, group_id: int, name: str) -> list[LogPartition]:
    """Return the partitions of a subscriber, by number."""
    return [LogPartition(*row) for row in await tx.fetch(_HELD, group_id, name)]


async def list_subscribers(
    tx: Transaction, now: datetime | None, group_id: int
) -> list[LogSubscriber]:
    """Return the live subscribers, by name."""
    return [LogSubscriber(*row) for row in await tx.fetch(_LIST, now, group_id)]
