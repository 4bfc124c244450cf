"""Schedules and their groups, for faces: create, find, change, delete and list.

Names are unique in a group, or among schedules without one. All schedules share the
table, the targets and the firing worker (``schedule_fires``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from queuegate.storage.database import probe_by_key
from queuegate.storage.model import NewSchedule, Schedule, ScheduleGroup
from queuegate.storage.notifications import Notice, notify
from queuegate.storage.queries import load

if TYPE_CHECKING:
    import asyncpg

    from queuegate.storage.database import Transaction


_SQL = load("schedules")

_PLAIN_RULES = (
    *("is_active", "next_fire_at", "due_at", "catchup", "catchup_limit", "failure_threshold"),
    *("deletes_itself", "window_seconds", "starts_at", "ends_at", "max_attempts"),
    *("max_age_seconds", "client_token"),
)
"""Members that are columns of the same name, in the order of the parameters of statements."""
_PLAIN = (
    *_PLAIN_RULES,
    *("account_id", "region", "group_id", "schedule_id", "group_name", "failure_count"),
    *("last_error", "last_fired_at", "last_scheduled_for", "fired_count", "skipped_count"),
    *("created_at", "modified_at"),
)
_NO_GROUP = 0
_LAST_GROUP = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class ScheduleFilter:
    """A filter of schedules: those without a group, or, with ``is_grouped``, those of the group, of
    all groups if ``group_id`` is None."""

    account_id: str
    region: str
    is_grouped: bool = False
    group_id: int | None = None
    name_prefix: str = ""
    is_active: bool | None = None
    target_kind: str | None = None

    @property
    def groups(self) -> tuple[int, int]:
        """Return the first and the last group."""
        if not self.is_grouped:
            return _NO_GROUP, _NO_GROUP
        if self.group_id is not None:
            return self.group_id, self.group_id
        return _NO_GROUP + 1, _LAST_GROUP


def to_json(value: Mapping[str, Any]) -> str:
    """Return the text of a JSON column."""
    return json.dumps(dict(value), ensure_ascii=False, separators=(",", ":"))


def schedule_of(row: asyncpg.Record) -> Schedule:
    """Return the schedule of a row of the table with ``group_name``."""
    members: dict[str, Any] = {name: row[name] for name in _PLAIN}
    for name in ("spec", "timing", "target", "dead_letter"):
        members[name] = None if row[name] is None else json.loads(row[name])
    return Schedule(name=row["schedule_name"], **members)


def _rules(new: NewSchedule) -> tuple[object, ...]:
    """Return the parameters common to ``create`` and ``replace``, in order."""
    return (
        *[getattr(new, name) for name in _PLAIN_RULES],
        new.target["kind"],
        to_json(new.timing),
        to_json(new.target),
        None if new.dead_letter is None else to_json(new.dead_letter),
        to_json(new.spec),
    )


async def present(tx: Transaction, now: datetime | None) -> datetime:
    """Return the base instant of times: hosts have their own clocks."""
    return await _SQL["present"].value(tx, now)


async def wait_briefly(tx: Transaction) -> None:
    """Limit lock waits to 2 s until the transaction ends; then raise Unavailable.

    The firing worker holds schedule rows while it needs a pooled connection: it must get one of
    those that wait for these rows.
    """
    await _SQL["wait_briefly"].run(tx)


async def create(tx: Transaction, now: datetime | None, new: NewSchedule) -> Schedule | None:
    """Create a schedule; return None if the name exists. Waits for a firing as ``lock`` does.

    The transaction must hold the group (``share_group`` or ``lock_group``). After None an older
    snapshot may not see the other schedule yet: repeat ``find``.
    """
    await wait_briefly(tx)
    schedule_id: int | None = await _SQL["create"].value(
        tx, now, new.account_id, new.region, new.group_id, new.name, *_rules(new)
    )
    if schedule_id is None:
        return None
    await notify(tx, Notice.SCHEDULES_CHANGED)
    return await find_by_id(tx, schedule_id)


async def find(
    tx: Transaction, account_id: str, region: str, group_id: int | None, name: str
) -> Schedule | None:
    """Return the schedule of that name; ``group_id`` None: without a group."""
    return await _SQL["find"].first(
        tx, schedule_of, account_id, region, group_id or _NO_GROUP, name
    )


async def find_by_id(tx: Transaction, schedule_id: int) -> Schedule | None:
    """Return the schedule of that id."""
    return await _SQL["find_by_id"].first(tx, schedule_of, schedule_id)


async def lock(
    tx: Transaction, account_id: str, region: str, group_id: int | None, name: str
) -> Schedule | None:
    """Lock and return the schedule, until the transaction ends. A firing delays this by at most 2 s
    (``wait_briefly``)."""
    await wait_briefly(tx)
    return await _SQL["lock"].first(
        tx, schedule_of, account_id, region, group_id or _NO_GROUP, name
    )


async def replace(
    tx: Transaction, now: datetime | None, schedule_id: int, new: NewSchedule
) -> None:
    """Replace everything but account, region, group, name and counters.

    The count of consecutive failures restarts at 0. Pending invocations stay.
    """
    await _SQL["replace"].run(tx, now, schedule_id, *_rules(new))
    await notify(tx, Notice.SCHEDULES_CHANGED)


async def set_state(
    tx: Transaction,
    now: datetime | None,
    schedule_id: int,
    *,
    is_active: bool,
    next_fire_at: datetime | None,
    due_at: datetime | None,
) -> None:
    """Pause or resume; the count of consecutive failures restarts at 0."""
    await _SQL["set_state"].run(tx, now, schedule_id, is_active, next_fire_at, due_at)
    await notify(tx, Notice.SCHEDULES_CHANGED)


async def delete(tx: Transaction, schedule_id: int) -> bool:
    """Delete the schedule; return False if it is deleted already. Pending invocations stay."""
    deleted = await _SQL["delete"].value(tx, schedule_id) is not None
    await notify(tx, Notice.SCHEDULES_CHANGED)
    return deleted


async def page(
    tx: Transaction,
    wanted: ScheduleFilter,
    after_name: str = "",
    *,
    after_group_id: int = 0,
    limit: int,
) -> list[Schedule]:
    """Return schedules in byte order of their names, group by group, behind ``after_name``.

    Over all groups, ``after_group_id`` is the group of the schedule to continue behind.
    """
    first, last = wanted.groups
    return await _SQL["page"].by_key.all(
        tx,
        schedule_of,
        wanted.account_id,
        wanted.region,
        max(first, after_group_id),
        after_name,
        last,
        wanted.name_prefix,
        wanted.is_active,
        wanted.target_kind,
        limit,
    )


DEFAULT_GROUP = "default"
"""The group that always exists (docs/contract/scheduler.md 4.2)."""

_AT_ONCE = 1_000
"""Schedules deleted in the transaction that deletes their group; a worker removes the rest."""


def _group(row: asyncpg.Record) -> ScheduleGroup:
    return ScheduleGroup(*[*row[:4], json.loads(row["tags"]), *row[5:]])


async def find_group(
    tx: Transaction, account_id: str, region: str, name: str
) -> ScheduleGroup | None:
    """Return the group of that name."""
    return await _SQL["find_group"].first(tx, _group, account_id, region, name)


async def lock_group(
    tx: Transaction, account_id: str, region: str, name: str
) -> ScheduleGroup | None:
    """Lock and return the group, until the transaction ends."""
    return await _SQL["lock_group"].first(tx, _group, account_id, region, name)


async def share_group(
    tx: Transaction, account_id: str, region: str, name: str
) -> ScheduleGroup | None:
    """Lock and return the group for a new schedule: its deletion waits, other additions do not."""
    return await _SQL["share"].first(tx, _group, account_id, region, name)


async def create_group(
    tx: Transaction,
    now: datetime | None,
    account_id: str,
    region: str,
    name: str,
    *,
    tags: Mapping[str, str] | None = None,
    client_token: str | None = None,
) -> ScheduleGroup | None:
    """Create a group; return None if the name exists.

    After None an older snapshot may not see the other group yet: repeat ``find``, which takes a new
    one.
    """
    return await _SQL["create_group"].first(
        tx, _group, now, account_id, region, name, json.dumps(dict(tags or {})), client_token
    )


async def ensure_default(
    tx: Transaction, now: datetime | None, account_id: str, region: str
) -> ScheduleGroup:
    """Return the group ``default`` of an account and region, created on first use."""
    found = await find_group(tx, account_id, region, DEFAULT_GROUP)
    if found is None:
        found = await create_group(tx, now, account_id, region, DEFAULT_GROUP)
    if found is None:
        found = await find_group(tx, account_id, region, DEFAULT_GROUP)
    assert found is not None
    return found


async def page_of_groups(
    tx: Transaction,
    account_id: str,
    region: str,
    *,
    name_prefix: str = "",
    after_name: str = "",
    limit: int,
) -> list[ScheduleGroup]:
    """Return groups behind ``after_name``, in byte order of their names."""
    return await _SQL["page_of_groups"].all(
        tx, _group, account_id, region, name_prefix, after_name, limit
    )


async def set_group_tags(
    tx: Transaction, now: datetime | None, group_id: int, tags: Mapping[str, str]
) -> None:
    """Replace all tags, which keep this order."""
    await _SQL["set_tags"].run(tx, now, group_id, json.dumps(dict(tags)))


async def delete_group(tx: Transaction, now: datetime | None, group_id: int) -> bool:
    """Delete a locked group with its schedules; return False if one transaction cannot remove all.
    The group is then ``is_deleting`` until ``remove_some`` has removed the rest."""
    await probe_by_key(tx)
    if await remove_some_of_group(tx, group_id, _AT_ONCE) < _AT_ONCE:
        return True
    await _SQL["mark_deleting"].run(tx, now, group_id)
    return False


async def find_deleting(tx: Transaction, limit: int) -> list[int]:
    """Lock and return groups being deleted; skip locked ones."""
    rows = await _SQL["find_deleting"].by_key.rows(tx, limit)
    return [row[0] for row in rows]


async def remove_some_of_group(tx: Transaction, group_id: int, limit: int) -> int:
    """Remove at most ``limit`` schedules of a locked group; return the count. Below ``limit`` the
    group is removed, too. Schedules being fired delay this by at most 2 s (``wait_briefly``)."""
    await wait_briefly(tx)
    gone: int = await _SQL["remove_schedules"].value(tx, group_id, limit)
    if gone < limit:
        await _SQL["remove"].run(tx, group_id)
    await notify(tx, Notice.SCHEDULES_CHANGED)
    return gone
