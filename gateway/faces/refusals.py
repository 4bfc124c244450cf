"""How each refusal is called on each face: one table per face, complete (tests/tidy)."""

from __future__ import annotations

from collections.abc import Mapping

from protocol.aws_errors import (
    SCHEDULER_ERRORS,
    SENDER,
    SNS_ERRORS,
    SQS_ERRORS,
    STS_ERRORS,
    AwsError,
)
from storage import errors
from storage.errors import Rejected, Unavailable

SQS: Mapping[type[Rejected], AwsError] = {
    refusal: SQS_ERRORS[shape]
    for refusal, shape in (
        (errors.QueueDoesNotExist, "QueueDoesNotExist"),
        (errors.QueueNameExists, "QueueNameExists"),
        (errors.QueueDeletedRecently, "QueueDeletedRecently"),
        (errors.PurgeQueueInProgress, "PurgeQueueInProgress"),
        (errors.InvalidParameterValue, "InvalidParameterValueException"),
        (errors.MissingParameter, "MissingRequiredParameterException"),
        (errors.InvalidAttributeName, "InvalidAttributeName"),
        (errors.InvalidAttributeValue, "InvalidAttributeValue"),
        (errors.InvalidMessageContents, "InvalidMessageContents"),
        (errors.ReceiptHandleIsInvalid, "ReceiptHandleIsInvalid"),
        (errors.OverLimit, "OverLimit"),
        (errors.EmptyBatchRequest, "EmptyBatchRequest"),
        (errors.TooManyEntriesInBatchRequest, "TooManyEntriesInBatchRequest"),
        (errors.BatchEntryIdsNotDistinct, "BatchEntryIdsNotDistinct"),
        (errors.InvalidBatchEntryId, "InvalidBatchEntryId"),
        (errors.BatchRequestTooLong, "BatchRequestTooLong"),
        (errors.PriorEntryRefused, "PriorRequestNotComplete"),
        (errors.UnsupportedOperation, "UnsupportedOperation"),
        (errors.ResourceNotFound, "ResourceNotFoundException"),
        (errors.MalformedInput, "SerializationException"),
        (errors.UnknownAction, "UnknownOperationException"),
        (errors.AccessDenied, "AccessDeniedException"),
        (errors.IncompleteSignature, "IncompleteSignatureException"),
        (errors.RequestTooLarge, "InvalidParameterValueException"),
    )
}
"""On the AWS face, for SQS."""

SNS: Mapping[type[Rejected], AwsError] = {
    refusal: SNS_ERRORS[shape]
    for refusal, shape in (
        (errors.InvalidParameter, "InvalidParameterException"),
        (errors.ParameterValueInvalid, "InvalidParameterValueException"),
        (errors.ValidationFailed, "ValidationException"),
        (errors.NotFound, "NotFoundException"),
        (errors.ResourceNotFound, "ResourceNotFoundException"),
        (errors.AuthorizationError, "AuthorizationErrorException"),
        (errors.TagLimitExceeded, "TagLimitExceededException"),
        (errors.FilterPolicyLimitExceeded, "FilterPolicyLimitExceededException"),
        (errors.SubscriptionLimitExceeded, "SubscriptionLimitExceededException"),
        (errors.ReplayLimitExceeded, "ReplayLimitExceededException"),
        (errors.EndpointDisabled, "EndpointDisabledException"),
        (errors.PlatformApplicationDisabled, "PlatformApplicationDisabledException"),
        (errors.OptedOut, "OptedOutException"),
        (errors.VerificationFailed, "VerificationException"),
        (errors.EmptyBatchRequest, "EmptyBatchRequestException"),
        (errors.TooManyEntriesInBatchRequest, "TooManyEntriesInBatchRequestException"),
        (errors.BatchEntryIdsNotDistinct, "BatchEntryIdsNotDistinctException"),
        (errors.InvalidBatchEntryId, "InvalidBatchEntryIdException"),
        (errors.BatchRequestTooLong, "BatchRequestTooLongException"),
        (errors.PriorEntryRefused, "PriorRequestNotComplete"),
        (errors.MalformedInput, "SerializationException"),
        (errors.UnknownAction, "UnknownOperationException"),
        (errors.AccessDenied, "MissingAuthenticationTokenException"),
        (errors.IncompleteSignature, "IncompleteSignatureException"),
        (errors.RequestTooLarge, "InvalidParameterException"),
    )
}
"""On the AWS face, for SNS."""

SCHEDULER: Mapping[type[Rejected], AwsError] = {
    refusal: SCHEDULER_ERRORS[shape]
    for refusal, shape in (
        (errors.ScheduleInvalid, "ValidationException"),
        (errors.ScheduleConflict, "ConflictException"),
        (errors.ScheduleQuotaExceeded, "ServiceQuotaExceededException"),
        (errors.ResourceNotFound, "ResourceNotFoundException"),
        (errors.MalformedInput, "SerializationException"),
        (errors.UnknownAction, "UnknownOperationException"),
        (errors.AccessDenied, "MissingAuthenticationTokenException"),
        (errors.IncompleteSignature, "IncompleteSignatureException"),
        (errors.RequestTooLarge, "ValidationException"),
    )
}
"""On the AWS face, for EventBridge Scheduler."""

