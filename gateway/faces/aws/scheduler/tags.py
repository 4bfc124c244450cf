"""Tags of groups of schedules: nothing else can be tagged (docs/contract/scheduler.md 4.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gateway.faces.aws.tags import Rules, removing
from gateway.operations.schedules import groups
from protocol import arns
from protocol.errors import Malformed
from storage.errors import ScheduleInvalid

if TYPE_CHECKING:
    from gateway.operations.caller import Caller
    from gateway.operations.engine import Engine


def _bad_characters() -> ScheduleInvalid:
    return ScheduleInvalid("A tag has characters that no tag may have.")


_MOST = 200
RULES = Rules(
    _MOST,
    lambda: ScheduleInvalid(f"A schedule group has at most {_MOST} tags."),
    _bad_characters,
    _bad_characters,
    lambda key: ScheduleInvalid(f"The tag key {key} is given twice."),
)


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
    change = RULES.adding(RULES.checked(given))
    await groups.change_tags(engine, caller, _group_of(caller, arn), change)


async def untag_resource(engine: Engine, caller: Caller, arn: str, tag_keys: Sequence[str]) -> None:
    """Remove tags by key; keys that are not there are ignored. Raises ResourceNotFound."""
    await groups.change_tags(engine, caller, _group_of(caller, arn), removing(tag_keys))


async def list_tags_for_resource(engine: Engine, caller: Caller, arn: str) -> Mapping[str, str]:
    """All tags of the group, in the order in which they were added. Raises ResourceNotFound."""
    return (await groups.find_group(engine, caller, _group_of(caller, arn))).tags
