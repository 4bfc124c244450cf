"""SQS and SNS by our own HTTP requests: about an eighth of boto3's CPU for each call.

Credentials come from botocore's chain at every call, so that those that expire are renewed. AWS's
own endpoints, where a connection names none, are those that botocore works out.

A call whose answer was lost is made again, as botocore does: a standard queue may then hold what
was sent twice, a FIFO queue knows the deduplication ids.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Mapping
from typing import Any

from spark_connectors.transport.aws import sns_query
from spark_connectors.transport.aws.endpoints import is_aws_host
from spark_connectors.transport.aws.service import Service
from spark_connectors.transport.aws.sessions import KeySource, Session, make_client
from spark_connectors.transport.http import json_text
from spark_connectors.transport.http.answers import NO_CONTENT, Answer
from spark_connectors.transport.http.endpoints import Endpoint, parse_endpoint
from spark_connectors.transport.http.retries import Passing, retried

_READ_SECONDS = 30.0
_JSON = "application/x-amz-json-1.0"
_RECEIPTS = "/v1/receipts"
# What a balancer says for a gateway that restarts.
_AWAY = (502, 503, 504)
_ATTRIBUTE_MEMBERS = frozenset({"DataType", "StringValue", "BinaryValue"})


class LeanCarrier:
    """Carries calls by our own requests. ``known``: endpoints by service; others are AWS's."""

    def __init__(
        self,
        session: Session,
        known: Mapping[str, Endpoint],
        max_retries: int,
        *,
        read_seconds: float = _READ_SECONDS,
    ) -> None:
        self._read_seconds = read_seconds
        self._session = session
        self._known = known
        self._max_retries = max_retries
        self._keys = KeySource(session)
        self._services: dict[str, Service] = {}
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
        headers = {"content-type": sns_query.CONTENT_TYPE}
        body = sns_query.publish_batch_form(parameters)

        def attempt() -> dict[str, Any]:
            text = service.call(
                headers, body, timeout_seconds=self._read_seconds, reader=sns_query.error
            )
            try:
                return sns_query.publish_batch_result(text)
            except ValueError as error:
                raise Passing(f"the answer is not XML: {error}") from error

        return self._retried(attempt, "PublishBatch", service)

    def has_receipts(self) -> bool:
        """Whether the endpoint says so; AWS's is not asked. Raises NotNow."""
        service = self._service("sqs")
        if is_aws_host(service.endpoint.host):
            return False

        def attempt() -> Answer:
            answer = service.ask("OPTIONS", _RECEIPTS, timeout_seconds=self._read_seconds)
            if answer.status in _AWAY:
                raise Passing(f"HTTP {answer.status}")
            return answer

        # Once: it is no reason to wait.
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
        self, attempt: Callable[[], dict[str, Any]], action: str, service: Service
    ) -> dict[str, Any]:
        return retried(
            attempt, action=action, place=service.endpoint.url, max_retries=self._max_retries
        )

    def _service(self, name: str) -> Service:
        found = self._services.get(name)
        if found is not None:
            return found
        with self._lock:
            if name not in self._services:
                endpoint = self._known.get(name) or self._aws_endpoint(name)
                self._services[name] = Service(name, self._session, endpoint, self._keys)
            return self._services[name]

    def _aws_endpoint(self, name: str) -> Endpoint:
        client = make_client(self._session, self._keys, name)
        return parse_endpoint(client.meta.endpoint_url)


def _members(text: bytes) -> dict[str, Any]:
    try:
        value = json_text.loads(text)
    except ValueError as error:
        raise Passing("the answer is not JSON") from error
    if not isinstance(value, dict):
        raise Passing("the answer is not a JSON object")
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
