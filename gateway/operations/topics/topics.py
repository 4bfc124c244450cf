"""Topics as a whole: create, list, delete, attributes (docs/contract/sns.md 3.2, 3.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.operations.caller import Caller
from gateway.operations.topics import topic_attributes
from gateway.operations.topics.live_topics import checked_topic_arn, current_topic, locked_topic
from gateway.operations.topics.pages import last_of
from gateway.operations.topics.topic_data_protection import checked_policy
from protocol import names
from protocol.arns import topic_arn
from protocol.page_tokens import token_behind
from storage.errors import InvalidParameter, Unavailable, ValidationFailed
from storage.model import Topic
from storage.topics import topics

if TYPE_CHECKING:
    from gateway.operations.engine import Engine
    from protocol.arns import Arn
    from storage.database import Transaction

_CREATE_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """``attributes`` as AWS names and spells them."""

    name: str | None
    attributes: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    data_protection_policy: str | None = None


async def create_topic(engine: Engine, caller: Caller, request: CreateTopic) -> Topic:
    """The new topic, or the existing one when it has every attribute and every tag of the request
    (docs/contract/sns.md 3.3).

    Raises ValidationFailed, and InvalidParameter, also when the existing one
    differs. Any number of creators of one name get the same topic.
    """
    name = _checked_name(request.name, request.attributes)
    is_fifo = name.endswith(".fifo")
    wanted = topic_attributes.normalise_new(request.attributes, is_fifo=is_fifo)
    policy = checked_policy(request.data_protection_policy, limits=engine.limits)
    stored = topic_attributes.merge({}, wanted)
    new = topics.NewTopic(
        caller.account_id, caller.region, name, is_fifo, stored, request.tags, policy
    )
    # A topic that is deleted between a refused insert and the look at it is created after all.
    for _ in range(_CREATE_ATTEMPTS):
        async with engine.database.transaction() as tx:
            topic = await _existing(tx, new, wanted)
            if topic is not None:
                return topic
            topic = await topics.create(tx, engine.clock.of(new.account_id).now(), new)
        if topic is not None:
            engine.wakeups.topic_changed(topic.topic_id)
            return topic
    raise Unavailable("The topic is being created and deleted by others.")


def _checked_name(name: str | None, attributes: Mapping[str, str]) -> str:
    if name is None:
        raise ValidationFailed("name")
    is_fifo = topic_attributes.wants_fifo(attributes)
    fits = names.is_fifo_topic_name(name) if is_fifo else names.is_standard_topic_name(name)
    if not fits:
        raise InvalidParameter("Topic Name")
    return name


async def _existing(
    tx: Transaction, new: topics.NewTopic, wanted: Mapping[str, str]
) -> Topic | None:
    topic = await topics.find(tx, new.account_id, new.region, new.name)
    if topic is None:
        return None
    differs = topic_attributes.differ(topic, wanted)
    if new.data_protection_policy is not None and not differs:
        policy = await topics.data_protection_policy(tx, topic.topic_id)
        differs = policy != new.data_protection_policy
    if differs:
        raise InvalidParameter("Attributes Reason: Topic already exists with different attributes")
    if any(topic.tags.get(key) != value for key, value in new.tags.items()):
        raise InvalidParameter("Tags Reason: Topic already exists with different tags")
    return topic


async def delete_topic(engine: Engine, caller: Caller, arn_text: str | None) -> None:
    """Delete the topic and its subscriptions; nothing happens when there is none.

    From the commit on nothing is published to it. What was published before and waits for a web
    hook is no longer delivered; a worker removes the archive. Raises what ``checked_topic_arn``
    raises, and InvalidParameter while the topic archives its messages.
    """
    arn = checked_topic_arn(caller, arn_text)
    async with engine.database.transaction() as tx:
        found = await topics.find(tx, arn.account_id, arn.region, arn.resource)
        topic = None if found is None else await topics.lock(tx, found.topic_id)
        if topic is None:
            return
        if topic.archive_days:
            raise InvalidParameter(
                "TopicArn Reason: A topic with an active ArchivePolicy can not be deleted"
            )
        await topics.delete(tx, topic.topic_id)
    engine.wakeups.topic_changed(topic.topic_id)


@dataclass(frozen=True, slots=True)
class TopicPage:
    """ARNs of topics. ``next_token`` None: there are no more."""

    topic_arns: list[str]
    next_token: str | None


async def list_topics(engine: Engine, caller: Caller, next_token: str | None) -> TopicPage:
    """A page of the caller's topics in the caller's region, by name in byte order.

    Raises InvalidParameter for a token that is none of ours.
    """
    size = engine.limits.sns_page
    after = last_of("topics", next_token)
    async with engine.database.transaction() as tx:
        found = await topics.list_names(
            tx, caller.account_id, caller.region, after_name=after, limit=size + 1
        )
    token = token_behind("topics", found[size - 1]) if len(found) > size else None
    page = [topic_arn(caller.region, caller.account_id, name) for name in found[:size]]
    return TopicPage(page, token)


async def get_topic_attributes(
    engine: Engine, caller: Caller, arn_text: str | None
) -> dict[str, str]:
    """All attributes that the topic has, in AWS's order. Raises NotFound."""
    arn = checked_topic_arn(caller, arn_text)
    oldest = None
    async with engine.database.transaction() as tx:
        topic = await current_topic(tx, arn)
        now = engine.clock.of(topic.account_id).now()
        counts = await topics.count_subscriptions(tx, now, topic.topic_id)
        if topic.archive_days:
            oldest = await topics.oldest_archived_at(tx, topic.topic_id)
    return topic_attributes.read(topic, counts, oldest)


@dataclass(frozen=True, slots=True)
class SetTopicAttributes:
    """``value`` None is the empty one."""

    topic_arn: str | None
    name: str | None
    value: str | None


async def set_topic_attributes(engine: Engine, caller: Caller, request: SetTopicAttributes) -> None:
    """Change one attribute; "" unsets one that can be unset.

    Raises ValidationFailed, InvalidParameter, NotFound.
    """
    arn = checked_topic_arn(caller, request.topic_arn)
    if request.name is None:
        raise ValidationFailed("attributeName")
    is_fifo = arn.resource.endswith(".fifo")
    async with engine.database.transaction() as tx:
        topic = await locked_topic(tx, arn)
        value = topic_attributes.normalise(request.name, request.value or "", is_fifo=is_fifo)
        attributes = topic_attributes.merge(topic.attributes, {request.name: value})
        await topics.set_attributes(tx, topic.topic_id, attributes)
    engine.wakeups.topic_changed(topic.topic_id)


async def change_attributes(
    engine: Engine, caller: Caller, arn: Arn, change: Callable[[Topic], Mapping[str, str]]
) -> None:
    """Replace the attributes by what ``change`` makes of the topic, which nobody else changes
    meanwhile. Raises NotFound, and what it raises."""
    async with engine.database.transaction() as tx:
        topic = await locked_topic(tx, arn)
        attributes = change(topic)
        if attributes == topic.attributes:
            return
        await topics.set_attributes(tx, topic.topic_id, attributes)
    engine.wakeups.topic_changed(topic.topic_id)


async def change_tags(
    engine: Engine,
    caller: Caller,
    arn: Arn,
    change: Callable[[Mapping[str, str]], Mapping[str, str]],
) -> None:
    """The same of its tags."""
    async with engine.database.transaction() as tx:
        topic = await locked_topic(tx, arn)
        await topics.set_tags(tx, topic.topic_id, change(topic.tags))
    engine.wakeups.topic_changed(topic.topic_id)