STS: Mapping[type[Rejected], AwsError] = {
    refusal: STS_ERRORS[shape]
    for refusal, shape in (
        (errors.MalformedInput, "SerializationException"),
        (errors.UnknownAction, "UnknownOperationException"),
        (errors.AccessDenied, "MissingAuthenticationTokenException"),
        (errors.IncompleteSignature, "IncompleteSignatureException"),
        (errors.RequestTooLarge, "InvalidParameterValueException"),
    )
}
"""On the AWS face, for STS."""

AWS: Mapping[str, Mapping[type[Rejected], AwsError]] = {
    "sqs": SQS,
    "sns": SNS,
    "scheduler": SCHEDULER,
    "sts": STS,
}
"""By the signing name of the service."""


_ERRORS = {
    "sqs": SQS_ERRORS,
    "sns": SNS_ERRORS,
    "scheduler": SCHEDULER_ERRORS,
    "sts": STS_ERRORS,
}
_INTERNAL = {"sns": "InternalErrorException", "scheduler": "InternalServerException"}


REST: Mapping[type[Rejected], int] = {
    errors.QueueDoesNotExist: 404,
    errors.QueueNameExists: 409,
    errors.QueueDeletedRecently: 409,
    errors.PurgeQueueInProgress: 409,
    errors.InvalidParameterValue: 400,
    errors.MissingParameter: 400,
    errors.InvalidAttributeName: 400,
    errors.InvalidAttributeValue: 400,
    errors.InvalidMessageContents: 400,
    errors.ReceiptHandleIsInvalid: 400,
    errors.OverLimit: 429,
    errors.EmptyBatchRequest: 400,
    errors.TooManyEntriesInBatchRequest: 400,
    errors.BatchEntryIdsNotDistinct: 400,
    errors.InvalidBatchEntryId: 400,
    errors.BatchRequestTooLong: 413,
    errors.PriorEntryRefused: 409,
    errors.UnsupportedOperation: 400,
    errors.ResourceNotFound: 404,
    errors.MalformedInput: 400,
    errors.UnknownAction: 404,
    errors.AccessDenied: 403,
    errors.IncompleteSignature: 400,
    errors.RequestTooLarge: 413,
    errors.InvalidParameter: 400,
    errors.ParameterValueInvalid: 400,
    errors.ValidationFailed: 400,
    errors.NotFound: 404,
    errors.AuthorizationError: 403,
    errors.TagLimitExceeded: 409,
    errors.FilterPolicyLimitExceeded: 409,
    errors.SubscriptionLimitExceeded: 409,
    errors.ReplayLimitExceeded: 409,
    errors.EndpointDisabled: 409,
    errors.PlatformApplicationDisabled: 409,
    errors.OptedOut: 409,
    errors.VerificationFailed: 400,
    errors.SubscriptionExists: 409,
    errors.ScheduleConflict: 409,
    errors.ScheduleInvalid: 400,
    errors.ScheduleQuotaExceeded: 409,
}
"""On the native API: the status. The text is the refusal's own."""


def rest_status(refusal: Rejected) -> int:
    """The status of a refusal on the native API; KeyError is a bug that a test finds first."""
    return REST[type(refusal)]


def rest_text(refusal: Rejected) -> str:
    """What the native API says of a refusal: of a queue that is not there also its name."""
    if isinstance(refusal, errors.QueueDoesNotExist) and refusal.queue_name is not None:
        return f"Queue '{refusal.queue_name}' does not exist"
    return str(refusal)


def aws_error(service: str, refusal: Rejected) -> AwsError:
    """The AWS error of a refusal; KeyError is a bug that a test finds first."""
    return AWS.get(service, SQS)[type(refusal)]


def failed_entry(service: str, entry_id: str, refusal: Rejected) -> dict[str, object]:
    """A Failed entry of a batch. Its code is the query code without its old prefix."""
    error = aws_error(service, refusal)
    return {
        "Id": entry_id,
        "Code": error.query_code.removeprefix("AWS.SimpleQueueService."),
        "Message": str(refusal),
        "SenderFault": error.fault == SENDER,
    }


def unavailable(service: str) -> AwsError:
    """The error of "not now"."""
    return _ERRORS.get(service, SQS_ERRORS)["ServiceUnavailable"]


def internal(service: str) -> AwsError:
    """The error of a bug."""
    shape = _INTERNAL.get(service, "InternalFailure")
    return _ERRORS.get(service, SQS_ERRORS)[shape]


def what_to_say(service: str, error: BaseException) -> tuple[AwsError, str]:
    """The AWS error of whatever went wrong, and its text: bugs are not described."""
    if isinstance(error, Rejected):
        return aws_error(service, error), str(error)
    if isinstance(error, Unavailable):
        return unavailable(service), str(error)
    return internal(service), "We encountered an internal error. Please try again."
