"""A small client of SQS and SNS that says what it knows: answered, refused, or no answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from tests.waiting import yield_turns

_AUTHORIZATION = (
    "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20260101/us-east-1/{}/aws4_request, "
    f"SignedHeaders=host;x-amz-date, Signature={'0' * 64}"
)
_TARGETS = {"sqs": "AmazonSQS", "sns": "AmazonSNS"}
_DEADLINE_SECONDS = 40.0


class Unanswered(Exception):
    """No complete answer came: nobody knows whether the request was carried out."""


class Refused(Exception):
    """The server said no."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


def make_request(action: str, members: dict[str, Any], service: str = "sqs") -> bytes:
    """The bytes of one request."""
    body = json.dumps(members).encode()
    head = (
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-amz-json-1.0\r\n"
        f"X-Amz-Target: {_TARGETS[service]}.{action}\r\n"
        f"Authorization: {_AUTHORIZATION.format(service)}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Client:
    """One connection, opened when it is needed."""

    def __init__(self, port: int, service: str = "sqs") -> None:
        self.port = port
        self.service = service
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def call(self, action: str, **members: Any) -> dict[str, Any]:
        """Call an AWS action and return its answer."""
        return await self.ask(make_request(action, members, self.service))

    async def ask(self, request: bytes) -> dict[str, Any]:
        """The answer. Raises Refused (4xx), and Unanswered for 5xx and everything else."""
        try:
            async with asyncio.timeout(_DEADLINE_SECONDS):
                await self.send(request)
                status, body = await self.read()
        except (OSError, EOFError, asyncio.IncompleteReadError) as error:
            self.close()
            raise Unanswered(repr(error)) from error
        except BaseException:
            self.close()
            raise
        if status >= 500:
            raise Unanswered(f"{status}: {body!r}")
        if status >= 300:
            raise Refused(status, body.decode())
        answer: dict[str, Any] = json.loads(body) if body else {}
        return answer

    async def send(self, request: bytes) -> None:
        """Write the bytes of a request; connects first if need be."""
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writer.write(request)
        await self._writer.drain()

    async def read(self) -> tuple[int, bytes]:
        """(status, body) of the next answer. Raises EOFError or OSError when none comes."""
        assert self._reader is not None
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        lines = head.lower().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:] if line)
        body = await self._reader.readexactly(int(headers["content-length"]))
        if headers.get("connection") == "close":
            self.close()
        return int(head.split(" ", 2)[1]), body

    def close(self) -> None:
        """Drop the connection, with whatever is under way on it."""
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = None


@contextlib.asynccontextmanager
async def clients(port: int, count: int, service: str = "sqs") -> AsyncIterator[list[Client]]:
    """So many clients, closed at the end."""
    found = [Client(port, service) for _ in range(count)]
    try:
        yield found
    finally:
        for client in found:
            client.close()
        # The transports let go of their sockets in the next turn of the loop.
        await yield_turns()
