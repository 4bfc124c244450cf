"""A gateway that traces everything, and the collector that gets it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faces.clients import Sqs
from tests.faces.servers import Server
from tests.faces.sns_client import Sns
from tests.tracing.collector import Collector, Received


@pytest.fixture(scope="session")
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


def traced(collector: Received, rate: str = "1", **more: str) -> Server:
    """A gateway that exports to a collector."""
    return Server(**(collector.settings | {"QUEUEGATE_OTLP_SAMPLE_RATE": rate} | more))


@pytest.fixture(scope="session")
def server(collector: Collector) -> Iterator[Server]:
    """Traces whatever nobody else decides about. Tests keep apart by account and names."""
    with traced(collector) as running:
        yield running


@pytest.fixture
def sqs(server: Server) -> Iterator[Sqs]:
    with Sqs("json", server.url) as client:
        yield client


@pytest.fixture
def sns(server: Server) -> Iterator[Sns]:
    with Sns("query", server.url) as client:
        yield client
