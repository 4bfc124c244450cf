"""How refusals are called on AWS, by service.

A refusal with the name of one of the service's error shapes, with or without ``Exception`` behind
it, is that shape; a few have another name there; all others go by their kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from queuegate.gateway.faces.aws.sns import errors as sns_errors
from queuegate.protocol.aws_errors import (
    SCHEDULER_ERRORS,
    SENDER,
    SNS_ERRORS,
    SQS_ERRORS,
    STS_ERRORS,
    AwsError,
)
from queuegate.storage import errors
from queuegate.storage.errors import Kind, Rejected, Unavailable
from queuegate.storage.priority_errors import PriorityUnfit

ERRORS: Mapping[str, Mapping[str, AwsError]] = {
    "sqs": SQS_ERRORS,
    "sns": SNS_ERRORS,
    "scheduler": SCHEDULER_ERRORS,
    "sts": STS_ERRORS,
}
"""By the signing name of the service."""

_OF_ALL = {
    Kind.MALFORMED: "SerializationException",
    Kind.UNKNOWN: "UnknownOperationException",
    Kind.FORBIDDEN: "MissingAuthenticationTokenException",
}
_BY_KIND: Mapping[str, Mapping[Kind, str]] = {
    "sqs": _OF_ALL
    | {
        Kind.ABSENT: "ResourceNotFoundException",
        Kind.FORBIDDEN: "AccessDeniedException",
        Kind.FULL: "OverLimit",
        Kind.LIMIT: "OverLimit",
        Kind.THROTTLED: "RequestThrottled",
        Kind.UNSUPPORTED: "UnsupportedOperation",
    },
    "sns": _OF_ALL
    | {
        Kind.ABSENT: "NotFoundException",
        Kind.LIMIT: "ThrottledException",
        Kind.THROTTLED: "ThrottledException",
    },
    "scheduler": _OF_ALL
    | {
        Kind.ABSENT: "ResourceNotFoundException",
        Kind.BUSY: "ConflictException",
        Kind.EXISTS: "ConflictException",
        Kind.LIMIT: "ServiceQuotaExceededException",
        Kind.THROTTLED: "ThrottlingException",
    },
    "sts": _OF_ALL,
}
_INVALID = {
    "sqs": "InvalidParameterValueException",
    "sns": "InvalidParameterException",
    "scheduler": "ValidationException",
    "sts": "ValidationException",
}
"""What the other kinds are."""
_OTHERWISE: Mapping[str, Mapping[type[Rejected], str]] = {
    "sqs": {
        errors.MessageIncomplete: "MissingRequiredParameterException",
        errors.MissingParameter: "MissingRequiredParameterException",
        errors.PriorEntryRefused: "PriorRequestNotComplete",
    },
    "sns": {
        sns_errors.ParameterValueInvalid: "InvalidParameterValueException",
        errors.PriorEntryRefused: "PriorRequestNotComplete",
        sns_errors.ValidationFailed: "ValidationException",
        sns_errors.VerificationFailed: "VerificationException",
        errors.AccessDenied: "MissingAuthenticationTokenException",
    },
    "scheduler": {
        errors.AccessDenied: "MissingAuthenticationTokenException",
        errors.AuthorizationError: "AccessDeniedException",
    },
    "sts": {
        errors.AccessDenied: "MissingAuthenticationTokenException",
        errors.AuthorizationError: "AccessDeniedException",
    },
}
_STANDARD_NAME = (
    "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
)
_FIFO_NAME = (
    "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, "
    "must end with .fifo suffix and be 1 to 80 in length"
)
_MOVES: Mapping[errors.MoveFault, str] = {
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


def _bad_id(refusal: errors.IdInvalid) -> str:
    member = _MEMBERS[refusal.what]
    return _invalid(refusal.value, member, f"{member}{_ID_RULE}.")


_Words = Mapping[type[Rejected], Callable[[Any], str]]
_ID_RULE = " can only include alphanumeric and punctuation characters. 1 to 128 in length"
WORDS: _Words = {
    errors.DeduplicationIdMissing: lambda _: _NO_DEDUPLICATION,
    errors.DeduplicationIdUnfit: lambda refusal: _invalid(
        refusal.value,
        "MessageDeduplicationId",
        "The request includes a parameter that is not valid for this queue type.",
    ),
    errors.DelayOutOfRange: lambda refusal: _invalid(
        refusal.seconds, "DelaySeconds", f"DelaySeconds must be >= 0 and <= {refusal.most}."
    ),
    errors.DelayUnfit: lambda refusal: _invalid(
        refusal.seconds,
        "DelaySeconds",
        "The request include parameter that is not valid for this queue type.",
    ),
    PriorityUnfit: lambda refusal: (
        f"Value {refusal.priority} for message attribute Queuegate.Priority is invalid. Reason: "
        "The request includes a message attribute that is not valid for this queue type."
    ),
    errors.IdInvalid: _bad_id,
    errors.InvalidMessageContents: lambda _: _CHARACTERS,
    errors.MessageIncomplete: lambda refusal: (
        f"The request must contain the parameter {_MEMBERS[refusal.what]}."
    ),
    errors.MessageTooLarge: lambda refusal: (
        "One or more parameters are invalid. Reason: Message must be shorter than "
        f"{refusal.most} bytes."
    ),
    errors.MoveQueueAbsent: lambda refusal: (
        "The resource that you specified for the "
        f"{'SourceArn' if refusal.is_source else 'DestinationArn'} parameter doesn't exist."
    ),
    errors.MoveRefused: lambda refusal: _MOVES[refusal.fault],
    errors.PurgeQueueInProgress: lambda refusal: (
        f"Only one PurgeQueue operation on {refusal.queue_name} is allowed every "
        f"{refusal.seconds} seconds."
    ),
    errors.QueueNameInvalid: lambda refusal: _FIFO_NAME if refusal.is_fifo else _STANDARD_NAME,
    errors.VisibilityTimeoutOutOfRange: lambda refusal: _invalid(
        refusal.seconds, "VisibilityTimeout", f"Must be >= 0 and <= {refusal.most}, if provided."
    ),
}
"""What AWS says of a refusal, where the refusal's own text is another."""
_WORDS_OF_QUERY: Mapping[type[Rejected], str] = {
    errors.QueueDoesNotExist: "The specified queue does not exist for this wsdl version.",
}
"""What AWS says differently on the Query wire (docs/contract/sqs.md 2.4)."""
_WORDS_OF_ENTRIES: _Words = {
    errors.MessageTooLarge: lambda refusal: (
        "One or more parameters cannot be validated. Reason: Message must be shorter than "
        f"{refusal.most} bytes."
    ),
}
"""What AWS says differently of an entry of a batch."""
_INVALID_OF_SNS = "Invalid parameter: "
_WORDS_OF_SNS: _Words = {
    errors.DeduplicationIdMissing: lambda _: (
        _INVALID_OF_SNS + _NO_DEDUPLICATION.replace("queue", "topic")
    ),
    errors.DeduplicationIdUnfit: lambda _: (
        f"{_INVALID_OF_SNS}MessageDeduplicationId Reason: The request includes "
        "MessageDeduplicationId parameter that is not valid for this topic type"
    ),
    errors.IdInvalid: lambda refusal: (
        f"{_INVALID_OF_SNS}{_MEMBERS[refusal.what]} Reason: {_MEMBERS[refusal.what]}{_ID_RULE}"
    ),
    errors.MessageIncomplete: lambda _: (
        f"{_INVALID_OF_SNS}The MessageGroupId parameter is required for FIFO topics"
    ),
}
"""What SNS says differently (docs/contract/sns.md 3.5)."""
_INTERNAL = {"sns": "InternalErrorException", "scheduler": "InternalServerException"}


