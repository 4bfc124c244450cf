"""Connections whose request never comes to its end, on the protocol class alone and its own clock.

The limit is a minute in earnest; here it is short, and what is waited for is the end of the socket.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from queuegate.gateway.faces.interface import Request, Response
from queuegate.gateway.operations.telemetry.series import Series
from tests.faces.front_doors import OneAnswer, limited
from tests.waiting import until_so

PATIENCE_SECONDS = 30.0
HEAD = b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n"


class _Gated(OneAnswer):
    """Waits for the gate where the path says so, and answers."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    async def answer(self, request: Request) -> Response:
        if request.path == "/wait":
            await self.gate.wait()
        return Response(200, [], b"ok")


class _Listening:
    """A server with this limit, and one client."""

    def __init__(self, seconds: float, **limits: float) -> None:
        face = _Gated()
        self.gate = face.gate
        self.connections: set[Any] = set()
        limits["reading_seconds"] = seconds
        self._client = limited(face, Series(), self.connections, **limits)

    async def __aenter__(self) -> _Listening:
        self.reader, self.writer = await self._client.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.__aexit__(None, None, None)

    async def read(self) -> bytes:
        """One answer's last bytes."""
        return await asyncio.wait_for(self.reader.readuntil(b"ok"), PATIENCE_SECONDS)

    async def ends(self) -> bool:
        """Return True if the server closes the connection without another byte."""
        return await asyncio.wait_for(self.reader.read(), PATIENCE_SECONDS) == b""


UNFINISHED = {
    "nothing": b"",
    "empty lines": b"\r\n\r\n",
    "one letter": b"P",
    "half a head": HEAD[:30],
    "no body": HEAD,
    "half a body": HEAD + b"a",
    "half a chunk": b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
}


@pytest.mark.parametrize("kind", UNFINISHED)
async def test_a_request_that_does_not_end_is_not_waited_for(kind: str) -> None:
    async with _Listening(0.05) as listening:
        listening.writer.write(UNFINISHED[kind])
        assert await listening.ends()
        assert not listening.connections


@pytest.mark.parametrize("kind", [kind for kind in UNFINISHED if kind != "nothing"])
async def test_nor_is_a_second_one(kind: str) -> None:
    async with _Listening(0.5) as listening:
        listening.writer.write(HEAD + b"abc")
        await listening.read()
        listening.writer.write(UNFINISHED[kind])
        assert await listening.ends()


async def test_a_request_in_many_pieces_is_waited_for() -> None:
    async with _Listening(PATIENCE_SECONDS) as listening:
        for byte in HEAD + b"abc":
            listening.writer.write(bytes([byte]))
            await listening.writer.drain()
        assert (await listening.read()).startswith(b"HTTP/1.1 200")


async def test_a_long_body_has_to_come_at_a_rate() -> None:
    head = HEAD.replace(b"Content-Length: 3", b"Content-Length: 300000")
    async with _Listening(PATIENCE_SECONDS, body_seconds=0.05) as listening:
        listening.writer.write(head + b"a" * 200_000)
        assert await listening.ends()
    async with _Listening(0.1, body_seconds=0.1, least_rate=1) as listening:
        listening.writer.write(head + b"a" * 70_000)
        loop = asyncio.get_running_loop()
        ended, left = loop.time() + 0.5, 230_000

        def is_over() -> bool:
            nonlocal left
            left -= 1
            listening.writer.write(b"a")
            return loop.time() > ended

        await until_so(is_over)
        listening.writer.write(b"a" * left)
        assert (await listening.read()).startswith(b"HTTP/1.1 200")


async def test_the_time_of_an_answer_does_not_count() -> None:
    """Neither for the request that is answered nor for one behind it that has only begun."""
    async with _Listening(0.5) as listening:
        waiting = HEAD.replace(b"/x", b"/wait")
        listening.writer.write(waiting + b"abc" + HEAD)
        loop = asyncio.get_running_loop()
        loop.call_later(1.2, listening.gate.set)
        await listening.read()
        listening.writer.write(b"abc")
        assert (await listening.read()).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("before", [b"", HEAD + b"abc"])
async def test_a_head_without_end_is_refused(before: bytes) -> None:
    """Every line of it costs, and its sender has not even said who it is."""
    async with _Listening(PATIENCE_SECONDS) as listening:
        listening.writer.write(before)
        if before:
            await listening.read()
        listening.writer.write(HEAD[:-2] + b"x: y\r\n" * 20_000)
        answer = await asyncio.wait_for(listening.reader.read(), PATIENCE_SECONDS)
        assert answer.startswith(b"HTTP/1.1 431 ")
        assert b"connection: close" in answer


async def test_nothing_is_written_between_the_answers_of_others() -> None:
    """The head of a second request is refused when the first is answered."""
    async with _Listening(PATIENCE_SECONDS) as listening:
        listening.writer.write(HEAD.replace(b"/x", b"/wait") + b"abc")
        listening.writer.write(HEAD[:-2] + b"x: y\r\n" * 20_000)
        listening.gate.set()
        assert (await listening.read()).startswith(b"HTTP/1.1 200")
        answer = await asyncio.wait_for(listening.reader.read(), PATIENCE_SECONDS)
        assert answer.startswith(b"HTTP/1.1 431 ")


async def test_a_long_body_is_no_head() -> None:
    async with _Listening(PATIENCE_SECONDS) as listening:
        head = HEAD.replace(b"Content-Length: 3", b"Content-Length: 200000")
        assert head != HEAD
        listening.writer.write(head + b"a" * 200_000)
        assert (await listening.read()).startswith(b"HTTP/1.1 200")
