"""Background work that exists: an idle probe, and accounts with clocks of their own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args
from uuid import UUID

from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction


_SQL = load("pending_work")

PendingWork = Literal[
    "waiting messages",
    "expiring messages",
    "move tasks",
    "replays",
    "own dead letters",
    "schedule groups",
    "schedules",
    "deliveries",
    "logs",
]
EVERY_PENDING_WORK: frozenset[PendingWork] = frozenset(get_args(PendingWork))


async def find_pending(tx: Transaction) -> frozenset[PendingWork]:
    """Return the kinds of which any work exists, due or not."""
    return frozenset(await _SQL["find"].value(tx))


AccountWork = Literal["queues", "topics", "move_tasks", "replays", "outbox", "logs"]
"""Names of statements: each finds accounts with such rows."""


async def find_accounts(
    tx: Transaction, holding: AccountWork, account_ids: Collection[str]
) -> list[str]:
    """Return the accounts that have something of that kind."""
    rows = await _SQL[holding].rows(tx, list(account_ids))
    return [row["account_id"] for row in rows]


class NextSchedule(NamedTuple):
    """The schedules of an account: whether one is due, and the seconds until the next one."""

    account_id: str
    is_due: bool
    next_in: float | None


async def next_schedules(tx: Transaction, presents: Mapping[str, datetime]) -> list[NextSchedule]:
    """Return the next schedules of the accounts with active ones."""
    return await _SQL["next_schedules"].all(
        tx, NextSchedule._make, list(presents), list(presents.values())
    )


class NextDelivery(NamedTuple):
    """The seconds until the first delivery of a subscription is due."""

    account_id: str
    subscription_id: UUID
    due_in: float


async def next_deliveries(
    tx: Transaction, presents: Mapping[str, datetime], *, most: int
) -> list[NextDelivery]:
    """Return the next deliveries of these accounts, the most overdue first."""
    return await _SQL["next_deliveries"].all(
        tx, NextDelivery._make, list(presents), list(presents.values()), most
    )
