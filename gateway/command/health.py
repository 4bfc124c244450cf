"""The health check of a container: one request, standard library only, so that it costs little."""

from __future__ import annotations

import sys
import urllib.parse
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.configuration.settings import Settings

_PATIENCE_SECONDS = 5.0
_MEANT = {"localhost": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def default_url(settings: Settings) -> str:
    """Where a gateway with these settings on this machine says whether it is ready."""
    host = _MEANT.get(settings.hosts[0].lower(), settings.hosts[0])
    bracketed = f"[{host}]" if ":" in host else host
    return f"http://{bracketed}:{settings.port}/readyz"


def ask(url: str) -> int:
    """0 when the URL answers with 200, else 1 and a line that says what came instead."""
    try:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("not an http URL")
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(parts.hostname, parts.port, timeout=_PATIENCE_SECONDS)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read(2000).decode("utf-8", "replace").strip()
        connection.close()
    except (OSError, HTTPException, ValueError) as error:
        print(f"queuegate: {url} does not answer: {error}", file=sys.stderr)
        return 1
    if response.status != 200:
        print(f"queuegate: {url} answered {response.status}: {body}", file=sys.stderr)
        return 1
    return 0
