"""What /metrics asks about many queues and topics at once: how full they are, which are left."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.planning import probe_by_key
from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

_SQL = load("queues/depths")

TopicName = tuple[str, str, str]
"""Account, region and name."""


class Depth(NamedTuple):
    """``hidden`` counts what is in flight and what is delayed, up to 120,000 a queue."""

    account_id: str
    region: str
    name: str
    visible: int
    hidden: int
    most_messages: int | None
    """How many it may hold; None: any number, and nothing waits."""
    waiting: int | None
    """How many copies and dead letters wait for room in it, up to 120,000."""


async def depths(tx: Transaction, now: datetime | None, most: int) -> list[Depth]:
    """The depths of the ``most`` oldest live queues; bounded work at any depth."""
    return [Depth(*row) for row in await tx.fetch(_SQL["depths"].text, now, most)]


class TitledDepth(NamedTuple):
    """``oldest_seconds``: the age of the oldest message, 0 without one."""

    account_id: str
    region: str
    name: str
    total: int
    in_flight: int
    oldest_seconds: float


async def titled_depths(tx: Transaction, now: datetime | None, most: int) -> list[TitledDepth]:
    """The depths of the ``most`` oldest live queues with titles, and of the dead-letter queues made
    for such; bounded work at any depth."""
    await probe_by_key(tx)
    return [TitledDepth(*row) for row in await tx.fetch(_SQL["titled_depths"].text, now, most)]


class PriorityAge(NamedTuple):
    """How long the oldest message of a priority waits to be received."""

    account_id: str
    region: str
    name: str
    priority: int
    age_seconds: float


async def oldest_by_priority(tx: Transaction, now: datetime | None, most: int) -> list[PriorityAge]:
    """Of the ``most`` oldest live queues with priorities; bounded work at any depth."""
    await probe_by_key(tx)
    rows = await tx.fetch(_SQL["oldest_by_priority"].text, now, most)
    return [PriorityAge(*row) for row in rows]


async def paused(tx: Transaction, most: int) -> list[tuple[str, ...]]:
    """Kind, account, region and name of what is paused, up to ``most`` of each kind."""
    await probe_by_key(tx)
    return [tuple(row) for row in await tx.fetch(_SQL["paused"].text, most)]


async def live(tx: Transaction, queue_ids: list[int]) -> set[int]:
    """Those of these queues that are not deleted."""
    return {row[0] for row in await tx.fetch(_SQL["live"].text, queue_ids)}


async def live_topics(tx: Transaction, names: list[TopicName]) -> set[TopicName]:
    """Those of these topics that are not deleted."""
    if not names:
        return set()
    return {
        tuple(row)
        for row in await tx.fetch(_SQL["live_topics"].text, *map(list, zip(*names, strict=True)))
    }
