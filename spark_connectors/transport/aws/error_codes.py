"""Error codes of AWS, the same for every wire and transport."""

from __future__ import annotations

from typing import Protocol

# Names of the Query protocol that differ from the error's name by more than the prefix.
_QUERY_NAMES = {
    "NonExistentQueue": "QueueDoesNotExist",
    "QueueAlreadyExists": "QueueNameExists",
}
_PASSING = frozenset(
    {
        "BandwidthLimitExceeded",
        "InternalError",
        "InternalFailure",
        "KMSThrottling",
        "KmsThrottled",
        "LimitExceeded",
        "PriorRequestNotComplete",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "Throttled",
        "Throttling",
        "TooManyRequests",
    }
)
TOO_MANY_REQUESTS = 429
SERVER_FAULTS = 500
SKEWED = frozenset(
    {
        "InvalidSignature",
        "RequestExpired",
        "RequestInTheFuture",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
    }
)
"""Codes that a wrong clock can be the cause of."""


def code_of(name: str) -> str:
    """Return an error's code without namespace, prefix and suffix: ``QueueDoesNotExist`` for
    ``com.amazonaws.sqs#QueueDoesNotExist`` and ``AWS.SimpleQueueService.NonExistentQueue``,
    ``AccessDenied`` for ``AccessDeniedException:http``."""
    short = name.partition(":")[0].rpartition("#")[2]
    short = short.removeprefix("AWS.SimpleQueueService.")
    short = short.removesuffix("Exception") or short
    return _QUERY_NAMES.get(short, short)


def is_passing(code: str, status: int) -> bool:
    """Return True if the same call may succeed later: throttled, or the service's own fault."""
    return status >= SERVER_FAULTS or status == TOO_MANY_REQUESTS or code in _PASSING


class Secrets(Protocol):
    """The secret parts of credentials."""

    @property
    def secret_key(self) -> str: ...
    @property
    def token(self) -> str | None: ...


def without_secrets(text: str, keys: Secrets) -> str:
    """Mask our secrets in a text: AWS repeats signed headers, tokens among them."""
    for secret in (keys.secret_key, keys.token):
        if secret:
            text = text.replace(secret, "***")
    return text
