"""A web site of one page, which tells how its checks went."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from threading import Thread
from urllib.parse import urlencode

from conformance.browser.cable import Cable

_PAGE = b'<!doctype html><meta charset="utf-8"><body><script type="module" src="/page.js"></script>'


class Site:
    """The site at an origin of its own; ``told`` has the outcome of each check, by its name."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.told: SimpleQueue[dict[str, str]] = SimpleQueue()
        self.cable: Cable | None = None
        """What the page may have cut and mended."""

    def url(self, **members: str) -> str:
        """The page, told what it has to know."""
        return f"{self.origin}/?{urlencode(members)}"


@contextlib.contextmanager
def serving(script: bytes) -> Iterator[Site]:
    """A site whose page runs the script."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/page.js":
                self._answer("text/javascript", script)
            else:
                self._answer("text/html", _PAGE)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path == "/told":
                site.told.put(json.loads(body))
            elif site.cable is not None:
                site.cable.do(self.path.rpartition("/")[2])
            self._answer("text/plain", b"")

        def _answer(self, content_type: str, body: bytes) -> None:
            self.send_response(200)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site = Site(f"http://localhost:{server.server_port}")
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield site
        finally:
            server.shutdown()
