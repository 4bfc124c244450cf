"""The load client: keep-alive HTTP/1.1 on raw asyncio protocols, little work per answer.

A script is a generator that yields requests and is sent the answers; one script drives one
connection.
"""

import asyncio
import json
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import cast

Script = Generator[bytes, bytes, None]

HANDLE = re.compile(rb'"ReceiptHandle": ?"([^"\\]+(?:\\.[^"\\]*)*)"')
RECONNECTS_MAX = 100_000
GRACE_SECONDS = 90.0
_RESENDS_MAX = 3


class BadAnswer(Exception):
    """The server answered with something other than a success and a body of known length."""


def find_handle(answer: bytes) -> bytes | None:
    """Return the first receipt handle of an answer, escaped as it stands there, or None."""
    found = HANDLE.search(answer)
    return found.group(1) if found else None


@dataclass(slots=True)
class Load:
    """The result of one run: seconds per request, and per operation if a request has several."""

    deadline: float
    request_seconds: list[float] = field(default_factory=list)
    operation_seconds: list[float] = field(default_factory=list)
    messages: int = 0
    empty: int = 0
    reconnects: int = 0
    elapsed_seconds: float = 0.0

    @property
    def operations(self) -> int:
        return len(self.operation_seconds) or len(self.request_seconds)


