"""How each refusal is called on each face: one table per face, complete (tests/tidy)."""

from __future__ import annotations

from collections.abc import Mapping

from protocol.aws_errors import SQS_ERRORS, AwsError
from storage import errors
from storage.errors import Rejected

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


def sqs_error(refusal: Rejected) -> AwsError:
    """The AWS error of a refusal; KeyError is a bug that a test finds first."""
    return SQS[type(refusal)]


def batch_code(refusal: Rejected) -> str:
    """The code in a Failed entry of a batch: the query code without its old prefix."""
    return sqs_error(refusal).query_code.removeprefix("AWS.SimpleQueueService.")
