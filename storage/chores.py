"""Kinds of background work that exist, probed in one query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

_FIND = load("chores")["find"].text

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
    return frozenset(await tx.fetchval(_FIND))
