"""Clients of logs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faces.logs.client import Logs
from tests.faces.servers import Server


@pytest.fixture
def logs(server: Server) -> Iterator[Logs]:
    """A client in an account of its own."""
    with Logs(server.url) as client:
        yield client
