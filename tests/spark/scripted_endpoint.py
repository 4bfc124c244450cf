"""An HTTP endpoint that answers as a test tells it to: wrongly, slowly, or not at all."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections import deque
from types import TracebackType
from typing import BinaryIO, NamedTuple, Self

HANG = b"HANG"
"""Do not answer; the connection stays open until the endpoint is closed."""
HANG_UP = b"HANG UP"
"""Close the connection instead of answering, or after the part of an answer before it."""


class Request(NamedTuple):
    """A received request; header names are lower-case."""

    line: str
    headers: dict[str, str]
    body: bytes


def answer(
    body: object = b"", status: str = "200 OK", version: str = "HTTP/1.1", **headers: str
) -> bytes:
    """An answer; a body that is not bytes goes as JSON. ``_`` in header names stands for ``-``."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{version} {status}", f"Content-Length: {len(content)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


def refusal(
    code: str, message: str = "no", status: str = "400 Bad Request", **headers: str
) -> bytes:
    """A refusal in SQS's JSON protocol."""
    return answer({"__type": code, "message": message}, status, **headers)


class ScriptedEndpoint:
    """Answers requests with ``answers`` in turn, and with the last one from then on."""

    def __init__(self, *answers: bytes, context: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        self._answers = deque(answers)
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        scheme = "http" if context is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._listener.close()
        for each in self._sockets:
            each.close()

    def then(self, *answers: bytes) -> None:
        """Answer so from now on."""
        self._answers = deque(answers)

    def hang_up(self) -> None:
        """Close every connection, as a server does with idle ones; wait until that is done."""
        while self._sockets:
            with contextlib.suppress(OSError):
                self._sockets.pop().shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._sockets.append(accepted)
            threading.Thread(target=self._serve, args=(accepted,), daemon=True).start()

    def _serve(self, accepted: socket.socket) -> None:
        try:
            if self._context is not None:
                accepted = self._context.wrap_socket(accepted, server_side=True)
                self._sockets.append(accepted)
            with accepted.makefile("rb") as stream:
                while (request := _read(stream)) is not None:
                    self.requests.append(request)
                    content = self._next()
                    if content == HANG:
                        continue
                    accepted.sendall(content.removesuffix(HANG_UP))
                    if content.endswith(HANG_UP) or b"Connection: close" in content:
                        break
            accepted.shutdown(socket.SHUT_RDWR)
        except OSError:
            # The other side has gone, which is its right.
            pass

    def _next(self) -> bytes:
        return self._answers.popleft() if len(self._answers) > 1 else self._answers[0]


def _read(stream: BinaryIO) -> Request | None:
    line = stream.readline().decode().strip()
    if not line:
        return None
    headers = {}
    while text := stream.readline().decode().strip():
        name, _, value = text.partition(":")
        headers[name.lower()] = value.strip()
    body = stream.read(int(headers.get("content-length", 0)))
    return Request(line, headers, body)
