"""Attributes of subscriptions: names, valid values, and the form that AWS reads back
(docs/contract/sns.md 3.4)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from queuegate.gateway.faces.aws.aws_refusals import InvalidParameter
from queuegate.gateway.faces.aws.aws_rules import AWS, json_object
from queuegate.gateway.operations.topics.topic_cache import (
    check_dead_letter,
    check_delivery_policy,
    comparable,
    is_nothing,
)
from queuegate.gateway.operations.topics.topic_subscriptions import SubscriptionReplay
from queuegate.protocol import arns, delivery_policies, filter_policies
from queuegate.protocol.malformed import Malformed, refusing
from queuegate.protocol.urls import WEB, without_password
from queuegate.storage.model import Topic, TopicSubscription

REPLAY: Final = "ReplayPolicy"
_DELIVERY = "DeliveryPolicy"
_FILTER = "FilterPolicy"
_RAW_DELIVERY = "RawMessageDelivery"
_RAW_PROTOCOLS = frozenset({"http", "https", "sqs", "firehose", "log"})
REDRIVE = "RedrivePolicy"
_ROLE = "SubscriptionRoleArn"
_SCOPE = "FilterPolicyScope"

_BY_ATTRIBUTES: Final = "MessageAttributes"
_BY_BODY: Final = "MessageBody"
_DEFAULTS = {_RAW_DELIVERY: "false", _SCOPE: _BY_ATTRIBUTES}
_IN_JSON = frozenset({_DELIVERY, _FILTER, REDRIVE, REPLAY})

_REPLAY_MEMBERS = {"PointType", "StartingPoint", "EndingPoint"}
_ROLE_ARN = re.compile(r"arn:aws[a-z-]{0,20}:iam::[0-9]{12}:role/[!-~]{1,576}")


@dataclass(frozen=True, slots=True)
class AttributeSubject:
    """The topic, protocol and endpoint of attributes, and the instant of their change."""

    topic: Topic
    protocol: str
    endpoint: str
    present: datetime


def normalise(
    subject: AttributeSubject,
    wanted: Mapping[str, str],
    stored: Mapping[str, str],
    *,
    in_subscribe: bool = False,
) -> dict[str, str]:
    """Return all attributes as stored once ``wanted`` are set; "" and `{}` remove policies. Raises
    InvalidParameter, whose text has a longer prefix in Subscribe."""
    try:
        changes = {}
        for name, value in wanted.items():
            parse = SETTABLE.get(name)
            if parse is None:
                raise Malformed("AttributeName")
            changes[name] = parse(subject, value)
        merged = {name: value for name, value in {**stored, **changes}.items() if value}
        if _FILTER in merged and (_FILTER in changes or _SCOPE in changes):
            is_of_body = merged.get(_SCOPE) == _BY_BODY
            filter_policies.parse(merged[_FILTER], _BY_BODY if is_of_body else _BY_ATTRIBUTES)
        if subject.protocol == "firehose" and _ROLE not in merged:
            raise Malformed(f"{_ROLE}: firehose subscriptions need the ARN of a role")
    except Malformed as error:
        prefix = "Attributes Reason: " if in_subscribe else ""
        raise InvalidParameter(f"{prefix}{error}") from None
    return merged


def fits(existing: TopicSubscription, names: Iterable[str], wanted: Mapping[str, str]) -> bool:
    """Return True if a repeated Subscribe matches the existing subscription.

    ``names`` are the attributes of the request, which may be fewer than are set. ``wanted`` are
    their normalised values.
    """
    own = existing.attributes
    return all(_compared(name, wanted) == _compared(name, own) for name in names)


def replay_of(attributes: Mapping[str, str]) -> SubscriptionReplay | None:
    """Return the replay that the attributes request."""
    policy = attributes.get(REPLAY)
    return None if policy is None else _parsed(policy)


def read(
    subscription: TopicSubscription, topic: Topic, replay_status: str | None = None
) -> dict[str, str]:
    """Return the attributes in AWS's order."""
    own = subscription.attributes
    is_web = subscription.protocol in WEB
    found: dict[str, str | None] = {
        "SubscriptionPrincipal": arns.user_arn(subscription.account_id, subscription.user_name),
        "Owner": subscription.account_id,
        _RAW_DELIVERY: own.get(_RAW_DELIVERY, _DEFAULTS[_RAW_DELIVERY]),
        _FILTER: own.get(_FILTER),
        "TopicArn": subscription.topic_arn,
        "Endpoint": without_password(subscription.endpoint),
        "EffectiveDeliveryPolicy": _effective(topic, subscription) if is_web else None,
        _DELIVERY: own.get(_DELIVERY),
        _SCOPE: own.get(_SCOPE, _DEFAULTS[_SCOPE]) if _FILTER in own else None,
        "Protocol": subscription.protocol,
        "PendingConfirmation": _boolean(not subscription.is_confirmed),
        "ConfirmationWasAuthenticated": _boolean(subscription.was_authenticated),
        "SubscriptionArn": subscription.arn,
        REDRIVE: own.get(REDRIVE),
        REPLAY: own.get(REPLAY),
        "ReplayStatus": replay_status,
        _ROLE: own.get(_ROLE),
    }
    return {name: value for name, value in found.items() if value is not None}


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _effective(topic: Topic, subscription: TopicSubscription) -> str:
    own = subscription.attributes
    return delivery_policies.effective_subscription(
        topic.attributes.get(_DELIVERY),
        own.get(_DELIVERY),
        gets_events=subscription.gets_events,
        is_raw=own.get(_RAW_DELIVERY) == "true",
    )


