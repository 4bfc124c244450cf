"""What all clients of a process may have open and under way together, and what they have."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass


@dataclass(slots=True, eq=False, kw_only=True)
class Traffic:
    """Connections, and the bytes of requests that are not answered and of answers that are not
    read. What of it is on one connection has bounds of its own; these are for all of them.

    ``is_full``: nobody's next request is taken until there is less.
    """

    most_bytes: int = 1 << 40
    most_clients: int = 1 << 40
    connections: int = 0
    held_bytes: int = 0
    is_full: bool = False
    refused_clients: int = 0
    """Connections above ``most_clients``."""
    refused_requests: int = 0
    """Requests that met ``is_full``."""
    unread_closed: int = 0
    """Connections that were closed for an answer that nobody read."""
    file_errors: int = 0
    """Times that the process was found without a file descriptor to spare."""

    def hold(self, size_bytes: int) -> None:
        """So many bytes more are under way; less when negative."""
        self.held_bytes += size_bytes
        self.is_full = self.held_bytes > self.most_bytes

    async def held(self, parts: list[bytes]) -> AsyncIterator[bytes]:
        """The parts of an answer; each counts until it is written, and is forgotten then."""
        left = sum(map(len, parts))
        self.hold(left)
        try:
            while parts:
                size = len(parts[0])
                yield parts.pop(0)
                left -= size
                self.hold(-size)
        finally:
            self.hold(-left)


class Reading:
    """The bytes of one request, which count until it is answered."""

    __slots__ = ("_traffic", "size_bytes")

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self.size_bytes = 0

    def add(self, size_bytes: int) -> bool:
        """Count bytes that came; whether they may stay."""
        self.size_bytes += size_bytes
        self._traffic.hold(size_bytes)
        if self._traffic.is_full:
            self._traffic.refused_requests += 1
        return not self._traffic.is_full

    def end(self) -> None:
        """The request is answered."""
        self._traffic.hold(-self.size_bytes)
        self.size_bytes = 0
