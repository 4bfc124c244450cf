"""A web hook of our own: an HTTP endpoint on this machine that keeps what it is sent."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from conformance.driving import Different

_PATIENCE_SECONDS = 30.0


@dataclass(frozen=True)
class Delivery:
    """One request to the endpoint. Names of headers are lower case."""

    headers: dict[str, str]
    body: str

    @property
    def message(self) -> dict[str, Any]:
        """The body as JSON."""
        found: dict[str, Any] = json.loads(self.body)
        return found


class WebHook:
    """A web hook that cases subscribe and read deliveries from."""

    def __init__(self, url: str, arrived: queue.Queue[Delivery]) -> None:
        self.url = url
        self._arrived = arrived

    def next(self, kind: str) -> Delivery:
        """The next delivery; Different unless it comes and is of this kind."""
        try:
            delivery = self._arrived.get(timeout=_PATIENCE_SECONDS)
        except queue.Empty:
            raise Different(f"no {kind} came in {_PATIENCE_SECONDS:.0f} s") from None
        found = delivery.headers.get("x-amz-sns-message-type")
        if found != kind:
            raise Different(f"a delivery of the kind {found} instead of {kind}")
        return delivery


@contextlib.contextmanager
def listening() -> Iterator[WebHook]:
    """A web hook on a free port that answers every POST with 200, as long as the context."""
    arrived: queue.Queue[Delivery] = queue.Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            headers = {name.lower(): value for name, value in self.headers.items()}
            arrived.put(Delivery(headers, body.decode()))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing: the cases speak for it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield WebHook(f"http://127.0.0.1:{server.server_address[1]}/hook", arrived)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def follow(url: str) -> tuple[int, str]:
    """Status and text of what a link of a message answers without credentials."""
    try:
        with urllib.request.urlopen(url, timeout=_PATIENCE_SECONDS) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        raise Different(f"{url} cannot be reached: {error}") from None


def visit(url: str) -> str:
    """Follow a link and return its answer; raise Different unless it succeeds."""
    status, text = follow(url)
    if status != 200:
        raise Different(f"{url} answered {status}: {text}")
    return text
