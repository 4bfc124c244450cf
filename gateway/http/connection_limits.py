"""Limits of connections: their number, deadlines of requests, and clients that read too slowly.

This protocol class is between uvicorn's and ``HttpConnection``. It runs when connections open and
close, and for requests or clients that are slow.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import resource
from asyncio import Transport
from asyncio.events import TimerHandle
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from queuegate.gateway.http.admission import Headers, Origins
from queuegate.gateway.operations.access.caller import RequestOrigin
from queuegate.gateway.operations.runtime.traffic import Traffic, unverified

_log = logging.getLogger("queuegate.connections")

_TOO_MANY = (
    b"content-type: text/plain\r\ncontent-length: 22\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
    b"Too many connections.\n"
)
_MOST_FILES = 1 << 20
_FILES_OF_OUR_OWN = 64

_TROUBLE_SECONDS = 60.0

_SHORT_BODY_BYTES = 65_536


class LimitedConnection(HttpToolsProtocol):
    """A connection within the limit of a process, with deadlines for its requests."""

    traffic: Traffic
    origins: Origins
    unread_seconds = 30.0
    """Interval of checks of an unread answer."""
    least_rate = 16_384
    """Least bytes per second that a client must read of an answer, or send of a long body."""

    reading_seconds = 60.0
    """Longest time from the first to the last byte of a head, or of a request of up to 64 KiB.
    A new connection may be silent as long."""
    body_seconds = 15.0
    """Interval of checks of a longer body, which must arrive at ``least_rate``."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._unread_bytes = 0
        self._unread_share = ""
        self._unread_timer: TimerHandle | None = None
        self._reading_since = 0.0
        self._reading_timer: TimerHandle | None = None
        self._body_bytes = self._body_bytes_before = 0

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Count the connection, or refuse it above the limit."""
        super().connection_made(transport)
        traffic = self.traffic
        traffic.connections = len(self.connections)
        if traffic.connections > traffic.most_clients:
            traffic.refused_clients += 1
            traffic.note(f"more than {traffic.most_clients} connections: refused")
            transport.write(STATUS_LINE[503] + _TOO_MANY)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer, and count no more unread bytes."""
        if self._reading_timer is not None:
            self._reading_timer.cancel()
            self._reading_timer = None
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

    def origin(self, headers: Headers) -> RequestOrigin:
        """Return the origin of a request with these headers."""
        return self.origins.of(self.client, self.scheme or "http", headers)

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
            seconds = self.unread_seconds
            self.traffic.note(f"an answer was read too slowly for {seconds:g} s: closed")
            self.close_unread()
            return
        self._count_unread(now)
        self._unread_timer = self.loop.call_later(self.unread_seconds, self._check_unread)

    def peer(self) -> str:
        """Return the peer's address for logs."""
        if not self.client:
            return "a client"
        host, port = self.client
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def close_unread(self) -> None:
        """Close the connection of a client that does not read."""
        self.transport.abort()

    def _count_body(self, size_bytes: int) -> None:
        before = self._body_bytes
        self._body_bytes += size_bytes
        if before <= _SHORT_BODY_BYTES < self._body_bytes:
            self._watch_body()

    def _begin_reading(self) -> None:
        """Start the deadline. One timer serves many requests: fast ones only reset its time."""
        self._reading_since = self.loop.time()
        self._body_bytes = self._body_bytes_before = 0
        if self._reading_timer is None:
            self._reading_timer = self.loop.call_later(self.reading_seconds, self._check_reading)

    def _watch_body(self) -> None:
        """Check a long body from now on."""
        self._body_bytes_before = self._body_bytes
        self._reading_since = self.loop.time()
        if self._reading_timer is not None:
            self._reading_timer.cancel()
        self._reading_timer = self.loop.call_later(self.body_seconds, self._check_reading)

    def _check_reading(self) -> None:
        """Close a connection whose request is late or too slow."""
        self._reading_timer = None
        since = self._reading_since
        if not since:
            return
        is_long = self._body_bytes_before > 0
        if is_long and self._came_in_time():
            self._watch_body()
            return
        seconds = self.body_seconds if is_long else self.reading_seconds
        left = since + seconds - self.loop.time()
        if left > 0.0:
            self._reading_timer = self.loop.call_later(left, self._check_reading)
        else:
            self.transport.close()

    def _came_in_time(self) -> bool:
        came = self._body_bytes - self._body_bytes_before
        # While reading is paused no data can arrive.
        return self.flow.read_paused or came >= self.least_rate * self.body_seconds


def client_capacity(wanted: int | None, own_files: int) -> int:
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


class TroubleLog:
    """Logs refusals and closed connections: one line a minute for each kind, with their number.

    Clients can provoke them without end.
    """

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._logged_at: dict[str, float] = {}

    def look(self, now: float) -> None:
        """Log what was noted, unless its kind was logged in the last minute."""
        troubles = self._traffic.troubles
        for text, count in list(troubles.items()):
            if now >= self._logged_at.get(text, -math.inf) + _TROUBLE_SECONDS:
                self._logged_at[text] = now
                del troubles[text]
                times = "" if count == 1 else f" ({count} times since the last such line)"
                _log.warning("%s%s", text, times)


def check_descriptors(traffic: Traffic, descriptor: int) -> None:
    """Note when no file descriptors are left. The system then closes new connections at once, and
    nothing else reports it."""
    try:
        os.close(os.dup(descriptor))
    except OSError as error:
        traffic.file_errors += 1
        traffic.note(f"no connection can be taken: {error.strerror} (see ulimit -n)")
