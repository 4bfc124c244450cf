"""Queue attributes and redrive policies: names, valid values, and the form that AWS reads back
(docs/contract/sqs.md 2.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import orjson

from queuegate.gateway.faces.aws.aws_rules import (
    AWS,
    AttributeFault,
    AttributeRule,
    boolean,
    invalid_value,
    json_object,
    number_in,
    one_of,
    policy_of,
    text_of_length,
    unless_empty,
)
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.protocol import arns
from queuegate.protocol.malformed import Malformed
from queuegate.storage.queue_model import QUEUE_DEFAULTS, Counts, Queue
from queuegate.storage.storage_errors import (
    DeadLetterQueueUnfit,
    InvalidAttributeName,
    InvalidAttributeValue,
)

_POLICY = "RedrivePolicy"
_TARGET = "deadLetterTargetArn"
_COUNT = "maxReceiveCount"
_PERMISSION = "redrivePermission"
_SOURCES = "sourceQueueArns"


def _json_object(name: str, text: str, noun: str) -> dict[str, Any]:
    policy = json_object(text)
    if policy is None:
        raise invalid_value(name, text, f"{noun} is not a valid JSON map.")
    return policy


def normalise_redrive_policy(name: str, text: str) -> str:
    """Return the policy as AWS reads it back: two members in order, the count as a JSON number."""
    policy = _json_object(name, text, "Redrive policy")
    for member in (_COUNT, _TARGET):
        if member not in policy:
            reason = f"Redrive policy does not contain mandatory attribute: {member}."
            raise invalid_value(name, text, reason)
    if len(policy) > 2:
        reason = f"Only following attributes are supported: [{_TARGET}, {_COUNT}]."
        raise invalid_value(name, text, reason)
    count = _receive_count(policy[_COUNT])
    if count is None:
        reason = (
            f"Invalid value for maxReceiveCount: {policy[_COUNT]}, valid values are from 1 to "
            f"{AWS.max_receive_count} both inclusive."
        )
        raise invalid_value(name, text, reason)
    if _queue_arn(policy[_TARGET]) is None:
        raise invalid_value(name, text, "Invalid value for deadLetterTargetArn.")
    return orjson.dumps({_TARGET: policy[_TARGET], _COUNT: count}).decode()


def _receive_count(value: object) -> int | None:
    """Parse a JSON number, or its digits in a string, as tools write it."""
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


def normalise_redrive_allow_policy(name: str, text: str) -> str:
    """Return the policy as AWS reads it back. Raises InvalidParameterValue."""
    policy = _json_object(name, text, "Redrive allow policy")
    permission = policy.get(_PERMISSION)
    sources = policy.get(_SOURCES)
    if permission not in ("allowAll", "denyAll", "byQueue"):
        raise invalid_value(
            name, text, "redrivePermission must be one of allowAll, denyAll, byQueue."
        )
    if not policy.keys() <= {_PERMISSION, _SOURCES}:
        reason = f"Only following attributes are supported: [{_PERMISSION}, {_SOURCES}]."
        raise invalid_value(name, text, reason)
    if permission == "byQueue":
        return _normalise_by_queue(name, text, sources)
    if sources is not None:
        reason = f"sourceQueueArns cannot be specified when redrivePermission is {permission}."
        raise invalid_value(name, text, reason)
    return orjson.dumps({_PERMISSION: permission}).decode()


def _normalise_by_queue(name: str, text: str, sources: object) -> str:
    if not isinstance(sources, list) or not sources:
        raise invalid_value(
            name, text, "sourceQueueArns is required when redrivePermission is byQueue."
        )
    if len(sources) > AWS.redrive_allow_sources:
        reason = f"sourceQueueArns cannot have more than {AWS.redrive_allow_sources} entries."
        raise invalid_value(name, text, reason)
    if any(_queue_arn(source) is None for source in sources):
        raise invalid_value(name, text, "sourceQueueArns must be ARNs of queues.")
    return orjson.dumps({_PERMISSION: "byQueue", _SOURCES: sources}).decode()


_UNFIT = {
    "account": "Dead-letter target owner should be same as the source.",
    "region": "Dead-letter target must be in the same region as the source.",
    "absent": "Dead letter target does not exist.",
    "kind": "Dead-letter queue must be same type of queue as the source.",
    "forbidden": "The redrive allow policy of the dead-letter queue does not allow this queue.",
}


@contextmanager
def worded(attributes: Mapping[str, str] | None) -> Iterator[None]:
    """Word the refusal of an unfit dead-letter queue as SQS does."""
    try:
        yield
    except DeadLetterQueueUnfit as refusal:
        text = (attributes or {})[_POLICY]
        raise invalid_value(_POLICY, text, _UNFIT[refusal.reason]) from None


_KEY = "KmsMasterKeyId"
_MANAGED = "SqsManagedSseEnabled"
_THROUGHPUT = "FifoThroughputLimit"
_SCOPE = "DeduplicationScope"

_COUNTERS = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
_FIFO_ONLY = ("ContentBasedDeduplication", _SCOPE, _THROUGHPUT)
# A queue shows these defaults if they are not set.
_ALWAYS = (
    "VisibilityTimeout",
    "MaximumMessageSize",
    "MessageRetentionPeriod",
    "DelaySeconds",
    "ReceiveMessageWaitTimeSeconds",
    _MANAGED,
)
_WHEN_SET = ("Policy", "RedrivePolicy", "RedriveAllowPolicy", _KEY, "KmsDataKeyReusePeriodSeconds")
READABLE = (
    "QueueArn",
    *_COUNTERS,
    "CreatedTimestamp",
    "LastModifiedTimestamp",
    *_ALWAYS,
    *_WHEN_SET,
    "FifoQueue",
    *_FIFO_ONLY,
)
"""Every attribute of GetQueueAttributes, in the order of the answer."""


def unknown(name: str) -> InvalidAttributeName:
    """Return SQS's refusal of an unknown attribute, or one of another kind of queue."""
    return InvalidAttributeName(f"Unknown Attribute {name}.")


