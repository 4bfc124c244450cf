"""Web hooks that answer late, or never."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

from tests.faces.web_hooks import PATIENCE_SECONDS, WebHook
from tests.ports import reserved_port


class HeldHook(WebHook):
    """Takes requests, and answers them once it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        gate = self.gate
        given: Any = self._server.RequestHandlerClass

        class Held(given):  # type: ignore[misc]
            def handle(self) -> None:
                # Whoever asked may be dead by now.
                with contextlib.suppress(OSError):
                    super().handle()

            def send_response(self, *arguments: Any) -> None:
                gate.wait(PATIENCE_SECONDS)
                super().send_response(*arguments)

        self._server.RequestHandlerClass = Held

    def __exit__(self, *_: object) -> None:
        self.gate.set()
        super().__exit__()


@contextlib.contextmanager
def silent_url() -> Iterator[str]:
    """Of an endpoint that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/silent"


@contextlib.contextmanager
def closed_url() -> Iterator[str]:
    """Of a port on which nobody listens."""
    with reserved_port() as port:
        yield f"http://127.0.0.1:{port}/closed"
