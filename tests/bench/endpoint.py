"""A web hook that costs little: `python -m tests.bench.endpoint COUNT` listens on COUNT ports.

Every POST is answered with 200 and nothing. The ports go to stdout as a JSON list; a GET of any
path returns what came in so far. Ends with its standard input.
"""

import asyncio
import json
import re
import sys
from time import perf_counter
from typing import cast

import uvloop

HOST = "127.0.0.1"
NUMBERED = re.compile(rb"number-(\d{12})")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_MESSAGE_ID = re.compile(rb"\r\nx-amz-sns-message-id: *([^\r]+)", re.IGNORECASE)
_CONFIRMATION = re.compile(
    rb"\r\nx-amz-sns-message-type: *SubscriptionConfirmation\r\n", re.IGNORECASE
)
_EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Seen:
    """The requests that arrived at all ports together."""

    def __init__(self) -> None:
        self.requests = 0
        self.last_at = 0.0
        self.deliveries: set[tuple[int, bytes]] = set()
        self.arrivals: list[tuple[int, float]] = []
        self.confirm_urls: list[str] = []

    def take(self, port: int, head: bytes, body: bytes) -> None:
        """Note one POST. `number-` and twelve digits in it: its time, too."""
        if _CONFIRMATION.search(head):
            self.confirm_urls.append(json.loads(body)["SubscribeURL"])
            return
        self.requests += 1
        self.last_at = perf_counter()
        found = _MESSAGE_ID.search(head)
        self.deliveries.add((port, found.group(1) if found else b""))
        number = NUMBERED.search(body)
        if number:
            self.arrivals.append((int(number.group(1)), self.last_at))

    def told(self) -> bytes:
        """Return all of it as an answer; arrivals and links to confirm are told once."""
        told = {
            "requests": self.requests,
            "deliveries": len(self.deliveries),
            "last_at": self.last_at,
            "arrivals": self.arrivals,
            "confirm_urls": self.confirm_urls,
        }
        self.arrivals, self.confirm_urls = [], []
        body = json.dumps(told).encode()
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


class Hook(asyncio.Protocol):
    """One connection."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._buffer = b""
        self._port = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._port = transport.get_extra_info("sockname")[1]

    def data_received(self, data: bytes) -> None:
        data = self._buffer + data
        end = data.find(b"\r\n\r\n")
        length = _LENGTH.search(data, 0, end + 2) if end >= 0 else None
        missing = end < 0 or (length and len(data) < end + 4 + int(length.group(1)))
        self._buffer = data if missing else b""
        if missing or self._transport is None:
            return
        if data.startswith(b"GET "):
            self._transport.write(self._seen.told())
            return
        self._seen.take(self._port, data[: end + 2], data[end + 4 :])
        self._transport.write(_EMPTY)


async def serve(count: int) -> None:
    """Listen on so many ports until standard input ends."""
    loop = asyncio.get_running_loop()
    seen = Seen()
    servers = [await loop.create_server(lambda: Hook(seen), HOST, 0) for _ in range(count)]
    print(json.dumps([server.sockets[0].getsockname()[1] for server in servers]), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    for server in servers:
        server.close()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