def _fifo_queue(name: str, text: str) -> str:
    if boolean(name, text) == "false":
        raise InvalidAttributeValue(
            f"Invalid value for the parameter {name}. "
            "Reason: Modifying queue type is not supported."
        )
    return "true"


SETTABLE: Mapping[str, AttributeRule] = {
    "VisibilityTimeout": number_in(0, LIMITS.visibility_timeout_seconds),
    "MaximumMessageSize": number_in(1_024, LIMITS.message_bytes),
    "MessageRetentionPeriod": number_in(60, 1_209_600),
    "DelaySeconds": number_in(0, LIMITS.delay_seconds),
    "ReceiveMessageWaitTimeSeconds": number_in(0, LIMITS.receive_wait_seconds),
    _MANAGED: boolean,
    "Policy": unless_empty(policy_of(AWS.policy_bytes, "Policy")),
    "RedrivePolicy": unless_empty(normalise_redrive_policy),
    "RedriveAllowPolicy": unless_empty(normalise_redrive_allow_policy),
    _KEY: text_of_length(2048),
    "KmsDataKeyReusePeriodSeconds": number_in(60, 86_400),
    "FifoQueue": _fifo_queue,
    "ContentBasedDeduplication": boolean,
    _SCOPE: one_of("queue", "messageGroup"),
    _THROUGHPUT: one_of("perQueue", "perMessageGroupId"),
}


def normalise(given: Mapping[str, str], *, is_fifo: bool) -> dict[str, str]:
    """Return the attributes as AWS reads them back; "" unsets an attribute that can be unset.

    Raises InvalidAttributeName, InvalidAttributeValue, and InvalidParameterValue for the two
    redrive policies. The dead-letter queue need not exist.
    """
    normalised = {}
    for name, text in given.items():
        rule = SETTABLE.get(name)
        if rule is None:
            raise unknown(name)
        if not is_fifo and name in (_SCOPE, _THROUGHPUT):
            raise InvalidAttributeName(
                f"You can specify the {name} only when FifoQueue is set to true."
            )
        if not is_fifo and name in ("FifoQueue", "ContentBasedDeduplication"):
            raise unknown(name)
        try:
            normalised[name] = rule(name, text)
        except AttributeFault as fault:
            raise InvalidAttributeValue(f"Invalid value for the parameter {name}.") from fault
    return normalised


def merge(current: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes of a queue after normalised ``changes``, "" for an unset one.

    Raises InvalidAttributeName if both kinds of encryption would be on, InvalidAttributeValue if
    the two FIFO throughput attributes do not fit together.
    """
    merged = {**current, **changes}
    if changes.get(_KEY) and _MANAGED not in changes:
        merged[_MANAGED] = "false"
    if merged.get(_KEY) and merged.get(_MANAGED) == "true":
        raise InvalidAttributeName(
            "You can use one type of server-side encryption (SSE) at one time. "
            "You can either enable KMS SSE or SQS SSE."
        )
    if merged.get(_THROUGHPUT) == "perMessageGroupId" and merged.get(_SCOPE) != "messageGroup":
        raise InvalidAttributeValue(
            f"Invalid value for the parameter {_THROUGHPUT}. Reason: The perMessageGroupId value "
            f"is allowed only when the value for {_SCOPE} is messageGroup."
        )
    merged.pop("FifoQueue", None)
    return merged


def first_difference(queue: Queue, wanted: Mapping[str, str]) -> str | None:
    """Return the first normalised attribute with another value on the queue."""
    for name, value in wanted.items():
        if name == "FifoQueue":
            continue
        has = queue.attributes.get(name, QUEUE_DEFAULTS.get(name, ""))
        if has == value:
            continue
        if name == "Policy" and has and value and orjson.loads(has) == orjson.loads(value):
            continue
        return name
    return None


def wanted_names(given: Iterable[str]) -> frozenset[str]:
    """Return the requested names with `All` resolved. Raises InvalidAttributeName."""
    wanted: set[str] = set()
    for name in given:
        if name == "All":
            wanted.update(READABLE)
        elif name in READABLE:
            wanted.add(name)
        else:
            raise unknown(name)
    return frozenset(wanted)


def need_counts(wanted: frozenset[str]) -> bool:
    """Return True if the answer has counters, which need a query on the messages."""
    return not wanted.isdisjoint(_COUNTERS)


def read(queue: Queue, wanted: frozenset[str], counts: Counts | None) -> dict[str, str]:
    """Return the wanted attributes of the queue in a fixed order."""
    values = {
        "QueueArn": queue.arn,
        "CreatedTimestamp": str(int(queue.created_at.timestamp())),
        "LastModifiedTimestamp": str(int(queue.modified_at.timestamp())),
    }
    if counts is not None:
        numbers = (counts.visible, counts.in_flight, counts.delayed)
        values |= dict(zip(_COUNTERS, map(str, numbers), strict=True))
    always = (*_ALWAYS, *_FIFO_ONLY) if queue.is_fifo else _ALWAYS
    values |= {name: QUEUE_DEFAULTS[name] for name in always}
    values |= queue.attributes
    if queue.is_fifo:
        values["FifoQueue"] = "true"
    return {name: values[name] for name in READABLE if name in wanted and name in values}
