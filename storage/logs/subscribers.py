"""Subscribers of groups: who is live, and who holds which partitions."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.log_model import Partition, Subscriber
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


class Beat(NamedTuple):
    """What a heartbeat finds."""

    live_until: datetime
    share: int
    """How many partitions it should hold at most."""
    is_settled: bool
    """Whether there is nothing to choose anew."""
    live_subscribers: int
    """Those that nobody has found dead."""


class Balanced(NamedTuple):
    """What became of a subscriber's partitions."""

    share: int
    taken: int
    released: int
    removed: int
    """Other subscribers, who are dead."""


async def beat(
    tx: Transaction,
    now: datetime | None,
    group_id: int,
    name: str,
    session: int,
    *,
    lease_seconds: float,
) -> Beat | None:
    """Renew all that a subscriber holds. None: it is not in the group, or with another session."""
    row = await tx.fetchrow(_BEAT, now, group_id, name, session, lease_seconds)
    return None if row is None else Beat(*row)


async def join(
    tx: Transaction,
    now: datetime | None,
    group_id: int,
    name: str,
    session: int | None,
    *,
    lease_seconds: float,
) -> int | None:
    """A new session, which ends those before. None: ``session`` was given, and this subscriber is
    live with a later one; 0: the group is gone."""
    joined: int | None = await tx.fetchval(_JOIN, now, group_id, name, session, lease_seconds)
    return joined


async def balance(
    tx: Transaction, now: datetime | None, group_id: int, name: str, session: int
) -> Balanced | None:
    """Let a subscriber hold its share, and remove who is dead. None: it is not in the group."""
    row = await tx.fetchrow(_BALANCE, now, group_id, name, session)
    assert row is not None
    return None if row[0] is None else Balanced(*row)


async def leave(tx: Transaction, group_id: int, name: str, session: int) -> bool:
    """Free what a subscriber holds. False: it was not in the group, or with another session."""
    left: bool = await tx.fetchval(_LEAVE, group_id, name, session)
    return left


async def held(tx: Transaction, group_id: int, name: str) -> list[Partition]:
    """What a subscriber holds, by number."""
    return [Partition(*row) for row in await tx.fetch(_HELD, group_id, name)]


async def list_live(tx: Transaction, now: datetime | None, group_id: int) -> list[Subscriber]:
    """Those who are live, by name."""
    return [Subscriber(*row) for row in await tx.fetch(_LIST, now, group_id)]
