"""The parts of a URL that names a service."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from spark_connectors.errors import ConnectorError

_HOST = re.compile(r"[A-Za-z0-9._:%-]+").fullmatch
_PORTS = {"http": 80, "https": 443}


class Endpoint(NamedTuple):
    """A parsed endpoint URL; ``path`` is as sent."""

    url: str
    is_secure: bool
    host: str
    port: int
    authority: str
    path: str


def parse_endpoint(url: str) -> Endpoint:
    """The parts of an endpoint URL. Raises ConnectorError when it is none, without repeating it
    where it holds a password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConnectorError("the endpoint is not a URL") from None
    if parts.username is not None or parts.password is not None:
        raise ConnectorError(f"the endpoint at {parts.hostname} must not hold a user or a password")
    name = parts.hostname or ""
    if parts.scheme not in _PORTS or not _HOST(name):
        raise ConnectorError(f"endpoint '{url}' is not a URL such as http://localhost:9324")
    path = quote(parts.path or "/", safe="/~%")
    is_plain = not {".", ".."}.intersection(path.split("/")) and "//" not in path
    if parts.query or parts.fragment or not is_plain:
        raise ConnectorError(f"endpoint '{url}' must be a host, a port and at most a plain path")
    host = f"[{name}]" if ":" in name else name
    if port is None or port == _PORTS[parts.scheme]:
        authority, port = host, _PORTS[parts.scheme]
    else:
        authority = f"{host}:{port}"
    return Endpoint(
        url=f"{parts.scheme}://{authority}{'' if path == '/' else path}",
        is_secure=parts.scheme == "https",
        host=name,
        port=port,
        authority=authority,
        path=path,
    )
