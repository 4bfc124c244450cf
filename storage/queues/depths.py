"""Depths of queues and topics for /metrics, and the ages of messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.queries import load
from queuegate.storage.queue_model import Ages

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction


_SQL = load("queues/depths")

_HIDDEN_COUNTED = 120_000
"""Messages in flight of a queue that an overview counts, and delayed ones."""

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
    return await _SQL["depths"].all(tx, Depth._make, now, most)


class LiveFigures(NamedTuple):
    """The figures of a row of an overview. ``in_flight`` and ``delayed`` are counted up to a limit;
    the total of a queue is exact."""

    kind: str
    id: int
    account_id: str
    region: str
    name: str
    created_at: datetime
    is_paused: bool
    total: int | None
    """Messages of a queue, deliveries of a topic, or records ahead of the slowest group of a log;
    None: the log has no group."""
    arrived: int | None
    """Messages that were ever sent to the queue or log; None: a topic."""
    in_flight: int
    delayed: int
    oldest_at: datetime | None
    dead: int | None
    """Messages in the dead-letter queue or logs, from all its sources; None: there is none."""
    readers: int | None
    """Subscriptions of a topic, or live subscribers of a log; None: a queue."""
    now: datetime


Place = tuple[str, ...]
"""Account, region, and name of a row."""


async def overview(
    tx: Transaction,
    now: datetime | None,
    kinds: Sequence[str],
    span: tuple[Place, Place],
    find: str,
    *,
    limit: int,
) -> list[LiveFigures]:
    """Return the figures of at most ``limit`` queues, channels, topics and logs. ``span``: the
    place of the first one, and the last account and region. ``find``: a text in lower case that
    names contain."""
    first, last = span
    query = _SQL["overview"].by_key
    most = _HIDDEN_COUNTED
    return await query.all(tx, LiveFigures._make, now, kinds, *first, *last, find, limit, most)


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
    return await _SQL["titled_depths"].by_key.all(tx, TitledDepth._make, now, most)


class PriorityAge(NamedTuple):
    """The age of the oldest receivable message of a priority."""

    account_id: str
    region: str
    name: str
    priority: int
    age_seconds: float


async def oldest_by_priority(tx: Transaction, now: datetime | None, most: int) -> list[PriorityAge]:
    """Return the ages in the ``most`` oldest live queues with priorities, in bounded work."""
    return await _SQL["oldest_by_priority"].by_key.all(tx, PriorityAge._make, now, most)


async def oldest_ages(
    tx: Transaction, now: datetime | None, most: int, marks: Mapping[int, datetime]
) -> list[tuple[str, str, str, float]]:
    """Return account, region, name and age in seconds of the oldest visible message, for the
    ``most`` queues where it is oldest. A few probes of each queue that holds messages. ``marks``:
    instants left of which queues have nothing visible."""
    return await _SQL["oldest_ages"].by_key.all(
        tx, tuple, now, most, list(marks), list(marks.values())
    )


async def paused(tx: Transaction, most: int) -> list[tuple[str, ...]]:
    """Return kind, account, region and name of paused resources, at most ``most`` of each kind."""
    return await _SQL["paused"].by_key.all(tx, tuple, most)


async def live(tx: Transaction, queue_ids: list[int]) -> set[int]:
    """Return the queues that are not deleted."""
    return {row[0] for row in await _SQL["live"].rows(tx, queue_ids)}


async def live_topics(tx: Transaction, names: list[TopicName]) -> set[TopicName]:
    """Return the topics that are not deleted."""
    if not names:
        return set()
    return {
        tuple(row)
        for row in await _SQL["live_topics"].rows(tx, *map(list, zip(*names, strict=True)))
    }


_GROUPS_LOOKED_AT = 1_000


async def standard_ages(tx: Transaction, now: datetime | None, queue_id: int) -> Ages:
    """Return the ages of a standard queue, in time independent of its depth."""
    return await _SQL["standard"].by_key.only(tx, Ages._make, now, queue_id)


async def fifo_ages(tx: Transaction, now: datetime | None, queue_id: int) -> Ages:
    """Return the ages of a FIFO queue, from the 1,000 groups that have been ready the longest."""
    return await _SQL["fifo"].by_key.only(tx, Ages._make, now, queue_id, _GROUPS_LOOKED_AT)


class PriorityDepth(NamedTuple):
    """One priority of a queue."""

    priority: int
    visible: int
    """Receivable messages, counted up to a limit, separately for received and fresh ones."""
    oldest_at: datetime | None
    """The send time of the next message."""
    now: datetime


async def priority_depths(
    tx: Transaction, now: datetime | None, queue_id: int, *, most: int
) -> list[PriorityDepth]:
    """Return the depths of a queue, most urgent first, in time independent of its depth."""
    return await _SQL["priority_depths"].by_key.all(tx, PriorityDepth._make, now, queue_id, most)
