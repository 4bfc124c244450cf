"""Signed requests to one service of an endpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime

from spark_connectors.errors import Refused
from spark_connectors.transport.aws.refusals import SKEWED, code_of, is_passing, without_secrets
from spark_connectors.transport.aws.sessions import Keys, KeySource, Session
from spark_connectors.transport.aws.signing import Signer
from spark_connectors.transport.http.answers import NO_CONTENT, OK, Answer
from spark_connectors.transport.http.endpoints import Endpoint
from spark_connectors.transport.http.links import Links
from spark_connectors.transport.http.retries import Passing

_TOLERATED_SKEW_SECONDS = 240
_MOST_QUOTED = 300

# An error's code, empty where the status is all there is, and its message, from the body of a
# refusal; None where it is none.
ErrorReader = Callable[[bytes], tuple[str, str] | None]


def _unread(_: bytes) -> None:
    """Leave it at the status and the text."""


class Service:
    """Requests that are signed for one service with the keys of their moment.

    They raise Passing without an answer, what KeySource.now raises, and ConnectorError for a
    certificate that is not trusted.
    """

    def __init__(self, name: str, session: Session, endpoint: Endpoint, keys: KeySource) -> None:
        self.endpoint = endpoint
        self._links = Links(endpoint, session.get_config_variable("ca_bundle"), "AWS_CA_BUNDLE")
        self._signer = Signer(name, session.get_config_variable("region"))
        self._keys = keys
        self._skew_seconds = 0.0

    def ask(self, method: str, target: str, *, timeout_seconds: float) -> Answer:
        """The answer to a request without a body, whatever it is. ``target``: path and query,
        encoded, below the endpoint's path; names of the query in order."""
        target = self.endpoint.path.rstrip("/") + target
        lines = self._signed(self._keys.now(), method, target, {}, b"")
        return self._links.ask(method, target, lines, b"", timeout_seconds=timeout_seconds)

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
        """The body of the answer to a call. ``headers``: lower-case names; ``path``: below the
        endpoint's. Raises Refused too."""
        keys = self._keys.now()
        target = self.endpoint.path.rstrip("/") + path if path else self.endpoint.path
        lines = self._signed(keys, method, target, headers, body)
        answer = self._links.ask(method, target, lines, body, timeout_seconds=timeout_seconds)
        if OK <= answer.status <= NO_CONTENT:
            return answer.body
        raise self._verdict(answer, keys, reader)

    def close(self) -> None:
        """Close connections that are idle."""
        self._links.close()

    def _signed(
        self,
        keys: Keys,
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

    def _verdict(self, answer: Answer, keys: Keys, reader: ErrorReader) -> Exception:
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
