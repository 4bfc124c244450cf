"""Tags of topics (docs/contract/sns.md 3.2, 3.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.operations.caller import Caller
from gateway.operations.limits import Limits
from gateway.operations.topics.live_topics import checked_topic_arn, current_topic, locked_topic
from protocol import names
from storage.errors import (
    InvalidParameter,
    NotFound,
    ResourceNotFound,
    TagLimitExceeded,
    ValidationFailed,
)
from storage.model import Topic
from storage.topics import topics

if TYPE_CHECKING:
    from gateway.operations.engine import Engine
    from protocol.arns import Arn
    from storage.database import Transaction

Tag = tuple[str | None, str | None]
"""Key and value; None: the caller did not send it."""


def checked_tags(given: Sequence[Tag], *, limits: Limits) -> dict[str, str]:
    """Tags as they are stored, in the order in which they were given.

    Raises ValidationFailed for a missing key or value, InvalidParameter for one that is too long,
    not text, or twice there, and TagLimitExceeded.
    """
    check_count(given, limits=limits)
    tags: dict[str, str] = {}
    for number, (key, value) in enumerate(given, 1):
        if key is None:
            raise ValidationFailed(f"tags.{number}.member.key")
        if value is None:
            raise ValidationFailed(f"tags.{number}.member.value")
        if not names.is_tag_key(key):
            raise InvalidParameter("Tags Reason: Tag keys must have between 1 and 128 characters.")
        if not names.is_tag_value(value):
            raise InvalidParameter("Tags Reason: Tag values must have at most 256 characters.")
        if key in tags:
            raise InvalidParameter("Duplicated keys are not allowed.")
        tags[key] = value
    return tags


def check_count(tags: Sized, *, limits: Limits) -> None:
    """Raises TagLimitExceeded."""
    if len(tags) > limits.tags:
        raise TagLimitExceeded("Could not complete request: tag quota of per resource exceeded")


async def _locked(tx: Transaction, arn: Arn) -> Topic:
    try:
        return await locked_topic(tx, arn)
    except NotFound:
        raise _missing() from None


def _missing() -> ResourceNotFound:
    return ResourceNotFound("Resource does not exist")


@dataclass(frozen=True, slots=True)
class TagResource:
    resource_arn: str | None
    tags: Sequence[Tag] | None


async def tag_resource(engine: Engine, caller: Caller, request: TagResource) -> None:
    """Add tags; one whose key is there already gets the new value. Keys are case-sensitive.

    Raises what ``checked_tags`` and ``checked_topic_arn`` raise, and ResourceNotFound.
    """
    arn = checked_topic_arn(caller, request.resource_arn, "resourceArn")
    if request.tags is None:
        raise ValidationFailed("tags")
    added = checked_tags(request.tags, limits=engine.limits)
    async with engine.database.transaction() as tx:
        topic = await _locked(tx, arn)
        tags = {**topic.tags, **added}
        check_count(tags, limits=engine.limits)
        await topics.set_tags(tx, topic.topic_id, tags)
    engine.wakeups.topic_changed(topic.topic_id)


@dataclass(frozen=True, slots=True)
class UntagResource:
    resource_arn: str | None
    tag_keys: Sequence[str] | None


async def untag_resource(engine: Engine, caller: Caller, request: UntagResource) -> None:
    """Remove tags by key; keys that are not there are ignored. Raises ResourceNotFound."""
    arn = checked_topic_arn(caller, request.resource_arn, "resourceArn")
    if request.tag_keys is None:
        raise ValidationFailed("tagKeys")
    removed = frozenset(request.tag_keys)
    async with engine.database.transaction() as tx:
        topic = await _locked(tx, arn)
        tags = {key: value for key, value in topic.tags.items() if key not in removed}
        await topics.set_tags(tx, topic.topic_id, tags)
    engine.wakeups.topic_changed(topic.topic_id)


async def list_tags_for_resource(
    engine: Engine, caller: Caller, resource_arn: str | None
) -> Mapping[str, str]:
    """All tags of the topic, in the order in which they were added. Raises ResourceNotFound."""
    arn = checked_topic_arn(caller, resource_arn, "resourceArn")
    async with engine.database.transaction() as tx:
        try:
            return (await current_topic(tx, arn)).tags
        except NotFound:
            raise _missing() from None
