"""TagResource, UntagResource, ListTagsForResource of topics (docs/contract/sns.md 3.2, 3.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from queuegate.gateway.faces.aws.face import Binding, Call, Members
from queuegate.gateway.faces.aws.limits import AWS
from queuegate.gateway.faces.aws.sns.errors import (
    InvalidParameter,
    TagLimitExceeded,
    ValidationFailed,
)
from queuegate.gateway.faces.aws.sns.topic_arns import asked_topic, find_topic
from queuegate.gateway.faces.aws.tags import Rules, removing
from queuegate.gateway.operations.topics import topics
from queuegate.storage.errors import (
    NotFound,
    ResourceNotFound,
)

_RULES = Rules(
    AWS.tags,
    lambda: TagLimitExceeded("Could not complete request: tag quota of per resource exceeded"),
    lambda: InvalidParameter("Tags Reason: Tag keys must have between 1 and 128 characters."),
    lambda: InvalidParameter("Tags Reason: Tag values must have at most 256 characters."),
    lambda _: InvalidParameter("Duplicated keys are not allowed."),
)


def checked_tags(given: Sequence[dict[str, Any]]) -> dict[str, str]:
    """The tags of a request, in the order in which they were given."""
    _RULES.check_count(len(given))
    return _RULES.checked(_pairs(given))


def _pairs(given: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for number, tag in enumerate(given, 1):
        for member in ("Key", "Value"):
            if tag.get(member) is None:
                raise ValidationFailed(f"tags.{number}.member.{member.lower()}")
        yield tag["Key"], tag["Value"]


@contextmanager
def _resource() -> Iterator[None]:
    try:
        yield
    except NotFound:
        raise ResourceNotFound("Resource does not exist") from None


async def tag_resource(call: Call) -> None:
    arn = await asked_topic(call, "resourceArn")
    tags = call.members.get("Tags")
    if tags is None:
        raise ValidationFailed("tags")
    change = _RULES.adding(checked_tags(tags))
    with _resource():
        await topics.change_tags(call.engine, call.caller, arn, change)


async def untag_resource(call: Call) -> None:
    arn = await asked_topic(call, "resourceArn")
    keys = call.members.get("TagKeys")
    if keys is None:
        raise ValidationFailed("tagKeys")
    with _resource():
        await topics.change_tags(call.engine, call.caller, arn, removing(keys))


async def list_tags_for_resource(call: Call) -> Members:
    with _resource():
        topic = await find_topic(call, "resourceArn")
    return {"Tags": [{"Key": key, "Value": value} for key, value in topic.tags.items()]}


BINDINGS: dict[str, Binding] = {
    "ListTagsForResource": list_tags_for_resource,
    "TagResource": tag_resource,
    "UntagResource": untag_resource,
}
