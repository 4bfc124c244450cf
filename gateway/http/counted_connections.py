"""Counts connections, and closes those whose clients do not read their answers.

This protocol class is between uvicorn's and ``connections.HttpConnection``. It runs when
connections open and close, and when a client reads more slowly than the gateway writes. Requests
that are read and answered at once do not use it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
from asyncio import Transport
from asyncio.events import TimerHandle
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from queuegate.gateway.log_lines import RateLimitedLogger
from queuegate.gateway.operations.runtime.traffic import Traffic, unverified

_log = logging.getLogger("queuegate.connections")

_TOO_MANY = (
    b"content-type: text/plain\r\ncontent-length: 22\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
    b"Too many connections.\n"
)
_MOST_FILES = 1 << 20
_FILES_OF_OUR_OWN = 64

_too_many = RateLimitedLogger(10.0)
_unread = RateLimitedLogger(10.0)
_without_files = RateLimitedLogger(10.0)


class CountedProtocol(HttpToolsProtocol):
    """A connection within the limit of a process."""

    traffic: Traffic
    unread_seconds = 30.0
    """Interval of checks of an unread answer."""
    least_rate = 16_384
    """Least bytes per second that a client must read of an answer, or send of a long body."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._unread_bytes = 0
        self._unread_share = ""
        self._unread_timer: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Count the connection, or refuse it above the limit."""
        super().connection_made(transport)
        traffic = self.traffic
        traffic.connections = len(self.connections)
        if traffic.connections > traffic.most_clients:
            traffic.refused_clients += 1
            _too_many.warn(_log, "more than %d connections: refused", traffic.most_clients)
            transport.write(STATUS_LINE[503] + _TOO_MANY)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting unread bytes."""
        self._count_unread(0)
        super().connection_lost(exc)
        self.traffic.connections = len(self.connections)

    def pause_writing(self) -> None:
        """Start counting the unread bytes of a slow client."""
        super().pause_writing()
        self._unread_share = self.share()
        self._count_unread(self.transport.get_write_buffer_size())
        if self._unread_timer is None:
            self._unread_timer = self.loop.call_later(self.unread_seconds, self._check_unread)

    def resume_writing(self) -> None:
        """Stop counting: the client has read nearly all."""
        super().resume_writing()
        self._count_unread(0)

    def share(self) -> str:
        """Return the fair share that unread bytes count for."""
        return self.address_share()

    def address_share(self) -> str:
        """Return the fair share of the peer's address."""
        return unverified(self.client[0] if self.client else "")

    def least_read_bytes(self) -> float:
        """Return how many bytes of an answer a client must read in ``unread_seconds``."""
        return self.least_rate * self.unread_seconds

    def _count_unread(self, size_bytes: int) -> None:
        change = size_bytes - self._unread_bytes
        self.traffic.hold(change, self._unread_share, is_answer=True)
        self._unread_bytes = size_bytes
        if not size_bytes and self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def _check_unread(self) -> None:
        """Close the connection if the client has read too little since the last check."""
        self._unread_timer = None
        before, now = self._unread_bytes, self.transport.get_write_buffer_size()
        if now > before - self.least_read_bytes():
            self.traffic.unread_closed += 1
            _unread.warn(
                _log, "an answer was read too slowly for %g s: closed", self.unread_seconds
            )
            self.hang_up_unread()
            return
        self._count_unread(now)
        self._unread_timer = self.loop.call_later(self.unread_seconds, self._check_unread)

    def peer(self) -> str:
        """Return the peer's address for logs."""
        if not self.client:
            return "a client"
        host, port = self.client
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def hang_up_unread(self) -> None:
        """Close the connection of a client that does not read."""
        self.transport.abort()


def room_for_clients(wanted: int | None, own_files: int) -> int:
    """Return the most clients of this process: ``wanted``, or as the limit of open files allows.

    Raises that limit as far as possible. ``own_files`` are files for the database and web hooks.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    files = _MOST_FILES if soft == resource.RLIM_INFINITY else soft
    room = max(files - own_files - _FILES_OF_OUR_OWN, files // 2)
    if wanted is None:
        return room
    if wanted > room:
        _log.warning("%d clients may not fit: the limit of open files is %d", wanted, files)
    return wanted


def look_for_files(traffic: Traffic, descriptor: int) -> None:
    """Log when no file descriptors are left. The system then closes new connections at once, and
    nothing else reports it."""
    try:
        os.close(os.dup(descriptor))
    except OSError as error:
        traffic.file_errors += 1
        _without_files.warn(_log, "no connection can be taken: %s (see ulimit -n)", error.strerror)
