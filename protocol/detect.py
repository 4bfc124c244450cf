"""Which service, wire and action a request is for (docs/contract/protocol.md 1.1, 1.2 and 1.4)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from queuegate.protocol.query_wire import parse_form
from queuegate.protocol.queue_urls import QueueAddress, queue_from_path
from queuegate.protocol.scheduler_shapes import SCHEDULER
from queuegate.protocol.shapes import Service
from queuegate.protocol.sns_shapes import SNS
from queuegate.protocol.sqs_shapes import SQS
from queuegate.protocol.sts_shapes import STS

Wire = Literal["json", "query", "rest"]

SERVICES: Final[Mapping[str, Service]] = {
    "sqs": SQS,
    "sns": SNS,
    "scheduler": SCHEDULER,
    "sts": STS,
}

# SQS: not valid where the path already names a queue, but only on the Query wire: PHP and Ruby
# send JSON there.
NOT_ON_QUEUE_PATH: Final = frozenset({"CreateQueue", "ListQueues"})

_SIGNING_NAMES = frozenset(SERVICES)
_SERVICE_BY_TARGET = {
    service.target_prefix: name
    for name, service in SERVICES.items()
    if service.target_prefix is not None
}
_SERVICE_BY_VERSION = {
    version: name for name, service in SERVICES.items() for version in service.versions
}
_REST_PATHS = ("/schedules", "/schedule-groups", "/tags/")
_NO_PARAMS: dict[str, str] = {}


@dataclass(slots=True)
class Detected:
    """What a request asks for. `action` None: it names none, or one of another service.

    `params` are the merged parameters of the Query wire, and empty on the others. `path_queue` is
    the queue that the path names; a QueueUrl in the request wins over it. EventBridge Scheduler
    speaks rest-json only: there method and path say which action is meant.
    """

    service: str
    wire: Wire
    action: str | None
    params: dict[str, str] = field(default_factory=dict)
    path_queue: QueueAddress | None = None
    wants_json: bool = False


def has_form(method: str, headers: Mapping[str, str], body: bytes) -> bool:
    """Whether the body is a form. One without a content type is taken for a form."""
    if not body or method == "GET" or "x-amz-target" in headers:
        return False
    content_type = headers.get("content-type", "").lower()
    return not content_type or content_type.startswith("application/x-www-form-urlencoded")


def detect(
    method: str,
    path: str,
    query: bytes,
    headers: Mapping[str, str],
    form: bytes | Mapping[str, str],
) -> Detected:
    """Decide by the scope of the signature, then X-Amz-Target, then Version and Action, then the
    path.

    Header names are lower case. `form` is the body; its parameters, where it is a form that was
    read already (`protocol.query_wire.read_form`). SQS is the answer when nothing decides. Raises
    Malformed for parameters that cannot be decoded (`protocol.query_wire.parse_form`).
    """
    target = headers.get("x-amz-target")
    path_queue = None if path == "/" else queue_from_path(path)
    if target is not None or headers.get("content-type", "").lower().startswith(
        "application/x-amz-json"
    ):
        return _detect_json(target or "", headers.get("authorization", ""), path_queue)
    scope = scope_service(headers.get("authorization", ""))
    if scope == "scheduler" or (scope is None and path.startswith(_REST_PATHS)):
        return Detected("scheduler", "rest", None)
    params = _merged_params(method, query, headers, form)
    service = (
        scope or scope_service(params.get("X-Amz-Credential", "")) or _by_params(params, path_queue)
    )
    if service == "scheduler":
        return Detected("scheduler", "rest", None, params)
    return Detected(
        service=service,
        wire="query",
        action=params.get("Action") or None,
        params=params,
        path_queue=path_queue,
        wants_json=method == "GET" and "application/json" in headers.get("accept", ""),
    )


def _detect_json(target: str, authorization: str, path_queue: QueueAddress | None) -> Detected:
    prefix, _, name = target.rpartition(".")
    named = _SERVICE_BY_TARGET.get(prefix)
    # The scope nearly always agrees with the target: then it need not be taken apart.
    if named is not None and f"/{named}/aws4_request" in authorization:
        return Detected(named, "json", name or None, _NO_PARAMS, path_queue)
    service = scope_service(authorization) or named or "sqs"
    if service == "scheduler":
        return Detected("scheduler", "rest", None)
    action = name if name and service == named else None
    return Detected(service, "json", action, _NO_PARAMS, path_queue)


def named_service(
    method: str, path: str, query: bytes, headers: Mapping[str, str], body: bytes
) -> str | None:
    """Return the service that a request is for whatever its signature says; None: it names no
    action. Raises Malformed as ``detect`` does."""
    named = _SERVICE_BY_TARGET.get(headers.get("x-amz-target", "").rpartition(".")[0])
    if named is not None or path.startswith(_REST_PATHS):
        return named or "scheduler"
    params = _merged_params(method, query, headers, body)
    service = _by_params(params, queue_from_path(path))
    return service if params.get("Action") in SERVICES[service].actions else None


def scope_service(text: str) -> str | None:
    """The service in `.../<region>/<service>/aws4_request` if it is one of ours: a wrong one is
    no hint.
    """
    before, found, _ = text.partition("/aws4_request")
    if not found:
        return None
    name = before.rpartition("/")[2]
    return name if name in _SIGNING_NAMES else None


def _merged_params(
    method: str, query: bytes, headers: Mapping[str, str], form: bytes | Mapping[str, str]
) -> dict[str, str]:
    """The URL's parameters and the form's; the form wins."""
    params = parse_form(query)
    if not isinstance(form, bytes):
        params.update(form)
    elif has_form(method, headers, form):
        params.update(parse_form(form))
    return params


def _by_params(params: Mapping[str, str], path_queue: QueueAddress | None) -> str:
    named = _SERVICE_BY_VERSION.get(params.get("Version", ""))
    if named is not None:
        return named
    action = params.get("Action", "")
    if action not in SNS.actions:
        return "sts" if action in STS.actions else "sqs"
    # AddPermission and RemovePermission are actions of both: what they are for decides.
    is_for_queue = path_queue is not None or "QueueUrl" in params or "TopicArn" not in params
    return "sqs" if action in SQS.actions and is_for_queue else "sns"
