"""A small HTTP/1.1 client on a bare socket: what is sent, in how many pieces, is ours to say."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

PATIENCE_SECONDS = 40.0


class Closed(Exception):
    """The server closed the connection before a whole answer had come."""


@dataclass(frozen=True)
class Answer:
    """One response. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


def _anybodys() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Connection:
    """One connection to a gateway, by TLS where the URL says so: whose certificate it is does not
    matter unless ``tls`` says so."""

    def __init__(self, url: str, source: str = "", tls: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url)
        self.host = parts.netloc
        address = (parts.hostname or "", parts.port or 80)
        self._socket = socket.create_connection(address, PATIENCE_SECONDS, (source, 0))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if parts.scheme == "https":
            # It is closed with the other, or when hands cannot be shaken.
            context = tls or _anybodys()
            self._socket = context.wrap_socket(self._socket, server_hostname=parts.hostname)
        self._read = b""

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close at once, as a client that goes away."""
        self._socket.close()

    def reset(self) -> None:
        """Close with a reset, as a client that was killed with unread data."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def end_sending(self) -> None:
        """Say that nothing more will come; answers still may."""
        self._socket.shutdown(socket.SHUT_WR)

    def send(self, data: bytes) -> None:
        """One write: on the loopback device the gateway reads it in one piece, up to 64 KiB."""
        self._socket.sendall(data)

    def send_pieces(self, pieces: Iterable[bytes]) -> None:
        """Many writes, some of which the gateway sees alone."""
        for piece in pieces:
            self._socket.sendall(piece)

    def answer(self, *, to_head: bool = False) -> Answer:
        """The next response, interim ones left out; Closed when the server hangs up instead."""
        while True:
            head = self.until(b"\r\n\r\n").decode("latin-1")
            first, *lines = head.split("\r\n")
            status = int(first.split(" ")[1])
            if status != 100:
                break
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        length = 0 if to_head or status == 204 else self._length(headers)
        body = self.exactly(length) if length >= 0 else self._chunks()
        return Answer(status, headers, body)

    def head(self) -> str:
        """The head of an answer, without its last line end: what is behind it is ``some`` bytes."""
        return self.until(b"\r\n\r\n").decode("latin-1")

    def some(self, wanted: bytes) -> bool:
        """Read until these bytes have come, of an answer that goes on; Closed when they do not."""
        self.until(wanted)
        return True

    def rest(self) -> bytes:
        """Read until the server closes the connection."""
        with contextlib.suppress(Closed):
            while True:
                self._more()
        return self._read

    def is_readable(self, seconds: float) -> bool:
        """Return True if bytes are there or arrive within so many seconds."""
        return bool(self._read or select.select([self._socket], [], [], seconds)[0])

    def ends(self) -> bool:
        """Return True if the server closes the connection without a further byte."""
        if self._read:
            return False
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    @staticmethod
    def _length(headers: Mapping[str, str]) -> int:
        if headers.get("transfer-encoding") == "chunked":
            return -1
        return int(headers.get("content-length", "0"))

    def _chunks(self) -> bytes:
        parts = []
        while size := int(self.until(b"\r\n"), 16):
            parts.append(self.exactly(size))
            self.exactly(2)
        self.exactly(2)
        return b"".join(parts)

    def until(self, mark: bytes) -> bytes:
        """Read up to these bytes and return what precedes them; raise Closed if they never come."""
        while mark not in self._read:
            self._more()
        found, _, self._read = self._read.partition(mark)
        return found

    def exactly(self, size: int) -> bytes:
        """So many bytes."""
        while len(self._read) < size:
            self._more()
        found, self._read = self._read[:size], self._read[size:]
        return found

    def _more(self) -> None:
        try:
            data = self._socket.recv(1 << 20)
        except ConnectionResetError:
            data = b""
        if not data:
            raise Closed(f"after {self._read!r}")
        self._read += data


def request_bytes(
    method: str, target: str, headers: Mapping[str, str], body: bytes = b"", *, version: str = "1.1"
) -> bytes:
    """A request as it goes over the wire; Content-Length is added where there is a body."""
    lines = [f"{method} {target} HTTP/{version}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    named = {name.lower() for name in headers}
    if (body or method == "POST") and not named & {"content-length", "transfer-encoding"}:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def fetch(url: str, target: str, method: str = "GET", body: bytes = b"", **more: str) -> Answer:
    """Send one request on a connection of its own, without credentials; ``more``: headers."""
    with contextlib.closing(Connection(url)) as connection:
        headers = {"Host": connection.host, "Connection": "close", **more}
        connection.send(request_bytes(method, target, headers, body))
        return connection.answer()
