"""One S3 bucket over HTTP that can be told to misbehave as services of S3 do: for tests only."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Bucket(ThreadingHTTPServer):
    """Objects by path, and what goes wrong: each count is used up by one request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Requests)
        self.endpoint_url = f"http://127.0.0.1:{self.server_port}"
        self.lock = threading.Lock()
        self.objects: dict[str, tuple[bytes, str]] = {}
        self.has_conditions = True
        self.has_ranges = True
        self.is_read_only = False
        self.conflicts = 0  # writes that are answered with ConditionalRequestConflict
        self.lost_answers = 0  # writes that happen, and are answered with an internal error
        self.cut_answers = 0  # reads whose content ends early
        self.read_bytes = 0  # of content, as announced

    def use_up(self, fault: str) -> bool:
        """Return True if this request gets that fault."""
        with self.lock:
            left: int = getattr(self, fault)
            setattr(self, fault, max(0, left - 1))
        return left > 0


class _Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Bucket

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.is_read_only:
            return self._refuse(403, "AccessDenied")
        if self.server.use_up("conflicts"):
            return self._refuse(409, "ConditionalRequestConflict")
        must_be_new = self.headers["If-None-Match"] == "*" and self.server.has_conditions
        with self.server.lock:
            if must_be_new and self.path in self.server.objects:
                return self._refuse(412, "PreconditionFailed")
            writer = self.headers.get("x-amz-meta-queuegate-writer", "")
            self.server.objects[self.path] = (content, writer)
        if self.server.use_up("lost_answers"):
            return self._refuse(500, "InternalError")
        return self._answer(200, b"")

    def do_GET(self) -> None:
        found = self.server.objects.get(self.path)
        if found is None:
            return self._refuse(404, "NoSuchKey")
        content, part = found[0], self._part(len(found[0]))
        with self.server.lock:
            self.server.read_bytes += part.stop - part.start
        is_whole = len(part) == len(content)
        return self._answer(
            200 if is_whole else 206,
            content[part.start : part.stop],
            is_cut=self.server.use_up("cut_answers"),
            part="" if is_whole else f"bytes {part.start}-{part.stop - 1}/{len(content)}",
        )

    def _part(self, size: int) -> range:
        first, dash, last = self.headers.get("Range", "").removeprefix("bytes=").partition("-")
        if not dash or not self.server.has_ranges:
            return range(size)
        if not first:
            return range(max(0, size - int(last)), size)
        return range(int(first), min(size, int(last) + 1))

    def do_HEAD(self) -> None:
        found = self.server.objects.get(self.path)
        self.send_response(404 if found is None else 200)
        if found is not None:
            self.send_header("x-amz-meta-queuegate-writer", found[1])
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_DELETE(self) -> None:
        self.server.objects.pop(self.path, None)
        self._answer(204, b"")

    def _refuse(self, status: int, code: str) -> None:
        text = f"<Error><Code>{code}</Code><Message>as told</Message></Error>"
        self._answer(status, text.encode())

    def _answer(self, status: int, content: bytes, *, is_cut: bool = False, part: str = "") -> None:
        self.send_response(status)
        if part:
            self.send_header("Content-Range", part)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if is_cut else content)
        self.close_connection = is_cut

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def serve_bucket() -> Iterator[Bucket]:
    """A bucket server for the time of a test."""
    with Bucket() as bucket:
        thread = threading.Thread(target=bucket.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield bucket
        finally:
            bucket.shutdown()
            thread.join()
