"""TLS at the gateway's own port: the certificate, and the socket that does the handshakes.

An unfinished handshake costs a socket and a timer, and does not count as a connection. Both are
bounded: above the limit the oldest unfinished handshake is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from queuegate.gateway.log_lines import RateLimitedLogger

if TYPE_CHECKING:
    from queuegate.gateway.operations.runtime.traffic import Traffic

_log = logging.getLogger("queuegate.tls")

_HANDSHAKE_SECONDS = 10.0
_GOODBYE_SECONDS = 5.0
_LOOK_SECONDS = 1.0
_PAUSE_SECONDS = 1.0
_MOST_UNFINISHED = 1000
_LEAST_UNFINISHED = 16
_BACKLOG = 2048
_ACCEPTED_AT_ONCE = 64
_MOST_DROPPED_BYTES = 1_048_576
_MOST_FILE_BYTES = 1_048_576
_HANDSHAKE = b"\x16"
_SPOKEN = b"This port speaks TLS: ask it by https.\n"
_PLAIN = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n"
    b"connection: close\r\n\r\n%b" % (len(_SPOKEN), _SPOKEN)
)

_unfinished = RateLimitedLogger(60.0)


class UnusableCertificate(Exception):
    """The files are no certificate with its key. The text names the file, and shows no content."""


class Certificate:
    """A certificate and its key, from files that may be replaced while they are in use.

    ``context`` is for the listening socket. Raises UnusableCertificate.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = certificate, key
        self.pem = ""
        """The certificate in use, and its chain."""
        self._seen = self._state()
        self._current = self._read()
        self._refused = ""
        self.context = self._read()
        # Each handshake uses the current pair: certificate and key change together, and sessions
        # continue.
        self.context.sni_callback = self._choose

    def look(self) -> None:
        """Load a replaced pair. Log an invalid pair once, and do not use it."""
        state = self._state()
        if state == self._seen and not self._refused:
            return
        try:
            self._current = self._read()
        except UnusableCertificate as error:
            # Of files replaced one after the other, the pair may be valid at the next check.
            if state != self._seen or str(error) != self._refused:
                _log.error("the TLS certificate was changed, and is not taken: %s", error)
            self._seen, self._refused = state, str(error)
        else:
            self._seen, self._refused = state, ""
            _log.info("the TLS certificate was exchanged")

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Check the files every second during the block."""
        watching = asyncio.create_task(self._watch(), name="certificate")
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await asyncio.to_thread(self.look)

    def _choose(self, handshake: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
        handshake.context = self._current

    def _state(self) -> list[tuple[int, int, int, int] | None]:
        """Return a value that changes when a file, or a link's target, is replaced."""
        return [_stamp(path) for path in self._files]

    def _read(self) -> ssl.SSLContext:
        certificate, key = self._files
        pem = _content(certificate)
        if b"-----BEGIN CERTIFICATE-----" not in pem:
            raise UnusableCertificate(f"{certificate} holds no certificate in PEM")
        content = _content(key)
        if b"ENCRYPTED" in content:
            raise UnusableCertificate(f"{key} is encrypted: it has to be without a password")
        if b"PRIVATE KEY-----" not in content:
            raise UnusableCertificate(f"{key} holds no private key in PEM")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(certificate, key, password=lambda: b"")
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise UnusableCertificate(f"{key} is not the key of {certificate}") from None
            reason = error.reason or "they cannot be read"
            raise UnusableCertificate(f"{certificate} and {key}: {reason}") from None
        except OSError as error:
            raise UnusableCertificate(f"{certificate} and {key}: {error.strerror}") from None
        self.pem = pem.decode("latin-1")
        return context


class TlsListener:
    """A listening socket. After a handshake, the factory makes the connection's protocol."""

    def __init__(
        self,
        sock: socket.socket,
        certificate: Certificate,
        make_protocol: Callable[[], asyncio.Protocol],
        traffic: Traffic,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._certificate = certificate
        self._make_protocol = make_protocol
        self._traffic = traffic
        self._unfinished: dict[socket.socket, _Pending] = {}
        sock.listen(_BACKLOG)
        self._listen()

    def close(self) -> None:
        """Stop accepting, and close unfinished handshakes."""
        self._loop.remove_reader(self._sock)
        for pending in list(self._unfinished.values()):
            pending.leave()

    async def wait_closed(self) -> None:
        """Return at once: nothing is left to wait for."""

    def _listen(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                sock, _address = self._sock.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue
            except OSError:
                # ``look_for_files`` logs that no file descriptors are left. Pause first.
                self._loop.remove_reader(self._sock)
                self._loop.call_later(_PAUSE_SECONDS, self._listen)
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._close_oldest()
            self._unfinished[sock] = _Pending(self, sock)

    def _close_oldest(self) -> None:
        room = self._traffic.most_clients - self._traffic.connections
        most = max(min(_MOST_UNFINISHED, room), _LEAST_UNFINISHED)
        if len(self._unfinished) >= most:
            self._traffic.refused_clients += 1
            _unfinished.warn(_log, "more than %d unfinished handshakes: the oldest is closed", most)
            next(iter(self._unfinished.values())).leave()

    async def shake_hands(self, sock: socket.socket) -> None:
        """Make a connection of the socket, or close it."""
        try:
            await self._loop.connect_accepted_socket(
                self._make_protocol,
                sock,
                ssl=self._certificate.context,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=_GOODBYE_SECONDS,
            )
        except OSError as error:
            _log.debug("a handshake failed: %s", error)

    def forget(self, sock: socket.socket) -> None:
        """Remove a socket that became a connection or was closed."""
        self._unfinished.pop(sock, None)


class _Pending:
    """An accepted socket before its handshake."""

    def __init__(self, door: TlsListener, sock: socket.socket) -> None:
        self._door = door
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._shaking: asyncio.Task[None] | None = None
        self._dropped_bytes = 0
        self._timer = self._loop.call_later(_HANDSHAKE_SECONDS, self.leave)
        self._loop.add_reader(sock, self._look)

    def leave(self) -> None:
        """Close the socket."""
        if self._shaking is not None:
            # The transport owns the socket and handles its end.
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
            return
        self._timer.cancel()
        self._loop.remove_reader(self._sock)
        self._sock.close()
        self._door.forget(self._sock)

    def _look(self) -> None:
        """Detect the protocol by the first byte."""
        try:
            first = self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            first = b""
        if not first:
            self.leave()
        elif first == _HANDSHAKE:
            self._loop.remove_reader(self._sock)
            self._timer.cancel()
            self._shaking = self._loop.create_task(self._door.shake_hands(self._sock))
            self._shaking.add_done_callback(lambda _: self._door.forget(self._sock))
        elif first.isalpha():
            self._answer_plain()
        else:
            self.leave()

    def _answer_plain(self) -> None:
        """Answer a plain HTTP client. Drop its further data, so that it can read the answer."""
        try:
            self._sock.send(_PLAIN)
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.leave()
            return
        self._loop.remove_reader(self._sock)
        self._loop.add_reader(self._sock, self._drop)

    def _drop(self) -> None:
        try:
            data = self._sock.recv(65_536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._dropped_bytes += len(data)
        if not data or self._dropped_bytes > _MOST_DROPPED_BYTES:
            self.leave()


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_FILE_BYTES)
    except OSError as error:
        raise UnusableCertificate(f"{path} cannot be read: {error.strerror}") from None


def _stamp(path: Path) -> tuple[int, int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
