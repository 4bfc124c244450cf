"""Groups of a log: make, find, list, look at, change, delete; and where they go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.operations.logs.logs import locked, partitions_numbered
from queuegate.protocol import names
from queuegate.storage.log_errors import (
    GroupDoesNotExist,
    GroupExists,
    GroupInvalid,
    LogNameInvalid,
    PartitionHeld,
    TooManyGroups,
)
from queuegate.storage.log_model import (
    Group,
    GroupProgress,
    GroupSettings,
    Log,
    PositionState,
    Subscriber,
)
from queuegate.storage.logs import dead_letters, groups, subscribers
from queuegate.storage.logs.groups import BEGINNING
from queuegate.storage.notifications import tell_log_changed

if TYPE_CHECKING:
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.database import Transaction

EARLIEST, LATEST = "earliest", "latest"


class MadeGroup(NamedTuple):
    """``is_new`` False: it was there."""

    group: Group
    is_new: bool


async def make_group(engine: Engine, log: Log, name: str, settings: GroupSettings) -> MadeGroup:
    """The new group, or the one that has the name and the same settings.

    Raises GroupInvalid, LogDoesNotExist, TooManyGroups, and GroupExists for one with others.
    """
    made = await _make(engine, log, name, settings)
    if made.group.settings != settings:
        raise GroupExists(name)
    return made


async def find_group(engine: Engine, log: Log, name: str) -> Group:
    """The group of that name. Raises GroupDoesNotExist."""
    group = await engine.logs.find_group(log, name)
    if group is None:
        raise GroupDoesNotExist(name)
    return group


async def find_or_make_group(engine: Engine, log: Log, name: str) -> Group:
    """The group of that name, made as by default if it is not there. Raises GroupInvalid,
    LogDoesNotExist and TooManyGroups."""
    group = await engine.logs.find_group(log, name)
    return group or (await _make(engine, log, name, GroupSettings())).group


async def _make(engine: Engine, log: Log, name: str, settings: GroupSettings) -> MadeGroup:
    if not names.is_standard_queue_name(name):
        raise GroupInvalid(
            f"A group cannot be called '{name[:100]}'. Allowed are 1 to 80 letters, digits, "
            "hyphens and underscores."
        )
    check(log, settings)
    engine.check_room()
    now = engine.clock.of(log.account_id).now()
    async with engine.database.transaction() as tx:
        await locked(tx, log)
        group = await groups.insert(tx, now, log.log_id, name, settings, _start_at(settings))
        if group is None:
            found = await groups.find(tx, log.log_id, name)
            assert found is not None
            return MadeGroup(found, False)
        most = engine.limits.log_groups
        if len(await groups.list_groups(tx, log.log_id)) > most:
            raise TooManyGroups(most)
        if settings.start is not None:
            # What is there is decided upon now, whatever the clock says later.
            await groups.lock(tx, group.group_id)
        if settings.start == LATEST:
            await groups.seek_end(tx, group.group_id)
        if settings.queue is not None:
            # Whoever feeds it hears of it.
            await tell_log_changed(tx, log.log_id)
    return MadeGroup(group, True)


def _start_at(settings: GroupSettings) -> datetime | None:
    if settings.start is None:
        return BEGINNING
    return None if settings.start == LATEST else datetime.fromisoformat(settings.start)


def check(log: Log, settings: GroupSettings) -> None:
    """Raise GroupInvalid for settings that no group of this log can have."""
    name = settings.dead_letter_log
    if name == log.name:
        raise GroupInvalid("The dead letters of a log cannot go to the log itself.")
    if name is not None and not names.is_standard_queue_name(name):
        raise LogNameInvalid(name)


async def list_groups(engine: Engine, log: Log) -> list[Group]:
    """The groups of a log, by name."""
    async with engine.database.transaction() as tx:
        return await groups.list_groups(tx, log.log_id)


async def progress_of(
    engine: Engine, log: Log, group: Group
) -> tuple[GroupProgress, list[Subscriber]]:
    """Where a group is, and who is in it."""
    now = engine.clock.of(log.account_id).now()
    async with engine.database.transaction() as tx:
        live = await subscribers.list_live(tx, now, group.group_id)
        return await groups.progress(tx, now, group.group_id), live


async def change_group(
    engine: Engine, log: Log, name: str, change: Callable[[GroupSettings], GroupSettings]
) -> Group:
    """The group with other settings, which ``change`` makes of what they are. Raises
    GroupDoesNotExist and GroupInvalid."""
    async with engine.database.transaction() as tx:
        group = await _locked(tx, await find_group(engine, log, name))
        settings = change(group.settings)
        check(log, settings)
        await groups.update(tx, group.group_id, settings)
        await tell_log_changed(tx, log.log_id)
    engine.logs.changed(log.log_id)
    return Group(group.group_id, group.log_id, group.name, group.created_at, settings)


async def _locked(tx: Transaction, group: Group) -> Group:
    """The group as it is now, with a position in every partition; nobody comes or goes until the
    transaction ends."""
    if not await groups.lock(tx, group.group_id):
        raise GroupDoesNotExist(group.name)
    found = await groups.find(tx, group.log_id, group.name)
    assert found is not None
    return found


async def delete_group(engine: Engine, log: Log, name: str) -> None:
    """Delete a group with all that it knows; records stay. Raises GroupDoesNotExist."""
    group = await find_group(engine, log, name)
    async with engine.database.transaction() as tx:
        if not await groups.delete(tx, group.group_id):
            raise GroupDoesNotExist(name)
        await tell_log_changed(tx, log.log_id)
    engine.logs.changed(log.log_id)
    engine.readers.group_changed(group)


async def position_states(
    engine: Engine, log: Log, group: Group, *, after: int, limit: int
) -> tuple[list[PositionState], bool]:
    """Where a group is in partitions, by number, behind ``after``, and whether there are more."""
    now = engine.clock.of(log.account_id).now()
    async with engine.database.transaction() as tx:
        found = await groups.position_states(tx, now, group.group_id, after=after, limit=limit + 1)
    return found[:limit], len(found) > limit


async def seek(engine: Engine, group: Group, to: str | datetime) -> None:
    """Let a group go on elsewhere, in all partitions: `earliest`, `latest`, or with the first
    records that were published at a time or later. What is out is out for nothing: its receipts
    are void. Raises GroupDoesNotExist."""
    async with engine.database.transaction() as tx:
        group = await _locked(tx, group)
        if to == LATEST:
            await groups.seek_end(tx, group.group_id)
        elif isinstance(to, datetime):
            await groups.seek_time(tx, group.group_id, to)
        else:
            await groups.seek_start(tx, group.group_id)
    engine.readers.group_changed(group)


async def seek_offsets(
    engine: Engine, log: Log, group: Group, offsets: Mapping[int, int], *, spares_held: bool = False
) -> None:
    """The same in these partitions, at these offsets, or what is next to them of what is kept.

    ``spares_held``: raise PartitionHeld, and do nothing, where a live subscriber holds one of them.
    Raises PartitionDoesNotExist and GroupDoesNotExist.
    """
    partitions = await partitions_numbered(engine, log, offsets)
    places = {partitions[number].partition_id: offset for number, offset in offsets.items()}
    async with engine.database.transaction() as tx:
        group = await _locked(tx, group)
        if spares_held:
            now = engine.clock.of(log.account_id).now()
            held = await groups.find_held(tx, now, group.group_id, [*places])
            if held is not None:
                raise PartitionHeld(held)
        await groups.seek_offsets(tx, group.group_id, places)
    engine.readers.group_changed(group)


async def dead_letter_log_of(engine: Engine, log: Log, group_name: str | None) -> str:
    """The name of the log to which the dead letters of a group go, or of those that say nothing
    about it. Raises GroupDoesNotExist."""
    if group_name is None:
        return dead_letters.log_name(log)
    return dead_letters.log_name(log, await find_group(engine, log, group_name))
