"""Where SQS and SNS are: the endpoints that a connection, the environment or a profile names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from spark_connectors.transport.aws.connection import Connection
from spark_connectors.transport.aws.sessions import Session
from spark_connectors.transport.http.endpoints import Endpoint, parse_endpoint

SERVICES = ("sqs", "sns")
_AWS_DOMAINS = (
    "amazonaws.com",
    "amazonaws.com.cn",
    "amazonaws.eu",
    "api.aws",
    "api.amazonwebservices.com.cn",
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
