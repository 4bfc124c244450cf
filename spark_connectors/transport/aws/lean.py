"""SQS and SNS by our own HTTP requests: about an eighth of boto3's CPU for each call.

botocore's chain supplies credentials at every call, so expired ones are renewed. Where a connection
names no endpoint, botocore works out AWS's own.

A call whose answer was lost is repeated, as in botocore: a standard queue may then hold a message
twice, a FIFO queue recognizes the deduplication id. AWS's SNS speaks no JSON, so PublishBatch uses
the Query protocol.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote_plus
from xml.etree import ElementTree

from spark_connectors.transport.aws.aws_sessions import (
    BotoSession,
    KeySource,
    is_aws_host,
    make_client,
)
from spark_connectors.transport.aws.signed_requests import SignedService
from spark_connectors.transport.http import json_text
from spark_connectors.transport.http.http_connections import (
    NO_CONTENT,
    HttpAnswer,
    ServiceEndpoint,
    parse_endpoint,
)
from spark_connectors.transport.http.http_retries import TransientFailure, retried

_FORM = "application/x-www-form-urlencoded; charset=utf-8"
_MOST_BYTES = 1024 * 1024


def _publish_batch_form(parameters: Mapping[str, Any]) -> bytes:
    """Return the body of a request with the members of SNS's PublishBatch."""
    pairs = [("Action", "PublishBatch"), ("Version", "2010-03-31")]
    pairs.append(("TopicArn", parameters["TopicArn"]))
    for number, entry in enumerate(parameters["PublishBatchRequestEntries"], 1):
        prefix = f"PublishBatchRequestEntries.member.{number}."
        pairs += [(prefix + name, text) for name, text in _flat(entry)]
    return "&".join([f"{name}={quote_plus(text)}" for name, text in pairs]).encode("ascii")


