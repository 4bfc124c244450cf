"""How each refusal is called on each face: one table per face, complete (tests/tidy)."""

from __future__ import annotations

from collections.abc import Mapping

from protocol.aws_errors import SNS_ERRORS, SQS_ERRORS, AwsError
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
        (errors.UnsupportedOperation, "UnsupportedOperation"),
        (errors.ResourceNotFound, "ResourceNotFoundException"),
        (errors.MalformedInput, "SerializationException"),
        (errors.UnknownAction, "UnknownOperationException"),
        (errors.AccessDenied, "AccessDeniedException"),
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
        (errors.MalformedInput, "SerializationException"),
        (errors.UnknownAction, "UnknownOperationException"),
        (errors.AccessDenied, "MissingAuthenticationTokenException"),
        (errors.RequestTooLarge, "InvalidParameterException"),
    )
}
"""On the AWS face, for SNS."""

AWS: Mapping[str, Mapping[type[Rejected], AwsError]] = {"sqs": SQS, "sns": SNS}
"""By the signing name of the service."""


def aws_error(service: str, refusal: Rejected) -> AwsError:
    """The AWS error of a refusal; KeyError is a bug that a test finds first."""
    return AWS.get(service, SQS)[type(refusal)]


def batch_code(service: str, refusal: Rejected) -> str:
    """The code in a Failed entry of a batch: the query code without its old prefix."""
    return aws_error(service, refusal).query_code.removeprefix("AWS.SimpleQueueService.")


def unavailable(service: str) -> AwsError:
    """The error of "not now"."""
    return (SNS_ERRORS if service == "sns" else SQS_ERRORS)["ServiceUnavailable"]


def internal(service: str) -> AwsError:
    """The error of a bug."""
    if service == "sns":
        return SNS_ERRORS["InternalErrorException"]
    return SQS_ERRORS["InternalFailure"]


def what_to_say(service: str, error: BaseException) -> tuple[AwsError, str]:
    """The AWS error of whatever went wrong, and its text: bugs are not described."""
    if isinstance(error, Rejected):
        return aws_error(service, error), str(error)
    if isinstance(error, Unavailable):
        return unavailable(service), str(error)
    return internal(service), "We encountered an internal error. Please try again."
