"""A gateway's endpoint through which some entries, requests or answers get lost."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import SplitResult, urlsplit

# Not passed on: they belong to one connection, or are set anew.
_OF_THE_CONNECTION = {"connection", "content-length", "transfer-encoding", "host", "expect"}
_TARGET = "AmazonSQS.SendMessageBatch"


class Faults:
    """The faults between a client and its endpoint. Used by several threads.

    ``entry``: return True to fail this entry of a SendMessageBatch once, given its number among all
    entries and the entry. ``on_send``: called with the number of each SendMessageBatch, from 1,
    before it is passed on. ``loses_answer``: return True to drop the answer to that number. While
    ``is_away`` is set nothing is answered at all.
    """

    def __init__(
        self,
        *,
        entry: Callable[[int, dict[str, Any]], bool] = lambda number, entry: False,
        on_send: Callable[[int], None] = lambda number: None,
        loses_answer: Callable[[int], bool] = lambda number: False,
    ) -> None:
        self.entry = entry
        self.on_send = on_send
        self.loses_answer = loses_answer
        self.is_away = threading.Event()
        self.refused_count = 0
        self.send_count = 0
        self.entry_count = 0
        self.failed_count = 0
        self.batch_sizes: list[int] = []
        self._lock = threading.Lock()

    def begin(self, entries: list[dict[str, Any]]) -> tuple[int, list[dict[str, Any]]]:
        """Number a request, and choose which of its entries fail."""
        with self._lock:
            self.send_count += 1
            self.batch_sizes.append(len(entries))
            failed = []
            for entry in entries:
                self.entry_count += 1
                if self.entry(self.entry_count, entry):
                    failed.append(entry)
            self.failed_count += len(failed)
            return self.send_count, failed


@contextmanager
def faulty(endpoint: str, faults: Faults) -> Iterator[str]:
    """The endpoint of a proxy before this one, as long as the context lasts."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(endpoint, faults))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)


class _Handler(BaseHTTPRequestHandler):
    """Passes requests on, as its endpoint and faults say."""

    behind: SplitResult
    faults: Faults
    protocol_version = "HTTP/1.1"
    # Otherwise a small answer waits for the acknowledgement of its headers.
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.faults.is_away.is_set():
            self.faults.refused_count += 1
            self._hang_up()
        elif self.headers.get("X-Amz-Target") == _TARGET:
            self._send_batch(json.loads(body))
        else:
            self._answer(*self._forward(body))

    def _send_batch(self, request: dict[str, Any]) -> None:
        entries = request["Entries"]
        number, failed = self.faults.begin(entries)
        self.faults.on_send(number)
        rest = [entry for entry in entries if entry not in failed]
        answer: dict[str, Any] = {"Successful": [], "Failed": []}
        if rest:
            status, text = self._forward(json.dumps({**request, "Entries": rest}).encode())
            if status != 200:
                self._answer(status, text)
                return
            answer |= json.loads(text)
        lost = [
            {"Id": entry["Id"], "Code": "InternalError", "SenderFault": False} for entry in failed
        ]
        answer["Failed"] = [*(answer["Failed"] or []), *lost]
        if self.faults.loses_answer(number):
            self._hang_up()
            return
        self._answer(200, json.dumps(answer).encode())

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.close()

    def _forward(self, body: bytes) -> tuple[int, bytes]:
        headers = {
            name: value
            for name, value in self.headers.items()
            if name.lower() not in _OF_THE_CONNECTION
        }
        connection = HTTPConnection(self.behind.hostname or "", self.behind.port, timeout=60)
        connection.request("POST", self.path, body, headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, text

    def _answer(self, status: int, text: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def _handler(endpoint: str, faults: Faults) -> type[_Handler]:
    return type("Handler", (_Handler,), {"behind": urlsplit(endpoint), "faults": faults})
