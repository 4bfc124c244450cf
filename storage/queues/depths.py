"""Depths of queues and topics for /metrics, and the ages of messages."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.database import probe_by_key
from queuegate.storage.queries import load
from queuegate.storage.queue_model import Ages

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction


_SQL = load("queues/depths")

TopicName = tuple[str, str, str]
"""Account, region and name."""


class Depth(NamedTuple):
    """The depth of a queue. ``hidden`` counts messages in flight and delayed, at most 120,000."""

    account_id: str
    region: str
    name: str
    visible: int
    hidden: int
    most_messages: int | None
    """The queue's capacity; None: unbounded, and nothing waits."""
    waiting: int | None
    """Copies and dead letters that wait for capacity, at most 120,000."""


async def depths(tx: Transaction, now: datetime | None, most: int) -> list[Depth]:
    """Return the depths of the ``most`` oldest live queues; bounded work at any depth."""
    return [Depth(*row) for row in await tx.fetch(_SQL["depths"].text, now, most)]


class TitledDepth(NamedTuple):
    """The depth of a titled queue. ``oldest_seconds``: age of the oldest message, 0 without one."""

    account_id: str
    region: str
    name: str
    total: int
    in_flight: int
    oldest_seconds: float


async def titled_depths(tx: Transaction, now: datetime | None, most: int) -> list[TitledDepth]:
    """Return the depths of the ``most`` oldest live queues with titles and of their dead-letter
    queues; bounded work at any depth."""
    await probe_by_key(tx)
    return [TitledDepth(*row) for row in await tx.fetch(_SQL["titled_depths"].text, now, most)]


class PriorityAge(NamedTuple):
    """The age of the oldest receivable message of a priority."""

    account_id: str
    region: str
    name: str
    priority: int
    age_seconds: float


async def oldest_by_priority(tx: Transaction, now: datetime | None, most: int) -> list[PriorityAge]:
    """Return the ages in the ``most`` oldest live queues with priorities, in bounded work."""
    await probe_by_key(tx)
    rows = await tx.fetch(_SQL["oldest_by_priority"].text, now, most)
    return [PriorityAge(*row) for row in rows]


async def paused(tx: Transaction, most: int) -> list[tuple[str, ...]]:
    """Return kind, account, region and name of paused resources, at most ``most`` of each kind."""
    await probe_by_key(tx)
    return [tuple(row) for row in await tx.fetch(_SQL["paused"].text, most)]


async def live(tx: Transaction, queue_ids: list[int]) -> set[int]:
    """Return the queues that are not deleted."""
    return {row[0] for row in await tx.fetch(_SQL["live"].text, queue_ids)}


async def live_topics(tx: Transaction, names: list[TopicName]) -> set[TopicName]:
    """Return the topics that are not deleted."""
    if not names:
        return set()
    return {
        tuple(row)
        for row in await tx.fetch(_SQL["live_topics"].text, *map(list, zip(*names, strict=True)))
    }


_GROUPS_LOOKED_AT = 1_000


async def standard_ages(tx: Transaction, now: datetime | None, queue_id: int) -> Ages:
    """Return the ages of a standard queue, in time independent of its depth."""
    await probe_by_key(tx)
    [row] = await tx.fetch(_SQL["standard"].text, now, queue_id)
    return Ages(*row)


async def fifo_ages(tx: Transaction, now: datetime | None, queue_id: int) -> Ages:
    """Return the ages of a FIFO queue, from the 1,000 groups that have been ready the longest."""
    await probe_by_key(tx)
    [row] = await tx.fetch(_SQL["fifo"].text, now, queue_id, _GROUPS_LOOKED_AT)
    return Ages(*row)
