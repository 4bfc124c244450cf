"""Error shapes of AWS: the names on each wire, the status and the party at fault
(docs/contract/protocol.md 1.2, docs/contract/sns.md 3.10, docs/contract/scheduler.md 4.4,
tests/protocol/vectors/sqs_error_map.json)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import orjson

_SQS = "com.amazonaws.sqs"
_SNS = "com.amazonaws.sns"
_SCHEDULER = "com.amazonaws.scheduler"
_CORAL = "com.amazon.coral.service"
_LEGACY = "AWS.SimpleQueueService."

SENDER: Final = "Sender"
RECEIVER: Final = "Receiver"

# The whole answer to a Query request without an Action; it is XML, but in no envelope and no
# namespace.
NO_ACTION_STATUS: Final = 404
NO_ACTION_BODY: Final = b"<UnknownOperationException/>"


@dataclass(frozen=True, slots=True)
class AwsError:
    """An error: `shape` is the type for JSON clients, `query_code` the code for Query clients."""

    shape: str
    namespace: str
    query_code: str
    status: int
    fault: str

    @property
    def json_type(self) -> str:
        return f"{self.namespace}#{self.shape}"


def _modelled(shape: str, query_code: str | None = None, status: int = 400) -> AwsError:
    return AwsError(shape, _SQS, query_code or shape, status, SENDER)


def _legacy(shape: str, query_name: str | None = None, status: int = 400) -> AwsError:
    return _modelled(shape, _LEGACY + (query_name or shape), status)


def _framework(shape: str, query_code: str, status: int = 400, fault: str = SENDER) -> AwsError:
    return AwsError(shape, _CORAL, query_code, status, fault)


_LEGACY_OF_SQS = """
    BatchEntryIdsNotDistinct BatchRequestTooLong EmptyBatchRequest InvalidBatchEntryId
    MessageNotInflight QueueDeletedRecently TooManyEntriesInBatchRequest UnsupportedOperation
"""
_PLAIN_OF_SQS = "InvalidAttributeName InvalidAttributeValue InvalidIdFormat InvalidMessageContents"
_SQS_ONLY = (
    *map(_legacy, _LEGACY_OF_SQS.split()),
    *map(_modelled, _PLAIN_OF_SQS.split()),
    _modelled("InvalidAddress", status=404),
    _modelled("InvalidSecurity", status=403),
    _modelled("KmsAccessDenied", "KMS.AccessDeniedException"),
    _modelled("KmsDisabled", "KMS.DisabledException"),
    _modelled("KmsInvalidKeyUsage", "KMS.InvalidKeyUsageException"),
    _modelled("KmsInvalidState", "KMS.InvalidStateException"),
    _modelled("KmsNotFound", "KMS.NotFoundException"),
    _modelled("KmsOptInRequired", "KMS.OptInRequired", 403),
    _modelled("KmsThrottled", "KMS.ThrottlingException"),
    _modelled("OverLimit", status=403),
    _legacy("PurgeQueueInProgress", status=403),
    _legacy("QueueDoesNotExist", "NonExistentQueue"),
    _modelled("QueueNameExists", "QueueAlreadyExists"),
    _modelled("ReceiptHandleIsInvalid", status=404),
    _modelled("RequestThrottled", status=403),
    _modelled("ResourceNotFoundException", status=404),
    _framework("InvalidParameterValueException", "InvalidParameterValue"),
    _framework("MissingRequiredParameterException", "MissingParameter"),
    # Not recorded on AWS, but used elsewhere by its framework. SDKs retry by the status.
    _framework("InternalFailure", "InternalFailure", 500, RECEIVER),
)

_FRAMEWORK = (
    _framework("UnknownOperationException", "InvalidAction"),
    _framework("SerializationException", "MalformedInput"),
    _framework("AccessDeniedException", "AccessDenied", 403),
    _framework("UnrecognizedClientException", "InvalidClientTokenId", 403),
    _framework("InvalidSignatureException", "SignatureDoesNotMatch", 403),
    _framework("ExpiredTokenException", "ExpiredToken", 403),
    _framework("IncompleteSignatureException", "IncompleteSignature"),
    # As InternalFailure of SQS.
    _framework("ServiceUnavailable", "ServiceUnavailable", 503, RECEIVER),
)
# A code of Route 53 that every SDK retries. Only entries of batches have it.
_PRIOR_REQUEST = _framework("PriorRequestNotComplete", "PriorRequestNotComplete", 503, RECEIVER)


_NO_CREDENTIALS = _framework(
    "MissingAuthenticationTokenException", "MissingAuthenticationToken", 403
)


def _topics(
    shape: str, query_code: str | None = None, status: int = 400, fault: str = SENDER
) -> AwsError:
    """Return an error of SNS's model. Its code is its shape without the suffix."""
    return AwsError(shape, _SNS, query_code or shape.removesuffix("Exception"), status, fault)


