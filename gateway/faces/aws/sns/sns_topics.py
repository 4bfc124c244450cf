"""SNS actions on topics, their tags, permissions and data protection policies (docs/contract/sns.md
3.1 to 3.3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import orjson

from queuegate.gateway.faces.aws import aws_rules
from queuegate.gateway.faces.aws.aws_face import AwsCall, Members
from queuegate.gateway.faces.aws.aws_refusals import (
    InvalidParameter,
    TagLimitExceeded,
    ValidationFailed,
)
from queuegate.gateway.faces.aws.aws_rules import AWS, TagRules, removing
from queuegate.gateway.faces.aws.sns import topic_attributes
from queuegate.gateway.faces.aws.sns.sns_members import (
    asked_topic,
    find_topic,
    last_of,
    token_after,
)
from queuegate.gateway.faces.aws.sns.topic_attributes import effective_policy
from queuegate.gateway.operations.access import policies
from queuegate.gateway.operations.topics import topics
from queuegate.gateway.operations.topics.topics import CreateTopic
from queuegate.protocol import names
from queuegate.protocol.arns import topic_arn
from queuegate.protocol.malformed import refusing
from queuegate.protocol.policy_documents import PolicyKind
from queuegate.storage.model import Topic
from queuegate.storage.storage_errors import NotFound, ResourceNotFound, TopicKeepsArchive

_RULES = TagRules(
    AWS.tags,
    lambda: TagLimitExceeded("Could not complete request: tag quota of per resource exceeded"),
    lambda: InvalidParameter("Tags Reason: Tag keys must have between 1 and 128 characters."),
    lambda: InvalidParameter("Tags Reason: Tag values must have at most 256 characters."),
    lambda _: InvalidParameter("Duplicated keys are not allowed."),
)


def checked_tags(given: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the tags of a request in the given order."""
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
    with refusing(ResourceNotFound("Resource does not exist"), NotFound):
        yield


async def tag_resource(call: AwsCall) -> None:
    arn = await asked_topic(call, "resourceArn")
    tags = call.required("Tags")
    change = _RULES.adding(checked_tags(tags))
    with _resource():
        await topics.change_tags(call.engine, call.caller, arn, change)


async def untag_resource(call: AwsCall) -> None:
    arn = await asked_topic(call, "resourceArn")
    keys = call.required("TagKeys")
    with _resource():
        await topics.change_tags(call.engine, call.caller, arn, removing(keys))


async def list_tags_for_resource(call: AwsCall) -> Members:
    with _resource():
        topic = await find_topic(call, "resourceArn")
    return {"Tags": [{"Key": key, "Value": value} for key, value in topic.tags.items()]}


_ACTIONS = frozenset(
    {
        "AddPermission",
        "DeleteTopic",
        "GetDataProtectionPolicy",
        "GetTopicAttributes",
        "ListSubscriptionsByTopic",
        "ListTagsForResource",
        "Publish",
        "PutDataProtectionPolicy",
        "Receive",
        "RemovePermission",
        "SetTopicAttributes",
        "Subscribe",
    }
)


async def add_permission(call: AwsCall) -> None:
    """Add a statement that allows the accounts to use these actions on the topic."""
    arn = await asked_topic(call)
    label = _checked_label(call)
    accounts = call.required("AWSAccountId", may_be_empty=False)
    actions = call.required("ActionName", may_be_empty=False)
    if not all(map(aws_rules.is_principal, accounts)):
        raise InvalidParameter("AWSAccountId")

    def add(topic: Topic) -> Mapping[str, str]:
        policy = aws_rules.read_policy(effective_policy(topic))
        if aws_rules.without_label(policy, label) is not None:
            raise InvalidParameter("Statement already exists")
        if not _ACTIONS.issuperset(actions):
            raise InvalidParameter("Policy statement action out of service scope!")
        qualified = [f"SNS:{action}" for action in actions]
        policy["Statement"].append(
            aws_rules.permission_statement(label, accounts, qualified, topic.arn)
        )
        return _with(topic, policy)

    await topics.change_attributes(call.engine, call.caller, arn, add)


def _checked_label(call: AwsCall) -> str:
    label: str = call.required("Label")
    if not names.is_label(label):
        raise InvalidParameter("Label")
    return label


def _with(topic: Topic, policy: aws_rules.PolicyDocument) -> Mapping[str, str]:
    # A list of statements nests one level deeper than a single statement.
    with refusing(InvalidParameter("Policy Error: null"), TypeError):
        text = orjson.dumps(policy)
    if len(text) > AWS.topic_policy_bytes:
        raise InvalidParameter(f"Policy Error: larger than {AWS.topic_policy_bytes} bytes")
    return {**topic.attributes, "Policy": text.decode()}


