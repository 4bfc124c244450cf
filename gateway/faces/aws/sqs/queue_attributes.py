"""Queue attributes: which exist, what values they take, how AWS reads them back (2.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import orjson

from queuegate.gateway.faces.aws.limits import AWS
from queuegate.gateway.faces.aws.sqs.redrive_policies import (
    normalise_redrive_allow_policy,
    normalise_redrive_policy,
)
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.protocol import names, policies
from queuegate.protocol.errors import Malformed
from queuegate.storage.errors import InvalidAttributeName, InvalidAttributeValue
from queuegate.storage.model import QUEUE_DEFAULTS, Counts, Queue

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
# A queue shows these even when nobody set them.
_ALWAYS = (
    "VisibilityTimeout",
    "MaximumMessageSize",
    "MessageRetentionPeriod",
    "DelaySeconds",
    "ReceiveMessageWaitTimeSeconds",
    _MANAGED,
)
_WHEN_SET = (
    "Policy",
    "RedrivePolicy",
    "RedriveAllowPolicy",
    _KEY,
    "KmsDataKeyReusePeriodSeconds",
)
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
"""Every attribute that GetQueueAttributes knows, in the order in which it answers."""


def unknown(name: str) -> InvalidAttributeName:
    """What SQS says of a name that is no attribute, or none of this kind of queue."""
    return InvalidAttributeName(f"Unknown Attribute {name}.")


def _invalid(name: str) -> InvalidAttributeValue:
    return InvalidAttributeValue(f"Invalid value for the parameter {name}.")


def _integer(least: int, most: int) -> Callable[[str, str], str]:
    def normalise(name: str, text: str) -> str:
        # isdigit alone takes the digits of every script; int alone takes blanks and underscores.
        if not (text.isascii() and text.isdigit() and len(text) <= 10):
            raise _invalid(name)
        value = int(text)
        if not least <= value <= most:
            raise _invalid(name)
        return str(value)

    return normalise


def _boolean(name: str, text: str) -> str:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise _invalid(name)
    return lowered


def _one_of(*values: str) -> Callable[[str, str], str]:
    def normalise(name: str, text: str) -> str:
        if text not in values:
            raise _invalid(name)
        return text

    return normalise


def _policy(name: str, text: str) -> str:
    """A policy that can be read (docs/contract/policies.md 5.1), without white space between its
    tokens, up to a limit of bytes."""
    if not text:
        return ""
    try:
        document = orjson.loads(text)
        compact = orjson.dumps(document).decode()
    except (ValueError, TypeError, RecursionError):
        raise _invalid(name) from None
    if names.invalid_characters(compact) or len(compact.encode()) > AWS.policy_bytes:
        raise _invalid(name)
    try:
        policies.compile_policy(document, policies.Kind.RESOURCE)
    except Malformed:
        raise _invalid(name) from None
    return compact


def _key_id(name: str, text: str) -> str:
    if len(text) > 2048 or names.invalid_characters(text):
        raise _invalid(name)
    return text


def _fifo_queue(name: str, text: str) -> str:
    if _boolean(name, text) == "false":
        raise InvalidAttributeValue(
            f"Invalid value for the parameter {name}. "
            "Reason: Modifying queue type is not supported."
        )
    return "true"


SETTABLE: Mapping[str, Callable[[str, str], str]] = {
    "VisibilityTimeout": _integer(0, LIMITS.visibility_timeout_seconds),
    "MaximumMessageSize": _integer(1_024, LIMITS.message_bytes),
    "MessageRetentionPeriod": _integer(60, 1_209_600),
    "DelaySeconds": _integer(0, LIMITS.delay_seconds),
    "ReceiveMessageWaitTimeSeconds": _integer(0, LIMITS.receive_wait_seconds),
    _MANAGED: _boolean,
    "Policy": _policy,
    "RedrivePolicy": lambda _, text: normalise_redrive_policy(text) if text else "",
    "RedriveAllowPolicy": lambda _, text: normalise_redrive_allow_policy(text) if text else "",
    _KEY: _key_id,
    "KmsDataKeyReusePeriodSeconds": _integer(60, 86_400),
    "FifoQueue": _fifo_queue,
    "ContentBasedDeduplication": _boolean,
    _SCOPE: _one_of("queue", "messageGroup"),
    _THROUGHPUT: _one_of("perQueue", "perMessageGroupId"),
}


def normalise(given: Mapping[str, str], *, is_fifo: bool) -> dict[str, str]:
    """The attributes as AWS reads them back; "" unsets one that can be unset.

    Raises InvalidAttributeName, InvalidAttributeValue, and InvalidParameterValue for the two
    redrive policies. Whether a dead-letter queue exists is not looked at.
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
        normalised[name] = rule(name, text)
    return normalised


def merge(current: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """What a queue has after normalised ``changes``, "" for what is unset.

    Raises InvalidAttributeName when both kinds of encryption would be on, InvalidAttributeValue
    when the two FIFO throughput attributes do not fit together.
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
    """The first of the normalised attributes whose value is another one on the queue."""
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
    """The names that a caller asks for, `All` resolved. Raises InvalidAttributeName."""
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
    """Whether the answer has counters in it, which cost a look at the messages."""
    return not wanted.isdisjoint(_COUNTERS)


def read(queue: Queue, wanted: frozenset[str], counts: Counts | None) -> dict[str, str]:
    """The wanted attributes that the queue has, in a fixed order."""
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
