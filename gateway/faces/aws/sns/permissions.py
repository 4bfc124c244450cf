"""AddPermission and RemovePermission: statements of a topic's policy (docs/contract/sns.md 3.3)."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from queuegate.gateway.faces.aws import permissions
from queuegate.gateway.faces.aws.face import Binding, Call
from queuegate.gateway.faces.aws.limits import AWS
from queuegate.gateway.faces.aws.sns.errors import (
    InvalidParameter,
    ValidationFailed,
)
from queuegate.gateway.faces.aws.sns.topic_arns import asked_topic
from queuegate.gateway.faces.aws.sns.topic_attributes import effective_policy
from queuegate.gateway.operations.topics import topics
from queuegate.protocol import names
from queuegate.storage.model import Topic

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


async def add_permission(call: Call) -> None:
    """Add a statement that allows the accounts these actions on the topic."""
    arn = await asked_topic(call)
    label = _checked_label(call.members.get("Label"))
    accounts = call.members.get("AWSAccountId")
    actions = call.members.get("ActionName")
    if not accounts:
        raise ValidationFailed("aWSAccountId")
    if not actions:
        raise ValidationFailed("actionName")
    if not all(map(permissions.is_principal, accounts)):
        raise InvalidParameter("AWSAccountId")

    def add(topic: Topic) -> Mapping[str, str]:
        policy = permissions.read(effective_policy(topic))
        if permissions.without(policy, label) is not None:
            raise InvalidParameter("Statement already exists")
        if not _ACTIONS.issuperset(actions):
            raise InvalidParameter("Policy statement action out of service scope!")
        qualified = [f"SNS:{action}" for action in actions]
        policy["Statement"].append(permissions.statement(label, accounts, qualified, topic.arn))
        return _with(topic, policy)

    await topics.change_attributes(call.engine, call.caller, arn, add)


def _checked_label(label: str | None) -> str:
    if label is None:
        raise ValidationFailed("label")
    if not names.is_label(label):
        raise InvalidParameter("Label")
    return label


def _with(topic: Topic, policy: permissions.Policy) -> Mapping[str, str]:
    try:
        text = orjson.dumps(policy)
    except TypeError:
        # One statement nested as deeply as a policy may be is deeper still in a list of several.
        raise InvalidParameter("Policy Error: null") from None
    if len(text) > AWS.topic_policy_bytes:
        raise InvalidParameter(f"Policy Error: larger than {AWS.topic_policy_bytes} bytes")
    return {**topic.attributes, "Policy": text.decode()}


async def remove_permission(call: Call) -> None:
    """Remove the statements with that label, if there are any. The policy stays, even empty."""
    arn = await asked_topic(call)
    label = _checked_label(call.members.get("Label"))

    def remove(topic: Topic) -> Mapping[str, str]:
        policy = permissions.without(permissions.read(effective_policy(topic)), label)
        return topic.attributes if policy is None else _with(topic, policy)

    await topics.change_attributes(call.engine, call.caller, arn, remove)


BINDINGS: dict[str, Binding] = {
    "AddPermission": add_permission,
    "RemovePermission": remove_permission,
}
