"""SQS and SNS by our own HTTP requests: about a fifth of boto3's CPU for each call.

Credentials come from botocore's chain at every call, so that those that expire are renewed. AWS's
own endpoints, where a connection names none, are those that botocore works out.

A call whose answer was lost is made again, as botocore does: a standard queue may then hold what
was sent twice, a FIFO queue knows the deduplication ids.
"""

from __future__ import annotations

import base64
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any

from spark_connectors.errors import ConnectorError, Refused
from spark_connectors.transport.aws import sns_query
from spark_connectors.transport.aws.refusals import SKEWED, code_of, is_passing, without_secrets
from spark_connectors.transport.aws.sessions import Keys, KeySource, Session, make_client
from spark_connectors.transport.aws.signing import Signer
from spark_connectors.transport.http import json_text
from spark_connectors.transport.http.answers import Answer
from spark_connectors.transport.http.endpoints import Endpoint, parse_endpoint
from spark_connectors.transport.http.links import Links
from spark_connectors.transport.http.retries import Passing, retried

_READ_SECONDS = 30.0
_JSON = "application/x-amz-json-1.0"
_OK = 200
_TOLERATED_SKEW_SECONDS = 240
_MOST_QUOTED = 300
_ATTRIBUTE_MEMBERS = frozenset({"DataType", "StringValue", "BinaryValue"})

# An error's code and message from the body of a refusal; None where it is none.
_ErrorReader = Callable[[bytes], tuple[str, str] | None]


class _Service:
    """Signed requests to one service."""

    def __init__(self, name: str, session: Session, endpoint: Endpoint, keys: KeySource) -> None:
        self.endpoint = endpoint
        self._links = Links(endpoint, session.get_config_variable("ca_bundle"))
        self._signer = Signer(name, session.get_config_variable("region"))
        self._keys = keys
        self._skew_seconds = 0.0

    def post(
        self, headers: dict[str, str], body: bytes, *, timeout_seconds: float, reader: _ErrorReader
    ) -> bytes:
        """The body of the answer. ``headers``: lower-case names. Raises Passing, Refused, and
        ConnectorError for a certificate that is not trusted."""
        keys = self._keys.now()
        lines = self._signed(keys, headers, body)
        try:
            answer = self._links.post(lines, body, timeout_seconds)
        except ssl.SSLCertVerificationError as error:
            raise ConnectorError(
                f"{self.endpoint.url} shows a certificate that is not trusted"
                f" ({error.verify_message}): AWS_CA_BUNDLE names a file of those that are"
            ) from error
        except TimeoutError as error:
            raise Passing("no answer in time") from error
        except (OSError, HTTPException) as error:
            raise Passing(f"{type(error).__name__}: {error}") from error
        if answer.status == _OK:
            return answer.body
        raise self._verdict(answer, keys, reader)

    def close(self) -> None:
        self._links.close()

    def _signed(self, keys: Keys, headers: dict[str, str], body: bytes) -> str:
        now = time.gmtime(time.time() + self._skew_seconds)
        timestamp = time.strftime("%Y%m%dT%H%M%SZ", now)
        headers = {**headers, "host": self.endpoint.authority, "x-amz-date": timestamp}
        if keys.token:
            headers["x-amz-security-token"] = keys.token
        authorization = self._signer.authorization(
            keys,
            path=self.endpoint.signed_path,
            headers=sorted(headers.items()),
            body=body,
            timestamp=timestamp,
        )
        del headers["host"]
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        return f"{lines}authorization: {authorization}\r\n"

    def _verdict(self, answer: Answer, keys: Keys, reader: _ErrorReader) -> Exception:
        try:
            found = reader(answer.body)
        except ValueError:
            found = None
        if found is None:
            text = answer.body[:_MOST_QUOTED].decode("utf-8", "replace")
            found = str(answer.status), f"HTTP {answer.status}: {text}"
        code, message = code_of(found[0]), without_secrets(found[1], keys)
        if is_passing(code, answer.status):
            return Passing(f"{code}: {message}")
        if code in SKEWED and self._follows_clock(answer.headers.get("date")):
            return Passing(f"{code}: our clock differs by {self._skew_seconds:.0f} s")
        return Refused(code, message)

    def _follows_clock(self, date: str | None) -> bool:
        """Whether the server's clock is another than the one we signed by; we sign by it then."""
        try:
            skew = parsedate_to_datetime(date or "").timestamp() - time.time()
        except ValueError:
            return False
        if abs(skew - self._skew_seconds) < _TOLERATED_SKEW_SECONDS:
            return False
        self._skew_seconds = skew
        return True


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
        self._services: dict[str, _Service] = {}
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
            text = service.post(headers, body, timeout_seconds=seconds, reader=_json_error)
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
            text = service.post(
                headers, body, timeout_seconds=self._read_seconds, reader=sns_query.error
            )
            try:
                return sns_query.publish_batch_result(text)
            except ValueError as error:
                raise Passing(f"the answer is not XML: {error}") from error

        return self._retried(attempt, "PublishBatch", service)

    def close(self) -> None:
        for service in list(self._services.values()):
            service.close()

    def _retried(
        self, attempt: Callable[[], dict[str, Any]], action: str, service: _Service
    ) -> dict[str, Any]:
        return retried(
            attempt, action=action, place=service.endpoint.url, max_retries=self._max_retries
        )

    def _service(self, name: str) -> _Service:
        found = self._services.get(name)
        if found is not None:
            return found
        with self._lock:
            if name not in self._services:
                endpoint = self._known.get(name) or self._aws_endpoint(name)
                self._services[name] = _Service(name, self._session, endpoint, self._keys)
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