_PLAIN_OF_SNS = """
    BatchEntryIdsNotDistinctException BatchRequestTooLongException ConcurrentAccessException
    EmptyBatchRequestException EndpointDisabledException InvalidBatchEntryIdException
    InvalidParameterException InvalidStateException KMSAccessDeniedException
    KMSDisabledException KMSInvalidStateException KMSNotFoundException KMSThrottlingException
    OptedOutException PlatformApplicationDisabledException StaleTagException
    TagLimitExceededException TagPolicyException TooManyEntriesInBatchRequestException
    UserErrorException
"""
_SNS_ONLY = (
    *map(_topics, _PLAIN_OF_SNS.split()),
    _topics("AuthorizationErrorException", status=403),
    _topics("FilterPolicyLimitExceededException", status=403),
    _topics("InternalErrorException", status=500, fault=RECEIVER),
    _topics("InvalidParameterValueException", "ParameterValueInvalid"),
    _topics("InvalidSecurityException", status=403),
    _topics("KMSOptInRequired", status=403),
    _topics("NotFoundException", status=404),
    _topics("ReplayLimitExceededException", status=403),
    _topics("ResourceNotFoundException", status=404),
    _topics("SubscriptionLimitExceededException", status=403),
    _topics("ThrottledException", status=429),
    _topics("TopicLimitExceededException", status=403),
    # The model says ValidationException, recordings show this code.
    _topics("ValidationException", "ValidationError"),
    # The model has neither a code nor a status for it.
    _topics("VerificationException", "VerificationException"),
    _NO_CREDENTIALS,
)


def _schedules(shape: str, status: int, fault: str = SENDER) -> AwsError:
    """Return an error of EventBridge Scheduler's model, which has codes on no other wire."""
    return AwsError(shape, _SCHEDULER, shape, status, fault)


_SCHEDULER_ONLY = (
    _schedules("ConflictException", 409),
    _schedules("InternalServerException", 500, RECEIVER),
    _schedules("ResourceNotFoundException", 404),
    _schedules("ServiceQuotaExceededException", 402),
    _schedules("ThrottlingException", 429),
    _schedules("ValidationException", 400),
    # An error of its framework for an unknown path.
    _framework("UnknownOperationException", "UnknownOperationException", 404),
    _NO_CREDENTIALS,
)
_STS_ONLY = (
    _framework("InternalFailure", "InternalFailure", 500, RECEIVER),
    _framework("InvalidIdentityTokenException", "InvalidIdentityToken"),
    _framework("MalformedPolicyDocumentException", "MalformedPolicyDocument"),
    _framework("PackedPolicyTooLargeException", "PackedPolicyTooLarge"),
    _framework("ValidationException", "ValidationError"),
    _NO_CREDENTIALS,
)

SQS_ERRORS: Final[Mapping[str, AwsError]] = {
    error.shape: error for error in (*_SQS_ONLY, _PRIOR_REQUEST, *_FRAMEWORK)
}
SNS_ERRORS: Final[Mapping[str, AwsError]] = {
    error.shape: error for error in (*_SNS_ONLY, _PRIOR_REQUEST, *_FRAMEWORK)
}
SCHEDULER_ERRORS: Final[Mapping[str, AwsError]] = {
    error.shape: error for error in _FRAMEWORK + _SCHEDULER_ONLY
}
STS_ERRORS: Final[Mapping[str, AwsError]] = {error.shape: error for error in _FRAMEWORK + _STS_ONLY}


def json_error(error: AwsError, message: str) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Return status, headers (all but the request id) and body of a refusal on the JSON wire.
    `x-amzn-query-error` is always present: AWS sends it unasked, and boto3 takes its error code
    from it."""
    headers = [
        (b"content-type", b"application/x-amz-json-1.0"),
        (b"x-amzn-query-error", f"{error.query_code};{error.fault}".encode()),
    ]
    return error.status, headers, orjson.dumps({"__type": error.json_type, "message": message})


def rest_error(error: AwsError, message: str) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Return status, headers (all but the request id) and body of a refusal on the rest-json wire.
    The member has a capital letter, as in the model (docs/contract/scheduler.md 4.4)."""
    headers = [(b"content-type", b"application/json"), (b"x-amzn-errortype", error.shape.encode())]
    return error.status, headers, orjson.dumps({"Message": message})


def named(known: Mapping[str, AwsError], code: str, status: int | None) -> AwsError:
    """Return the error of a code on either wire, also of one that the service does not have. Its
    status replaces that of the service, unless it is None."""
    for error in known.values():
        if code in (error.shape, error.query_code, error.query_code.removeprefix(_LEGACY)):
            return error if status is None else replace(error, status=status)
    status = status or (500 if code.startswith("Internal") else 400)
    return _framework(code, code, status, SENDER if status < 500 else RECEIVER)
