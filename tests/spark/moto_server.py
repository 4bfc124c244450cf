"""Moto's server, in which the calls of SQS come one after the other.

On its own it is not safe for calls at the same moment: it builds a queue's list of messages anew
for each delete, so that of two deletes one is undone; and two receives get one FIFO group.
"""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import run_simple

_PREFIX = "AmazonSQS."
_PAUSE_SECONDS = 0.05


class OneAtATime:
    """A WSGI application before moto's. A receive that waits lets the others in meanwhile."""

    def __init__(self) -> None:
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()
        self._pause = threading.Event()

    def __call__(
        self, environment: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        target = environment.get("HTTP_X_AMZ_TARGET", "")
        if not target.startswith(_PREFIX):
            answer: Iterable[bytes] = self._moto(environment, start_response)
            return answer
        body = environment["wsgi.input"].read(int(environment.get("CONTENT_LENGTH") or 0))
        wait_seconds = 0
        if target == f"{_PREFIX}ReceiveMessage":
            request = json.loads(body)
            wait_seconds = request.get("WaitTimeSeconds") or 0
            body = json.dumps({**request, "WaitTimeSeconds": 0}).encode()
        until = time.monotonic() + wait_seconds
        while True:
            begin, content = self._call(environment, body)
            if b'"Messages"' in content or time.monotonic() >= until:
                start_response(*begin)
                return [content]
            self._pause.wait(_PAUSE_SECONDS)

    def _call(self, environment: dict[str, Any], body: bytes) -> tuple[tuple[Any, ...], bytes]:
        """Return moto's arguments of start_response, and the content of its answer."""
        begins: list[tuple[Any, ...]] = []
        given = {"wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body))}
        with self._lock:
            content = b"".join(
                self._moto({**environment, **given}, lambda *begin: begins.append(begin))
            )
        return begins[-1], content


if __name__ == "__main__":
    run_simple("127.0.0.1", 0, OneAtATime(), threaded=True, request_handler=MotoRequestHandler)
