"""HTTP connections to one endpoint, kept open between requests and shared by threads.

http.client opens them: TLS with verification of certificates, tunnels through proxies. This module
writes requests and reads answers itself: http.client parses headers as mail, which costs more than
the rest of a call together.
"""

from __future__ import annotations

import base64
import os
import select
import socket
import ssl
import time
import urllib.request
from collections import deque
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from spark_connectors.endpoints import NO_CONTENT, OK, HttpAnswer, ServiceEndpoint, TransientFailure
from spark_connectors.errors import ConnectorError


class Proxy(NamedTuple):
    """A proxy's address and the headers that it requires: empty without a password. Only code that
    opens connections should read the headers."""

    host: str
    port: int
    headers: dict[str, str]


def proxy_for(endpoint: ServiceEndpoint) -> Proxy | None:
    """Return the proxy to an endpoint, from HTTPS_PROXY, HTTP_PROXY and NO_PROXY; None: direct.
    Raises ConnectorError for a proxy that does not use plain HTTP."""
    scheme = "https" if endpoint.is_secure else "http"
    url = urllib.request.getproxies().get(scheme)
    if not url or urllib.request.proxy_bypass(endpoint.authority):
        return None
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme != "http" or not parts.hostname:
        raise ConnectorError(
            f"the proxy on the way to {endpoint.url} is no http:// one: set HTTPS_PROXY to one, or "
            "list the host in NO_PROXY"
        )
    headers = {}
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Proxy-Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return Proxy(parts.hostname, parts.port or 80, headers)


_LONGEST_HEAD = 65_536
_MOST_BYTES = 64 * 1024 * 1024
# Fits ten short messages: each receive allocates that much.
_RECEIVE_BYTES = 32_768
_MOST_AT_ONCE = 1024 * 1024


class Garbled(ConnectionError):
    """The bytes are no complete HTTP answer."""


class ConnectionEnded(ConnectionError):
    """The server closed the connection before it answered anything."""


class AnswerStream:
    """The bytes that a socket receives. Raises Garbled when they end too early, OSError as sockets
    do."""

    def __init__(self, source: socket.socket) -> None:
        self._source = source
        self._buffer = b""

    @property
    def is_drained(self) -> bool:
        """True if all received bytes have been read."""
        return not self._buffer

    def has_any(self) -> bool:
        """Wait for bytes; False at the end."""
        if not self._buffer:
            self._buffer = self._source.recv(_RECEIVE_BYTES)
        return bool(self._buffer)

    def until(self, mark: bytes) -> bytes:
        """Return the bytes before the mark, and skip the mark."""
        while (end := self._buffer.find(mark)) < 0:
            more = self._source.recv(_RECEIVE_BYTES)
            if not more or len(self._buffer) > _LONGEST_HEAD:
                raise Garbled("the answer is not HTTP")
            self._buffer += more
        found = self._buffer[:end]
        self._buffer = self._buffer[end + len(mark) :]
        return found

    def exactly(self, count: int) -> bytes:
        """Return that many bytes."""
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
        """Return everything up to the end."""
        parts, length = [self._buffer], len(self._buffer)
        self._buffer = b""
        while more := self._source.recv(_RECEIVE_BYTES):
            parts.append(more)
            length = _checked(length + len(more))
        return b"".join(parts)


def read_answer(stream: AnswerStream) -> tuple[HttpAnswer, bool]:
    """Return the answer to a request, and True if another may follow on this connection. Raises
    ConnectionEnded when there is none, Garbled for an incomplete one."""
    if not stream.has_any():
        raise ConnectionEnded("the server closed the connection")
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
    return HttpAnswer(status, headers, body), keeps_open and stream.is_drained


def _read_head(stream: AnswerStream) -> tuple[str, int, dict[str, str]]:
    first, *lines = stream.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
        raise Garbled("the answer is not HTTP")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return version, int(rest[:3]), headers


def _read_chunks(stream: AnswerStream) -> bytes:
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


_CONNECT_SECONDS = 5.0
# Shorter than the timeouts of balancers and firewalls, which drop idle connections silently.
_IDLE_SECONDS = 60.0
_MOST_IDLE = 64
_GONE = (
    ConnectionEnded,
    ConnectionResetError,
    BrokenPipeError,
    ssl.SSLEOFError,
    ssl.SSLZeroReturnError,
)


