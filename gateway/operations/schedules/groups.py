"""Groups of schedules: the one named `default` is always there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from queuegate.storage.errors import ResourceNotFound, Unavailable
from queuegate.storage.model import ScheduleGroup
from queuegate.storage.schedule_errors import ScheduleConflict, ScheduleQuotaExceeded
from queuegate.storage.schedules import schedule_groups

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.database import Transaction

DEFAULT = schedule_groups.DEFAULT
"""The group of whoever names none."""
_CREATE_ATTEMPTS = 5


def not_found(name: str) -> ResourceNotFound:
    """The refusal of a group that is not there."""
    return ResourceNotFound(f"Schedule group {name} does not exist.")


async def existing_group(
    engine: Engine, caller: Caller, tx: Transaction, name: str
) -> ScheduleGroup:
    """The caller's group of that name, which may be on its way out. Raises ResourceNotFound."""
    group = await schedule_groups.find(tx, caller.account_id, caller.region, name)
    if group is None and name == DEFAULT:
        group = await schedule_groups.ensure_default(
            tx, engine.clock.of(caller.account_id).now(), caller.account_id, caller.region
        )
    if group is None:
        raise not_found(name)
    return group


async def group_for_new(
    engine: Engine, caller: Caller, tx: Transaction, name: str
) -> ScheduleGroup:
    """The caller's group, held so that a schedule can be added to it.

    Raises ResourceNotFound, and ScheduleConflict while the group is being deleted.
    """
    place = (caller.account_id, caller.region, name)
    group = await schedule_groups.share(tx, *place)
    if group is None:
        await existing_group(engine, caller, tx, name)
        group = await schedule_groups.share(tx, *place)
    if group is None:
        raise not_found(name)
    if group.is_deleting:
        raise ScheduleConflict(f"Schedule group {name} is being deleted.")
    return group


async def create_group(
    engine: Engine,
    caller: Caller,
    name: str,
    *,
    tags: Mapping[str, str],
    client_token: str | None = None,
) -> ScheduleGroup:
    """The new group, or the one that the same request with the same client token has made.

    Raises ScheduleConflict and ScheduleQuotaExceeded.
    """
    place = (caller.account_id, caller.region)
    # A group that is deleted between a refused insert and the look at it is created after all.
    for _ in range(_CREATE_ATTEMPTS):
        async with engine.database.transaction() as tx:
            found = await schedule_groups.find(tx, *place, name)
            if found is not None or name == DEFAULT:
                if found is None or not _is_repeated(found, tags, client_token):
                    raise ScheduleConflict(f"Schedule group {name} already exists.")
                return found
            await _check_quota(engine, caller, tx)
            created = await schedule_groups.create(
                tx,
                engine.clock.of(caller.account_id).now(),
                *place,
                name,
                tags=tags,
                client_token=client_token,
            )
        if created is not None:
            return created
    raise Unavailable("The group is being created and deleted by others.")


def _is_repeated(found: ScheduleGroup, tags: Mapping[str, str], client_token: str | None) -> bool:
    """Whether this is the request that made the group."""
    return (
        client_token is not None
        and found.client_token == client_token
        and found.tags == tags
        and not found.is_deleting
    )


async def _check_quota(engine: Engine, caller: Caller, tx: Transaction) -> None:
    most = engine.limits.schedule_groups
    found = await schedule_groups.page(tx, caller.account_id, caller.region, limit=most)
    if len(found) >= most:
        raise ScheduleQuotaExceeded(f"An account has at most {most} schedule groups in a region.")


async def find_group(engine: Engine, caller: Caller, name: str) -> ScheduleGroup:
    """One group. Raises ResourceNotFound."""
    async with engine.database.transaction() as tx:
        return await existing_group(engine, caller, tx, name)


async def delete_group(engine: Engine, caller: Caller, name: str) -> None:
    """Delete the group with its schedules: a large one goes bit by bit, and is shown meanwhile.

    Raises ResourceNotFound.
    """
    async with engine.database.transaction() as tx:
        group = await schedule_groups.lock(tx, caller.account_id, caller.region, name)
        if group is None:
            raise not_found(name)
        if not group.is_deleting:
            await schedule_groups.delete(
                tx, engine.clock.of(caller.account_id).now(), group.group_id
            )


async def page_of_groups(
    engine: Engine, caller: Caller, *, name_prefix: str, after: str, most: int
) -> tuple[list[ScheduleGroup], bool]:
    """The caller's groups by name, in byte order, and whether there are more."""
    async with engine.database.transaction() as tx:
        await existing_group(engine, caller, tx, DEFAULT)
        found = await schedule_groups.page(
            tx,
            caller.account_id,
            caller.region,
            name_prefix=name_prefix,
            after_name=after,
            limit=most + 1,
        )
    return found[:most], len(found) > most


async def change_tags(
    engine: Engine,
    caller: Caller,
    name: str,
    change: Callable[[Mapping[str, str]], Mapping[str, str]],
) -> None:
    """Replace the tags of a group by what the change makes of them. Raises ResourceNotFound."""
    now = engine.clock.of(caller.account_id).now()
    async with engine.database.transaction() as tx:
        await existing_group(engine, caller, tx, name)
        group = await schedule_groups.lock(tx, caller.account_id, caller.region, name)
        if group is None:
            raise not_found(name)
        await schedule_groups.set_tags(tx, now, group.group_id, change(group.tags))
