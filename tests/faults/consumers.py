"""A thousand consumers on WebSockets, what each got, and who finished what."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from typing import Any
from urllib.parse import urlsplit

from tests.faces.channels.pushing import PING, PONG, TEXT, UPGRADE
from tests.faces.connections import request_bytes
from tests.websockets import frames, masked

_CONNECTIONS_AT_ONCE = 50
_ACKS_AT_ONCE = 100


class Records:
    """The knowledge of all consumers together."""

    def __init__(self) -> None:
        self.received: dict[int, dict[int, Consumer]] = defaultdict(dict)
        """Message -> delivery -> who got it."""
        self.finished: dict[int, list[Consumer]] = defaultdict(list)
        """Message -> who was told that it had finished it."""
        self.unanswered: dict[str, int] = {}
        """Acknowledgement -> message, of those that were sent and not answered."""
        self.repeated: list[tuple[int, int]] = []
        """(message, delivery) that came a second time, or after the message was finished."""
        self.are_held = False
        """Whether nobody acknowledges for now."""


class Consumer(asyncio.Protocol):
    """One of them: it acknowledges what it gets, at once or when it may again."""

    def __init__(self, records: Records, account_header: str, path: str) -> None:
        self._records = records
        self._headers = {**UPGRADE, "Authorization": account_header}
        self._path = path
        self._data = bytearray()
        self._head_is_read = False
        self._transport: asyncio.Transport | None = None
        self._held: list[tuple[int, int, str]] = []
        self.event = ""
        self.is_open = asyncio.get_running_loop().create_future()

    async def connect(self, url: str) -> None:
        """Open a connection, behind the last event that it saw."""
        self.is_open = asyncio.get_running_loop().create_future()
        self._data.clear()
        self._head_is_read = False
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 80
        await asyncio.get_running_loop().create_connection(lambda: self, host, port)
        assert self._transport is not None
        path = f"{self._path}&last_event_id={self.event}"
        self._transport.write(request_bytes("GET", path, {"Host": parts.netloc, **self._headers}))
        await self.is_open

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        if not self._head_is_read:
            head, mark, rest = bytes(self._data).partition(b"\r\n\r\n")
            if not mark:
                return
            assert head.startswith(b"HTTP/1.1 101 "), head
            self._head_is_read = True
            self._data[:] = rest
            self.is_open.set_result(None)
        for opcode, payload in frames(self._data):
            if opcode == PING:
                self._send(PONG, payload)
            elif opcode == TEXT:
                self._take(json.loads(payload))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self.is_open.done():
            self.is_open.set_exception(exc or ConnectionError())

    def _take(self, said: dict[str, Any]) -> None:
        if said["type"] == "message":
            self.event = said["event"]
            number, deliveries = said["id"], said["deliveries"]
            before = self._records.received[number]
            if deliveries in before or number in self._records.finished:
                self._records.repeated.append((number, deliveries))
            before[deliveries] = self
            self._held.append((number, deliveries, said["ack"]))
            if not self._records.are_held:
                self.acknowledge()
            return
        assert said["type"] == "results", said
        for one in said["results"]:
            number = self._records.unanswered.pop(one["ack"])
            if one["result"] == "acknowledged":
                self._records.finished[number].append(self)

    def acknowledge(self) -> None:
        """Acknowledge what is held."""
        while self._held and self._transport is not None:
            some, self._held = self._held[:_ACKS_AT_ONCE], self._held[_ACKS_AT_ONCE:]
            self._records.unanswered.update({token: number for number, _, token in some})
            self._send(TEXT, json.dumps({"ack": [token for _, _, token in some]}).encode())
        self._held = []

    def _send(self, opcode: int, payload: bytes) -> None:
        if self._transport is not None:
            self._transport.write(masked(opcode, payload))

    def close(self) -> None:
        """Go away."""
        if self._transport is not None:
            self._transport.abort()


async def connect(consumers: list[Consumer], url: str) -> None:
    """Let all of them connect, some at a time."""
    for start in range(0, len(consumers), _CONNECTIONS_AT_ONCE):
        some = consumers[start : start + _CONNECTIONS_AT_ONCE]
        await asyncio.gather(*[consumer.connect(url) for consumer in some])
