"""Attributes of subscriptions: which exist, what values they take, how AWS reads them back
(docs/contract/sns.md 3.4)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import orjson

from gateway.operations.limits import LIMITS
from gateway.operations.topics.subscription_endpoints import RAW, WEB
from gateway.operations.topics.subscription_replays import check_replay_policy
from protocol import arns, delivery_policies, filter_policies
from protocol.endpoint_urls import without_password
from protocol.errors import Malformed
from storage.errors import InvalidParameter
from storage.model import Subscription, Topic

REPLAY: Final = "ReplayPolicy"
_DELIVERY = "DeliveryPolicy"
_FILTER = "FilterPolicy"
_RAW_DELIVERY = "RawMessageDelivery"
_REDRIVE = "RedrivePolicy"
_ROLE = "SubscriptionRoleArn"
_SCOPE = "FilterPolicyScope"

_BY_ATTRIBUTES = "MessageAttributes"
_BY_BODY = "MessageBody"
_DEFAULTS = {_RAW_DELIVERY: "false", _SCOPE: _BY_ATTRIBUTES}
_IN_JSON = frozenset({_DELIVERY, _FILTER, _REDRIVE, REPLAY})

_ROLE_ARN = re.compile(r"arn:aws[a-z-]{0,20}:iam::[0-9]{12}:role/[!-~]{1,576}")


@dataclass(frozen=True, slots=True)
class Subject:
    """Whose attributes they are, and when they are set."""

    topic: Topic
    protocol: str
    endpoint: str
    present: datetime


def normalise(
    subject: Subject,
    wanted: Mapping[str, str],
    stored: Mapping[str, str],
    *,
    in_subscribe: bool = False,
) -> dict[str, str]:
    """All attributes as they are stored once ``wanted`` are set; "" and `{}` take policies away.

    Raises InvalidParameter, whose text has a longer beginning in Subscribe.
    """
    try:
        changes = {}
        for name, value in wanted.items():
            parse = _PARSERS.get(name)
            if parse is None:
                raise Malformed("AttributeName")
            changes[name] = parse(subject, value)
        merged = {name: value for name, value in {**stored, **changes}.items() if value}
        if _FILTER in merged and (_FILTER in changes or _SCOPE in changes):
            _check_filter_policy(merged)
        if subject.protocol == "firehose" and _ROLE not in merged:
            raise Malformed(f"{_ROLE}: firehose subscriptions need the ARN of a role")
    except Malformed as error:
        prefix = "Attributes Reason: " if in_subscribe else ""
        raise InvalidParameter(f"{prefix}{error}") from None
    return merged


def check_same(existing: Subscription, names: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Refuse a repeated Subscribe whose attributes are not those of the subscription.

    ``names`` are those that the request has: fewer than are set are fine. ``wanted`` are their
    normalised values.
    """
    for name in names:
        if _compared(name, wanted) != _compared(name, existing.attributes):
            raise InvalidParameter(
                "Attributes Reason: Subscription already exists with different attributes"
            )


def are_same(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether two sets of stored attributes mean the same."""
    return all(_compared(name, one) == _compared(name, other) for name in _PARSERS)


def read(
    subscription: Subscription, topic: Topic, replay_status: str | None = None
) -> dict[str, str]:
    """The attributes in AWS's order."""
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
        _REDRIVE: own.get(_REDRIVE),
        REPLAY: own.get(REPLAY),
        "ReplayStatus": replay_status,
        _ROLE: own.get(_ROLE),
    }
    return {name: value for name, value in found.items() if value is not None}


def has_new_filter_policy(stored: Mapping[str, str], attributes: Mapping[str, str]) -> bool:
    """Whether there is one where none was."""
    return _FILTER in attributes and _FILTER not in stored


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _effective(topic: Topic, subscription: Subscription) -> str:
    own = subscription.attributes
    return delivery_policies.effective_subscription(
        topic.attributes.get(_DELIVERY),
        own.get(_DELIVERY),
        is_native=subscription.is_native,
        is_raw=own.get(_RAW_DELIVERY) == "true",
    )


