"""A cable between a browser and a gateway, which can be cut: connections of the browser break, and
the gateway does not hear of it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Lock, Thread
from urllib.parse import urlsplit

_BYTES = 65_536


class Cable:
    """A proxy between a browser and the gateway that can be cut."""

    def __init__(self) -> None:
        self.url = ""
        self._is_cut = False
        self._lock = Lock()
        self._browsers: set[socket.socket] = set()
        self._gateways: list[socket.socket] = []

    def do(self, what: str) -> None:
        """``cut`` or ``mend``."""
        with self._lock:
            self._is_cut = what == "cut"
            if self._is_cut:
                for one in self._browsers:
                    with contextlib.suppress(OSError):
                        one.shutdown(socket.SHUT_RDWR)

    def carry(self, browser: socket.socket, address: tuple[str, int]) -> None:
        """Carry what both sides say until one of them ends, or the cable is cut."""
        gateway = socket.create_connection(address)
        with self._lock:
            # Kept, so that the gateway sees no end of what the browser left.
            self._gateways.append(gateway)
            if self._is_cut:
                return
            self._browsers.add(browser)
        Thread(target=self._copy, args=(gateway, browser), daemon=True).start()
        self._copy(browser, gateway)
        with self._lock:
            self._browsers.discard(browser)
            is_cut = self._is_cut
        if not is_cut:
            with contextlib.suppress(OSError):
                gateway.shutdown(socket.SHUT_WR)

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_BYTES):
                target.sendall(data)


@contextlib.contextmanager
def laid(endpoint: str) -> Iterator[Cable]:
    """A cable to that gateway."""
    parts = urlsplit(endpoint)
    address = parts.hostname or "", parts.port or 80
    cable = Cable()

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            cable.carry(self.request, address)

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        cable.url = f"http://localhost:{server.server_address[1]}"
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield cable
        finally:
            server.shutdown()
