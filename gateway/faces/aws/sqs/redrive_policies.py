"""RedrivePolicy and RedriveAllowPolicy: their JSON, and what SQS says of both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import orjson

from queuegate.gateway.faces.aws.limits import AWS
from queuegate.protocol import arns
from queuegate.protocol.errors import Malformed
from queuegate.storage.errors import DeadLetterQueueUnfit, InvalidParameterValue

_POLICY = "RedrivePolicy"
_TARGET = "deadLetterTargetArn"
_COUNT = "maxReceiveCount"
_PERMISSION = "redrivePermission"
_SOURCES = "sourceQueueArns"


def _invalid(name: str, text: str, reason: str) -> InvalidParameterValue:
    return InvalidParameterValue(f"Value {text} for parameter {name} is invalid. Reason: {reason}")


def _json_object(name: str, text: str, noun: str) -> dict[str, Any]:
    try:
        policy = orjson.loads(text)
    except (ValueError, RecursionError):
        policy = None
    if not isinstance(policy, dict):
        raise _invalid(name, text, f"{noun} is not a valid JSON map.")
    return policy


def normalise_redrive_policy(text: str) -> str:
    """The policy as AWS reads it back: its two members in order, the count as a JSON number."""
    name = _POLICY
    policy = _json_object(name, text, "Redrive policy")
    for member in (_COUNT, _TARGET):
        if member not in policy:
            reason = f"Redrive policy does not contain mandatory attribute: {member}."
            raise _invalid(name, text, reason)
    if len(policy) > 2:
        reason = f"Only following attributes are supported: [{_TARGET}, {_COUNT}]."
        raise _invalid(name, text, reason)
    count = _receive_count(policy[_COUNT])
    if count is None:
        reason = (
            f"Invalid value for maxReceiveCount: {policy[_COUNT]}, valid values are from 1 to "
            f"{AWS.max_receive_count} both inclusive."
        )
        raise _invalid(name, text, reason)
    if _queue_arn(policy[_TARGET]) is None:
        raise _invalid(name, text, "Invalid value for deadLetterTargetArn.")
    return orjson.dumps({_TARGET: policy[_TARGET], _COUNT: count}).decode()


def _receive_count(value: object) -> int | None:
    """A JSON number, or the digits of one in a string, as tools write it."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 10:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 1 <= value <= AWS.max_receive_count else None


def _queue_arn(value: object) -> arns.Arn | None:
    if not isinstance(value, str):
        return None
    try:
        return arns.parse_queue(value)
    except Malformed:
        return None


def normalise_redrive_allow_policy(text: str) -> str:
    """The policy as AWS reads it back. Raises InvalidParameterValue."""
    name = "RedriveAllowPolicy"
    policy = _json_object(name, text, "Redrive allow policy")
    permission = policy.get(_PERMISSION)
    sources = policy.get(_SOURCES)
    if permission not in ("allowAll", "denyAll", "byQueue"):
        raise _invalid(name, text, "redrivePermission must be one of allowAll, denyAll, byQueue.")
    if not policy.keys() <= {_PERMISSION, _SOURCES}:
        reason = f"Only following attributes are supported: [{_PERMISSION}, {_SOURCES}]."
        raise _invalid(name, text, reason)
    if permission == "byQueue":
        return _normalise_by_queue(name, text, sources)
    if sources is not None:
        reason = f"sourceQueueArns cannot be specified when redrivePermission is {permission}."
        raise _invalid(name, text, reason)
    return orjson.dumps({_PERMISSION: permission}).decode()


def _normalise_by_queue(name: str, text: str, sources: object) -> str:
    if not isinstance(sources, list) or not sources:
        raise _invalid(name, text, "sourceQueueArns is required when redrivePermission is byQueue.")
    if len(sources) > AWS.redrive_allow_sources:
        reason = f"sourceQueueArns cannot have more than {AWS.redrive_allow_sources} entries."
        raise _invalid(name, text, reason)
    if any(_queue_arn(source) is None for source in sources):
        raise _invalid(name, text, "sourceQueueArns must be ARNs of queues.")
    return orjson.dumps({_PERMISSION: "byQueue", _SOURCES: sources}).decode()


_UNFIT = {
    "account": "Dead-letter target owner should be same as the source.",
    "region": "Dead-letter target must be in the same region as the source.",
    "absent": "Dead letter target does not exist.",
    "kind": "Dead-letter queue must be same type of queue as the source.",
    "forbidden": "The redrive allow policy of the dead-letter queue does not allow this queue.",
}


def target_of(attributes: Mapping[str, str]) -> str | None:
    """The ARN of the dead-letter queue that normalised attributes name."""
    policy = attributes.get(_POLICY)
    return orjson.loads(policy)[_TARGET] if policy else None


@contextmanager
def worded(attributes: Mapping[str, str] | None) -> Iterator[None]:
    """What SQS says when the queue that the redrive policy of a request names is unfit."""
    try:
        yield
    except DeadLetterQueueUnfit as refusal:
        text = (attributes or {})[_POLICY]
        raise _invalid(_POLICY, text, _UNFIT[refusal.reason]) from None
