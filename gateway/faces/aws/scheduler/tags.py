"""Tags of groups of schedules: nothing else can be tagged (docs/contract/scheduler.md 4.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from queuegate.gateway.faces.aws.face import Binding, Call, Members
from queuegate.gateway.faces.aws.limits import AWS
from queuegate.gateway.faces.aws.tags import Rules, removing
from queuegate.gateway.operations.schedules import stored_schedules
from queuegate.protocol import arns
from queuegate.protocol.errors import Malformed
from queuegate.storage.schedule_errors import ScheduleInvalid


def _bad_characters() -> ScheduleInvalid:
    return ScheduleInvalid("A tag has characters that no tag may have.")


_RULES = Rules(
    AWS.schedule_group_tags,
    lambda: ScheduleInvalid(f"A schedule group has at most {AWS.schedule_group_tags} tags."),
    _bad_characters,
    _bad_characters,
    lambda key: ScheduleInvalid(f"The tag key {key} is given twice."),
)


def checked_tags(given: Sequence[Mapping[str, str]] | None) -> dict[str, str]:
    """The tags of a request, in the order in which they were given. Raises ScheduleInvalid."""
    return _RULES.checked((tag["Key"], tag["Value"]) for tag in given or ())


def _group_of(call: Call) -> str:
    """The group of an ARN. Accounts and regions are namespaces: the caller sees its own."""
    arn, caller = call.members["ResourceArn"], call.caller
    try:
        parsed = arns.parse(arn)
    except Malformed:
        raise ScheduleInvalid(f"The ARN is not that of a schedule group: {arn}.") from None
    name = parsed.resource.partition("/")[2]
    if (parsed.account_id, parsed.region) != (caller.account_id, caller.region):
        raise stored_schedules.not_found(name)
    return name


async def tag_resource(call: Call) -> None:
    change = _RULES.adding(checked_tags(call.members["Tags"]))
    await stored_schedules.change_tags(call.engine, call.caller, _group_of(call), change)


async def untag_resource(call: Call) -> None:
    change = removing(call.members["TagKeys"])
    await stored_schedules.change_tags(call.engine, call.caller, _group_of(call), change)


async def list_tags_for_resource(call: Call) -> Members:
    group = await stored_schedules.find_group(call.engine, call.caller, _group_of(call))
    return {"Tags": [{"Key": key, "Value": value} for key, value in group.tags.items()]}


BINDINGS: dict[str, Binding] = {
    "ListTagsForResource": list_tags_for_resource,
    "TagResource": tag_resource,
    "UntagResource": untag_resource,
}
