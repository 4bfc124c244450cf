"""A gateway dies while it sends to a queue of a size: no room is lost, and none is taken twice."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faces.rest.client import Rest
from tests.faces.servers import Server
from tests.waiting import until

SIZE = 400


@pytest.fixture
def gateways() -> Iterator[tuple[Server, Server]]:
    """Two on one database."""
    with Server() as first, Server(dsn=first.dsn) as second:
        yield first, second


def test_a_gateway_that_dies_leaves_the_size_as_it_was(gateways: tuple[Server, Server]) -> None:
    first, second = gateways
    statuses: Counter[int] = Counter()
    is_over = threading.Event()

    def send(rest: Rest) -> None:
        with contextlib.suppress(OSError, AssertionError, http.client.HTTPException):
            while not is_over.is_set():
                path = "/v1/queues/jobs/messages"
                statuses[rest.ask("POST", path, [{"message": 1}, {"message": 2}]).status] += 1

    with Rest(first.url) as rest, Rest(second.url, rest.account) as other:
        rest.create("jobs", max_messages=SIZE)
        with ThreadPoolExecutor(12) as pool:
            for _ in range(6):
                pool.submit(send, rest)
                pool.submit(send, other)
            until(lambda: statuses[201], lambda count: count > SIZE // 8)
            second.process.kill()
            until(lambda: statuses[429])
            is_over.set()
        held = rest.call("GET", "/v1/queues/jobs")["queue_length"]
        # What was under way may have been committed without an answer.
        assert 2 * statuses[201] <= held == SIZE
        numbers = [one["id"] for one in rest.receive("jobs", max=100)]
        rest.call("DELETE", "/v1/queues/jobs/messages", {"ids": numbers})
        rest.call("POST", "/v1/queues/jobs/messages", [{"message": 3}] * len(numbers), status=201)
        rest.refusal("POST", "/v1/queues/jobs/messages", {"message": 4}, status=429)
