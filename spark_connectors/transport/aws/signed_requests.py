"""Requests to one service of an endpoint, signed with AWS Signature Version 4."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from urllib.parse import quote

from spark_connectors.errors import Refused
from spark_connectors.transport.aws.aws_sessions import BotoSession, KeySource, SigningKeys
from spark_connectors.transport.aws.error_codes import SKEWED, code_of, is_passing, without_secrets
from spark_connectors.transport.http.http_connections import (
    NO_CONTENT,
    OK,
    HttpAnswer,
    HttpConnectionPool,
    ServiceEndpoint,
)
from spark_connectors.transport.http.http_retries import TransientFailure

_ALGORITHM = "AWS4-HMAC-SHA256"


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode("utf-8"), "sha256")


class RequestSigner:
    """Signs for one service and region; caches the key that is derived once a day."""

    def __init__(self, service: str, region: str) -> None:
        self._service = service
        self._region = region
        self._derived: tuple[str, str, bytes] = ("", "", b"")

    def authorization(
        self,
        keys: SigningKeys,
        method: str,
        target: str,
        *,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        timestamp: str,
    ) -> str:
        """Return the Authorization header. ``target`` is path and query as sent, names of the query
        in order; ``headers`` are all those to sign, lower-case names in order, values without
        needless spaces; ``timestamp`` is that of X-Amz-Date, such as 20261121T223000Z."""
        day = timestamp[:8]
        path, _, query = target.partition("?")
        names = ";".join([name for name, _ in headers])
        lines = "".join([f"{name}:{value}\n" for name, value in headers])
        payload = hashlib.sha256(body).hexdigest()
        request = (
            f"{method}\n{quote(path, safe='/~')}\n{query}\n{lines}\n{names}\n{payload}".encode()
        )
        scope = f"{day}/{self._region}/{self._service}/aws4_request"
        digest = hashlib.sha256(request).hexdigest()
        signature = _hmac(
            self._key(keys.secret_key, day), f"{_ALGORITHM}\n{timestamp}\n{scope}\n{digest}"
        ).hex()
        return (
            f"{_ALGORITHM} Credential={keys.access_key}/{scope}, "
            f"SignedHeaders={names}, Signature={signature}"
        )

    def _key(self, secret: str, day: str) -> bytes:
        # Read and replaced as a whole, so that threads with different keys do not mix them.
        known_secret, known_day, key = self._derived
        if known_secret != secret or known_day != day:
            key = f"AWS4{secret}".encode()
            for part in (day, self._region, self._service, "aws4_request"):
                key = _hmac(key, part)
            self._derived = (secret, day, key)
        return key


_TOLERATED_SKEW_SECONDS = 240
_MOST_QUOTED = 300

# Returns an error's code (empty: the status is all) and message from the body of a refusal; None
# for another body.
ErrorReader = Callable[[bytes], tuple[str, str] | None]


def _unread(_: bytes) -> None:
    """Leave the error at the status and the text."""


class SignedService:
    """Requests that are signed for one service with the present keys.

    They raise TransientFailure without an answer, the errors of KeySource.now, and ConnectorError
    for an untrusted certificate.
    """

    def __init__(
        self, name: str, session: BotoSession, endpoint: ServiceEndpoint, keys: KeySource
    ) -> None:
        self.endpoint = endpoint
        self._connections = HttpConnectionPool(
            endpoint, session.get_config_variable("ca_bundle"), "AWS_CA_BUNDLE"
        )
        self._signer = RequestSigner(name, session.get_config_variable("region"))
        self._keys = keys
        self._skew_seconds = 0.0

    def ask(self, method: str, target: str, *, timeout_seconds: float) -> HttpAnswer:
        """Return the answer, of any status, to a request without a body. ``target``: path and
        query, encoded, below the endpoint's path; names of the query in order."""
        target = self.endpoint.path.rstrip("/") + target
        lines = self._signed(self._keys.now(), method, target, {}, b"")
        return self._connections.ask(method, target, lines, b"", timeout_seconds=timeout_seconds)

    def call(
        self,
        headers: Mapping[str, str],
        body: bytes,
        *,
        timeout_seconds: float,
        reader: ErrorReader = _unread,
        method: str = "POST",
        path: str = "",
    ) -> bytes:
        """Return the body of the answer to a call. ``headers``: lower-case names; ``path``: below
        the endpoint's. Raises Refused too."""
        keys = self._keys.now()
        target = self.endpoint.path.rstrip("/") + path if path else self.endpoint.path
        lines = self._signed(keys, method, target, headers, body)
        answer = self._connections.ask(method, target, lines, body, timeout_seconds=timeout_seconds)
        if OK <= answer.status <= NO_CONTENT:
            return answer.body
        raise self._verdict(answer, keys, reader)

    def close(self) -> None:
        """Close idle connections."""
        self._connections.close()

    def _signed(
        self,
        keys: SigningKeys,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes,
    ) -> str:
        now = time.gmtime(time.time() + self._skew_seconds)
        timestamp = time.strftime("%Y%m%dT%H%M%SZ", now)
        signed = {**headers, "host": self.endpoint.authority, "x-amz-date": timestamp}
        if keys.token:
            signed["x-amz-security-token"] = keys.token
        authorization = self._signer.authorization(
            keys,
            method,
            target,
            headers=sorted(signed.items()),
            body=body,
            timestamp=timestamp,
        )
        del signed["host"]
        lines = "".join([f"{name}: {value}\r\n" for name, value in signed.items()])
        return f"{lines}authorization: {authorization}\r\n"

    def _verdict(self, answer: HttpAnswer, keys: SigningKeys, reader: ErrorReader) -> Exception:
        try:
            found = reader(answer.body)
        except ValueError:
            found = None
        if found is None:
            text = answer.body[:_MOST_QUOTED].decode("utf-8", "replace")
            found = str(answer.status), f"HTTP {answer.status}: {text}"
        code = code_of(found[0]) or str(answer.status)
        message = without_secrets(found[1], keys)
        if is_passing(code, answer.status):
            return TransientFailure(f"{code}: {message}")
        if code in SKEWED and self._follows_clock(answer.headers.get("date")):
            return TransientFailure(f"{code}: our clock differs by {self._skew_seconds:.0f} s")
        return Refused(code, message)

    def _follows_clock(self, date: str | None) -> bool:
        """Adopt the server's clock for signing if it differs from ours. Returns True if it did."""
        try:
            skew = parsedate_to_datetime(date or "").timestamp() - time.time()
        except ValueError:
            return False
        if abs(skew - self._skew_seconds) < _TOLERATED_SKEW_SECONDS:
            return False
        self._skew_seconds = skew
        return True
