"""A web hook in a thread of the test: takes every request and keeps it."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, SimpleQueue
from typing import Any, Self

PATIENCE_SECONDS = 20.0


@dataclass(frozen=True)
class Posted:
    """One request. Header names are lower case."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def envelope(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


class WebHook:
    """Answers 200 on a free port of the loopback device, or what ``statuses`` says first."""

    def __init__(self) -> None:
        posted: SimpleQueue[Posted] = SimpleQueue()
        statuses: list[int] = []
        self.statuses = statuses

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                posted.put(Posted(self.path, headers, body))
                self.send_response(statuses.pop(0) if statuses else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Not a word."""

        self._posted = posted
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/news"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def next(self) -> Posted:
        """The next request, once it is there."""
        return self._posted.get(timeout=PATIENCE_SECONDS)

    def next_within(self, seconds: float) -> Posted | None:
        """The next request, if it comes soon."""
        try:
            return self._posted.get(timeout=seconds)
        except Empty:
            return None
