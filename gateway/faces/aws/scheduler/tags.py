"""Tags of groups of schedules: nothing else can be tagged (docs/contract/scheduler.md 4.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from gateway.operations.schedules import groups
from protocol import arns, names
from protocol.errors import Malformed
from storage.errors import ScheduleInvalid

if TYPE_CHECKING:
    from gateway.operations.caller import Caller
    from gateway.operations.engine import Engine

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


def _group_of(caller: Caller, arn: str) -> str:
    """The group of an ARN. Accounts and regions are namespaces: the caller sees its own."""
    try:
        parsed = arns.parse(arn)
    except Malformed:
        raise ScheduleInvalid(f"The ARN is not that of a schedule group: {arn}.") from None
    name = parsed.resource.partition("/")[2]
    if (parsed.account_id, parsed.region) != (caller.account_id, caller.region):
        raise groups.not_found(name)
    return name


async def tag_resource(
    engine: Engine, caller: Caller, arn: str, given: Sequence[tuple[str, str]]
) -> None:
    """Add tags; one whose key is there already gets the new value. Keys are case-sensitive.

    Raises ScheduleInvalid and ResourceNotFound.
    """
    added = checked_tags(given)

    def with_added(tags: Mapping[str, str]) -> Mapping[str, str]:
        changed = {**tags, **added}
        if len(changed) > _MOST:
            raise ScheduleInvalid(f"A schedule group has at most {_MOST} tags.")
        return changed

    await groups.change_tags(engine, caller, _group_of(caller, arn), with_added)


async def untag_resource(engine: Engine, caller: Caller, arn: str, tag_keys: Sequence[str]) -> None:
    """Remove tags by key; keys that are not there are ignored. Raises ResourceNotFound."""
    removed = frozenset(tag_keys)

    def without(tags: Mapping[str, str]) -> Mapping[str, str]:
        return {key: value for key, value in tags.items() if key not in removed}

    await groups.change_tags(engine, caller, _group_of(caller, arn), without)


async def list_tags_for_resource(engine: Engine, caller: Caller, arn: str) -> Mapping[str, str]:
    """All tags of the group, in the order in which they were added. Raises ResourceNotFound."""
    return (await groups.find_group(engine, caller, _group_of(caller, arn))).tags
