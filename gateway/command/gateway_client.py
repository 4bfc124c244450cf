"""Client of a running gateway for commands. It uses the standard library, which imports quickly."""

from __future__ import annotations

import argparse
import json
import ssl
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from queuegate.gateway.command.command_line import CommandRefused, fail
from queuegate.gateway.configuration.settings import process_environment

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings


_ACCESS_KEY_PREFIX = "AKQG"
"""Start of access keys of `queuegate keys`: other keys of the environment sign nothing."""
_PATIENCE_SECONDS = 60.0
_ATTEMPTS = 5
_MAX_SHOWN_BYTES = 2000
_REACHABLE_AS = {"localhost": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


class NoAnswer(CommandRefused):
    """The address does not answer, or not in HTTP."""


class NoUrl(NoAnswer):
    """The text is not an HTTP URL."""


class GatewayRefused(CommandRefused):
    """The gateway refused the request; the text is its error message."""


class GatewayAnswer(NamedTuple):
    """Status and body of a response."""

    status: int
    body: bytes


def default_url(settings: Settings) -> str:
    """Return the URL of a gateway with these settings on this machine."""
    return _url(settings.hosts, settings.port, settings.scheme)


def operators_url(settings: Settings) -> str:
    """Return the URL of the gateway's probes."""
    apart = settings.operations_address
    return default_url(settings) if apart is None else _url(*apart)


def _url(hosts: Sequence[str], port: int, scheme: str = "http") -> str:
    host = _REACHABLE_AS.get(hosts[0].lower(), hosts[0])
    bracketed = f"[{host}]" if ":" in host else host
    return f"{scheme}://{bracketed}:{port}"


def ask(
    method: str,
    url: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    patience_seconds: float = 5.0,
    certificate: Path | None = None,
) -> GatewayAnswer:
    """Send one request on its own connection. Raises NoAnswer.

    ``certificate``: the only one to trust over HTTPS, under any host name.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("not an http URL")
        connection = HTTPConnection(parts.hostname, parts.port, timeout=patience_seconds)
        if parts.scheme == "https":
            connection = HTTPSConnection(
                parts.hostname,
                parts.port,
                timeout=patience_seconds,
                context=_pinned(certificate) if certificate else None,
            )
    except ValueError as error:
        raise NoUrl(f"{url} does not answer: {error}") from None
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request(method, path, body, dict(headers or {}))
        response = connection.getresponse()
        return GatewayAnswer(response.status, response.read())
    except (OSError, HTTPException, ValueError) as error:
        raise NoAnswer(f"{url} does not answer: {error}") from None
    finally:
        connection.close()


class GatewayClient:
    """A client with the address and the credentials of a command's options (`add_gateway`)."""

    def __init__(self, settings: Settings, options: argparse.Namespace, command: str) -> None:
        self._url = (options.url or default_url(settings)).rstrip("/")
        self._certificate = None if options.url else settings.tls_certificate
        self._hint = "" if options.url else "; is a gateway running there? --url names another one"
        self._options, self._command = options, command
        environ = process_environment()
        self._region = options.region or environ.get("AWS_DEFAULT_REGION", settings.region)
        self._access_key = environ.get("AWS_ACCESS_KEY_ID", "")
        self._secret = environ.get("AWS_SECRET_ACCESS_KEY", "")
        self.patience_seconds = _PATIENCE_SECONDS
        self._signs = not options.key and self._access_key.startswith(_ACCESS_KEY_PREFIX)

    def aws(self, action: str, **members: object) -> Any:
        """Return the answer of an action of AWS, such as "AmazonSQS.SendMessage"."""
        return self.call("POST", "/", members, action)

    def call(self, method: str, path: str, body: object = None, action: str = "") -> Any:
        """Return the JSON of the response."""
        found = self.fetch(method, path, body, action)
        return json.loads(found) if found else None

    def fetch(self, method: str, path: str, body: object = None, action: str = "") -> bytes:
        """Return the body of the response; raise NoAnswer or GatewayRefused. Bytes are sent as is.

        The request has to be idempotent: up to five attempts are made while the gateway is
        unreachable, busy or unavailable.
        """
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                answer = ask(
                    method,
                    self._url + path,
                    data,
                    self._headers(method, path, data or b"", action),
                    patience_seconds=self.patience_seconds,
                    certificate=self._certificate,
                )
            except NoUrl:
                raise
            except NoAnswer as silence:
                if attempt == _ATTEMPTS:
                    raise NoAnswer(f"{silence}{self._hint}") from None
            else:
                if answer.status < 300:
                    return answer.body
                if answer.status not in (429, 503) or attempt == _ATTEMPTS:
                    raise GatewayRefused(_text_of(answer))
            time.sleep(attempt * 0.5)
        raise AssertionError

    def _headers(self, method: str, path: str, body: bytes, action: str) -> dict[str, str]:
        """Return the headers, signed with the key of the environment (SigV4) if it is ours."""
        service = "sns" if action.startswith("AmazonSNS") else "sqs"
        headers = {"content-type": "application/json"}
        if action:
            headers = {"content-type": "application/x-amz-json-1.0", "x-amz-target": action}
        if not self._signs:
            return {**headers, **_credentials(self._options, self._command, service)}
        from queuegate.protocol import sigv4

        parts = urllib.parse.urlsplit(self._url + path)
        headers["host"] = parts.netloc.rpartition("@")[2]
        headers["x-amz-date"] = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
        request = sigv4.SignedRequest(method, parts.path, parts.query, headers, body)
        key = self._access_key, self._secret
        return {
            **headers,
            "authorization": sigv4.authorization(request, *key, self._region, service),
        }


def _pinned(certificate: Path) -> ssl.SSLContext:
    """Trust this certificate alone: it rarely names 127.0.0.1, so the name is not checked."""
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _credentials(options: argparse.Namespace, command: str, service: str) -> dict[str, str]:
    if options.key:
        return {"X-Api-Key": options.key, "Authorization": f"Bearer {options.key}"}
    if not (options.account or options.region):
        return {"Authorization": f"queuegate {command}"}
    # Without sigv4 the gateway reads the scope and ignores the signature.
    place = f"{options.account or 'any'}/20300101/{options.region or 'us-east-1'}"
    scope = f"{place}/{service}/aws4_request"
    signed = "SignedHeaders=host, Signature=" + "0" * 64
    return {"Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, {signed}"}


def _text_of(answer: GatewayAnswer) -> str:
    try:
        found = json.loads(answer.body)
        return str(found["message" if "__type" in found else "error"])
    except (ValueError, KeyError, TypeError):
        return f"it answered {answer.status}: {answer.body[:200].decode('utf-8', 'replace')}"


def check_health(url: str, certificate: Path | None = None) -> int:
    """Return 0 if the URL answers with 200; otherwise print the reason and return 1."""
    try:
        answer = ask("GET", url, certificate=certificate)
    except NoAnswer as silence:
        return fail(str(silence))
    if answer.status != 200:
        shown = answer.body[:_MAX_SHOWN_BYTES].decode("utf-8", "replace").strip()
        return fail(f"{url} answered {answer.status}: {shown}")
    return 0
