"""Transports to SQS and SNS: ``lean``, our own HTTP, and ``boto3``, the reference.

Importing this package imports no AWS library; opening a transport does.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from spark_connectors.errors import ConnectorError
from spark_connectors.transport.aws.connection import Connection, StaticCredentials
from spark_connectors.transport.aws.message_calls import Carrier, Transport

if TYPE_CHECKING:
    from spark_connectors.transport.aws.aws_sessions import BotoSession
    from spark_connectors.transport.aws.signed_requests import SignedService
    from spark_connectors.transport.http.http_connections import ServiceEndpoint

__all__ = [
    "Connection",
    "StaticCredentials",
    "Transport",
    "is_aws",
    "open_service",
    "open_transport",
    "shared_transport",
]

KINDS = ("auto", "lean", "boto3")


def open_transport(connection: Connection) -> Transport:
    """Open a transport; it opens sockets and looks for credentials when first used.

    Kind ``auto`` is lean where an endpoint is known and none of them is AWS's, boto3 otherwise.
    Raises ConnectorError for an unknown kind, profile or region, and for an invalid endpoint.
    """
    from spark_connectors.transport.aws import aws_sessions

    if connection.kind not in KINDS:
        raise ConnectorError(f"transport '{connection.kind}' is none of {', '.join(KINDS)}")
    session = aws_sessions.open_session(connection)
    known = aws_sessions.configured(connection, session)
    aws_sessions.settle_region(session, may_default=aws_sessions.is_not_aws(known))
    carrier: Carrier
    if aws_sessions.kind_for(connection.kind, known) == "lean":
        from spark_connectors.transport.aws.lean import LeanCarrier

        carrier = LeanCarrier(session, known, connection.max_retries)
    else:
        from spark_connectors.transport.aws.boto import BotoCarrier

        carrier = BotoCarrier(session, known, connection.max_retries)
    return Transport(carrier, connection.max_retries)


@functools.lru_cache(maxsize=8)
def shared_transport(connection: Connection) -> Transport:
    """Return one transport for this process. Spark reuses its Python workers, and opening one costs
    as much as dozens of calls."""
    return open_transport(connection)


def is_aws(connection: Connection) -> bool:
    """Return True if the queues are AWS's own: no endpoint, or one of AWS's hosts.

    Raises ConnectorError as open_transport does.
    """
    return _own_endpoint(connection)[1] is None


def open_service(connection: Connection) -> SignedService | None:
    """Open the endpoint's API beside SQS, signed as for SQS; None for AWS.

    Raises ConnectorError as open_transport does.
    """
    from spark_connectors.transport.aws import aws_sessions
    from spark_connectors.transport.aws.signed_requests import SignedService

    session, endpoint = _own_endpoint(connection)
    if endpoint is None:
        return None
    aws_sessions.settle_region(session, may_default=True)
    return SignedService("sqs", session, endpoint, aws_sessions.KeySource(session))


def _own_endpoint(connection: Connection) -> tuple[BotoSession, ServiceEndpoint | None]:
    from spark_connectors.transport.aws import aws_sessions

    session = aws_sessions.open_session(connection)
    found = aws_sessions.configured(connection, session).get("sqs")
    is_own = found is not None and not aws_sessions.is_aws_host(found.host)
    return session, found if is_own else None
