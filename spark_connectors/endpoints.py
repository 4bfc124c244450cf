"""Endpoints of services and their callers: JSON, retries, and the meaning of error codes.

Imported by every process: the connections themselves are in ``http_client``."""

from __future__ import annotations

import base64
import json
import logging
import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

from spark_connectors.errors import ConnectorError, NotNow

_log = logging.getLogger(__name__)
try:
    import orjson
except ImportError:  # the package came by --py-files, without its dependencies
    orjson = None  # type: ignore[assignment]


def json_bytes(value: object) -> bytes:
    """Return the value as JSON, bytes in it as base64. Raises TypeError or ValueError."""
    if orjson is not None:
        return orjson.dumps(value, default=_base64)
    text = json.dumps(value, default=_base64, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8")


def json_value(data: bytes) -> Any:
    """Return the value of a JSON text. Raises ValueError."""
    return json.loads(data) if orjson is None else orjson.loads(data)


def _base64(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    raise TypeError(f"{type(value).__name__} is nothing that JSON can hold")


_FIRST_SECONDS = 0.05
_LONGEST_SECONDS = 5.0
_Result = TypeVar("_Result")


class TransientFailure(Exception):
    """A failure that may be over at the next attempt. The text holds no secrets."""


def retried(
    attempt: Callable[[], _Result], *, action: str, place: str, max_retries: int
) -> _Result:
    """Return the result of the first attempt without TransientFailure. Raises NotNow when all
    attempts fail. Sleeps between attempts, in the calling thread, up to 5 s each time."""
    failures = 0
    while True:
        try:
            return attempt()
        except TransientFailure as error:
            failures += 1
            _log.debug("%s at %s: attempt %d failed: %s", action, place, failures, error)
            if failures > max_retries:
                times = "once" if failures == 1 else f"{failures} times"
                raise NotNow(
                    f"{action} at {place} failed {times}; the last cause: {error}"
                ) from error
        time.sleep(random.uniform(0, min(_LONGEST_SECONDS, _FIRST_SECONDS * 2**failures / 2)))


_HOST = re.compile(r"[A-Za-z0-9._:%-]+").fullmatch
_PORTS = {"http": 80, "https": 443}


class ServiceEndpoint(NamedTuple):
    """A parsed endpoint URL; ``path`` is as sent."""

    url: str
    is_secure: bool
    host: str
    port: int
    authority: str
    path: str


def parse_endpoint(url: str) -> ServiceEndpoint:
    """Parse an endpoint URL. Raises ConnectorError for an invalid one, without repeating a
    password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConnectorError("the endpoint is not a URL") from None
    if parts.username is not None or parts.password is not None:
        raise ConnectorError(f"the endpoint at {parts.hostname} must not hold a user or a password")
    name = parts.hostname or ""
    if parts.scheme not in _PORTS or not _HOST(name):
        raise ConnectorError(f"endpoint '{url}' is not a URL such as http://localhost:9324")
    path = quote(parts.path or "/", safe="/~%")
    is_plain = not {".", ".."}.intersection(path.split("/")) and "//" not in path
    if parts.query or parts.fragment or not is_plain:
        raise ConnectorError(f"endpoint '{url}' must be a host, a port and at most a plain path")
    host = f"[{name}]" if ":" in name else name
    if port is None or port == _PORTS[parts.scheme]:
        authority, port = host, _PORTS[parts.scheme]
    else:
        authority = f"{host}:{port}"
    return ServiceEndpoint(
        url=f"{parts.scheme}://{authority}{'' if path == '/' else path}",
        is_secure=parts.scheme == "https",
        host=name,
        port=port,
        authority=authority,
        path=path,
    )


OK, NO_CONTENT = 200, 204


class HttpAnswer(NamedTuple):
    """An HTTP answer; header names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class StaticCredentials:
    """Keys given by hand. Only the access key id, which is no secret, is in its repr."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


class Connection(NamedTuple):
    """The endpoint of a service, and the caller. Picklable. ``endpoint_url`` is for both services;
    None: AWS_ENDPOINT_URL_SQS and _SNS, AWS_ENDPOINT_URL, the profile's, then AWS. ``max_retries``:
    retries of a call after transient failures."""

    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None
    role_arn: str | None = None
    role_session_name: str | None = None
    static: StaticCredentials | None = None
    max_retries: int = 8


# Names of the Query protocol that differ from the error's name by more than the prefix.
_QUERY_NAMES = {"NonExistentQueue": "QueueDoesNotExist", "QueueAlreadyExists": "QueueNameExists"}
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
