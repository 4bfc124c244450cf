"""A gateway with the settings that it has by itself, and databases for others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.conftest import data as data
from tests.databases import Databases
from tests.faces.logs.conftest import logs as logs
from tests.faces.logs.conftest import run as run
from tests.faces.rest.client import Rest
from tests.faces.web_hooks import WebHook
from tests.seed.exhaustion import Exhausted, exhaust
from tests.seed.gateways import SharedServer


@pytest.fixture(autouse=True)
def row(request: pytest.FixtureRequest) -> str | None:
    """The row that the test shows: see tests/seed/rows.py."""
    found: str | None = getattr(request, "param", None)
    return found


@pytest.fixture(scope="session")
def server(databases: Databases) -> Iterator[SharedServer]:
    """Nothing is set but the database. Tests keep apart by account, and the clock only moves on."""
    with SharedServer(databases.copy()) as running:
        yield running


@pytest.fixture
def rest(server: SharedServer) -> Iterator[Rest]:
    """A client in an account of its own."""
    with Rest(server.url) as client:
        yield client


@pytest.fixture
def hook() -> Iterator[WebHook]:
    with WebHook() as running:
        yield running


@pytest.fixture(scope="session")
def exhausted(databases: Databases) -> Exhausted:
    return exhaust(databases.copy())
