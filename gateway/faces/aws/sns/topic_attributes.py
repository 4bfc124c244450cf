"""Topic attributes: names, valid values, and the form that AWS reads back (docs/contract/sns.md
3.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from queuegate.gateway.faces.aws.aws_refusals import InvalidParameter
from queuegate.gateway.faces.aws.aws_rules import (
    AWS,
    AttributeFault,
    AttributeRule,
    boolean,
    is_number,
    json_object,
    number_in,
    one_of,
    policy_of,
    text_of_length,
    unless_empty,
)
from queuegate.gateway.operations.topics.topics import DescribedTopic
from queuegate.protocol import arns, delivery_policies
from queuegate.protocol.malformed import Malformed, refusing
from queuegate.protocol.sns_envelopes import timestamp
from queuegate.storage.model import TOPIC_DEFAULTS, Topic

IN_A_MAP = "Attributes Reason: "
"""Prefix of refusals of attributes in a map."""

_ARCHIVE = "ArchivePolicy"
_ARCHIVE_KEY = "MessageRetentionPeriod"
_DELIVERY = "DeliveryPolicy"
_DEDUPLICATION = "ContentBasedDeduplication"
_SCOPE = "FifoThroughputScope"
_FIFO_ONLY = {_DEDUPLICATION: "Content-based deduplication", _SCOPE: _SCOPE, _ARCHIVE: _ARCHIVE}
_FEEDBACK = tuple(
    f"{protocol}{setting}"
    for protocol in ("HTTP", "SQS", "Lambda", "Firehose", "Application")
    for setting in ("SuccessFeedbackRoleArn", "SuccessFeedbackSampleRate", "FailureFeedbackRoleArn")
)
READABLE = (
    "Policy",
    "SignatureVersion",
    "Owner",
    "SubscriptionsPending",
    "KmsMasterKeyId",
    "TopicArn",
    "TracingConfig",
    "EffectiveDeliveryPolicy",
    "SubscriptionsConfirmed",
    "DisplayName",
    _DELIVERY,
    "SubscriptionsDeleted",
    *_FEEDBACK,
    "FifoTopic",
    _DEDUPLICATION,
    _SCOPE,
    _ARCHIVE,
    "BeginningArchiveTime",
    "MaximumMessageSize",
)
"""Every attribute of a topic, in the order of GetTopicAttributes."""


def _loaded(text: str) -> dict[str, Any] | None:
    """Parse a JSON object; None for other texts, and for one nested too deeply to store."""
    document = json_object(text)
    try:
        orjson.dumps(document)
    except TypeError:
        return None
    return document


def _delivery_policy(_: str, text: str) -> str:
    try:
        return delivery_policies.parse_topic(text)
    except Malformed as error:
        raise AttributeFault(str(error)) from None


def _archive_policy(name: str, text: str) -> str:
    """Check `{"MessageRetentionPeriod":"<days>"}`; `{}` stops archiving."""
    if not text:
        return ""
    document = _loaded(text)
    if document is None:
        raise AttributeFault(f"{name}: failed to parse JSON.")
    if not document:
        return ""
    days = document.get(_ARCHIVE_KEY)
    text = days if isinstance(days, str) else orjson.dumps(days).decode()
    if len(document) > 1 or not is_number(text, 1, AWS.topic_archive_days):
        raise AttributeFault(
            f"{name}: {_ARCHIVE_KEY} must be between 1 and {AWS.topic_archive_days}"
        )
    return orjson.dumps({_ARCHIVE_KEY: str(int(text))}).decode()


def _role_arn(name: str, text: str) -> str:
    with refusing(AttributeFault(name)):
        if text and arns.parse(text).service != "iam":
            raise AttributeFault(name)
    return text


SETTABLE: Mapping[str, AttributeRule] = {
    "DisplayName": text_of_length(AWS.display_name_length),
    # AWS gives this text for every unreadable policy.
    "Policy": policy_of(AWS.topic_policy_bytes, "Policy Error: null"),
    _DELIVERY: _delivery_policy,
    "KmsMasterKeyId": text_of_length(2048),
    "SignatureVersion": one_of("1", "2"),
    "TracingConfig": one_of("PassThrough", "Active"),
    _DEDUPLICATION: boolean,
    _SCOPE: one_of("Topic", "MessageGroup"),
    _ARCHIVE: _archive_policy,
    "MaximumMessageSize": unless_empty(number_in(*AWS.topic_message_bytes)),
    **{
        name: unless_empty(number_in(0, 100)) if name.endswith("Rate") else _role_arn
        for name in _FEEDBACK
    },
}


def wants_fifo(given: Mapping[str, str]) -> bool:
    """Return True if the attributes of a new topic request a FIFO topic. Raises
    InvalidParameter."""
    try:
        return boolean("FifoTopic", given.get("FifoTopic", "false")) == "true"
    except AttributeFault as fault:
        raise InvalidParameter(f"{IN_A_MAP}{fault}") from None


def normalise_new(given: Mapping[str, str], *, is_fifo: bool) -> dict[str, str]:
    """Return the attributes of a new topic as AWS reads them back; "" where nothing is stored.
    FifoTopic is left out. Raises InvalidParameter."""
    normalised = {}
    for name, text in given.items():
        if name == "FifoTopic":
            continue
        # Tools that name every attribute may send the default to a standard topic.
        if not is_fifo and name == _DEDUPLICATION and text.lower() == "false":
            continue
        if name not in SETTABLE:
            raise InvalidParameter(f"{IN_A_MAP}Unknown attribute {name}")
        normalised[name] = normalise(name, text, is_fifo=is_fifo, where=IN_A_MAP)
    return normalised


def normalise(name: str, text: str, *, is_fifo: bool, where: str = "") -> str:
    """Return an attribute's value as AWS reads it back; "" removes it. Raises InvalidParameter."""
    rule = SETTABLE.get(name)
    if rule is None:
        raise InvalidParameter(f"{where}AttributeName")
    if not is_fifo and name in _FIFO_ONLY:
        raise InvalidParameter(f"{where}{_FIFO_ONLY[name]} can only be set for FIFO topics")
    try:
        return rule(name, text)
    except AttributeFault as fault:
        raise InvalidParameter(f"{where}{fault}") from None