async def remove_permission(call: AwsCall) -> None:
    """Remove the statements with that label, if any. The policy stays, even if empty."""
    arn = await asked_topic(call)
    label = _checked_label(call)

    def remove(topic: Topic) -> Mapping[str, str]:
        policy = aws_rules.without_label(aws_rules.read_policy(effective_policy(topic)), label)
        return topic.attributes if policy is None else _with(topic, policy)

    await topics.change_attributes(call.engine, call.caller, arn, remove)


async def create_topic(call: AwsCall) -> Members:
    """Create a topic, or return the existing one that has every attribute and tag of the request
    (docs/contract/sns.md 3.3)."""
    members = call.members
    given: Mapping[str, str] = members.get("Attributes") or {}
    name = _checked_name(call, given)
    is_fifo = name.endswith(".fifo")
    wanted = topic_attributes.normalise_new(given, is_fifo=is_fifo)
    tags = checked_tags(members.get("Tags") or ())
    policy = _checked_policy(members.get("DataProtectionPolicy"))
    stored = topic_attributes.merge({}, wanted)
    request = CreateTopic(name, is_fifo, stored, tags, policy)
    topic, is_new, its_policy = await topics.create(call.engine, call.caller, request)
    if is_new:
        policies.warn_of(given.get("Policy"), PolicyKind.RESOURCE, topic.arn)
    else:
        if topic_attributes.differ(topic, wanted) or policy != its_policy:
            raise InvalidParameter(
                "Attributes Reason: Topic already exists with different attributes"
            )
        if any(topic.tags.get(key) != value for key, value in tags.items()):
            raise InvalidParameter("Tags Reason: Topic already exists with different tags")
    return {"TopicArn": topic.arn}


def _checked_name(call: AwsCall, attributes: Mapping[str, str]) -> str:
    name: str = call.required("Name")
    is_fifo = topic_attributes.wants_fifo(attributes)
    fits = names.is_fifo_topic_name(name) if is_fifo else names.is_standard_topic_name(name)
    if not fits:
        raise InvalidParameter("Topic Name")
    return name


def _checked_policy(text: str | None) -> str | None:
    """Check a JSON object and return it as written; "" means none (docs/contract/sns.md 3.1)."""
    if not text:
        return None
    too_long = len(text) > AWS.topic_policy_bytes
    if aws_rules.json_object(text) is None or too_long or names.invalid_characters(text):
        raise InvalidParameter("DataProtectionPolicy")
    return text


async def delete_topic(call: AwsCall) -> None:
    arn = await asked_topic(call)
    try:
        await topics.delete(call.engine, call.caller, arn)
    except TopicKeepsArchive:
        raise InvalidParameter(
            "TopicArn Reason: A topic with an active ArchivePolicy can not be deleted"
        ) from None


async def list_topics(call: AwsCall) -> Members:
    size, caller = AWS.topics_page, call.caller
    after = last_of("topics", call.members.get("NextToken"))
    found = await topics.list_names(call.engine, caller, after_name=after, limit=size + 1)
    page = [
        {"TopicArn": topic_arn(caller.region, caller.account_id, name)} for name in found[:size]
    ]
    return {"Topics": page, "NextToken": token_after("topics", found, size)}


async def get_topic_attributes(call: AwsCall) -> Members:
    arn = await asked_topic(call)
    return {"Attributes": topic_attributes.read(await topics.describe(call.engine, arn))}


async def set_topic_attributes(call: AwsCall) -> None:
    """Change one attribute; "" unsets an attribute that can be unset."""
    arn = await asked_topic(call)
    name, text = call.required("AttributeName"), call.members.get("AttributeValue") or ""
    is_fifo = arn.resource.endswith(".fifo")

    def change(topic: Topic) -> Mapping[str, str]:
        value = topic_attributes.normalise(name, text, is_fifo=is_fifo)
        return topic_attributes.merge(topic.attributes, {name: value})

    await topics.change_attributes(call.engine, call.caller, arn, change)
    if name == "Policy":
        where = topic_arn(arn.region, arn.account_id, arn.resource)
        policies.warn_of(text, PolicyKind.RESOURCE, where)


async def get_data_protection_policy(call: AwsCall) -> Members:
    arn = await asked_topic(call, "resourceArn")
    return {"DataProtectionPolicy": await topics.data_protection_policy(call.engine, arn)}


async def put_data_protection_policy(call: AwsCall) -> None:
    """Replace the topic's policy; "" removes it."""
    arn = await asked_topic(call, "resourceArn")
    text = call.required("DataProtectionPolicy")
    await topics.set_data_protection_policy(call.engine, arn, _checked_policy(text))
