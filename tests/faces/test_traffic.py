"""Limits on open connections and on requests in progress of one process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import resource
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from queuegate.gateway.faces.interface import Request, Response
from queuegate.gateway.operations.telemetry.series import Series
from tests.faces.clients import Sqs, authorization
from tests.faces.connections import Closed, Connection, fetch, request_bytes
from tests.faces.front_doors import OneAnswer, limited
from tests.faces.servers import Server
from tests.waiting import until, until_so

MOST_BYTES = 16_777_216
BODY_BYTES = 6_000_000
PAGE = "https://console.example"
HELD = "queuegate_buffered_bytes"

THROTTLED = {
    "json": "RequestThrottled",
    "query": "<Code>RequestThrottled</Code>",
    "native": "Try again in a moment.",
    "scheduler": "ThrottlingException",
}
REQUESTS = {
    "json": ("/", {"X-Amz-Target": "AmazonSQS.SendMessage"}),
    "query": ("/", {"Content-Type": "application/x-www-form-urlencoded"}),
    "native": ("/v1/queues/q/messages", {}),
    "scheduler": ("/schedules/s", {"Authorization": authorization("1", "r", "scheduler")}),
}


@pytest.fixture(scope="module")
def small() -> Iterator[Server]:
    """A gateway that holds no more than the least that can be configured."""
    settings = {"QUEUEGATE_ALLOWED_ORIGINS": PAGE}
    with Server(QUEUEGATE_MAX_BUFFERED_BYTES=str(MOST_BYTES), **settings) as server:
        yield server


def _head(server: Server, face: str, size: int) -> bytes:
    path, headers = REQUESTS[face]
    host = {"Host": server.url.partition("://")[2], "Content-Length": str(size), "Origin": PAGE}
    return request_bytes("POST", path, {"Authorization": "any"} | headers | host)


@contextlib.contextmanager
def _unfinished_bodies(server: Server) -> Iterator[None]:
    """As many of them as the share of one account has room for: half of what there is."""
    with Connection(server.url) as connection:
        connection.send(_head(server, "json", BODY_BYTES) + b" " * (BODY_BYTES - 1))
        until(lambda: server.metric(HELD), lambda held: held > BODY_BYTES - 100_000)
        yield


@pytest.mark.parametrize("face", REQUESTS)
def test_bodies_without_room_are_refused(small: Server, face: str) -> None:
    with _unfinished_bodies(small), Connection(small.url) as connection:
        connection.send(_head(small, face, BODY_BYTES))
        with contextlib.suppress(ConnectionError):
            connection.send(b" " * (BODY_BYTES - 1))
        answer = connection.answer()
        assert answer.status == 503
        assert answer.headers["retry-after"] == "1"
        assert answer.headers["connection"] == "close"
        assert "under way" in answer.text
        assert THROTTLED[face] in answer.text + str(answer.headers)
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert fetch(small.url, "/livez").status == 200
    small.until(HELD, 0)
    with Sqs("json", small.url) as sqs:
        queue = sqs.create()
        sqs.send(queue, "b" * 1_000_000)
        assert len(sqs.bodies(queue)) == 1


def _receive(server: Server, queue: str, account: str) -> bytes:
    body = {"QueueUrl": queue, "MaxNumberOfMessages": 10, "VisibilityTimeout": 0}
    headers = {
        "Host": server.url.partition("://")[2],
        "X-Amz-Target": "AmazonSQS.ReceiveMessage",
        "Content-Type": "application/x-amz-json-1.0",
        "Authorization": authorization(account),
    }
    return request_bytes("POST", "/", headers, json.dumps(body).encode())


def test_answers_that_nobody_reads_are_no_more_than_there_is_room_for(small: Server) -> None:
    """Takes more than 5 s: answers without room wait for 10 s."""
    with Sqs("json", small.url) as sqs, contextlib.ExitStack() as stack:
        queue = sqs.create()
        for _ in range(10):
            sqs.send(queue, "b" * 1_000_000)
        refused = small.metric("queuegate_requests_refused_total")
        of_account = f'queuegate_account_buffered_bytes{{account="{sqs.account}"}}'
        request = _receive(small, queue, sqs.account)
        # The system's buffers have the rest of each.
        for number in (1, 2):
            stack.enter_context(Connection(small.url)).send(request)
            until(lambda: small.metric(of_account), lambda held: held > 4_000_000 * number)  # noqa: B023
        for _ in range(6):
            stack.enter_context(Connection(small.url)).send(request)
        small.until("queuegate_requests_refused_total", refused + 6)
        assert MOST_BYTES / 4 < small.metric(of_account) < MOST_BYTES * 1.5
        stack.close()
        small.until(HELD, 0)
        with Sqs("json", small.url, sqs.account) as again:
            assert again.ask("GetQueueUrl", {"QueueName": "orders"}).status == 200


def test_receives_that_start_together_count_before_they_are_answered(small: Server) -> None:
    """Takes more than 5 s: answers without room wait for 10 s."""
    with Sqs("json", small.url) as sqs, contextlib.ExitStack() as stack:
        queue = sqs.create()
        for _ in range(10):
            sqs.send(queue, "b" * 1_000_000)
        # How long the messages of the queue are is known from now on.
        assert sqs.receive(queue, 1, VisibilityTimeout=0)
        refused = small.metric("queuegate_requests_refused_total")
        request = _receive(small, queue, sqs.account)
        connections = [stack.enter_context(Connection(small.url)) for _ in range(8)]
        for connection in connections:
            connection.send(request)
        name = "queuegate_requests_refused_total"
        until(lambda: small.metric(name), lambda found: found >= refused + 4)
        of_account = f'queuegate_account_buffered_bytes{{account="{sqs.account}"}}'
        assert small.metric(of_account) < MOST_BYTES * 1.5
        stack.close()
        small.until(HELD, 0)


def test_a_flood_behind_a_request_counts(small: Server) -> None:
    """Bytes behind an unanswered request count as requests in progress."""
    with Sqs("json", small.url) as sqs:
        queue = sqs.create()
        sqs.receive(queue)
        body = json.dumps({"QueueUrl": queue, "WaitTimeSeconds": 20}).encode()
        request = _receive(small, queue, sqs.account)
        head, _, _ = request.partition(b"Content-Length")
        poll = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
        with Connection(small.url) as connection:
            connection.send(poll)
            small.until_parked(1)
            connection.send(b"x" * 500_000)
            small.until(HELD, 500_000)
        small.until(HELD, 0)
        small.until_parked(0)


def test_the_most_clients() -> None:
    with Server("--max-clients", "3") as server, contextlib.ExitStack() as stack:
        host = {"Host": server.url.partition("://")[2]}
        ping = request_bytes("GET", "/livez", host)
        held = [stack.enter_context(Connection(server.url)) for _ in range(3)]
        for connection in held:
            connection.send(ping)
            assert connection.answer().status == 200
        with Connection(server.url) as fourth:
            assert fourth.answer().status == 503
            assert fourth.ends()
        for connection in held:
            connection.send(ping)
            assert connection.answer().status == 200
        held[0].close()

        def is_taken() -> bool:
            with Connection(server.url) as connection, contextlib.suppress(Closed, OSError):
                connection.send(ping)
                return connection.answer().status == 200
            return False

        until(is_taken)
        held[1].send(request_bytes("GET", "/metrics", host))
        assert "queuegate_connections_refused_total 0.0" not in held[1].answer().text


class _Logged(Server):
    def __init__(self, log: Path, *arguments: str, **more: str) -> None:
        with log.open("w") as self.log:
            super().__init__(*arguments, **more)


def test_a_process_without_file_descriptors_says_so() -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory, "log")
        with _Logged(log, "--max-clients", "100000") as gateway, contextlib.ExitStack() as stack:
            assert gateway.get("/metrics")[0] == 200
            first = stack.enter_context(Connection(gateway.url))
            page = request_bytes("GET", "/metrics", {"Host": first.host})
            files = len(list(Path(f"/proc/{gateway.process.pid}/fd").iterdir()))
            limit = (files + 5, resource.prlimit(gateway.process.pid, resource.RLIMIT_NOFILE)[1])
            resource.prlimit(gateway.process.pid, resource.RLIMIT_NOFILE, limit)
            for _ in range(30):
                with contextlib.suppress(ConnectionError):
                    stack.enter_context(Connection(gateway.url))

            def times() -> float:
                first.send(page)
                found = re.search(
                    r"^queuegate_open_files_exhausted_total (\S+)", first.answer().text, re.M
                )
                assert found is not None
                return float(found[1])

            until(times)
            stack.close()
            gateway.stop(signal.SIGTERM)
        assert "no connection can be taken: Too many open files" in log.read_text()


# Answers that nobody reads, on the protocol class alone and its own clock


class _Large(OneAnswer):
    """Answers more than the system's buffers take."""

    async def answer(self, _: Request) -> Response:
        return Response(200, [], b"x" * 20_000_000)


