"""Refusals in the words of AWS: error shapes and texts by service, and the refusals of SNS alone.

A refusal named like an error shape of the service, with or without ``Exception``, becomes that
shape. A few refusals are mapped by class, all others by their kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from queuegate.protocol import aws_errors
from queuegate.storage import storage_errors
from queuegate.storage.storage_errors import PriorityUnfit


class InvalidParameter(storage_errors.Rejected):
    """A parameter that SNS does not accept. A few texts lack the usual prefix."""

    def __init__(self, reason: str, *, prefix: str = "Invalid parameter: ") -> None:
        super().__init__(prefix + reason)


class ParameterValueInvalid(storage_errors.Rejected):
    """A message attribute that breaks the rules."""


class ValidationFailed(storage_errors.Rejected):
    """An absent member, or one that breaks a constraint. ``member`` is its path in lower camel
    case."""

    def __init__(
        self, member: str, value: str = "null", constraint: str = "Member must not be null"
    ) -> None:
        self._what = value, constraint
        self._member = member
        super().__init__(
            f"1 validation error detected: Value {value} at '{member}' failed to satisfy "
            f"constraint: {constraint}"
        )

    def within(self, path: str) -> ValidationFailed:
        """Return this refusal for the same member inside ``path``."""
        return ValidationFailed(f"{path}.{self._member}", *self._what)


def missing(service: str, member: str) -> storage_errors.Rejected:
    """Return the refusal of SQS or SNS for an absent member."""
    if service == "sqs":
        return storage_errors.MissingParameter(member)
    return ValidationFailed(member[0].lower() + member[1:])


class TagLimitExceeded(storage_errors.Rejected):
    """More than 50 tags."""

    kind = storage_errors.Kind.LIMIT


class EndpointDisabled(storage_errors.Rejected):
    """A disabled push endpoint."""

    kind = storage_errors.Kind.DISABLED


class PlatformApplicationDisabled(storage_errors.Rejected):
    """A push endpoint whose platform application is disabled."""

    kind = storage_errors.Kind.DISABLED


class VerificationFailed(storage_errors.Rejected):
    """A wrong one-time password for a phone number of the sandbox."""


ERRORS: Mapping[str, Mapping[str, aws_errors.AwsError]] = {
    "sqs": aws_errors.SQS_ERRORS,
    "sns": aws_errors.SNS_ERRORS,
    "scheduler": aws_errors.SCHEDULER_ERRORS,
    "sts": aws_errors.STS_ERRORS,
}
"""Errors by the signing name of the service."""

_OF_ALL = {
    storage_errors.Kind.MALFORMED: "SerializationException",
    storage_errors.Kind.UNKNOWN: "UnknownOperationException",
    storage_errors.Kind.FORBIDDEN: "MissingAuthenticationTokenException",
}
_BY_KIND: Mapping[str, Mapping[storage_errors.Kind, str]] = {
    "sqs": _OF_ALL
    | {
        storage_errors.Kind.ABSENT: "ResourceNotFoundException",
        storage_errors.Kind.FORBIDDEN: "AccessDeniedException",
        storage_errors.Kind.FULL: "OverLimit",
        storage_errors.Kind.LIMIT: "OverLimit",
        storage_errors.Kind.THROTTLED: "RequestThrottled",
        storage_errors.Kind.UNSUPPORTED: "UnsupportedOperation",
    },
    "sns": _OF_ALL
    | {
        storage_errors.Kind.ABSENT: "NotFoundException",
        storage_errors.Kind.LIMIT: "ThrottledException",
        storage_errors.Kind.THROTTLED: "ThrottledException",
    },
    "scheduler": _OF_ALL
    | {
        storage_errors.Kind.ABSENT: "ResourceNotFoundException",
        storage_errors.Kind.BUSY: "ConflictException",
        storage_errors.Kind.EXISTS: "ConflictException",
        storage_errors.Kind.LIMIT: "ServiceQuotaExceededException",
        storage_errors.Kind.THROTTLED: "ThrottlingException",
    },
    "sts": _OF_ALL,
}
_INVALID = {
    "sqs": "InvalidParameterValueException",
    "sns": "InvalidParameterException",
    "scheduler": "ValidationException",
    "sts": "ValidationException",
}
"""The shape for all other kinds."""
_OTHERWISE: Mapping[str, Mapping[type[storage_errors.Rejected], str]] = {
    "sqs": {
        storage_errors.MessageIncomplete: "MissingRequiredParameterException",
        storage_errors.MissingParameter: "MissingRequiredParameterException",
        storage_errors.PriorEntryRefused: "PriorRequestNotComplete",
    },
    "sns": {
        ParameterValueInvalid: "InvalidParameterValueException",
        storage_errors.PriorEntryRefused: "PriorRequestNotComplete",
        ValidationFailed: "ValidationException",
        VerificationFailed: "VerificationException",
        storage_errors.AccessDenied: "MissingAuthenticationTokenException",
    },
    "scheduler": {
        storage_errors.AccessDenied: "MissingAuthenticationTokenException",
        storage_errors.AuthorizationError: "AccessDeniedException",
    },
    "sts": {
        storage_errors.AccessDenied: "MissingAuthenticationTokenException",
        storage_errors.AuthorizationError: "AccessDeniedException",
    },
}
_STANDARD_NAME = (
    "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
)
_FIFO_NAME = (
    "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, "
    "must end with .fifo suffix and be 1 to 80 in length"
)
_MOVES: Mapping[storage_errors.MoveFault, str] = {
    "not dead letters": "Source queue must be configured as a Dead Letter Queue.",
    "same queue": "Source queue arn and destination queue arn cannot be the same.",
    "other kind": "Source queue and destination queue must be of the same type.",
    "runs already": "There is already a task running. Only one active task is allowed for a source "
    "queue arn at a given time.",
    "not running": "Only tasks that are running can be cancelled.",
}
_MEMBERS = {
    "body": "MessageBody",
    "group_id": "MessageGroupId",
    "deduplication_id": "MessageDeduplicationId",
    "attempt_id": "ReceiveRequestAttemptId",
}
_CHARACTERS = (
    "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | "
    "#xE000 to #xFFFD | #x10000 to #x10FFFF"
)
_NO_DEDUPLICATION = (
    "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId "
    "provided explicitly"
)


def _invalid(value: object, member: str, reason: str) -> str:
    return f"Value {value} for parameter {member} is invalid. Reason: {reason}"


def _bad_id(refusal: storage_errors.IdInvalid) -> str:
    member = _MEMBERS[refusal.what]
    return _invalid(refusal.value, member, f"{member}{_ID_RULE}.")


_Words = Mapping[type[storage_errors.Rejected], Callable[[Any], str]]
_ID_RULE = " can only include alphanumeric and punctuation characters. 1 to 128 in length"
WORDS: _Words = {
    storage_errors.DeduplicationIdMissing: lambda _: _NO_DEDUPLICATION,
    storage_errors.DeduplicationIdUnfit: lambda refusal: _invalid(
        refusal.value,
        "MessageDeduplicationId",
        "The request includes a parameter that is not valid for this queue type.",
    ),
    storage_errors.DelayOutOfRange: lambda refusal: _invalid(
        refusal.seconds, "DelaySeconds", f"DelaySeconds must be >= 0 and <= {refusal.most}."
    ),
    storage_errors.DelayUnfit: lambda refusal: _invalid(
        refusal.seconds,
        "DelaySeconds",
        "The request include parameter that is not valid for this queue type.",
    ),
    PriorityUnfit: lambda refusal: (
        f"Value {refusal.priority} for message attribute Queuegate.Priority is invalid. Reason: "
        "The request includes a message attribute that is not valid for this queue type."
    ),
    storage_errors.IdInvalid: _bad_id,
    storage_errors.InvalidMessageContents: lambda _: _CHARACTERS,
    storage_errors.MessageIncomplete: lambda refusal: (
        f"The request must contain the parameter {_MEMBERS[refusal.what]}."
    ),
    storage_errors.MessageTooLarge: lambda refusal: (
        "One or more parameters are invalid. Reason: Message must be shorter than "
        f"{refusal.most} bytes."
    ),
    storage_errors.MoveQueueAbsent: lambda refusal: (
        "The resource that you specified for the "
        f"{'SourceArn' if refusal.is_source else 'DestinationArn'} parameter doesn't exist."
    ),
    storage_errors.MoveRefused: lambda refusal: _MOVES[refusal.fault],
    storage_errors.PurgeQueueInProgress: lambda refusal: (
        f"Only one PurgeQueue operation on {refusal.queue_name} is allowed every "
        f"{refusal.seconds} seconds."
    ),
    storage_errors.QueueNameInvalid: lambda refusal: (
        _FIFO_NAME if refusal.is_fifo else _STANDARD_NAME
    ),
    storage_errors.VisibilityTimeoutOutOfRange: lambda refusal: _invalid(
        refusal.seconds, "VisibilityTimeout", f"Must be >= 0 and <= {refusal.most}, if provided."
    ),
}
"""Texts of AWS that differ from the text of the refusal itself."""
_WORDS_OF_QUERY: Mapping[type[storage_errors.Rejected], str] = {
    storage_errors.QueueDoesNotExist: "The specified queue does not exist for this wsdl version."
}
"""Texts that differ on the Query wire (docs/contract/sqs.md 2.4)."""
_WORDS_OF_ENTRIES: _Words = {
    storage_errors.MessageTooLarge: lambda refusal: (
        "One or more parameters cannot be validated. Reason: Message must be shorter than "
        f"{refusal.most} bytes."
    )
}
"""Texts that differ for an entry of a batch."""
_INVALID_OF_SNS = "Invalid parameter: "
_WORDS_OF_SNS: _Words = {
    storage_errors.DeduplicationIdMissing: lambda _: (
        _INVALID_OF_SNS + _NO_DEDUPLICATION.replace("queue", "topic")
    ),
    storage_errors.DeduplicationIdUnfit: lambda _: (
        f"{_INVALID_OF_SNS}MessageDeduplicationId Reason: The request includes "
        "MessageDeduplicationId parameter that is not valid for this topic type"
    ),
    storage_errors.IdInvalid: lambda refusal: (
        f"{_INVALID_OF_SNS}{_MEMBERS[refusal.what]} Reason: {_MEMBERS[refusal.what]}{_ID_RULE}"
    ),
    storage_errors.MessageIncomplete: lambda _: (
        f"{_INVALID_OF_SNS}The MessageGroupId parameter is required for FIFO topics"
    ),
}
"""Texts that differ for SNS (docs/contract/sns.md 3.5)."""
_INTERNAL = {"sns": "InternalErrorException", "scheduler": "InternalServerException"}


def shape_of(service: str, refusal: type[storage_errors.Rejected]) -> str:
    """Return the error shape of a service for a class of refusals."""
    known = ERRORS[service]
    name = refusal.__name__
    by_kind = _BY_KIND[service].get(refusal.kind)
    for shape in (_OTHERWISE[service].get(refusal), name, f"{name}Exception", by_kind):
        if shape is not None and shape in known:
            return shape
    return _INVALID[service]


def aws_error(service: str, refusal: storage_errors.Rejected) -> aws_errors.AwsError:
    """Return the AWS error of a refusal."""
    service = service if service in ERRORS else "sqs"
    kind = type(refusal)
    if isinstance(refusal, storage_errors.InjectedFault):
        return aws_errors.named(ERRORS[service], refusal.code, refusal.status)
    if kind is storage_errors.AccessDenied and refusal.denied is not None:
        # Other services tell missing credentials from missing permission.
        kind = storage_errors.AuthorizationError
    return ERRORS[service][shape_of(service, kind)]


def text_of(refusal: storage_errors.Rejected, *, is_query: bool, service: str = "sqs") -> str:
    """Return the service's text for a refusal."""
    if is_query and type(refusal) in _WORDS_OF_QUERY:
        return _WORDS_OF_QUERY[type(refusal)]
    words = _WORDS_OF_SNS.get(type(refusal)) if service == "sns" else None
    words = words or WORDS.get(type(refusal))
    return str(refusal) if words is None else words(refusal)