def shape_of(service: str, refusal: type[Rejected]) -> str:
    """The name of the service's error for refusals of a class."""
    known = ERRORS[service]
    name = refusal.__name__
    by_kind = _BY_KIND[service].get(refusal.kind)
    for shape in (_OTHERWISE[service].get(refusal), name, f"{name}Exception", by_kind):
        if shape is not None and shape in known:
            return shape
    return _INVALID[service]


def aws_error(service: str, refusal: Rejected) -> AwsError:
    """The AWS error of a refusal."""
    service = service if service in ERRORS else "sqs"
    kind = type(refusal)
    if kind is errors.AccessDenied and refusal.denied is not None:
        # Only SQS has one name for those without credentials and those without permission.
        kind = errors.AuthorizationError
    return ERRORS[service][shape_of(service, kind)]


def text_of(refusal: Rejected, *, is_query: bool, service: str = "sqs") -> str:
    """What the service says of it."""
    if is_query and type(refusal) in _WORDS_OF_QUERY:
        return _WORDS_OF_QUERY[type(refusal)]
    words = _WORDS_OF_SNS.get(type(refusal)) if service == "sns" else None
    words = words or WORDS.get(type(refusal))
    return str(refusal) if words is None else words(refusal)


def failed_entry(service: str, entry_id: str, refusal: Rejected) -> dict[str, object]:
    """A Failed entry of a batch. Its code is the query code without its old prefix."""
    error = aws_error(service, refusal)
    words = _WORDS_OF_ENTRIES.get(type(refusal))
    return {
        "Id": entry_id,
        "Code": error.query_code.removeprefix("AWS.SimpleQueueService."),
        "Message": (
            text_of(refusal, is_query=False, service=service) if words is None else words(refusal)
        ),
        "SenderFault": error.fault == SENDER,
    }


def unavailable(service: str) -> AwsError:
    """The error of "not now"."""
    return ERRORS.get(service, SQS_ERRORS)["ServiceUnavailable"]


def internal(service: str) -> AwsError:
    """The error of a bug."""
    shape = _INTERNAL.get(service, "InternalFailure")
    return ERRORS.get(service, SQS_ERRORS)[shape]


def what_to_say(
    service: str, error: BaseException, *, is_query: bool = False
) -> tuple[AwsError, str]:
    """The AWS error of whatever went wrong, and its text: bugs are not described."""
    if isinstance(error, Rejected):
        return aws_error(service, error), text_of(error, is_query=is_query, service=service)
    if isinstance(error, Unavailable):
        return unavailable(service), str(error)
    return internal(service), "We encountered an internal error. Please try again."
