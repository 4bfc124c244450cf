"""Clients of the simple queue."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faces.servers import Server
from tests.faces.simple.client import Simple


@pytest.fixture
def simple(server: Server) -> Iterator[Simple]:
    """A client in an account of its own."""
    with Simple(server.url) as client:
        yield client
