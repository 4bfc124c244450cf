"""What commands ask a running gateway, over HTTP with the standard library: that starts quickly."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gateway.configuration.settings import Settings

_MEANT = {"localhost": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


class NoAnswer(Exception):
    """Nobody answers there, or not in HTTP."""


class NoUrl(NoAnswer):
    """That is no place where anybody could."""


class Answer(NamedTuple):
    """What came back."""

    status: int
    body: bytes


def default_url(settings: Settings) -> str:
    """Where a gateway with these settings on this machine is."""
    host = _MEANT.get(settings.hosts[0].lower(), settings.hosts[0])
    bracketed = f"[{host}]" if ":" in host else host
    return f"http://{bracketed}:{settings.port}"


def ask(
    method: str,
    url: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    patience_seconds: float = 5.0,
) -> Answer:
    """Ask on a connection of its own. Raises NoAnswer."""
    try:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("not an http URL")
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(parts.hostname, parts.port, timeout=patience_seconds)
    except ValueError as error:
        raise NoUrl(f"{url} does not answer: {error}") from None
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request(method, path, body, dict(headers or {}))
        response = connection.getresponse()
        return Answer(response.status, response.read())
    except (OSError, HTTPException, ValueError) as error:
        raise NoAnswer(f"{url} does not answer: {error}") from None
    finally:
        connection.close()
