"""Groups of logs: their settings, positions, subscribers and leases."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from queuegate.storage.logs.positions import Position
from queuegate.storage.model import (
    ConsumerGroup,
    ConsumerGroupSettings,
    GroupProgress,
    LogPartition,
    LogSubscriber,
    PositionState,
)
from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction


_SQL = load("logs/log_groups")

LAST = (1 << 63) - 1
"""Behind any record."""
BEGINNING = datetime.min  # noqa: DTZ901 - asyncpg writes it as -infinity
"""Before any record."""


def group_of(row: Sequence[Any]) -> ConsumerGroup:
    """Return the group of a row with its columns."""
    group_id, log_id, name, created_at, settings = row
    return ConsumerGroup(
        group_id, log_id, name, created_at, ConsumerGroupSettings(**json.loads(settings))
    )


def _stored(settings: ConsumerGroupSettings) -> str:
    """Return the settings as JSON, without defaults."""
    defaults = ConsumerGroupSettings()._asdict()
    return json.dumps({k: v for k, v in settings._asdict().items() if v != defaults[k]})


async def find(tx: Transaction, log_id: int, name: str) -> ConsumerGroup | None:
    """Return the group of that name."""
    return await _SQL["find_group"].first(tx, group_of, log_id, name)


async def list_groups(tx: Transaction, log_id: int) -> list[ConsumerGroup]:
    """Return all groups of a log, by name."""
    return await _SQL["list_groups"].all(tx, group_of, log_id)


async def insert(
    tx: Transaction,
    now: datetime | None,
    log_id: int,
    name: str,
    settings: ConsumerGroupSettings,
    start_at: datetime | None,
) -> ConsumerGroup | None:
    """Create a group in a locked log, by default from now on; return None if the name exists."""
    return await _SQL["insert_group"].first(
        tx, group_of, now, log_id, name, start_at, _stored(settings)
    )


async def update(tx: Transaction, group_id: int, settings: ConsumerGroupSettings) -> bool:
    """Replace the settings of a group; return False if it is deleted."""
    return await _SQL["update_group"].value(tx, group_id, _stored(settings)) is not None


async def delete(tx: Transaction, group_id: int) -> bool:
    """Delete a group with its positions and subscribers; return False if it is deleted."""
    if await _SQL["lock_group"].value(tx, group_id) is None:
        return False
    await _SQL["delete_groups"].run(tx, [group_id])
    return True


async def delete_all(tx: Transaction, log_id: int) -> None:
    """Delete the groups of a locked log."""
    group_ids = [group_id for (group_id,) in await _SQL["lock_groups"].rows(tx, log_id)]
    if group_ids:
        await _SQL["delete_groups"].run(tx, group_ids)


async def lock(tx: Transaction, group_id: int) -> bool:
    """Lock the group and create its missing positions; return False if it is deleted."""
    if await _SQL["lock_group"].value(tx, group_id) is None:
        return False
    await _SQL["make_positions"].run(tx, group_id)
    return True


async def seek_all(tx: Transaction, group_id: int, offset: int) -> None:
    """Continue everywhere at this offset, or at the nearest retained one: 0, or ``LAST``. The
    caller locks the group, also below."""
    await _SQL["seek_all"].run(tx, group_id, offset)


async def seek_time(tx: Transaction, group_id: int, at: datetime) -> None:
    """Continue everywhere with the first record published at ``at`` or later."""
    rows = await _SQL["offsets_at"].rows(tx, group_id, at)
    await seek_offsets(tx, group_id, {row["partition_id"]: row["record_offset"] for row in rows})


async def seek_offsets(tx: Transaction, group_id: int, offsets: Mapping[int, int]) -> None:
    """Continue at these offsets, by partition, or at the nearest retained ones."""
    await _SQL["seek_offsets"].run(tx, group_id, [*offsets], [*offsets.values()])


async def find_held(
    tx: Transaction, now: datetime | None, group_id: int, partition_ids: Sequence[int]
) -> int | None:
    """Return the number of one of these partitions that a live subscriber holds."""
    return await _SQL["find_held"].value(tx, now, group_id, partition_ids)


async def progress(tx: Transaction, now: datetime | None, group_id: int) -> GroupProgress:
    """Return the progress of a group in its whole log."""
    [(lag, oldest_at, now_ms)] = await _SQL["progress"].rows(tx, now, group_id)
    in_flight = 0
    for watermark, head, spans, start_offset in await _SQL["spans"].rows(tx, group_id):
        position = Position(watermark, head, stored=spans)
        position.pass_over(start_offset)
        in_flight += position.in_flight(now_ms)
    return GroupProgress(lag, in_flight, oldest_at, now_ms)


async def position_states(
    tx: Transaction, now: datetime | None, group_id: int, *, after: int, limit: int
) -> list[PositionState]:
    """Return the positions of a group in the partitions behind that number."""
    states = []
    for row in await _SQL["position_states"].rows(tx, now, group_id, after, limit):
        number, key, watermark, end, head, spans, base, held_by, barrier_until, now_ms = row
        in_flight = 0
        if spans:
            position = Position(base, head, stored=spans)
            position.pass_over(watermark + 1)
            in_flight = position.in_flight(now_ms)
        states.append(PositionState(number, key, watermark, end, in_flight, held_by, barrier_until))
    return states


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
    return await _SQL["beat"].first(
        tx, SubscriberHeartbeat._make, now, group_id, name, session, lease_seconds
    )


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
    return await _SQL["join_group"].value(tx, now, group_id, name, session, lease_seconds)


async def balance(
    tx: Transaction, now: datetime | None, group_id: int, name: str, session: int
) -> Balanced | None:
    """Assign a subscriber its share, and remove dead subscribers; None: it is not in the group."""
    [row] = await _SQL["balance"].rows(tx, now, group_id, name, session)
    return None if row[0] is None else Balanced(*row)


async def leave(tx: Transaction, group_id: int, name: str, session: int) -> bool:
    """Free the partitions of a subscriber; return False if it has no such session."""
    return bool(await _SQL["leave"].value(tx, group_id, name, session))


async def held_partitions(tx: Transaction, group_id: int, name: str) -> list[LogPartition]:
    """Return the partitions of a subscriber, by number."""
    return await _SQL["held"].all(tx, LogPartition._make, group_id, name)


async def list_subscribers(
    tx: Transaction, now: datetime | None, group_id: int
) -> list[LogSubscriber]:
    """Return the live subscribers, by name."""
    return await _SQL["list_subscribers"].all(tx, LogSubscriber._make, now, group_id)
