"""Schedules and their groups, as all faces create, change, delete, find and list them.

The group `default` always exists. Schedules in our own form have no group.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from queuegate.storage import schedules
from queuegate.storage.model import NewSchedule, Schedule, ScheduleGroup
from queuegate.storage.schedules import ScheduleFilter
from queuegate.storage.storage_errors import (
    ResourceNotFound,
    ScheduleConflict,
    ScheduleDoesNotExist,
    ScheduleExists,
    ScheduleQuotaExceeded,
    Unavailable,
)

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.storage.database import Transaction
    from queuegate.storage.schedule_fires import Fire


SCHEDULE_HEADER = "_schedule"
"""Header of a schedule's messages: its name, the time, and manual or not."""
DEFAULT = schedules.DEFAULT_GROUP
_CREATE_ATTEMPTS = 5


def not_found(name: str) -> ResourceNotFound:
    """Return the error of an absent group."""
    return ResourceNotFound(f"Schedule group {name} does not exist.")


async def existing_group(
    engine: Engine, caller: Caller, tx: Transaction, name: str
) -> ScheduleGroup:
    """Return the caller's group of that name, which may be being deleted. Raises
    ResourceNotFound."""
    place = caller.account_id, caller.region
    if name == DEFAULT:
        return await schedules.ensure_default(tx, _now(engine, caller), *place)
    group = await schedules.find_group(tx, *place, name)
    if group is None:
        raise not_found(name)
    return group


async def group_for_new(
    engine: Engine, caller: Caller, tx: Transaction, name: str
) -> ScheduleGroup:
    """Lock and return the caller's group, to add a schedule. Raises ResourceNotFound, and
    ScheduleConflict while the group is being deleted."""
    place = (caller.account_id, caller.region, name)
    group = await schedules.share_group(tx, *place)
    if group is None:
        await existing_group(engine, caller, tx, name)
        group = await schedules.share_group(tx, *place)
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
    """Return the new group, or the group that the same request with the same client token has
    created. Raises ScheduleConflict and ScheduleQuotaExceeded."""
    place = (caller.account_id, caller.region)
    # Retry if the existing group is deleted before it is read.
    for _ in range(_CREATE_ATTEMPTS):
        async with engine.database.transaction() as tx:
            found = await schedules.find_group(tx, *place, name)
            if found is not None or name == DEFAULT:
                if found is None or not _is_repeated(found, tags, client_token):
                    raise ScheduleConflict(f"Schedule group {name} already exists.")
                return found
            most = engine.limits.schedule_groups
            if len(await schedules.page_of_groups(tx, *place, limit=most)) >= most:
                raise ScheduleQuotaExceeded(
                    f"An account has at most {most} schedule groups in a region."
                )
            created = await schedules.create_group(
                tx, _now(engine, caller), *place, name, tags=tags, client_token=client_token
            )
        if created is not None:
            return created
    raise Unavailable("The group is being created and deleted by others.")


def _is_repeated(found: ScheduleGroup, tags: Mapping[str, str], client_token: str | None) -> bool:
    """Return True if the same request has created the group."""
    return (
        client_token is not None
        and found.client_token == client_token
        and found.tags == tags
        and not found.is_deleting
    )


async def find_group(engine: Engine, caller: Caller, name: str) -> ScheduleGroup:
    """Return one group. Raises ResourceNotFound."""
    async with engine.database.transaction() as tx:
        return await existing_group(engine, caller, tx, name)


async def delete_group(engine: Engine, caller: Caller, name: str) -> None:
    """Delete the group with its schedules; a large group is deleted in parts, and listed until
    then. Raises ResourceNotFound."""
    async with engine.database.transaction() as tx:
        group = await schedules.lock_group(tx, caller.account_id, caller.region, name)
        if group is None:
            raise not_found(name)
        if not group.is_deleting:
            await schedules.delete_group(tx, _now(engine, caller), group.group_id)


