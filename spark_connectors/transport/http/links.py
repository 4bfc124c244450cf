"""HTTP connections to one endpoint, kept open between requests and shared by threads.

http.client opens them: TLS with verification of certificates, tunnels through proxies. Requests and
answers are ours: http.client reads headers as if they were mail, which costs more than the rest of
a call together.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import time
from collections import deque
from http.client import HTTPConnection, HTTPException, HTTPSConnection

from spark_connectors.errors import ConnectorError
from spark_connectors.transport.http.answers import Answer, Closed, Stream, read_answer
from spark_connectors.transport.http.endpoints import Endpoint
from spark_connectors.transport.http.proxies import proxy_for
from spark_connectors.transport.http.retries import Passing

_CONNECT_SECONDS = 5.0
# Shorter than the patience of balancers and firewalls, which forget idle connections silently.
_IDLE_SECONDS = 60.0
_MOST_IDLE = 64
_GONE = (Closed, ConnectionResetError, BrokenPipeError, ssl.SSLEOFError, ssl.SSLZeroReturnError)


class _Link:
    """One open connection."""

    def __init__(self, connection: HTTPConnection) -> None:
        self._connection = connection
        self.socket: socket.socket = connection.sock
        self.stream = Stream(self.socket)
        self.idle_since = time.monotonic()
        self._arrivals = select.poll()
        self._arrivals.register(self.socket, select.POLLIN)

    def is_usable(self) -> bool:
        """Whether it looks open. Something to read before we asked is the end, or out of step."""
        is_fresh = time.monotonic() - self.idle_since < _IDLE_SECONDS
        return is_fresh and not self._arrivals.poll(0)

    def ask(self, request: bytes, timeout_seconds: float) -> tuple[Answer, bool]:
        """The answer, and whether the connection can be used again."""
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


class Links:
    """Connections to one endpoint. ``ca_bundle``: a file of certificates to trust instead of the
    system's; ``bundle_name`` is what names it, for messages. Raises ConnectorError for a bundle
    that cannot be read, or a proxy we cannot use."""

    def __init__(self, endpoint: Endpoint, ca_bundle: str | None, bundle_name: str) -> None:
        self._endpoint = endpoint
        self._bundle_name = bundle_name
        self._context = _tls_context(ca_bundle) if endpoint.is_secure else None
        self._proxy = proxy_for(endpoint)
        self._idle: deque[_Link] = deque()
        self._process = os.getpid()
        self._generation = 0
        self._origin = ""
        lines = {"Host": endpoint.authority}
        if self._proxy is not None and not endpoint.is_secure:
            # Without a tunnel a proxy wants the whole URL, and its password in each request.
            self._origin = f"http://{endpoint.authority}"
            lines |= self._proxy.headers
        lines |= {"Accept-Encoding": "identity", "User-Agent": "queuegate-spark"}
        self._lines = "".join([f"{name}: {value}\r\n" for name, value in lines.items()])

    def ask(
        self, method: str, target: str, headers: str, body: bytes, *, timeout_seconds: float
    ) -> Answer:
        """The answer to a request with these header lines; ``target`` is its path and query.

        Raises Passing without an answer, ConnectorError for a certificate that is not trusted. A
        kept connection that turns out to be closed is replaced at once and the request sent again,
        although the server may have worked on it: so may it have before every retry.
        """
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
            raise Passing("no answer in time") from error
        except (OSError, HTTPException) as error:
            raise Passing(f"{type(error).__name__}: {error}") from error

    def _answer(self, request: bytes, timeout_seconds: float) -> Answer:
        link = self._kept()
        if link is not None:
            try:
                return self._exchange(link, request, timeout_seconds)
            except _GONE:
                pass
        return self._exchange(self._open(), request, timeout_seconds)

    def close(self) -> None:
        """Close what is idle; what is in use is closed when its answer is there."""
        self._generation += 1
        while self._idle:
            self._idle.pop().close()

    def _kept(self) -> _Link | None:
        if self._process != os.getpid():
            # A fork has its parent's sockets: both would read each other's answers.
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

    def _exchange(self, link: _Link, request: bytes, timeout_seconds: float) -> Answer:
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

    def _open(self) -> _Link:
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
            return _Link(connection)
        except BaseException:
            connection.close()
            raise


def _tls_context(ca_bundle: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_bundle)
    except OSError as error:
        raise ConnectorError(f"certificates in '{ca_bundle}' cannot be read: {error}") from error