def _compared(name: str, attributes: Mapping[str, str]) -> str | bytes | None:
    """Return a value in a canonical form for comparison."""
    value = attributes.get(name, _DEFAULTS.get(name))
    return comparable(value) if name in _IN_JSON else value


def _raw_delivery(subject: AttributeSubject, value: str) -> str:
    lower = value.lower()
    if lower not in ("true", "false"):
        raise Malformed(f"{_RAW_DELIVERY}: Invalid value [{value}]. Must be true or false.")
    if lower == "true" and subject.protocol not in _RAW_PROTOCOLS:
        raise Malformed(
            f"Delivery protocol [{subject.protocol}] does not support raw message delivery."
        )
    return lower


def _scope(_subject: AttributeSubject, value: str) -> str:
    if value not in (_BY_ATTRIBUTES, _BY_BODY):
        raise Malformed(
            f"{_SCOPE}: Invalid value [{value}]. Please use either MessageBody or MessageAttributes"
        )
    return value


def _check_length(name: str, value: str) -> None:
    """Limit values other than filter policies: a list reads a hundred of them."""
    most = AWS.subscription_policy_length
    if len(value) > most:
        raise Malformed(f"{name}: longer than {most} characters")


def _redrive_policy(subject: AttributeSubject, value: str) -> str:
    if is_nothing(value):
        return ""
    _check_length(REDRIVE, value)
    policy = json_object(value)
    if policy is None:
        raise Malformed(f"{REDRIVE}: failed to parse JSON.")
    check_dead_letter(
        policy.get("deadLetterTargetArn"), is_fifo=subject.topic.is_fifo, endpoint=subject.endpoint
    )
    return value


def _role_arn(subject: AttributeSubject, value: str) -> str:
    if subject.protocol != "firehose":
        raise Malformed(f"{_ROLE}: only firehose subscriptions have a role")
    if _ROLE_ARN.fullmatch(value) is None:
        raise Malformed(f"{_ROLE}: not the ARN of a role")
    return value


def _replay_policy(subject: AttributeSubject, value: str) -> str:
    if is_nothing(value):
        return ""
    _check_length(REPLAY, value)
    topic = subject.topic
    if not topic.is_fifo or not topic.archive_days or subject.protocol != "sqs":
        raise _wrong("only subscriptions of queues to FIFO topics with an ArchivePolicy have one")
    replay = _parsed(value)
    if replay.ending_at is not None and replay.starting_at >= replay.ending_at:
        raise _wrong("StartingPoint must be before EndingPoint")
    if replay.starting_at < subject.present - timedelta(days=topic.archive_days):
        raise _wrong("StartingPoint is before the archive's retention period")
    return value


def _parsed(text: str) -> SubscriptionReplay:
    policy = json_object(text)
    if policy is None:
        raise _wrong("failed to parse JSON.")
    if not policy.keys() <= _REPLAY_MEMBERS:
        raise _wrong("only PointType, StartingPoint and EndingPoint are supported")
    if policy.get("PointType") != "Timestamp":
        raise _wrong("PointType must be Timestamp")
    starting_at = _instant("StartingPoint", policy.get("StartingPoint"))
    ending = policy.get("EndingPoint")
    return SubscriptionReplay(
        starting_at, None if ending is None else _instant("EndingPoint", ending)
    )


def _instant(name: str, value: object) -> datetime:
    """Parse ISO 8601. Without an offset it is UTC."""
    with refusing(_wrong(f"{name} must be a time in ISO 8601"), ValueError, OverflowError):
        instant = datetime.fromisoformat(value if isinstance(value, str) else "")
        if instant.tzinfo is None:
            instant = instant.replace(tzinfo=UTC)
        return instant.astimezone(UTC)


def _wrong(reason: str) -> Malformed:
    return Malformed(f"ReplayPolicy: {reason}")


SETTABLE: dict[str, Callable[[AttributeSubject, str], str]] = {
    _DELIVERY: lambda subject, value: check_delivery_policy(subject.protocol, value),
    # The check of a policy needs the scope, too.
    _FILTER: lambda _, value: "" if is_nothing(value) else value,
    _SCOPE: _scope,
    _RAW_DELIVERY: _raw_delivery,
    REDRIVE: _redrive_policy,
    _ROLE: _role_arn,
    REPLAY: _replay_policy,
}
