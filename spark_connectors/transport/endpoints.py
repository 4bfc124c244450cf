"""Where SQS and SNS are: the endpoints that a connection, the environment or a profile names."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from spark_connectors.transport.connection import Connection
from spark_connectors.transport.sessions import Session
from spark_connectors.transport.wire import ConnectorError

SERVICES = ("sqs", "sns")
_AWS_DOMAINS = (
    "amazonaws.com",
    "amazonaws.com.cn",
    "amazonaws.eu",
    "api.aws",
    "api.amazonwebservices.com.cn",
)
_HOST = re.compile(r"[A-Za-z0-9._:%-]+").fullmatch
_PORTS = {"http": 80, "https": 443}


class Endpoint(NamedTuple):
    """A parsed endpoint URL. ``path`` is as sent, ``signed_path`` as SigV4 wants it."""

    url: str
    is_secure: bool
    host: str
    port: int
    authority: str
    path: str
    signed_path: str


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
        signed_path=quote(path, safe="/~"),
    )


def is_aws_host(host: str) -> bool:
    """Whether a host belongs to AWS's services: below one of their domains."""
    return host.rstrip(".").endswith(tuple(f".{domain}" for domain in _AWS_DOMAINS))


def is_not_aws(known: Mapping[str, Endpoint]) -> bool:
    """Whether endpoints are known, and none of them is AWS's."""
    return bool(known) and not any(is_aws_host(each.host) for each in known.values())


def kind_for(kind: str, known: Mapping[str, Endpoint]) -> str:
    """The transport that ``auto`` stands for with these endpoints; any other kind is itself."""
    if kind == "auto":
        return "lean" if is_not_aws(known) else "boto3"
    return kind


def configured(connection: Connection, session: Session) -> dict[str, Endpoint]:
    """The known endpoints by service; those missing are AWS's.

    Looked for as botocore does: the connection's own, the environment's, the profile's.
    """
    if connection.endpoint_url is not None:
        return dict.fromkeys(SERVICES, parse_endpoint(connection.endpoint_url))
    if session.get_config_variable("ignore_configured_endpoint_urls"):
        return {}
    profile = session.get_scoped_config()
    found = {service: _configured_url(service, session, profile) for service in SERVICES}
    return {service: parse_endpoint(url) for service, url in found.items() if url}


def _configured_url(service: str, session: Session, profile: Mapping[str, Any]) -> str | None:
    for variable in (f"AWS_ENDPOINT_URL_{service.upper()}", "AWS_ENDPOINT_URL"):
        if os.environ.get(variable):
            return os.environ[variable]
    services = session.full_config.get("services", {}).get(profile.get("services"), {})
    url: str | None = services.get(service, {}).get("endpoint_url") or profile.get("endpoint_url")
    return url
