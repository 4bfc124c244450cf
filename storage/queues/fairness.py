"""Statements about message groups of standard queues and their backlogs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.planning import probe_by_key
from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

_SQL = load("queues/fairness")
_MOST_IN_FLIGHT = 10_000
"""Messages that a sample of a queue counts."""
_MOST_SHOWN = 20_000
"""Messages of a queue that its metrics count."""


class GroupSample(NamedTuple):
    """One message group of a queue at an instant; ``group`` None: all messages without one."""

    queue_id: int
    group: str | None
    in_flight: int
    sent_at: datetime | None
    now: datetime


class QuietDepth(NamedTuple):
    """Messages of a queue that are in no noisy group."""

    queue_id: int
    visible: int
    in_flight: int
    delayed: int
    oldest_seconds: float


class NotedQueue(NamedTuple):
    """A queue that had messages with groups."""

    queue_id: int
    account_id: str
    region: str
    name: str


async def sample(tx: Transaction, now: datetime | None, queue_ids: list[int]) -> list[GroupSample]:
    """Return the groups of these queues with their messages in flight, 10,000 a queue at most."""
    await probe_by_key(tx)
    rows = await tx.fetch(_SQL["sample"].text, now, queue_ids, _MOST_IN_FLIGHT)
    return [GroupSample(*row) for row in rows]


async def backlogs(
    tx: Transaction, now: datetime | None, groups: Sequence[tuple[int, str, datetime, datetime]]
) -> list[bool]:
    """Return for each (queue, group, received_from, fresh_from) whether a message may be
    visible."""
    if not groups:
        return []
    await probe_by_key(tx)
    rows = await tx.fetch(_SQL["backlogs"].text, now, *map(list, zip(*groups, strict=True)))
    return [row[0] for row in rows]


async def note(tx: Transaction, queue_ids: list[int]) -> None:
    """Note that these queues have messages with groups."""
    await tx.execute(_SQL["note"].text, queue_ids)


async def noted(tx: Transaction, most: int) -> list[NotedQueue]:
    """Return the ``most`` oldest live queues that had messages with groups."""
    return [NotedQueue(*row) for row in await tx.fetch(_SQL["noted"].text, most)]


async def quiet_depths(
    tx: Transaction, now: datetime | None, queue_ids: list[int], noisy: Sequence[tuple[int, str]]
) -> dict[int, QuietDepth]:
    """Count the messages of these queues in groups that are not ``noisy``, 20,000 of a queue."""
    await probe_by_key(tx)
    ids, groups = [one for one, _ in noisy], [group for _, group in noisy]
    rows = await tx.fetch(_SQL["quiet_depths"].text, now, queue_ids, ids, groups, _MOST_SHOWN)
    return {row[0]: QuietDepth(*row) for row in rows}
