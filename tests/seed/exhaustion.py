"""A gateway whose pool has no connection left."""

from __future__ import annotations

from typing import NamedTuple

from tests.faces.connections import Answer
from tests.faces.rest.client import Rest
from tests.faces.servers import Background
from tests.seed.gateways import SharedServer, locked, somebody_waits
from tests.waiting import until


class Exhausted(NamedTuple):
    """The result of an exhausted delivery."""

    before: str
    """The page of metrics before it, and after."""
    after: str
    refusal: Answer
    """To the request that found no connection."""
    later: Answer
    """To one after that."""


def exhaust(dsn: str) -> Exhausted:
    """One connection, held by somebody who waits for a table (a request, or a worker); the next one
    waits in vain, for ten seconds."""
    with SharedServer(dsn, QUEUE_MAX_CONNECTIONS="1") as running, Rest(running.url) as rest:
        before = running.metrics()
        with locked(dsn, "queues"):
            holding = Background(rest.ask, "GET", "/v1/queues")
            # Not until a connection is taken: a worker takes it for a moment, too.
            until(lambda: somebody_waits(dsn, "queues"))
            refusal = rest.ask("GET", "/v1/queues")
        holding.result()
        later = rest.ask("GET", "/v1/queues")
        return Exhausted(before, running.metrics(), refusal, later)