def _listening(seconds: float, series: Series, least_rate: int = 16_384) -> Any:
    return limited(_Large(), series, set(), unread_seconds=seconds, least_rate=least_rate)


async def test_an_answer_that_nobody_reads_is_given_up() -> None:
    series = Series()
    async with _listening(0.05, series) as (reader, writer):
        reader._transport.pause_reading()
        writer.write(request_bytes("GET", "/", {"Host": "h"}))
        await until_so(lambda: series.traffic.unread_closed == 1)
        await until_so(lambda: series.traffic.connections == 0)
        assert series.traffic.held_bytes == 0
        writer.close()


async def test_an_answer_that_is_read_too_slowly_is_given_up_too() -> None:
    series = Series()
    async with _listening(0.15, series, least_rate=1 << 40) as (reader, writer):
        writer.write(request_bytes("GET", "/", {"Host": "h"}))
        await reader.readuntil(b"\r\n\r\n")
        loop = asyncio.get_running_loop()
        then: list[float] = []
        for _ in range(39):
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await reader.readexactly(500_000)
            then.append(loop.time() + 0.02)
            await until_so(lambda: loop.time() > then[-1])
        assert series.traffic.unread_closed == 1
        writer.close()


async def test_an_answer_that_is_read_slowly_is_not() -> None:
    series = Series()
    async with _listening(40.0, series) as (reader, writer):
        writer.write(request_bytes("GET", "/", {"Host": "h"}))
        await reader.readuntil(b"\r\n\r\n")
        held = []
        for _ in range(20):
            await reader.readexactly(1_000_000)
            held.append(series.traffic.held_bytes)
        assert max(held) > 0
        await until_so(lambda: series.traffic.held_bytes == 0)
        assert series.traffic.unread_closed == 0
        writer.close()
