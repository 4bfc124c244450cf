"""A receiver of SNS web hooks on this machine that confirms its subscriptions."""

from __future__ import annotations

import json
import os
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from queuegate_pytest.container import CALLBACK_HOST

_SECONDS = 10.0


class Notification(NamedTuple):
    """A notification, with the headers of its request."""

    message: str
    envelope: dict[str, Any]
    headers: dict[str, str]


class WebHooks:
    """A server of web hooks. As a context, it stops at the end.

    QUEUEGATE_CALLBACK_HOST is the name of this machine for a gateway elsewhere.
    """

    def __init__(self) -> None:
        self.notifications: list[Notification] = []
        self.statuses: list[int] = []
        """Statuses of the next answers, such as 500 to see a retry; then 200."""
        self._changed = threading.Condition()
        hooks = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("content-length", "0"))
                status = hooks.take(self.rfile.read(length), dict(self.headers.items()))
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        host = os.environ.get("QUEUEGATE_CALLBACK_HOST", "")
        if not host and os.environ.get("QUEUEGATE_IMAGE"):
            host = CALLBACK_HOST
        self._server = ThreadingHTTPServer(("0.0.0.0" if host else "127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://{host or '127.0.0.1'}:{self._server.server_address[1]}/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> WebHooks:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def take(self, body: bytes, headers: dict[str, str]) -> int:
        """Confirm a subscription, or keep a notification; return the status of the answer."""
        try:
            content = json.loads(body)
        except ValueError:
            content = None
        # With raw delivery, the body is the message.
        envelope = content if isinstance(content, dict) and "Type" in content else {}
        if envelope.get("Type") == "SubscriptionConfirmation":
            with urllib.request.urlopen(envelope["SubscribeURL"], timeout=_SECONDS):
                return 200
        with self._changed:
            status = self.statuses.pop(0) if self.statuses else 200
            if status < 300:
                message = envelope.get("Message", body.decode("utf-8", "replace"))
                self.notifications.append(Notification(message, envelope, headers))
            self._changed.notify_all()
        return status

    def wait(self, count: int = 1, timeout: float = _SECONDS) -> list[Notification]:
        """Wait until so many notifications came, and return all. AssertionError after the time."""
        with self._changed:
            came = self._changed.wait_for(lambda: len(self.notifications) >= count, timeout)
            assert came, f"{len(self.notifications)} of {count} notifications after {timeout} s"
            return list(self.notifications)
