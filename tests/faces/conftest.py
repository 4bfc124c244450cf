"""Running gateways: one per test process, and one with AWS's intervals and sign-in relaxed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faces.clients import WIRES, Raw, Sqs
from tests.faces.rest.client import Rest
from tests.faces.scheduler_client import Scheduler
from tests.faces.servers import Server
from tests.faces.sns_client import PUBLISH_WIRES, SNS_WIRES, Sns
from tests.faces.web_hooks import WebHook


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The gateway of this process. Tests keep apart by account, and the clock only moves on."""
    with Server() as running:
        yield running


@pytest.fixture
def nothing_parked(server: Server) -> None:
    """No long poll of an earlier test is left: tests count those of the whole process."""
    server.until_parked(0)


@pytest.fixture(scope="session")
def counting_server() -> Iterator[Server]:
    """For tests of what is counted by queue: a gateway with a thousand queues counts new ones
    together, and few tests use this one."""
    with Server() as running:
        yield running


@pytest.fixture(scope="session")
def relaxed_server() -> Iterator[Server]:
    """A gateway that asks for no credentials and forgets purges and deleted names at once."""
    relaxed = {
        "QUEUEGATE_AUTH": "none",
        "QUEUEGATE_PURGE_INTERVAL": "0",
        "QUEUEGATE_QUEUE_RECREATE_SECONDS": "0",
    }
    with Server(**relaxed) as running:
        yield running


@pytest.fixture(params=WIRES)
def sqs(request: pytest.FixtureRequest, server: Server) -> Iterator[Sqs]:
    """A client of each wire, in an account of its own."""
    with Sqs(request.param, server.url) as client:
        yield client


@pytest.fixture
def json_sqs(server: Server) -> Iterator[Sqs]:
    """A client of the JSON wire."""
    with Sqs("json", server.url) as client:
        yield client


@pytest.fixture
def query_sqs(server: Server) -> Iterator[Sqs]:
    """A client of the Query wire."""
    with Sqs("query", server.url) as client:
        yield client


@pytest.fixture(params=SNS_WIRES)
def sns(request: pytest.FixtureRequest, server: Server) -> Iterator[Sns]:
    """An SNS client of each wire, in an account of its own."""
    with Sns(request.param, server.url) as client:
        yield client


@pytest.fixture(params=PUBLISH_WIRES)
def publisher(request: pytest.FixtureRequest, server: Server) -> Iterator[Sns]:
    """The same on each way that a publish may take through the gateway."""
    with Sns(request.param, server.url) as client:
        yield client


@pytest.fixture
def query_sns(server: Server) -> Iterator[Sns]:
    """An SNS client of the Query wire, the one that SDKs speak."""
    with Sns("query", server.url) as client:
        yield client


@pytest.fixture
def raw(json_sqs: Sqs) -> Iterator[Raw]:
    raw = Raw(json_sqs)
    yield raw
    raw.connection.close()


@pytest.fixture
def rest(server: Server) -> Iterator[Rest]:
    """A client of the native API, in an account of its own."""
    with Rest(server.url) as client:
        yield client


@pytest.fixture
def scheduler(server: Server) -> Iterator[Scheduler]:
    client = Scheduler(server.url)
    yield client
    client.close()


@pytest.fixture
def hook() -> Iterator[WebHook]:
    with WebHook() as hook:
        yield hook