def _compared(name: str, attributes: Mapping[str, str]) -> str | bytes | None:
    """A value in a form in which equal ones are equal."""
    value = attributes.get(name, _DEFAULTS.get(name))
    if value is None or name not in _IN_JSON:
        return value
    try:
        return orjson.dumps(orjson.loads(value), option=orjson.OPT_SORT_KEYS)
    except (ValueError, TypeError):
        # Nested deeper than it can be written.
        return value


def _check_filter_policy(attributes: Mapping[str, str]) -> None:
    scope = attributes.get(_SCOPE, _BY_ATTRIBUTES)
    filter_policies.parse(
        attributes[_FILTER], "MessageBody" if scope == _BY_BODY else "MessageAttributes"
    )


def _raw_delivery(subject: Subject, value: str) -> str:
    lower = value.lower()
    if lower not in ("true", "false"):
        raise Malformed(f"{_RAW_DELIVERY}: Invalid value [{value}]. Must be true or false.")
    if lower == "true" and subject.protocol not in RAW:
        raise Malformed(
            f"Delivery protocol [{subject.protocol}] does not support raw message delivery."
        )
    return lower


def _scope(_subject: Subject, value: str) -> str:
    if value not in (_BY_ATTRIBUTES, _BY_BODY):
        raise Malformed(
            f"{_SCOPE}: Invalid value [{value}]. Please use either MessageBody or MessageAttributes"
        )
    return value


def _is_nothing(value: str) -> bool:
    """Whether it takes a policy away: "" and `{}`, with any white space."""
    text = value.strip()
    return not text or (text[0] == "{" and text[-1] == "}" and not text[1:-1].strip())


def _check_length(name: str, value: str) -> None:
    """Filter policies have a limit of their own; of others every list reads a hundred."""
    most = LIMITS.subscription_policy_length
    if len(value) > most:
        raise Malformed(f"{name}: longer than {most} characters")


def _filter_policy(_subject: Subject, value: str) -> str:
    """The policy is checked later, when the scope is known too."""
    return "" if _is_nothing(value) else value


def _redrive_policy(subject: Subject, value: str) -> str:
    if _is_nothing(value):
        return ""
    _check_length(_REDRIVE, value)
    try:
        policy = orjson.loads(value)
    except (ValueError, RecursionError):
        policy = None
    if not isinstance(policy, dict):
        raise Malformed(f"{_REDRIVE}: failed to parse JSON.")
    target = policy.get("deadLetterTargetArn")
    try:
        queue = arns.parse_queue(target if isinstance(target, str) else "")
    except Malformed:
        raise Malformed(f"{_REDRIVE}: deadLetterTargetArn is an invalid arn") from None
    is_fifo = queue.resource.endswith(".fifo")
    if subject.topic.is_fifo:
        if subject.endpoint.endswith(".fifo") and not is_fifo:
            raise Malformed(
                f"{_REDRIVE}: must use a FIFO queue as DLQ for a FIFO Subscription to a FIFO Topic."
            )
    elif is_fifo:
        # Messages of a standard topic have no group.
        raise Malformed(
            f"{_REDRIVE}: must use a standard queue as DLQ for a Subscription to a standard Topic."
        )
    return value


def _delivery_policy(subject: Subject, value: str) -> str:
    if subject.protocol not in WEB:
        raise Malformed(
            f"{_DELIVERY}: Delivery protocol [{subject.protocol}] does not support a delivery "
            "policy."
        )
    return delivery_policies.parse_subscription(value)


def _role_arn(subject: Subject, value: str) -> str:
    if subject.protocol != "firehose":
        raise Malformed(f"{_ROLE}: only firehose subscriptions have a role")
    if _ROLE_ARN.fullmatch(value) is None:
        raise Malformed(f"{_ROLE}: not the ARN of a role")
    return value


def _replay_policy(subject: Subject, value: str) -> str:
    if _is_nothing(value):
        return ""
    _check_length(REPLAY, value)
    check_replay_policy(subject.topic, subject.protocol, value, subject.present)
    return value


_PARSERS: dict[str, Callable[[Subject, str], str]] = {
    _DELIVERY: _delivery_policy,
    _FILTER: _filter_policy,
    _SCOPE: _scope,
    _RAW_DELIVERY: _raw_delivery,
    _REDRIVE: _redrive_policy,
    _ROLE: _role_arn,
    REPLAY: _replay_policy,
}
