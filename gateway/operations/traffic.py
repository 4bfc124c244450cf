"""What all clients of a process may have open and under way together, and what they have."""

from __future__ import annotations


class Traffic:
    """Connections, and the bytes of requests that are not answered and of answers that are not
    read. What of it is on one connection has bounds of its own; these are for all of them.

    ``is_full``: nobody's next request is taken until there is less.
    """

    __slots__ = (
        "connections",
        "file_errors",
        "held_bytes",
        "is_full",
        "most_bytes",
        "most_clients",
        "refused_clients",
        "refused_requests",
        "unread_closed",
    )

    def __init__(self, *, most_bytes: int = 1 << 40, most_clients: int = 1 << 40) -> None:
        self.most_bytes = most_bytes
        self.most_clients = most_clients
        self.connections = 0
        self.held_bytes = 0
        self.is_full = False
        self.refused_clients = 0
        """Connections above ``most_clients``."""
        self.refused_requests = 0
        """Requests that met ``is_full``."""
        self.unread_closed = 0
        """Connections that were closed for an answer that nobody read."""
        self.file_errors = 0
        """Times that the process was found without a file descriptor to spare."""

    def hold(self, size_bytes: int) -> None:
        """So many bytes more are under way; less when negative."""
        self.held_bytes += size_bytes
        self.is_full = self.held_bytes > self.most_bytes


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
