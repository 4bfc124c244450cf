"""A web hook on this machine that takes requests, and answers them as badly as it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from tests.waiting import yield_turns

PATIENCE_SECONDS = 20.0


@dataclass(frozen=True)
class Request:
    """A request that the endpoint received."""

    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes


Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""What happens after a request was read."""


def answer(status: int, *, headers: str = "", body: bytes = b"") -> Behaviour:
    """A whole answer."""

    async def act(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 {status} X\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)

    return act


async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Keeps the connection and says nothing."""
    await reader.read()
    writer.close()


async def close_at_once(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Closes without a word."""
    writer.close()


async def close_mid_answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Closes after half of the answer."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    await writer.drain()
    writer.close()


async def close_mid_chunk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The same of a chunked one."""
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
    await writer.drain()
    writer.close()


async def endless_body(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Never ends."""
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    await _pour(writer, b"1000\r\n" + b"x" * 4096 + b"\r\n")


async def endless_headers(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Never comes to the body."""
    writer.write(b"HTTP/1.1 200 OK\r\n")
    await _pour(writer, b"x-more: " + b"y" * 100 + b"\r\n")


async def slow_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Begins an answer whose end does not come."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    await hang(reader, writer)


async def unhurried(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers after a while, so that requests are there at the same time."""
    await yield_turns(50)
    await answer(200)(reader, writer)


async def _pour(writer: asyncio.StreamWriter, data: bytes) -> None:
    while not writer.is_closing():
        writer.write(data)
        await writer.drain()
        await yield_turns()


def in_turn(*behaviours: Behaviour) -> Behaviour:
    """The first request gets the first, and so on; the last one stays."""
    left = list(behaviours)

    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        chosen = left.pop(0) if len(left) > 1 else left[0]
        await chosen(reader, writer)

    return act


class Endpoint:
    """Listens on a port of its own; ``behaviour`` may be changed at any time."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.requests: list[Request] = []
        self.connections = 0
        self.busy = 0
        self.most_busy = 0
        self.port = 0
        self._scheme = "http"
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}/hook"

    async def reached(self, count: int) -> None:
        """Wait until so many requests came."""
        async with asyncio.timeout(PATIENCE_SECONDS), self._changed:
            await self._changed.wait_for(lambda: len(self.requests) >= count)

    @contextlib.asynccontextmanager
    async def listening(self, context: ssl.SSLContext | None = None) -> AsyncIterator[Endpoint]:
        """Take connections until the end of the block."""
        self._scheme = "https" if context else "http"
        server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Here too: a task that is cancelled before it begins closes nothing.
        task.add_done_callback(lambda _: writer.close())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.closing(writer), contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while not writer.is_closing():
                request = await _read(reader)
                self.busy += 1
                self.most_busy = max(self.most_busy, self.busy)
                async with self._changed:
                    self.requests.append(request)
                    self._changed.notify_all()
                try:
                    await self.behaviour(reader, writer)
                finally:
                    self.busy -= 1


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.split("\r\n")[:-2]
    headers = {}
    for line in lines:
        name, _, value = line.partition(": ")
        headers[name.lower()] = value
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    method, path, _ = first.split(" ")
    return Request(method, path, headers, body)