def failed_entry(
    service: str, entry_id: str, refusal: storage_errors.Rejected
) -> dict[str, object]:
    """Return a Failed entry of a batch. Its code is the query code without the old prefix."""
    error = aws_error(service, refusal)
    words = _WORDS_OF_ENTRIES.get(type(refusal))
    return {
        "Id": entry_id,
        "Code": error.query_code.removeprefix("AWS.SimpleQueueService."),
        "Message": (
            text_of(refusal, is_query=False, service=service) if words is None else words(refusal)
        ),
        "SenderFault": error.fault == aws_errors.SENDER,
    }


def what_to_say(
    service: str, error: BaseException, *, is_query: bool = False
) -> tuple[aws_errors.AwsError, str]:
    """Return the AWS error and the text for any exception. Bugs are not described."""
    if isinstance(error, storage_errors.Rejected):
        return aws_error(service, error), text_of(error, is_query=is_query, service=service)
    known = ERRORS.get(service, aws_errors.SQS_ERRORS)
    throttled = _BY_KIND.get(service, _BY_KIND["sqs"]).get(storage_errors.Kind.THROTTLED)
    if isinstance(error, storage_errors.Overloaded) and throttled is not None:
        # The status tells that the service is at its limit, and not the client at its own.
        return replace(known[throttled], status=503, fault=aws_errors.RECEIVER), str(error)
    if isinstance(error, storage_errors.Unavailable):
        return known["ServiceUnavailable"], str(error)
    shape = _INTERNAL.get(service, "InternalFailure")
    return known[shape], "We encountered an internal error. Please try again."


def invocation_failure(refusal: storage_errors.Rejected, kind: str) -> tuple[str, str]:
    """Return code and text for a failed invocation of a schedule (docs/contract/scheduler.md 4.2).

    The target's service words the failure. Otherwise the code is the name of the refusal's class.
    """
    if isinstance(refusal, storage_errors.InvalidMessageContents):
        return "InvalidMessageContents", "Invalid characters found in the message."
    is_of_topic = kind == "topic" and type(refusal) is not storage_errors.InvalidParameterValue
    service = "sns" if is_of_topic else "sqs"
    text = text_of(refusal, is_query=False, service=service)
    if isinstance(refusal, storage_errors.InvalidParameterValue):
        return aws_error(service, refusal).query_code, text
    if isinstance(refusal, storage_errors.QueueDoesNotExist | storage_errors.QueueFull):
        return aws_error("sqs", refusal).query_code, text
    return type(refusal).__name__, text
