"""Requests for services of AWS that are none of ours: found out by the scope of their signature,
and refused in a form that the SDK of that service shows to whoever uses it.

``AWS_ENDPOINT_URL`` sends every client of a program here. The text says how to send only ours.
"""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from queuegate.protocol import query_results
from queuegate.protocol.aws_errors import SQS_ERRORS, json_error, rest_error
from queuegate.protocol.detect import SERVICES

_SCOPE = re.compile(r"/([a-z0-9-]{1,64})/aws4_request")
_CREDENTIAL = re.compile(r"(?:^|&)X-Amz-Credential=([^&]*)")
_NAMES = list(SERVICES)
_OURS = f"{', '.join(_NAMES[:-1])} and {_NAMES[-1]}"
_VARIABLES = f"AWS_ENDPOINT_URL_SQS (or {', '.join(f'_{name.upper()}' for name in _NAMES[1:])})"
_ERROR: Final = SQS_ERRORS["UnknownOperationException"]
_XML = "application/xml"
# What whoever signs for an endpoint of his own takes: it names no service.
_NO_SERVICE = frozenset({"execute-api"})
_WRAPPED_XML = frozenset({"cloudfront", "route53"})

Answer = tuple[int, list[tuple[bytes, bytes]], bytes]


def signed_for(headers: Mapping[str, str], query: bytes) -> str | None:
    """The service that a header or a URL was signed for, if it is none of ours. Header names are
    lower case."""
    scope = _SCOPE.search(headers.get("authorization", ""))
    if scope is None:
        presigned = _CREDENTIAL.search(query.decode("latin-1"))
        scope = presigned and _SCOPE.search(unquote(presigned[1]))
    if scope is None or scope[1] in SERVICES or scope[1] in _NO_SERVICE:
        return None
    return scope[1]


def refusal(name: str, headers: Mapping[str, str], query: bytes, request_id: str) -> Answer:
    """Status, headers (all but the request id) and body. 400: no SDK tries it again."""
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
    body = query_results.encode_error(
        SERVICES["sqs"], _ERROR.query_code, text, _ERROR.fault, request_id
    )
    return _ERROR.status, [(b"content-type", query_results.XML_CONTENT_TYPE.encode())], body


def _xml(text: str) -> Answer:
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'.encode()
    return _ERROR.status, [(b"content-type", _XML.encode())], body


def _cbor(headers: Mapping[str, str], text: str) -> Answer:
    """A map of two texts: all that is needed of RFC 8949."""
    members = ("__type", _ERROR.json_type, "message", text)
    body = b"\xa2" + b"".join(
        [b"\x79%b%b" % (len(t).to_bytes(2, "big"), t.encode()) for t in members]
    )
    answer = [(b"content-type", headers.get("content-type", "application/cbor").encode())]
    protocol = headers.get("smithy-protocol")
    if protocol:
        answer.append((b"smithy-protocol", protocol.encode()))
    return _ERROR.status, answer, body
