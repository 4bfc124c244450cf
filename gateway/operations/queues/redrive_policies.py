"""RedrivePolicy and RedriveAllowPolicy: their JSON, and which queue may send to which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from gateway.operations.limits import LIMITS
from protocol import arns
from protocol.errors import Malformed
from storage.errors import InvalidParameterValue
from storage.model import Queue
from storage.queues import queues

if TYPE_CHECKING:
    from storage.database import Transaction

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
    name = "RedrivePolicy"
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
            f"{LIMITS.max_receive_count} both inclusive."
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
    return value if 1 <= value <= LIMITS.max_receive_count else None


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
    if len(sources) > LIMITS.redrive_allow_sources:
        reason = f"sourceQueueArns cannot have more than {LIMITS.redrive_allow_sources} entries."
        raise _invalid(name, text, reason)
    if any(_queue_arn(source) is None for source in sources):
        raise _invalid(name, text, "sourceQueueArns must be ARNs of queues.")
    return orjson.dumps({_PERMISSION: "byQueue", _SOURCES: sources}).decode()


async def check_target(
    tx: Transaction, *, policy: str, source_arn: str, source_is_fifo: bool, text: str
) -> None:
    """Refuse a normalised redrive policy whose dead-letter queue cannot take the source's messages.

    It must exist, be in the same account and region and of the same type, and allow the source
    (docs/contract/sqs.md 2.10). Only now: later changes of the target do not undo the policy.
    """
    name = "RedrivePolicy"
    target = arns.parse_queue(orjson.loads(policy)[_TARGET])
    source = arns.parse_queue(source_arn)
    if target.account_id != source.account_id:
        reason = "Dead-letter target owner should be same as the source."
        raise _invalid(name, text, reason)
    if target.region != source.region:
        raise _invalid(name, text, "Dead-letter target must be in the same region as the source.")
    queue = await queues.find(tx, target.account_id, target.region, target.resource)
    if queue is None:
        raise _invalid(name, text, "Dead letter target does not exist.")
    if queue.is_fifo != source_is_fifo:
        raise _invalid(name, text, "Dead-letter queue must be same type of queue as the source.")
    if not _allows(queue, source_arn):
        reason = "The redrive allow policy of the dead-letter queue does not allow this queue."
        raise _invalid(name, text, reason)


def _allows(target: Queue, source_arn: str) -> bool:
    text = target.attributes.get("RedriveAllowPolicy")
    if text is None:
        return True
    policy = orjson.loads(text)
    if policy[_PERMISSION] == "byQueue":
        return source_arn in policy[_SOURCES]
    return bool(policy[_PERMISSION] == "allowAll")
