"""Subscribers of groups: heartbeats, by which they come and stay, and leaving."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.protocol import names
from queuegate.storage.log_errors import (
    GroupDoesNotExist,
    GroupInvalid,
    SubscriberFenced,
    TooManySubscribers,
)
from queuegate.storage.log_model import Group, Log, Partition
from queuegate.storage.logs import deliveries, groups, subscribers

if TYPE_CHECKING:
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.database import Transaction
    from queuegate.storage.logs.subscribers import Beat


class Standing(NamedTuple):
    """How a subscriber stands after a heartbeat."""

    session: int
    live_until: datetime
    share: int
    """How many partitions it should hold at most."""
    partitions: list[Partition]
    """What it holds."""


def check_has_subscribers(group: Group) -> None:
    """Raise GroupInvalid for a group that feeds a queue instead."""
    if group.settings.queue is not None:
        raise GroupInvalid(
            f"The group '{group.name}' feeds the queue '{group.settings.queue}': receive from that."
        )


async def heartbeat(
    engine: Engine, log: Log, group: Group, name: str, session: int | None
) -> Standing:
    """Stay in a group, or join it: without a session, or with one that was dead for long enough to
    be removed, a new one begins. A subscriber's partitions are chosen anew when somebody came, went
    or died, or when there are more of them.

    Raises SubscriberFenced when the subscriber is live in a later session, GroupDoesNotExist,
    GroupInvalid and TooManySubscribers.
    """
    if not names.is_standard_queue_name(name):
        raise GroupInvalid(
            f"A subscriber cannot be called '{name[:100]}'. Allowed are 1 to 80 letters, digits, "
            "hyphens and underscores."
        )
    check_has_subscribers(group)
    now = engine.clock.of(log.account_id).now()
    lease = group.settings.lease_seconds
    beat = None
    if session is not None:
        async with engine.database.transaction() as tx:
            beat = await subscribers.beat(
                tx, now, group.group_id, name, session, lease_seconds=lease
            )
            if beat is not None and beat.is_settled:
                held = await subscribers.held(tx, group.group_id, name)
                return _standing(engine, group, name, session, beat, beat.share, held)
    # Apart from it: the group is locked before its subscribers.
    is_joining = beat is None
    async with engine.database.transaction() as tx:
        if beat is None:
            session, beat = await _join(engine, tx, now, group, name, session)
        assert session is not None
        balanced = await subscribers.balance(tx, now, group.group_id, name, session)
        if balanced is None:
            raise SubscriberFenced(name)
        held = await subscribers.held(tx, group.group_id, name)
    standing = _standing(engine, group, name, session, beat, balanced.share, held)
    if is_joining or balanced.released or balanced.removed:
        engine.readers.group_changed(group)
    return standing


def _standing(
    engine: Engine,
    group: Group,
    name: str,
    session: int,
    beat: Beat,
    share: int,
    held: list[Partition],
) -> Standing:
    engine.readers.holds(group, name, session, held)
    return Standing(session, beat.live_until, share, held)


async def _join(
    engine: Engine,
    tx: Transaction,
    now: datetime | None,
    group: Group,
    name: str,
    session: int | None,
) -> tuple[int, Beat]:
    lease = group.settings.lease_seconds
    joined = await subscribers.join(tx, now, group.group_id, name, session, lease_seconds=lease)
    if joined is None:
        raise SubscriberFenced(name)
    if not joined:
        raise GroupDoesNotExist(group.name)
    beat = await subscribers.beat(tx, now, group.group_id, name, joined, lease_seconds=lease)
    assert beat is not None
    most = engine.limits.log_subscribers
    if beat.live_subscribers > most:
        raise TooManySubscribers(most)
    return joined, beat


async def leave(
    engine: Engine, log: Log, group: Group, name: str, session: int, *, releases: bool
) -> None:
    """Leave a group: what the subscriber holds is free at once. What it was given and has not
    finished stays hidden until its time is over; ``releases``: it is there for others at once, as
    if it had not been delivered.

    Who is not in it, or with another session, has left already.
    """
    now = engine.clock.of(log.account_id).now()
    async with engine.database.transaction() as tx:
        # The group first, as by all who lock it and positions.
        if releases and await groups.lock(tx, group.group_id):
            await deliveries.give_back(tx, now, group, name, session)
        has_left = await subscribers.leave(tx, group.group_id, name, session)
    if has_left:
        engine.readers.left(group, name, session)
        engine.readers.group_changed(group)
