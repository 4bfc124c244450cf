"""Clients of the native API, and SQS clients of the same account."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faces.clients import Sqs
from tests.faces.rest.client import Rest


@pytest.fixture(params=("json", "query"))
def sqs_beside(request: pytest.FixtureRequest, rest: Rest) -> Iterator[Sqs]:
    """An SQS client of the same account, on each wire."""
    with Sqs(request.param, rest.url, rest.account) as client:
        yield client
