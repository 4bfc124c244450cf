"""Clients of the native API, and SQS clients of the same account."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faces.clients import Sqs
from tests.faces.rest.client import Rest
from tests.faces.servers import Server


@pytest.fixture
def rest(server: Server) -> Iterator[Rest]:
    """A client in an account of its own."""
    with Rest(server.url) as client:
        yield client


@pytest.fixture(params=("json", "query"))
def sqs_beside(request: pytest.FixtureRequest, rest: Rest) -> Iterator[Sqs]:
    """An SQS client of the same account, on each wire."""
    with Sqs(request.param, rest.url, rest.account) as client:
        yield client