async def page_of_groups(
    engine: Engine, caller: Caller, *, name_prefix: str, after: str, most: int
) -> tuple[list[ScheduleGroup], bool]:
    """Return the caller's groups by name, in byte order, and True if there are more."""
    async with engine.database.transaction() as tx:
        await existing_group(engine, caller, tx, DEFAULT)
        found = await schedules.page_of_groups(
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
    """Replace the tags of a group by the result of the change. Raises ResourceNotFound."""
    now = _now(engine, caller)
    async with engine.database.transaction() as tx:
        await existing_group(engine, caller, tx, name)
        group = await schedules.lock_group(tx, caller.account_id, caller.region, name)
        if group is None:
            raise not_found(name)
        await schedules.set_group_tags(tx, now, group.group_id, change(group.tags))


async def present_second(engine: Engine, tx: Transaction, account_id: str) -> datetime:
    """Return the present of an account in whole seconds, so that later times have no fractions."""
    now = engine.clock.of(account_id).now()
    return (await schedules.present(tx, now)).replace(microsecond=0)


Plan = Callable[[datetime, Schedule | None], NewSchedule]
"""Returns the row to write at an instant, from the present row; None: there is none."""
_Shown = TypeVar("_Shown")
_ATTEMPTS = 5
_ROWS_AT_ONCE = 20
"""Schedules of a list that are read at once, as each may have a message of the largest size."""
# Derived from the next time, unless a failed attempt is to be repeated.
_COMPARED = [field.name for field in dataclasses.fields(NewSchedule) if field.name != "due_at"]


async def create(
    engine: Engine,
    caller: Caller,
    plan: Plan,
    *,
    group: str | None = None,
    client_token: str | None = None,
) -> Schedule:
    """Return the new schedule, or the one that the same request with the same client token has
    created. Raises ScheduleExists, and ResourceNotFound or ScheduleConflict for its group."""
    token = _token("create", client_token)
    # Retry if the existing schedule is deleted before it is read.
    for _ in range(_ATTEMPTS):
        async with engine.database.transaction() as tx:
            new = plan(await present_second(engine, tx, caller.account_id), None)
            if group is not None:
                held = await group_for_new(engine, caller, tx, group)
                new = dataclasses.replace(new, group_id=held.group_id, client_token=token)
            created = await schedules.create(tx, _now(engine, caller), new)
            if created is not None:
                return created
            found = await schedules.find(
                tx, caller.account_id, caller.region, new.group_id, new.name
            )
        if found is not None:
            if _is_same(found, new):
                return found
            raise ScheduleExists(new.name)
    raise Unavailable("The schedule is being created and deleted by others.")


async def put(engine: Engine, caller: Caller, name: str, plan: Plan) -> tuple[Schedule, bool]:
    """Return the schedule, which has no group, as it is now, and True if it was created."""
    for _ in range(_ATTEMPTS):
        async with engine.database.transaction() as tx:
            found = await schedules.lock(tx, caller.account_id, caller.region, None, name)
            new = plan(await present_second(engine, tx, caller.account_id), found)
            if found is not None:
                return await _replaced(engine, caller, tx, found, new), False
            created = await schedules.create(tx, _now(engine, caller), new)
        if created is not None:
            return created, True
    raise Unavailable("The schedule is being created and deleted by others.")


async def change(
    engine: Engine,
    caller: Caller,
    name: str,
    plan: Plan,
    *,
    group: str | None = None,
    client_token: str | None = None,
    always: bool = False,
) -> Schedule:
    """Change and return the schedule. Without a difference, it is written only if ``always``, for
    its modification time. Raises ResourceNotFound for the group, ScheduleDoesNotExist, and
    ScheduleConflict for a client token that came with another change."""
    token = _token("update", client_token)
    async with engine.database.transaction() as tx:
        found = await _locked(engine, caller, tx, group, name)
        new = plan(await present_second(engine, tx, caller.account_id), found)
        new = dataclasses.replace(new, group_id=found.group_id, client_token=token)
        if token is None or found.client_token != token:
            return await _replaced(engine, caller, tx, found, new, always=always)
    if not _is_same(found, new):
        raise ScheduleConflict(
            f"Schedule {name} was updated with other parameters and the same ClientToken."
        )
    return found


async def delete(engine: Engine, caller: Caller, name: str, *, group: str | None = None) -> None:
    """Delete a schedule. Sent messages stay, and failed attempts are repeated. Raises
    ResourceNotFound for the group, and ScheduleDoesNotExist."""
    async with engine.database.transaction() as tx:
        found = await _locked(engine, caller, tx, group, name)
        await schedules.delete(tx, found.schedule_id)


async def find(engine: Engine, caller: Caller, name: str, *, group: str | None = None) -> Schedule:
    """Return one schedule. Raises ResourceNotFound for the group, and ScheduleDoesNotExist."""
    async with engine.database.transaction() as tx:
        group_id = await _group_id(engine, caller, tx, group)
        found = await schedules.find(tx, caller.account_id, caller.region, group_id, name)
    if found is None:
        raise ScheduleDoesNotExist(name)
    return found


@dataclass(frozen=True, slots=True)
class ListSchedules:
    """A filter: schedules without a group, or with ``is_grouped`` those of ``group``; None: of all
    groups. ``after`` is the group id and the name to continue after."""

    is_grouped: bool = False
    group: str | None = None
    name_prefix: str = ""
    is_active: bool | None = None
    target_kind: str | None = None
    after: tuple[int, str] = (0, "")


@dataclass(frozen=True, slots=True)
class SchedulePage(Generic[_Shown]):
    """A page of schedules. ``last``: continue after it; None: no more schedules."""

    shown: list[_Shown]
    last: tuple[int, str] | None


async def page(
    engine: Engine,
    caller: Caller,
    wanted: ListSchedules,
    show: Callable[[Schedule], _Shown],
    *,
    most: int,
    room: int | None = None,
) -> SchedulePage[_Shown]:
    """Return at most ``most`` schedules by group and name in byte order, fewer if their messages
    exceed ``room`` characters. Raises ResourceNotFound for the group."""
    shown: list[_Shown] = []
    group_id, name = wanted.after
    async with engine.database.transaction() as tx:
        filtered = ScheduleFilter(
            caller.account_id,
            caller.region,
            is_grouped=wanted.is_grouped,
            group_id=await _group_id(engine, caller, tx, wanted.group),
            name_prefix=wanted.name_prefix,
            is_active=wanted.is_active,
            target_kind=wanted.target_kind,
        )
        while True:
            # One more than the maximum shows that there are more.
            limit = min(_ROWS_AT_ONCE, most + 1 - len(shown))
            rows = await schedules.page(tx, filtered, name, after_group_id=group_id, limit=limit)
            for row in rows:
                if room is not None:
                    # Nearly all of the size of a schedule.
                    room -= len(text_of(row)) + len(row.target.get("attributes") or "")
                if len(shown) == most or (shown and room is not None and room < 0):
                    return SchedulePage(shown, (group_id, name))
                shown.append(show(row))
                group_id, name = row.group_id or 0, row.name
            if len(rows) < limit:
                return SchedulePage(shown, None)


def text_of(schedule: Schedule | Fire) -> str:
    """Return the text for the target."""
    target = schedule.target
    text: str = target["body"] if target["kind"] == "queue" else target["message"]
    return text


def _now(engine: Engine, caller: Caller) -> datetime | None:
    return engine.clock.of(caller.account_id).now()


def _token(operation: str, client_token: str | None) -> str | None:
    """Tokens belong to an operation: two operations may use the same one."""
    return None if client_token is None else f"{operation}:{client_token}"


def _is_same(found: Schedule, new: NewSchedule) -> bool:
    """Return True if the same request with the same client token has created the schedule."""
    return (
        new.client_token is not None
        and found.client_token == new.client_token
        and found.is_active == new.is_active
        and found.spec == new.spec
        and found.target == new.target
    )


async def _group_id(
    engine: Engine, caller: Caller, tx: Transaction, group: str | None
) -> int | None:
    if group is None:
        return None
    return (await existing_group(engine, caller, tx, group)).group_id


async def _locked(
    engine: Engine, caller: Caller, tx: Transaction, group: str | None, name: str
) -> Schedule:
    group_id = await _group_id(engine, caller, tx, group)
    found = await schedules.lock(tx, caller.account_id, caller.region, group_id, name)
    if found is None:
        raise ScheduleDoesNotExist(name)
    return found


async def _replaced(
    engine: Engine,
    caller: Caller,
    tx: Transaction,
    found: Schedule,
    new: NewSchedule,
    *,
    always: bool = False,
) -> Schedule:
    if not always and all(getattr(found, name) == getattr(new, name) for name in _COMPARED):
        return found
    await schedules.replace(tx, _now(engine, caller), found.schedule_id, new)
    changed = await schedules.find_by_id(tx, found.schedule_id)
    assert changed is not None
    return changed


StoredTarget = dict[str, Any]
"""A stored target. With ``error``, every invocation fails with this error."""
_OPTIONS: StoredTarget = {
    **dict.fromkeys(("attributes", "group_id", "deduplication_id")),
    **dict.fromkeys(("substitutes", "schedule_header"), False),
}


def queue_target(place: Mapping[str, str], body: str, **more: Any) -> StoredTarget:
    """Return a message for a queue; ``place`` has its account_id, region and queue_name."""
    fields = {"body": body, "delay_seconds": None, "system": None}
    return {"kind": "queue", **place, **fields, **_OPTIONS, **more}


def topic_target(place: Mapping[str, str], message: str, **more: Any) -> StoredTarget:
    """Return a message for a topic; ``place`` has its account_id, region and topic_name."""
    fields = {"message": message, "subject": None, "structure": None, "is_event": False}
    return {"kind": "topic", **place, **fields, **_OPTIONS, **more}
