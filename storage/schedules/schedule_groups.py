"""Groups of schedules; schedules without a group exist, too.

A client token is stored with its group, to tell a repeated request from a second one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from queuegate.storage.model import ScheduleGroup
from queuegate.storage.notifications import notify_schedules_changed
from queuegate.storage.planning import probe_by_key
from queuegate.storage.queries import load
from queuegate.storage.schedules.schedules import wait_briefly

if TYPE_CHECKING:
    import asyncpg

    from queuegate.storage.database import Transaction

_SQL = load("schedules/schedule_groups")

DEFAULT_GROUP = "default"
"""The group that always exists (docs/contract/scheduler.md 4.2)."""

_AT_ONCE = 1_000
"""Schedules deleted in the transaction that deletes their group; a worker removes the rest."""


def _group(row: asyncpg.Record) -> ScheduleGroup:
    return ScheduleGroup(
        group_id=row["group_id"],
        account_id=row["account_id"],
        region=row["region"],
        name=row["group_name"],
        tags=json.loads(row["tags"]),
        is_deleting=row["is_deleting"],
        client_token=row["client_token"],
        created_at=row["created_at"],
        modified_at=row["modified_at"],
    )


async def find_group(
    tx: Transaction, account_id: str, region: str, name: str
) -> ScheduleGroup | None:
    """Return the group of that name."""
    row = await tx.fetchrow(_SQL["find"].text, account_id, region, name)
    return None if row is None else _group(row)


async def lock_group(
    tx: Transaction, account_id: str, region: str, name: str
) -> ScheduleGroup | None:
    """Lock and return the group, until the transaction ends."""
    row = await tx.fetchrow(_SQL["lock"].text, account_id, region, name)
    return None if row is None else _group(row)


async def share_group(
    tx: Transaction, account_id: str, region: str, name: str
) -> ScheduleGroup | None:
    """Lock and return the group for a new schedule: its deletion waits, other additions do not."""
    row = await tx.fetchrow(_SQL["share"].text, account_id, region, name)
    return None if row is None else _group(row)


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
    row = await tx.fetchrow(
        _SQL["create"].text,
        now,
        account_id,
        region,
        name,
        json.dumps(dict(tags or {})),
        client_token,
    )
    return None if row is None else _group(row)


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
    rows = await tx.fetch(_SQL["page"].text, account_id, region, name_prefix, after_name, limit)
    return [_group(row) for row in rows]


async def set_group_tags(
    tx: Transaction, now: datetime | None, group_id: int, tags: Mapping[str, str]
) -> None:
    """Replace all tags, which keep this order."""
    await tx.execute(_SQL["set_tags"].text, now, group_id, json.dumps(dict(tags)))


async def delete_group(tx: Transaction, now: datetime | None, group_id: int) -> bool:
    """Delete a locked group with its schedules; return False if one transaction cannot remove all.
    The group is then ``is_deleting`` until ``remove_some`` has removed the rest."""
    await probe_by_key(tx)
    if await remove_some_of_group(tx, group_id, _AT_ONCE) < _AT_ONCE:
        return True
    await tx.execute(_SQL["mark_deleting"].text, now, group_id)
    return False


async def find_deleting(tx: Transaction, limit: int) -> list[int]:
    """Lock and return groups being deleted; skip locked ones."""
    await probe_by_key(tx)
    rows = await tx.fetch(_SQL["find_deleting"].text, limit)
    return [row[0] for row in rows]


async def remove_some_of_group(tx: Transaction, group_id: int, limit: int) -> int:
    """Remove at most ``limit`` schedules of a locked group; return the count. Below ``limit`` the
    group is removed, too. Schedules being fired delay this by at most 2 s (``wait_briefly``)."""
    await wait_briefly(tx)
    gone: int = await tx.fetchval(_SQL["remove_schedules"].text, group_id, limit)
    if gone < limit:
        await tx.execute(_SQL["remove"].text, group_id)
    await notify_schedules_changed(tx)
    return gone
