"""AddPermission and RemovePermission of SNS: statements of the topic's policy (3.3)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from gateway.operations.caller import Caller
from gateway.operations.topics.live_topics import checked_topic_arn, locked_topic
from gateway.operations.topics.topic_attributes import effective_policy
from protocol import names
from storage.errors import InvalidParameter, ValidationFailed
from storage.model import Topic
from storage.topics import topics

if TYPE_CHECKING:
    from gateway.operations.engine import Engine
    from storage.database import Transaction

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
_ACCOUNT = re.compile(r"[0-9]{12}")
_ACCOUNT_OR_ARN = re.compile(r"[0-9]{12}|arn:aws[a-z-]{0,20}:iam::[0-9]{12}:[!-~]{1,512}")


@dataclass(frozen=True, slots=True)
class AddPermission:
    """None: the caller did not send the parameter."""

    topic_arn: str | None
    label: str | None
    account_ids: Sequence[str] | None
    actions: Sequence[str] | None


async def add_permission(engine: Engine, caller: Caller, request: AddPermission) -> None:
    """Add a statement that allows the accounts these actions on the topic.

    Raises ValidationFailed for what is missing, NotFound, and InvalidParameter for a label that is
    taken or malformed, an action that no policy of a topic takes, an account that cannot be one,
    and a policy that would become too large.
    """
    arn = checked_topic_arn(caller, request.topic_arn)
    label = _checked_label(request.label)
    if not request.account_ids:
        raise ValidationFailed("aWSAccountId")
    if not request.actions:
        raise ValidationFailed("actionName")
    if not all(map(_ACCOUNT_OR_ARN.fullmatch, request.account_ids)):
        raise InvalidParameter("AWSAccountId")
    async with engine.database.transaction() as tx:
        topic = await locked_topic(tx, arn)
        policy = _policy(topic)
        if any(_sid(other) == label for other in policy["Statement"]):
            raise InvalidParameter("Statement already exists")
        if not _ACTIONS.issuperset(request.actions):
            raise InvalidParameter("Policy statement action out of service scope!")
        policy["Statement"].append(_statement(topic, label, request))
        await _store(engine, tx, topic, policy)
    engine.wakeups.topic_changed(topic.topic_id)


def _statement(topic: Topic, label: str, request: AddPermission) -> dict[str, Any]:
    """The statement as AWS writes it: one value as a scalar, several as an array."""
    principals = [
        f"arn:aws:iam::{account_id}:root" if _ACCOUNT.fullmatch(account_id) else account_id
        for account_id in request.account_ids or ()
    ]
    return {
        "Sid": label,
        "Effect": "Allow",
        "Principal": {"AWS": _scalar_or_list(principals)},
        "Action": _scalar_or_list([f"SNS:{action}" for action in request.actions or ()]),
        "Resource": topic.arn,
    }


def _scalar_or_list(values: list[str]) -> str | list[str]:
    return values[0] if len(values) == 1 else values


def _checked_label(label: str | None) -> str:
    if label is None:
        raise ValidationFailed("label")
    if not names.is_label(label):
        raise InvalidParameter("Label")
    return label


def _policy(topic: Topic) -> dict[str, Any]:
    """The topic's policy with its statements as a list."""
    policy: dict[str, Any] = orjson.loads(effective_policy(topic))
    statements = policy["Statement"]
    policy["Statement"] = statements if isinstance(statements, list) else [statements]
    return policy


def _sid(statement: object) -> object:
    return statement.get("Sid") if isinstance(statement, dict) else None


async def _store(engine: Engine, tx: Transaction, topic: Topic, policy: dict[str, Any]) -> None:
    try:
        text = orjson.dumps(policy)
    except TypeError:
        # One statement nested as deeply as a policy may be is deeper still in a list of several.
        raise InvalidParameter("Policy Error: null") from None
    if len(text) > engine.limits.topic_policy_bytes:
        raise InvalidParameter(
            f"Policy Error: larger than {engine.limits.topic_policy_bytes} bytes"
        )
    attributes = {**topic.attributes, "Policy": text.decode()}
    await topics.set_attributes(tx, topic.topic_id, attributes)


@dataclass(frozen=True, slots=True)
class RemovePermission:
    topic_arn: str | None
    label: str | None


async def remove_permission(engine: Engine, caller: Caller, request: RemovePermission) -> None:
    """Remove the statements with that label, if there are any. The policy stays, even empty.

    Raises ValidationFailed, InvalidParameter for a malformed label, NotFound.
    """
    arn = checked_topic_arn(caller, request.topic_arn)
    label = _checked_label(request.label)
    async with engine.database.transaction() as tx:
        topic = await locked_topic(tx, arn)
        policy = _policy(topic)
        kept = [statement for statement in policy["Statement"] if _sid(statement) != label]
        if len(kept) == len(policy["Statement"]):
            return
        await _store(engine, tx, topic, {**policy, "Statement": kept})
    engine.wakeups.topic_changed(topic.topic_id)
