"""Detection of the service, wire and action of a request (docs/contract/protocol.md 1.1, 1.2 and
1.4).

``AWS_ENDPOINT_URL`` sends every client of a program here, also clients of other AWS services. Their
signature scope names the service, and the refusal has a form that its SDK shows. The text explains
how to send only requests for Queuegate.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import unquote

from queuegate.protocol import query_wire
from queuegate.protocol.aws_errors import SQS_ERRORS, json_error, rest_error
from queuegate.protocol.query_wire import parse_form
from queuegate.protocol.scheduler_shapes import SCHEDULER
from queuegate.protocol.shapes import ServiceModel
from queuegate.protocol.sns_shapes import SNS
from queuegate.protocol.sqs_shapes import SQS
from queuegate.protocol.sts_shapes import STS
from queuegate.protocol.urls import QueueAddress, queue_from_path

Wire = Literal["json", "query", "rest"]

SERVICES: Final[Mapping[str, ServiceModel]] = {
    "sqs": SQS,
    "sns": SNS,
    "scheduler": SCHEDULER,
    "sts": STS,
}

# Actions of SQS that are invalid on a queue's path, but only on the Query wire: PHP and Ruby send
# JSON there.
NOT_ON_QUEUE_PATH: Final = frozenset({"CreateQueue", "ListQueues"})

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
    """The service, wire and action of a request. `action` None: none, or one of another service.
    `params` are the merged parameters of the Query wire, and empty on other wires. `path_queue` is
    the queue of the path; a QueueUrl in the request wins. On the rest-json wire of EventBridge
    Scheduler method and path name the action."""

    service: str
    wire: Wire
    action: str | None
    params: dict[str, str] = field(default_factory=dict)
    path_queue: QueueAddress | None = None
    wants_json: bool = False


def has_form(method: str, headers: Mapping[str, str], body: bytes) -> bool:
    """Return True if the body is a form. A body without a content type counts as one."""
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
    path. Header names are lower case. `form` is the body, or the parameters of a form that was read
    already (`query_wire.read_form`). The default is SQS. Raises Malformed for parameters that
    cannot be decoded (`query_wire.parse_form`)."""
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
    # The scope nearly always agrees with the target, so it is rarely parsed.
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
    """Return the service of a request's action, without its signature; None: it names no action.
    Raises Malformed as ``detect`` does."""
    named = _SERVICE_BY_TARGET.get(headers.get("x-amz-target", "").rpartition(".")[0])
    if named is not None or path.startswith(_REST_PATHS):
        return named or "scheduler"
    params = _merged_params(method, query, headers, body)
    service = _by_params(params, queue_from_path(path))
    return service if params.get("Action") in SERVICES[service].actions else None


def scope_service(text: str) -> str | None:
    """Return our service in `.../<region>/<service>/aws4_request`. A wrong service is no hint."""
    before, found, _ = text.partition("/aws4_request")
    if not found:
        return None
    name = before.rpartition("/")[2]
    return name if name in SERVICES else None


def _merged_params(
    method: str, query: bytes, headers: Mapping[str, str], form: bytes | Mapping[str, str]
) -> dict[str, str]:
    """Merge the parameters of the URL and the form; the form wins."""
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
    # AddPermission and RemovePermission are actions of both services: the resource decides.
    is_for_queue = path_queue is not None or "QueueUrl" in params or "TopicArn" not in params
    return "sqs" if action in SQS.actions and is_for_queue else "sns"


_SCOPE = re.compile(r"/([a-z0-9-]{1,64})/aws4_request")
_CREDENTIAL = re.compile(r"(?:^|&)X-Amz-Credential=([^&]*)")
_NAMES = list(SERVICES)
_OURS = f"{', '.join(_NAMES[:-1])} and {_NAMES[-1]}"
_VARIABLES = f"AWS_ENDPOINT_URL_SQS (or {', '.join(f'_{name.upper()}' for name in _NAMES[1:])})"
_ERROR: Final = SQS_ERRORS["UnknownOperationException"]
_XML = "application/xml"
# The service in signatures for an endpoint of one's own: it names no service.
_NO_SERVICE = frozenset({"execute-api"})
_WRAPPED_XML = frozenset({"cloudfront", "route53"})

Answer = tuple[int, list[tuple[bytes, bytes]], bytes]


def signed_for(headers: Mapping[str, str], query: bytes) -> str | None:
    """Return the service of a signature in headers or URL, if it is none of ours. Header names are
    lower case."""
    scope = _SCOPE.search(headers.get("authorization", ""))
    if scope is None:
        presigned = _CREDENTIAL.search(query.decode("latin-1"))
        scope = presigned and _SCOPE.search(unquote(presigned[1]))
    if scope is None or scope[1] in SERVICES or scope[1] in _NO_SERVICE:
        return None
    return scope[1]


def refusal(name: str, headers: Mapping[str, str], query: bytes, request_id: str) -> Answer:
    """Return status, headers (all but the request id) and body. No SDK retries a 400."""
    text = (
        f"This request is signed for {name}. Queuegate serves {_OURS}: set {_VARIABLES} instead "
        "of AWS_ENDPOINT_URL."
    )
    content_type = headers.get("content-type", "").lower()
    if "cbor" in content_type or "cbor" in headers.get("smithy-protocol", ""):
        return _cbor(headers, text)
    if "x-amz-target" in headers or content_type.startswith("application/x-amz-json"):
        return json_error(_ERROR, text)
    is_form = content_type.startswith("application/x-www-form-urlencoded")
    if is_form or query.startswith(b"Action=") or b"&Action=" in query or name in _WRAPPED_XML:
        return _query(name, text, request_id)
    if name.startswith("s3"):
        return _xml(
            f"<Error><Code>{_ERROR.query_code}</Code><Message>{text}</Message>"
            f"<RequestId>{request_id}</RequestId></Error>"
        )
    return _ERROR.status, *rest_error(_ERROR, text)[1:]


def _query(name: str, text: str, request_id: str) -> Answer:
    if name == "ec2":
        return _xml(
            f"<Response><Errors><Error><Code>{_ERROR.query_code}</Code><Message>{text}</Message>"
            f"</Error></Errors><RequestID>{request_id}</RequestID></Response>"
        )
    body = query_wire.encode_error(
        SERVICES["sqs"], _ERROR.query_code, text, _ERROR.fault, request_id
    )
    return _ERROR.status, [(b"content-type", query_wire.XML_CONTENT_TYPE.encode())], body


def _xml(text: str) -> Answer:
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'.encode()
    return _ERROR.status, [(b"content-type", _XML.encode())], body


def _cbor(headers: Mapping[str, str], text: str) -> Answer:
    """Encode a map of two texts, the needed part of RFC 8949."""
    members = ("__type", _ERROR.json_type, "message", text)
    body = b"\xa2" + b"".join(
        [b"\x79%b%b" % (len(t).to_bytes(2, "big"), t.encode()) for t in members]
    )
    answer = [(b"content-type", headers.get("content-type", "application/cbor").encode())]
    protocol = headers.get("smithy-protocol")
    if protocol:
        answer.append((b"smithy-protocol", protocol.encode()))
    return _ERROR.status, answer, body
