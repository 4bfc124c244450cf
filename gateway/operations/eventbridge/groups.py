"""Groups of schedules (docs/contract/scheduler.md 4.1): the one named `default` is always there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gateway.operations.eventbridge.pages import last_of, page_size
from gateway.operations.eventbridge.requests import CreateScheduleGroup, ListScheduleGroups
from gateway.operations.eventbridge.tags import checked_tags
from gateway.operations.pagination import token_behind
from protocol.arns import schedule_group_arn
from storage.errors import (
    ResourceNotFound,
    ScheduleConflict,
    ScheduleInvalid,
    ScheduleQuotaExceeded,
    Unavailable,
)
from storage.schedules import schedule_groups
from storage.schedules.schedule_groups import DEFAULT, ScheduleGroup

if TYPE_CHECKING:
    from gateway.operations.caller import Caller
    from gateway.operations.engine import Engine
    from storage.database import Transaction

_CREATE_ATTEMPTS = 5


def not_found(name: str) -> ResourceNotFound:
    """The refusal of a group that is not there."""
    return ResourceNotFound(f"Schedule group {name} does not exist.")


def arn_of(group: ScheduleGroup) -> str:
    """The ARN of a group."""
    return schedule_group_arn(group.region, group.account_id, group.name)


def description(group: ScheduleGroup) -> dict[str, Any]:
    """A group as GetScheduleGroup shows it."""
    return {
        "Arn": arn_of(group),
        "Name": group.name,
        "State": "DELETING" if group.is_deleting else "ACTIVE",
        "CreationDate": group.created_at,
        "LastModificationDate": group.modified_at,
    }


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


async def create_schedule_group(
    engine: Engine, caller: Caller, request: CreateScheduleGroup
) -> ScheduleGroup:
    """The new group, or the one that the same request with the same client token has made.

    Raises ScheduleConflict, ScheduleInvalid and ScheduleQuotaExceeded.
    """
    tags = checked_tags(request.tags)
    account_id, region, name = caller.account_id, caller.region, request.name
    # A group that is deleted between a refused insert and the look at it is created after all.
    for _ in range(_CREATE_ATTEMPTS):
        async with engine.database.transaction() as tx:
            found = await schedule_groups.find(tx, account_id, region, name)
            if found is not None or name == DEFAULT:
                return _same(found, request, tags)
            await _check_quota(engine, caller, tx)
            created = await schedule_groups.create(
                tx,
                engine.clock.of(caller.account_id).now(),
                account_id,
                region,
                name,
                tags=tags,
                client_token=request.client_token,
            )
        if created is not None:
            return created
    raise Unavailable("The group is being created and deleted by others.")


def _same(
    found: ScheduleGroup | None, request: CreateScheduleGroup, tags: dict[str, str]
) -> ScheduleGroup:
    """The group that is there, if this is the request that made it."""
    is_repeated = (
        found is not None
        and request.client_token is not None
        and found.client_token == request.client_token
        and found.tags == tags
        and not found.is_deleting
    )
    if found is None or not is_repeated:
        raise ScheduleConflict(f"Schedule group {request.name} already exists.")
    return found


async def _check_quota(engine: Engine, caller: Caller, tx: Transaction) -> None:
    most = engine.limits.schedule_groups
    found = await schedule_groups.page(tx, caller.account_id, caller.region, limit=most)
    if len(found) >= most:
        raise ScheduleQuotaExceeded(f"An account has at most {most} schedule groups in a region.")


async def get_schedule_group(engine: Engine, caller: Caller, name: str) -> ScheduleGroup:
    """One group. Raises ResourceNotFound."""
    async with engine.database.transaction() as tx:
        return await existing_group(engine, caller, tx, name)


async def delete_schedule_group(engine: Engine, caller: Caller, name: str) -> None:
    """Delete the group with its schedules: a large one goes bit by bit, and is shown meanwhile.

    Raises ResourceNotFound, and ScheduleInvalid for the one that is always there.
    """
    if name == DEFAULT:
        raise ScheduleInvalid("The default schedule group cannot be deleted.")
    async with engine.database.transaction() as tx:
        group = await schedule_groups.lock(tx, caller.account_id, caller.region, name)
        if group is None:
            raise not_found(name)
        if not group.is_deleting:
            await schedule_groups.delete(
                tx, engine.clock.of(caller.account_id).now(), group.group_id
            )


@dataclass(frozen=True, slots=True)
class GroupPage:
    """``next_token`` None: there are no more."""

    groups: list[ScheduleGroup]
    next_token: str | None


async def list_schedule_groups(
    engine: Engine, caller: Caller, request: ListScheduleGroups
) -> GroupPage:
    """A page of the caller's groups by name, in byte order. Raises ScheduleInvalid for a token that
    is none of ours."""
    size = page_size(request.max_results)
    after = last_of("groups", request.next_token) or ""
    account_id, region = caller.account_id, caller.region
    async with engine.database.transaction() as tx:
        await existing_group(engine, caller, tx, DEFAULT)
        found = await schedule_groups.page(
            tx,
            account_id,
            region,
            name_prefix=request.name_prefix,
            after_name=after,
            limit=size + 1,
        )
    more = len(found) > size
    return GroupPage(found[:size], token_behind("groups", found[size - 1].name) if more else None)