class Connection(asyncio.Protocol):
    """One keep-alive connection with at most one request outstanding.

    Reconnects when the server closes between requests, silently or by a header, and sends the
    outstanding request again when it closed before the first byte of an answer, as any HTTP client
    does.
    """

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._request: bytes | None = None
        self._resends = 0
        self._closing = False
        self._dropping = False
        self._reconnecting: asyncio.Task[None] | None = None
        self._answered: Callable[[bytes], None] = _ignore
        self._failed: Callable[[BadAnswer], None] = _ignore
        self.reconnects = 0

    async def open(self) -> None:
        """Connect; raises OSError."""
        await asyncio.get_running_loop().create_connection(lambda: self, *self._address)

    def listen(
        self, answered: Callable[[bytes], None], failed: Callable[[BadAnswer], None]
    ) -> None:
        """Set who gets the answers from now on: whole responses, head included."""
        self._answered, self._failed = answered, failed

    def send(self, request: bytes) -> None:
        """Write a request; its answer goes to the listener."""
        self._request = request
        if self._transport is not None:
            self._transport.write(request)
        elif self._reconnecting is None and not self._dropping:
            self._reconnecting = asyncio.create_task(self._reconnect())

    def close(self) -> None:
        """Close; an answer outstanding is dropped."""
        self._closing = True
        self._request = None
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._closing:
            return
        if self._dropping:
            self._dropping = False
            if self._request is not None:
                self._reconnecting = asyncio.create_task(self._reconnect())
            return
        if self._request is None:
            if exc is not None and not isinstance(exc, OSError):
                self._failed(BadAnswer(f"a script failed: {exc!r}"))
            return
        self._resends += 1
        if self._buffer or self._resends > _RESENDS_MAX or self.reconnects >= RECONNECTS_MAX:
            self._failed(BadAnswer(f"connection lost before the whole answer: {exc}"))
            return
        self._reconnecting = asyncio.create_task(self._reconnect())

    def data_received(self, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self._buffer = data
            return
        if data[9:12] == b"204":
            self._complete(data, end)
            return
        at = data.find(b"\r\ncontent-length:", 0, end)
        if at < 0:
            at = data.find(b"\r\nContent-Length:", 0, end)
        stop = data.find(b"\r\n", at + 17, end + 2) if at >= 0 else -1
        if stop < 0:
            self._fail(data, "no Content-Length")
            return
        if len(data) < end + 4 + int(data[at + 17 : stop]):
            self._buffer = data
            return
        self._complete(data, end)

    def _complete(self, data: bytes, end: int) -> None:
        """An answer is there, its head of so many bytes."""
        self._buffer = b""
        self._request = None
        self._resends = 0
        if data.find(b"onnection: close", 0, end) >= 0:
            self._drop()
        if data[9:10] == b"2":
            self._answered(data)
        else:
            self._fail(data, "not a success")

    def _drop(self) -> None:
        """Close after an answer that says so; the next request opens a new connection."""
        transport, self._transport = self._transport, None
        if transport is not None:
            self._dropping = True
            transport.close()

    def _fail(self, data: bytes, why: str) -> None:
        self._request = None
        self._buffer = b""
        self._failed(BadAnswer(f"{why}: {data[:600].decode(errors='replace')}"))

    async def _reconnect(self) -> None:
        self.reconnects += 1
        try:
            await self.open()
        except OSError as error:
            self._failed(BadAnswer(f"cannot reconnect: {error}"))
            return
        finally:
            self._reconnecting = None
        if self._request is not None and self._transport is not None:
            self._transport.write(self._request)


class Pool:
    """A number of open connections to one server, driven by scripts or one call at a time."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self.connections = connections

    @classmethod
    async def open(cls, address: tuple[str, int], count: int) -> "Pool":
        """Open so many connections; raises OSError when the server refuses."""
        connections = [Connection(*address) for _ in range(count)]
        await asyncio.gather(*(connection.open() for connection in connections))
        return cls(connections)

    async def run(self, make_script: Callable[[Load], Script], seconds: float) -> Load:
        """Drive each connection by a script of its own until all end or the seconds are over.

        A script past the deadline is closed after its request; raises BadAnswer on the first bad
        answer.
        """
        loop = asyncio.get_running_loop()
        finished: asyncio.Future[None] = loop.create_future()
        started = perf_counter()
        load = Load(started + seconds)
        before = sum(connection.reconnects for connection in self.connections)
        crew = _Crew(load, finished, len(self.connections))
        for connection in self.connections:
            crew.begin(connection, make_script(load))
        try:
            await asyncio.wait_for(finished, seconds + GRACE_SECONDS)
        except TimeoutError:
            raise BadAnswer(f"no answer {GRACE_SECONDS:.0f} s after the end of a run") from None
        load.elapsed_seconds = perf_counter() - started
        load.reconnects = sum(connection.reconnects for connection in self.connections) - before
        return load

    async def call(self, request: bytes, index: int = 0) -> dict[str, object]:
        """Send one request on one connection and return the decoded answer; raises BadAnswer."""
        answer = await self.exchange(request, index)
        body = answer.partition(b"\r\n\r\n")[2]
        decoded: dict[str, object] = json.loads(body) if body else {}
        return decoded

    async def exchange(self, request: bytes, index: int = 0) -> bytes:
        """Send one request on one connection and return the whole answer; raises BadAnswer."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        connection = self.connections[index]
        connection.listen(future.set_result, future.set_exception)
        connection.send(request)
        return await asyncio.wait_for(future, GRACE_SECONDS)

    def close(self) -> None:
        """Close every connection."""
        for connection in self.connections:
            connection.close()


class _Crew:
    """Lets the scripts of one run talk over their connections; notes the time of each request."""

    def __init__(self, load: Load, finished: asyncio.Future[None], count: int) -> None:
        self._load = load
        self._finished = finished
        self._working = count

    def begin(self, connection: Connection, script: Script) -> None:
        note = self._load.request_seconds.append
        deadline = self._load.deadline
        sent = 0.0

        def answered(answer: bytes) -> None:
            nonlocal sent
            now = perf_counter()
            note(now - sent)
            if now > deadline:
                script.close()
            try:
                request = script.send(answer)
            except StopIteration:
                self._end()
                return
            sent = perf_counter()
            connection.send(request)

        connection.listen(answered, self._fail)
        request = next(script, None)
        if request is None:
            self._end()
            return
        sent = perf_counter()
        connection.send(request)

    def _end(self) -> None:
        self._working -= 1
        if self._working == 0 and not self._finished.done():
            self._finished.set_result(None)

    def _fail(self, error: BadAnswer) -> None:
        if not self._finished.done():
            self._finished.set_exception(error)


def _ignore(_: object) -> None:
    """Drop what arrives while nobody listens."""
