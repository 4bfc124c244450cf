"""Clients of the text face."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faces.servers import Server
from tests.faces.text.client import Text


@pytest.fixture
def text(server: Server) -> Iterator[Text]:
    """A client in an account of its own."""
    with Text(server.url) as client:
        yield client
