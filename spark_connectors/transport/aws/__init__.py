"""Ways to reach SQS and SNS: ``lean``, our own HTTP, and ``boto3``, the reference.

Importing this package imports no AWS library; opening a transport does.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from spark_connectors.errors import ConnectorError
from spark_connectors.transport.aws.calls import Carrier, Transport
from spark_connectors.transport.aws.connection import Connection, StaticCredentials

if TYPE_CHECKING:
    from spark_connectors.transport.aws.service import Service
    from spark_connectors.transport.aws.sessions import Session
    from spark_connectors.transport.http.endpoints import Endpoint

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
    """A transport for this connection; it opens sockets and looks for credentials when first used.

    Kind ``auto`` is lean where an endpoint is known and none of them is AWS's, boto3 otherwise.
    Raises ConnectorError for an unknown kind, profile or region, and for an endpoint that is none.
    """
    from spark_connectors.transport.aws import endpoints, sessions

    if connection.kind not in KINDS:
        raise ConnectorError(f"transport '{connection.kind}' is none of {', '.join(KINDS)}")
    session = sessions.open_session(connection)
    known = endpoints.configured(connection, session)
    sessions.settle_region(session, may_default=endpoints.is_not_aws(known))
    carrier: Carrier
    if endpoints.kind_for(connection.kind, known) == "lean":
        from spark_connectors.transport.aws.lean import LeanCarrier

        carrier = LeanCarrier(session, known, connection.max_retries)
    else:
        from spark_connectors.transport.aws.boto import BotoCarrier

        carrier = BotoCarrier(session, known, connection.max_retries)
    return Transport(carrier, connection.max_retries)


@functools.lru_cache(maxsize=8)
def shared_transport(connection: Connection) -> Transport:
    """The same transport for everybody in this process. Spark keeps its Python workers for the
    tasks to come, and opening one costs as much as dozens of calls."""
    return open_transport(connection)


def is_aws(connection: Connection) -> bool:
    """Whether the queues of this connection are AWS's own: no endpoint, or one of AWS's hosts.

    Raises ConnectorError as open_transport does.
    """
    return _own_endpoint(connection)[1] is None


def open_service(connection: Connection) -> Service | None:
    """Requests to what an endpoint offers beside SQS, signed as for it; None where it is AWS's.

    Raises ConnectorError as open_transport does.
    """
    from spark_connectors.transport.aws import sessions
    from spark_connectors.transport.aws.service import Service

    session, endpoint = _own_endpoint(connection)
    if endpoint is None:
        return None
    sessions.settle_region(session, may_default=True)
    return Service("sqs", session, endpoint, sessions.KeySource(session))


def _own_endpoint(connection: Connection) -> tuple[Session, Endpoint | None]:
    from spark_connectors.transport.aws import endpoints, sessions

    session = sessions.open_session(connection)
    found = endpoints.configured(connection, session).get("sqs")
    is_own = found is not None and not endpoints.is_aws_host(found.host)
    return session, found if is_own else None
