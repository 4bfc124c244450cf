"""Clients of channels, and others of the same account."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faces.channels.client import Channels
from tests.faces.clients import Sqs
from tests.faces.servers import Server


@pytest.fixture
def channels(server: Server) -> Iterator[Channels]:
    """A client in an account of its own."""
    with Channels(server.url) as client:
        yield client


@pytest.fixture
def sqs_beside(channels: Channels) -> Iterator[Sqs]:
    """An SQS client of the same account."""
    with Sqs("json", channels.url, channels.account) as client:
        yield client
