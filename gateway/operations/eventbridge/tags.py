"""Tags of groups of schedules: nothing else can be tagged (docs/contract/scheduler.md 4.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from protocol import arns, names
from protocol.errors import Malformed
from storage.errors import ResourceNotFound, ScheduleInvalid
from storage.schedules import schedule_groups
from storage.schedules.schedule_groups import DEFAULT, ScheduleGroup

if TYPE_CHECKING:
    from gateway.operations.caller import Caller
    from gateway.operations.engine import Engine
    from storage.database import Transaction

_MOST = 200


def checked_tags(given: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Tags as they are stored, in the order in which they were given. Raises ScheduleInvalid."""
    tags: dict[str, str] = {}
    for key, value in given:
        if not names.is_tag_key(key) or not names.is_tag_value(value):
            raise ScheduleInvalid("A tag has characters that no tag may have.")
        if key in tags:
            raise ScheduleInvalid(f"The tag key {key} is given twice.")
        tags[key] = value
    return tags


async def _tagged(engine: Engine, caller: Caller, tx: Transaction, arn: str) -> ScheduleGroup:
    """The group of an ARN, held. Accounts and regions are namespaces: the caller sees its own."""
    try:
        parsed = arns.parse(arn)
    except Malformed:
        raise ScheduleInvalid(f"The ARN is not that of a schedule group: {arn}.") from None
    name = parsed.resource.partition("/")[2]
    place = (caller.account_id, caller.region)
    group = None
    if (parsed.account_id, parsed.region) == place:
        if name == DEFAULT:
            await schedule_groups.ensure_default(
                tx, engine.clock.of(caller.account_id).now(), *place
            )
        group = await schedule_groups.lock(tx, *place, name)
    if group is None:
        raise ResourceNotFound(f"Schedule group {name} does not exist.")
    return group


async def tag_resource(
    engine: Engine, caller: Caller, arn: str, given: Sequence[tuple[str, str]]
) -> None:
    """Add tags; one whose key is there already gets the new value. Keys are case-sensitive.

    Raises ScheduleInvalid and ResourceNotFound.
    """
    added = checked_tags(given)
    async with engine.database.transaction() as tx:
        group = await _tagged(engine, caller, tx, arn)
        tags = {**group.tags, **added}
        if len(tags) > _MOST:
            raise ScheduleInvalid(f"A schedule group has at most {_MOST} tags.")
        await schedule_groups.set_tags(
            tx, engine.clock.of(caller.account_id).now(), group.group_id, tags
        )


async def untag_resource(engine: Engine, caller: Caller, arn: str, tag_keys: Sequence[str]) -> None:
    """Remove tags by key; keys that are not there are ignored. Raises ResourceNotFound."""
    removed = frozenset(tag_keys)
    async with engine.database.transaction() as tx:
        group = await _tagged(engine, caller, tx, arn)
        tags = {key: value for key, value in group.tags.items() if key not in removed}
        await schedule_groups.set_tags(
            tx, engine.clock.of(caller.account_id).now(), group.group_id, tags
        )


async def list_tags_for_resource(engine: Engine, caller: Caller, arn: str) -> Mapping[str, str]:
    """All tags of the group, in the order in which they were added. Raises ResourceNotFound."""
    async with engine.database.transaction() as tx:
        return (await _tagged(engine, caller, tx, arn)).tags