def _flat(entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in entry.items():
        if name == "MessageAttributes":
            for number, (attribute, members) in enumerate(value.items(), 1):
                prefix = f"MessageAttributes.entry.{number}."
                yield prefix + "Name", attribute
                for member, content in members.items():
                    yield f"{prefix}Value.{member}", _text(content)
        else:
            yield name, value


def _text(content: str | bytes) -> str:
    return base64.b64encode(content).decode() if isinstance(content, bytes) else content


def _publish_batch_result(text: bytes) -> dict[str, Any]:
    """Return Successful and Failed, as boto3 does. Raises ValueError for any other answer."""
    root = _parsed(text)
    if _name(root) != "PublishBatchResponse":
        raise ValueError(f"a {_name(root)[:40]} instead of a PublishBatchResponse")
    result: dict[str, Any] = {"Successful": [], "Failed": []}
    for element in root.iter():
        if (kind := _name(element)) in result:
            for member in element:
                result[kind].append({_name(each): each.text or "" for each in member})
    for failed in result["Failed"]:
        failed["SenderFault"] = failed.get("SenderFault") == "true"
    return result


def _query_error(text: bytes) -> tuple[str, str] | None:
    """Return code and message of an ErrorResponse. None or ValueError for any other answer."""
    found = {_name(element): element.text or "" for element in _parsed(text).iter()}
    return (found["Code"], found.get("Message", "")) if "Code" in found else None


def _parsed(text: bytes) -> ElementTree.Element:
    # A genuine answer is short and declares no entities.
    if len(text) > _MOST_BYTES or b"<!DOCTYPE" in text:
        raise ValueError("not an answer of SNS")
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from None


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


_READ_SECONDS = 30.0
_JSON = "application/x-amz-json-1.0"
_RECEIPTS = "/v1/receipts"
# A balancer's answers while a gateway restarts.
_AWAY = (502, 503, 504)
_ATTRIBUTE_MEMBERS = frozenset({"DataType", "StringValue", "BinaryValue"})


class LeanCarrier:
    """Carries calls by our own requests. ``known``: endpoints by service; others are AWS's."""

    def __init__(
        self,
        session: BotoSession,
        known: Mapping[str, ServiceEndpoint],
        max_retries: int,
        *,
        read_seconds: float = _READ_SECONDS,
    ) -> None:
        self._read_seconds = read_seconds
        self._session = session
        self._known = known
        self._max_retries = max_retries
        self._keys = KeySource(session)
        self._services: dict[str, SignedService] = {}
        self._lock = threading.Lock()

    @property
    def place(self) -> str:
        return self._service("sqs").endpoint.url

    def sqs(
        self, action: str, parameters: Mapping[str, object], *, wait_seconds: int = 0
    ) -> Mapping[str, Any]:
        service = self._service("sqs")
        headers = {"content-type": _JSON, "x-amz-target": f"AmazonSQS.{action}"}
        body = json_text.dumps(parameters)
        seconds = self._read_seconds + wait_seconds

        def attempt() -> dict[str, Any]:
            text = service.call(headers, body, timeout_seconds=seconds, reader=_json_error)
            return _members(text) if text else {}

        answer = self._retried(attempt, action, service)
        if action == "ReceiveMessage":
            for message in answer.get("Messages") or ():
                _decode_attributes(message.get("MessageAttributes"))
        return answer

    def publish_batch(self, parameters: Mapping[str, object]) -> Mapping[str, Any]:
        service = self._service("sns")
        headers = {"content-type": _FORM}
        body = _publish_batch_form(parameters)

        def attempt() -> dict[str, Any]:
            text = service.call(
                headers, body, timeout_seconds=self._read_seconds, reader=_query_error
            )
            try:
                return _publish_batch_result(text)
            except ValueError as error:
                raise TransientFailure(f"the answer is not XML: {error}") from error

        return self._retried(attempt, "PublishBatch", service)

    def has_receipts(self) -> bool:
        """Ask the endpoint; AWS's is not asked. Raises NotNow."""
        service = self._service("sqs")
        if is_aws_host(service.endpoint.host):
            return False

        def attempt() -> HttpAnswer:
            answer = service.ask("OPTIONS", _RECEIPTS, timeout_seconds=self._read_seconds)
            if answer.status in _AWAY:
                raise TransientFailure(f"HTTP {answer.status}")
            return answer

        # No retries: the answer is not worth a wait.
        answer = retried(attempt, action="OPTIONS", place=service.endpoint.url, max_retries=0)
        return answer.status == NO_CONTENT and "PATCH" in answer.headers.get("allow", "")

    def receipts(
        self, method: str, asked: Mapping[str, object], *, wait_seconds: int = 0
    ) -> Mapping[str, Any]:
        service = self._service("sqs")
        headers = {"content-type": "application/json"}
        body = json_text.dumps(asked)
        seconds = self._read_seconds + wait_seconds

        def attempt() -> dict[str, Any]:
            text = service.call(
                headers, body, timeout_seconds=seconds, method=method, path=_RECEIPTS
            )
            return _members(text)

        answer = self._retried(attempt, f"{method} {_RECEIPTS}", service)
        for message in answer.get("messages", ()):
            _decode_attributes(message.get("MessageAttributes"))
        return answer

    def close(self) -> None:
        for service in list(self._services.values()):
            service.close()

    def _retried(
        self, attempt: Callable[[], dict[str, Any]], action: str, service: SignedService
    ) -> dict[str, Any]:
        return retried(
            attempt, action=action, place=service.endpoint.url, max_retries=self._max_retries
        )

    def _service(self, name: str) -> SignedService:
        found = self._services.get(name)
        if found is not None:
            return found
        with self._lock:
            if name not in self._services:
                endpoint = self._known.get(name) or self._aws_endpoint(name)
                self._services[name] = SignedService(name, self._session, endpoint, self._keys)
            return self._services[name]

    def _aws_endpoint(self, name: str) -> ServiceEndpoint:
        client = make_client(self._session, self._keys, name)
        return parse_endpoint(client.meta.endpoint_url)


def _members(text: bytes) -> dict[str, Any]:
    try:
        value = json_text.loads(text)
    except ValueError as error:
        raise TransientFailure("the answer is not JSON") from error
    if not isinstance(value, dict):
        raise TransientFailure("the answer is not a JSON object")
    return value


def _json_error(body: bytes) -> tuple[str, str] | None:
    value = json_text.loads(body)
    if not isinstance(value, dict) or not isinstance(value.get("__type"), str):
        return None
    return value["__type"], str(value.get("message") or value.get("Message") or "")


def _decode_attributes(attributes: dict[str, dict[str, Any]] | None) -> None:
    for value in (attributes or {}).values():
        if not value.keys() <= _ATTRIBUTE_MEMBERS:
            for name in value.keys() - _ATTRIBUTE_MEMBERS:
                del value[name]
        if value.get("BinaryValue") is not None:
            value["BinaryValue"] = base64.b64decode(value["BinaryValue"])
