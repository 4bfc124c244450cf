"""Reading HTTP/1.1 answers from a socket."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import NamedTuple

OK, NO_CONTENT = 200, 204
_LONGEST_HEAD = 65_536
_MOST_BYTES = 64 * 1024 * 1024
# Room for ten short messages: asking for more at once costs an allocation of that much.
_RECEIVE_BYTES = 32_768
_MOST_AT_ONCE = 1024 * 1024


class Answer(NamedTuple):
    """An HTTP answer; header names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Garbled(ConnectionError):
    """What came is no HTTP answer, or not the whole of one."""


class Closed(ConnectionError):
    """The server closed the connection before it answered anything."""


class Stream:
    """What a socket receives. Raises Garbled when it ends too early, OSError as sockets do."""

    def __init__(self, source: socket.socket) -> None:
        self._source = source
        self._buffer = b""

    @property
    def is_drained(self) -> bool:
        """Whether all that was received has been read."""
        return not self._buffer

    def has_any(self) -> bool:
        """Wait for something to read; False at the end."""
        if not self._buffer:
            self._buffer = self._source.recv(_RECEIVE_BYTES)
        return bool(self._buffer)

    def until(self, mark: bytes) -> bytes:
        """What comes before the mark; the mark is read too."""
        while (end := self._buffer.find(mark)) < 0:
            more = self._source.recv(_RECEIVE_BYTES)
            if not more or len(self._buffer) > _LONGEST_HEAD:
                raise Garbled("the answer is not HTTP")
            self._buffer += more
        found = self._buffer[:end]
        self._buffer = self._buffer[end + len(mark) :]
        return found

    def exactly(self, count: int) -> bytes:
        """That many bytes."""
        parts, missing = [self._buffer[:count]], count - len(self._buffer)
        self._buffer = self._buffer[count:]
        while missing > 0:
            more = self._source.recv(min(missing, _MOST_AT_ONCE))
            if not more:
                raise Garbled(f"the answer ended {missing} bytes too early")
            parts.append(more)
            missing -= len(more)
        return b"".join(parts)

    def rest(self) -> bytes:
        """Everything up to the end."""
        parts, length = [self._buffer], len(self._buffer)
        self._buffer = b""
        while more := self._source.recv(_RECEIVE_BYTES):
            parts.append(more)
            length = _checked(length + len(more))
        return b"".join(parts)


def read_answer(stream: Stream) -> tuple[Answer, bool]:
    """The answer to a request, and whether another may follow on this connection.

    Raises Closed when there is none, Garbled when it is no whole answer.
    """
    if not stream.has_any():
        raise Closed("the server closed the connection")
    version, status, headers = _read_head(stream)
    while status < OK:
        version, status, headers = _read_head(stream)
    keeps_open = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
    length = headers.get("content-length")
    if status == NO_CONTENT:
        body = b""
    elif "transfer-encoding" in headers:
        body = _read_chunks(stream)
    elif length is not None:
        body = stream.exactly(_number(length, 10))
    else:
        keeps_open = False
        body = stream.rest()
    return Answer(status, headers, body), keeps_open and stream.is_drained


def _read_head(stream: Stream) -> tuple[str, int, dict[str, str]]:
    first, *lines = stream.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
        raise Garbled("the answer is not HTTP")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return version, int(rest[:3]), headers


def _read_chunks(stream: Stream) -> bytes:
    parts, length = [], 0
    while size := _number(stream.until(b"\r\n").partition(b";")[0].decode("latin-1"), 16):
        length = _checked(length + size)
        parts.append(stream.exactly(size))
        stream.until(b"\r\n")
    while stream.until(b"\r\n"):
        pass
    return b"".join(parts)


def _number(text: str, base: int) -> int:
    try:
        return _checked(int(text, base))
    except ValueError:
        raise Garbled("the length of the answer is no number") from None


def _checked(length: int) -> int:
    if not 0 <= length <= _MOST_BYTES:
        raise Garbled(f"the answer is longer than {_MOST_BYTES} bytes")
    return length