class _PooledConnection:
    """One open connection."""

    def __init__(self, connection: HTTPConnection) -> None:
        self._connection = connection
        self.socket: socket.socket = connection.sock
        self.stream = AnswerStream(self.socket)
        self.idle_since = time.monotonic()
        self._arrivals = select.poll()
        self._arrivals.register(self.socket, select.POLLIN)

    def is_usable(self) -> bool:
        """Return True if it seems open. Bytes before a request mean the end, or are out of step."""
        is_fresh = time.monotonic() - self.idle_since < _IDLE_SECONDS
        return is_fresh and not self._arrivals.poll(0)

    def ask(self, request: bytes, timeout_seconds: float) -> tuple[HttpAnswer, bool]:
        """Return the answer, and True if the connection can be used again."""
        self.socket.settimeout(timeout_seconds)
        try:
            self.socket.sendall(request)
        except (BrokenPipeError, ConnectionResetError):
            # A server that refuses a long request early has answered before it closed.
            if not self.stream.has_any():
                raise
        return read_answer(self.stream)

    def close(self) -> None:
        self._connection.close()


class HttpConnectionPool:
    """Connections to one endpoint. ``ca_bundle``: a file of certificates to trust instead of the
    system's; ``bundle_name``: its setting, for messages. Raises ConnectorError for a bundle that
    cannot be read, or an unusable proxy."""

    def __init__(self, endpoint: ServiceEndpoint, ca_bundle: str | None, bundle_name: str) -> None:
        self._endpoint = endpoint
        self._bundle_name = bundle_name
        try:
            is_secure = endpoint.is_secure
            self._context = ssl.create_default_context(cafile=ca_bundle) if is_secure else None
        except OSError as error:
            raise ConnectorError(
                f"certificates in '{ca_bundle}' cannot be read: {error}"
            ) from error
        self._proxy = proxy_for(endpoint)
        self._idle: deque[_PooledConnection] = deque()
        self._process = os.getpid()
        self._generation = 0
        self._origin = ""
        lines = {"Host": endpoint.authority}
        if self._proxy is not None and not endpoint.is_secure:
            # Without a tunnel a proxy needs the whole URL, and its password in each request.
            self._origin = f"http://{endpoint.authority}"
            lines |= self._proxy.headers
        lines |= {"Accept-Encoding": "identity", "User-Agent": "queuegate-spark"}
        self._lines = "".join([f"{name}: {value}\r\n" for name, value in lines.items()])

    def ask(
        self, method: str, target: str, headers: str, body: bytes, *, timeout_seconds: float
    ) -> HttpAnswer:
        """Return the answer to a request with these header lines; ``target`` is its path and query.
        Raises TransientFailure without an answer, ConnectorError for an untrusted certificate. If a
        kept connection turns out to be closed, the request is sent again at once on a new one,
        although the server may have processed it, as before every retry."""
        start = f"{method} {self._origin}{target} HTTP/1.1\r\n{self._lines}{headers}"
        request = f"{start}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body
        try:
            return self._answer(request, timeout_seconds)
        except ssl.SSLCertVerificationError as error:
            raise ConnectorError(
                f"{self._endpoint.url} shows a certificate that is not trusted"
                f" ({error.verify_message}): {self._bundle_name} names a file of those that are"
            ) from error
        except TimeoutError as error:
            raise TransientFailure("no answer in time") from error
        except (OSError, HTTPException) as error:
            raise TransientFailure(f"{type(error).__name__}: {error}") from error

    def _answer(self, request: bytes, timeout_seconds: float) -> HttpAnswer:
        link = self._kept()
        if link is not None:
            try:
                return self._exchange(link, request, timeout_seconds)
            except _GONE:
                pass
        return self._exchange(self._open(), request, timeout_seconds)

    def close(self) -> None:
        """Close idle connections; a used one is closed after its answer."""
        self._generation += 1
        while self._idle:
            self._idle.pop().close()

    def _kept(self) -> _PooledConnection | None:
        if self._process != os.getpid():
            # A fork shares its parent's sockets: both would read each other's answers.
            self._idle = deque()
            self._process = os.getpid()
        while True:
            try:
                link = self._idle.pop()
            except IndexError:
                return None
            if link.is_usable():
                return link
            link.close()

    def _exchange(
        self, link: _PooledConnection, request: bytes, timeout_seconds: float
    ) -> HttpAnswer:
        generation = self._generation
        try:
            answer, keeps_open = link.ask(request, timeout_seconds)
        except BaseException:
            link.close()
            raise
        if keeps_open and generation == self._generation and len(self._idle) < _MOST_IDLE:
            link.idle_since = time.monotonic()
            self._idle.append(link)
        else:
            link.close()
        return answer

    def _open(self) -> _PooledConnection:
        endpoint, proxy = self._endpoint, self._proxy
        host, port = (endpoint.host, endpoint.port) if proxy is None else proxy[:2]
        if self._context is None:
            connection = HTTPConnection(host, port, timeout=_CONNECT_SECONDS)
        else:
            connection = HTTPSConnection(
                host, port, timeout=_CONNECT_SECONDS, context=self._context
            )
            if proxy is not None:
                connection.set_tunnel(endpoint.host, endpoint.port, proxy.headers)
        try:
            connection.connect()
            return _PooledConnection(connection)
        except BaseException:
            connection.close()
            raise