def merge(current: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """Return the stored attributes of a topic after normalised ``changes``."""
    return {name: value for name, value in {**current, **changes}.items() if value}


def default_policy(topic: Topic) -> str:
    """Return the Policy of a topic that has none: its owner may do everything."""
    actions = (
        "GetTopicAttributes",
        "SetTopicAttributes",
        "AddPermission",
        "RemovePermission",
        "DeleteTopic",
        "Subscribe",
        "ListSubscriptionsByTopic",
        "Publish",
    )
    statement = {
        "Sid": "__default_statement_ID",
        "Effect": "Allow",
        "Principal": {"AWS": "*"},
        "Action": [f"SNS:{action}" for action in actions],
        "Resource": topic.arn,
        "Condition": {"StringEquals": {"AWS:SourceOwner": topic.account_id}},
    }
    policy = {"Version": "2008-10-17", "Id": "__default_policy_ID", "Statement": [statement]}
    return orjson.dumps(policy).decode()


def effective_policy(topic: Topic) -> str:
    """Return the Policy of a topic, set or default."""
    return topic.attributes.get("Policy") or default_policy(topic)


def differ(topic: Topic, wanted: Mapping[str, str]) -> bool:
    """Return True if a normalised attribute has another value on the topic."""
    for name, value in wanted.items():
        if name == "Policy":
            if orjson.loads(effective_policy(topic)) != orjson.loads(value):
                return True
        elif topic.attributes.get(name, TOPIC_DEFAULTS.get(name, "")) != value:
            return True
    return False


def read(described: DescribedTopic) -> dict[str, str]:
    """Return the attributes of a topic in AWS's order. Some are present only if set."""
    topic, confirmed_count, pending_count, oldest_archived_at = described
    values = {
        "Policy": effective_policy(topic),
        "Owner": topic.account_id,
        "SubscriptionsPending": str(pending_count),
        "TopicArn": topic.arn,
        "EffectiveDeliveryPolicy": delivery_policies.effective_topic(
            topic.attributes.get(_DELIVERY)
        ),
        "SubscriptionsConfirmed": str(confirmed_count),
        "DisplayName": "",
        "SubscriptionsDeleted": str(topic.subscriptions_deleted),
    }
    if topic.is_fifo:
        values |= {"FifoTopic": "true", _DEDUPLICATION: "false"}
    if topic.archive_days and oldest_archived_at is not None:
        values["BeginningArchiveTime"] = timestamp(oldest_archived_at)
    values |= topic.attributes
    return {name: values[name] for name in READABLE if name in values}
