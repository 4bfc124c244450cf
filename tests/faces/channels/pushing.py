"""Consumers on bare sockets: a WebSocket, and a stream of events."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Self
from urllib.parse import urlencode

from tests.faces.channels.client import Channels
from tests.faces.connections import Connection, request_bytes
from tests.websockets import masked

UPGRADE: Mapping[str, str] = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
TEXT, CLOSE, PING, PONG = 1, 8, 9, 10


class Consumer:
    """A connection to which messages are pushed."""

    path: str
    status: str
    headers: Mapping[str, str] = MappingProxyType({})

    def __init__(self, channels: Channels, channel: str = "alerts", **query: Any) -> None:
        self.connection = Connection(channels.url)
        more = query.pop("headers", {})
        path = f"{self.path}?{urlencode({'channel': channel} | query)}"
        self.connection.send(channels.encode("GET", path, headers={**self.headers, **more}))
        self.head = self.connection.head()
        assert self.head.startswith(self.status), self.head

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def message(self) -> dict[str, Any]:
        """The next message, with the id of its event as ``event``."""
        raise NotImplementedError

    def messages(self, count: int) -> list[dict[str, Any]]:
        return [self.message() for _ in range(count)]

    def payloads(self, count: int) -> list[Any]:
        return [one["payload"] for one in self.messages(count)]


class Socket(Consumer):
    """A WebSocket."""

    path = "/v1/messages/socket"
    status = "HTTP/1.1 101 "
    headers = UPGRADE

    def frame(self) -> tuple[int, bytes]:
        """Opcode and payload of the next frame."""
        first, second = self.connection.exactly(2)
        assert first & 0x70 == second & 0x80 == 0
        size = second
        if second > 125:
            size = int.from_bytes(self.connection.exactly(2 if second == 126 else 8), "big")
        return first & 0x0F, self.connection.exactly(size)

    def said(self) -> dict[str, Any]:
        """The next text; pings are answered."""
        found = None
        while found is None:
            found = self._text()
        return found

    def said_within(self, seconds: float) -> dict[str, Any] | None:
        """The same, if anything comes so soon."""
        found = None
        while found is None and self.connection.is_readable(seconds):
            found = self._text()
        return found

    def _text(self) -> dict[str, Any] | None:
        """Read the next frame and return its content; answer a ping and return None."""
        opcode, payload = self.frame()
        if opcode == PING:
            self.send(PONG, payload)
            return None
        assert opcode == TEXT, (opcode, payload)
        found: dict[str, Any] = json.loads(payload)
        return found

    def message(self) -> dict[str, Any]:
        found = self.said()
        assert found.pop("type") == "message", found
        return found

    def results(self) -> list[str]:
        found = self.said()
        assert found["type"] == "results", found
        return [one["result"] for one in found["results"]]

    def refusal(self) -> tuple[int, str]:
        found = self.said()
        assert found["type"] == "error", found
        return found["status"], found["error"]

    def say(self, **members: Any) -> None:
        """A text."""
        self.send(TEXT, json.dumps(members).encode())

    def send(self, opcode: int, payload: bytes) -> None:
        self.connection.send(masked(opcode, payload))

    def close_code(self) -> int:
        """Of the close frame that comes next; then the connection ends."""
        while True:
            opcode, payload = self.frame()
            if opcode == CLOSE:
                break
        assert self.connection.ends()
        return int.from_bytes(payload[:2], "big")


class Stream(Consumer):
    """A stream of events."""

    path = "/v1/messages/stream"
    status = "HTTP/1.1 200 "

    def block(self) -> dict[str, str]:
        """The fields of what comes before the next empty line; of a comment none."""
        lines = self.connection.until(b"\n\n").decode().split("\n")
        fields = [line.partition(": ") for line in lines if not line.startswith(":")]
        return {name: value for name, _, value in fields}

    def message(self) -> dict[str, Any]:
        block = self.block()
        while "data" not in block:
            block = self.block()
        found: dict[str, Any] = json.loads(block["data"])
        return found | {"event": block["id"]}


def plain_answer(channels: Channels, path: str, **headers: str) -> int:
    """The status of an answer to a GET without credentials in the header."""
    with Connection(channels.url) as connection:
        named = {"Host": connection.host, **headers}
        connection.send(request_bytes("GET", path, named))
        return int(connection.head().split()[1])
