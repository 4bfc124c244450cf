"""Schedules as they are kept: create, put, change, delete, find and list them, for every face.

A schedule is in a group, or in none (``group`` None). What it is to be depends on the present, and
on what it is: a plan says so, within the transaction. A client token comes with a request that may
be repeated: the repetition finds what the first one made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Generic, TypeVar

from queuegate.gateway.operations.schedules.groups import existing_group, group_for_new
from queuegate.gateway.operations.schedules.present import present_second
from queuegate.storage.errors import Unavailable
from queuegate.storage.model import NewSchedule, Schedule
from queuegate.storage.schedule_errors import ScheduleConflict, ScheduleDoesNotExist, ScheduleExists
from queuegate.storage.schedules import schedules
from queuegate.storage.schedules.schedules import ScheduleFilter

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.database import Transaction

Plan = Callable[[datetime, Schedule | None], NewSchedule]
"""What a schedule is to be, at an instant; given what it is, None: it is not there."""
_Shown = TypeVar("_Shown")

_ATTEMPTS = 5
_ROWS_AT_ONCE = 20
"""Of a list: each may carry a message of the largest size."""
# When it is due follows from the next time, unless it failed and waits to be tried again.
_COMPARED = [field.name for field in dataclasses.fields(NewSchedule) if field.name != "due_at"]


async def create(
    engine: Engine,
    caller: Caller,
    plan: Plan,
    *,
    group: str | None = None,
    client_token: str | None = None,
) -> Schedule:
    """The new schedule; or the one that the same request with the same client token has made.

    Raises ScheduleExists, and ResourceNotFound or ScheduleConflict for its group.
    """
    token = _token("create", client_token)
    # One that is deleted between a refused insert and the look at it is created after all.
    for _ in range(_ATTEMPTS):
        async with engine.database.transaction() as tx:
            new = plan(await present_second(engine, tx, caller.account_id), None)
            if group is not None:
                held = await group_for_new(engine, caller, tx, group)
                new = dataclasses.replace(new, group_id=held.group_id, client_token=token)
            created = await schedules.create(tx, _now(engine, caller), new)
            if created is not None:
                return created
            found = await _find(caller, tx, new.group_id, new.name)
        if found is not None:
            if _is_same(found, new):
                return found
            raise ScheduleExists(new.name)
    raise _too_fast()


async def put(engine: Engine, caller: Caller, name: str, plan: Plan) -> tuple[Schedule, bool]:
    """The schedule, without a group, as it is now, and whether it was created."""
    for _ in range(_ATTEMPTS):
        async with engine.database.transaction() as tx:
            found = await schedules.lock(tx, caller.account_id, caller.region, None, name)
            new = plan(await present_second(engine, tx, caller.account_id), found)
            if found is not None:
                return await _replaced(engine, caller, tx, found, new), False
            created = await schedules.create(tx, _now(engine, caller), new)
        if created is not None:
            return created, True
    raise _too_fast()


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
    """The schedule as it is after the change; it is left alone if it is that already, unless it is
    ``always`` to be written, and its instant of modification with it.

    Raises ResourceNotFound for the group, ScheduleDoesNotExist, and ScheduleConflict for a client
    token that came with another change.
    """
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
    """Delete a schedule; what it sent stays, and what failed is still repeated.

    Raises ResourceNotFound for the group, and ScheduleDoesNotExist.
    """
    async with engine.database.transaction() as tx:
        found = await _locked(engine, caller, tx, group, name)
        await schedules.delete(tx, found.schedule_id)


async def find(engine: Engine, caller: Caller, name: str, *, group: str | None = None) -> Schedule:
    """One schedule. Raises ResourceNotFound for the group, and ScheduleDoesNotExist."""
    async with engine.database.transaction() as tx:
        group_id = await _group_id(engine, caller, tx, group)
        found = await _find(caller, tx, group_id, name)
    if found is None:
        raise ScheduleDoesNotExist(name)
    return found


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which schedules to list: those without a group, or, with ``is_grouped``, those of ``group``,
    of all groups when that is None. ``after``: those behind this group's id and name."""

    is_grouped: bool = False
    group: str | None = None
    name_prefix: str = ""
    is_active: bool | None = None
    target_kind: str | None = None
    after: tuple[int, str] = (0, "")


@dataclass(frozen=True, slots=True)
class Page(Generic[_Shown]):
    """What is shown of schedules. ``last``: where the next page goes on; None: there is none."""

    shown: list[_Shown]
    last: tuple[int, str] | None


async def page(
    engine: Engine,
    caller: Caller,
    wanted: Wanted,
    show: Callable[[Schedule], _Shown],
    *,
    most: int,
    room: int | None = None,
) -> Page[_Shown]:
    """Group by group, by name in byte order: ``most`` at most, and fewer when their messages have
    more than ``room`` characters together. Raises ResourceNotFound for the group."""
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
            # One more than there is room for tells whether there are more.
            limit = min(_ROWS_AT_ONCE, most + 1 - len(shown))
            rows = await schedules.page(tx, filtered, name, after_group_id=group_id, limit=limit)
            for row in rows:
                if room is not None:
                    room -= _size(row)
                if len(shown) == most or (shown and room is not None and room < 0):
                    return Page(shown, (group_id, name))
                shown.append(show(row))
                group_id, name = row.group_id or 0, row.name
            if len(rows) < limit:
                return Page(shown, None)


def text_of(schedule: Schedule) -> str:
    """What its target gets."""
    target = schedule.target
    text: str = target["body"] if target["kind"] == "queue" else target["message"]
    return text


def _size(schedule: Schedule) -> int:
    """Characters that its message and attributes have, nearly all that is ever long."""
    return len(text_of(schedule)) + len(schedule.target.get("attributes") or "")


def _now(engine: Engine, caller: Caller) -> datetime | None:
    return engine.clock.of(caller.account_id).now()


def _token(operation: str, client_token: str | None) -> str | None:
    """Tokens belong to an operation: the same one may come with another of them."""
    return None if client_token is None else f"{operation}:{client_token}"


def _is_same(found: Schedule, new: NewSchedule) -> bool:
    """Whether a schedule is what the same request with the same client token has made."""
    return (
        new.client_token is not None
        and found.client_token == new.client_token
        and found.is_active == new.is_active
        and found.spec == new.spec
        and found.target == new.target
    )


def _too_fast() -> Unavailable:
    return Unavailable("The schedule is being created and deleted by others.")


async def _group_id(
    engine: Engine, caller: Caller, tx: Transaction, group: str | None
) -> int | None:
    if group is None:
        return None
    return (await existing_group(engine, caller, tx, group)).group_id


async def _find(
    caller: Caller, tx: Transaction, group_id: int | None, name: str
) -> Schedule | None:
    return await schedules.find(tx, caller.account_id, caller.region, group_id, name)


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
