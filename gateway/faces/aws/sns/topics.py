"""SNS actions on topics: action -> binding. Decoded members in, response members out."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from queuegate.gateway.faces.aws.face import Binding, Call, Members
from queuegate.gateway.faces.aws.limits import AWS
from queuegate.gateway.faces.aws.sns import topic_attributes
from queuegate.gateway.faces.aws.sns.errors import (
    InvalidParameter,
    ValidationFailed,
)
from queuegate.gateway.faces.aws.sns.pages import last_of
from queuegate.gateway.faces.aws.sns.tags import checked_tags
from queuegate.gateway.faces.aws.sns.topic_arns import asked_topic
from queuegate.gateway.operations.access import policies
from queuegate.gateway.operations.topics import topics
from queuegate.gateway.operations.topics.topics import CreateTopic
from queuegate.protocol import names
from queuegate.protocol.arns import topic_arn
from queuegate.protocol.page_tokens import token_behind
from queuegate.protocol.policies import Kind
from queuegate.storage.errors import (
    TopicKeepsArchive,
)
from queuegate.storage.model import Topic


async def create_topic(call: Call) -> Members:
    """The new topic, or the existing one when it has every attribute and every tag of the request
    (docs/contract/sns.md 3.3)."""
    members = call.members
    given: Mapping[str, str] = members.get("Attributes") or {}
    name = _checked_name(members.get("Name"), given)
    is_fifo = name.endswith(".fifo")
    wanted = topic_attributes.normalise_new(given, is_fifo=is_fifo)
    tags = checked_tags(members.get("Tags") or ())
    policy = _checked_policy(members.get("DataProtectionPolicy"))
    stored = topic_attributes.merge({}, wanted)
    request = CreateTopic(name, is_fifo, stored, tags, policy)
    topic, is_new, its_policy = await topics.create(call.engine, call.caller, request)
    if is_new:
        policies.warn_of(given.get("Policy"), Kind.RESOURCE, topic.arn)
    else:
        if topic_attributes.differ(topic, wanted) or policy != its_policy:
            raise InvalidParameter(
                "Attributes Reason: Topic already exists with different attributes"
            )
        if any(topic.tags.get(key) != value for key, value in tags.items()):
            raise InvalidParameter("Tags Reason: Topic already exists with different tags")
    return {"TopicArn": topic.arn}


def _checked_name(name: str | None, attributes: Mapping[str, str]) -> str:
    if name is None:
        raise ValidationFailed("name")
    is_fifo = topic_attributes.wants_fifo(attributes)
    fits = names.is_fifo_topic_name(name) if is_fifo else names.is_standard_topic_name(name)
    if not fits:
        raise InvalidParameter("Topic Name")
    return name


def _checked_policy(text: str | None) -> str | None:
    """A JSON object, kept as it was written; "" means none (docs/contract/sns.md 3.1)."""
    if not text:
        return None
    try:
        document = orjson.loads(text)
    except ValueError:
        document = None
    too_long = len(text) > AWS.topic_policy_bytes
    if not isinstance(document, dict) or too_long or names.invalid_characters(text):
        raise InvalidParameter("DataProtectionPolicy")
    return text


async def delete_topic(call: Call) -> None:
    arn = await asked_topic(call)
    try:
        await topics.delete(call.engine, call.caller, arn)
    except TopicKeepsArchive:
        raise InvalidParameter(
            "TopicArn Reason: A topic with an active ArchivePolicy can not be deleted"
        ) from None


async def list_topics(call: Call) -> Members:
    size, caller = AWS.topics_page, call.caller
    after = last_of("topics", call.members.get("NextToken"))
    found = await topics.list_names(call.engine, caller, after_name=after, limit=size + 1)
    page = [
        {"TopicArn": topic_arn(caller.region, caller.account_id, name)} for name in found[:size]
    ]
    token = token_behind("topics", found[size - 1]) if len(found) > size else None
    return {"Topics": page, "NextToken": token}


async def get_topic_attributes(call: Call) -> Members:
    arn = await asked_topic(call)
    return {"Attributes": topic_attributes.read(await topics.describe(call.engine, arn))}


async def set_topic_attributes(call: Call) -> None:
    """Change one attribute; "" unsets one that can be unset."""
    members = call.members
    arn = await asked_topic(call)
    name, text = members.get("AttributeName", ""), members.get("AttributeValue") or ""
    if "AttributeName" not in members:
        raise ValidationFailed("attributeName")
    is_fifo = arn.resource.endswith(".fifo")

    def change(topic: Topic) -> Mapping[str, str]:
        value = topic_attributes.normalise(name, text, is_fifo=is_fifo)
        return topic_attributes.merge(topic.attributes, {name: value})

    await topics.change_attributes(call.engine, call.caller, arn, change)
    if name == "Policy":
        where = topic_arn(arn.region, arn.account_id, arn.resource)
        policies.warn_of(text, Kind.RESOURCE, where)


async def get_data_protection_policy(call: Call) -> Members:
    arn = await asked_topic(call, "resourceArn")
    return {"DataProtectionPolicy": await topics.data_protection_policy(call.engine, arn)}


async def put_data_protection_policy(call: Call) -> None:
    """Replace the topic's policy; "" removes it."""
    arn = await asked_topic(call, "resourceArn")
    text = call.members.get("DataProtectionPolicy")
    if text is None:
        raise ValidationFailed("dataProtectionPolicy")
    await topics.set_data_protection_policy(call.engine, arn, _checked_policy(text))


BINDINGS: dict[str, Binding] = {
    "CreateTopic": create_topic,
    "DeleteTopic": delete_topic,
    "GetDataProtectionPolicy": get_data_protection_policy,
    "GetTopicAttributes": get_topic_attributes,
    "ListTopics": list_topics,
    "PutDataProtectionPolicy": put_data_protection_policy,
    "SetTopicAttributes": set_topic_attributes,
}
"""SNS actions on topics."""
