"""Inline requests: a request from one read goes to its face without ASGI, in one task or none.

``fast_path.py`` answers requests that need no task. ``connections.py`` and uvicorn handle any
request. Nearly all requests of all faces are inline. Unusual requests use ASGI, with the same
answer: partial or chunked bodies, pipelining, headers that change how a message is read or whether
(``RequestHeads.common``), hosts not yet admitted, faces not yet loaded, pages, bodies above a
limit, traces.
Measured in tests/bench/README.md.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING
from urllib.parse import unquote

from queuegate.gateway.faces.interface import AsgiFace, Face, Mount, Request, Response, Scope, Work
from queuegate.gateway.http.app import ABANDONED, App
from queuegate.gateway.http.request_heads import Lines
from queuegate.gateway.operations.runtime.traffic import Reading

if TYPE_CHECKING:
    from queuegate.gateway.http.fast_path import FastProtocol

_SHORT_BYTES = 16_384
"""Shorter bodies count for no fair share."""


class Asking:
    """An inline request, from its bytes to its answer. Has the interface of ``Exchange``."""

    __slots__ = (
        "_app",
        "_entrance",
        "_face",
        "_is_held",
        "_is_over",
        "_protocol",
        "_reading",
        "_work",
        "data",
        "receiving",
        "request",
    )

    def __init__(
        self,
        protocol: FastProtocol,
        app: App,
        opened: tuple[Mount, Face],
        request: Request,
        reading: Reading,
    ) -> None:
        self._protocol = protocol
        self._app = app
        self._entrance, self._face = opened
        self._reading = reading
        self._work: Work | None = None
        self._is_over = False
        self._is_held = False
        self.request = request
        self.data = b""
        """The complete request, in case its answer needs ASGI."""
        self.receiving: Asking | None = None
        """To cancel when the client disconnects; None: the work completes without a client."""

    def start(self, data: bytes) -> None:
        """Pass the request to the face."""
        self.data = data
        begun = self._face.try_start(self.request, self._answer)
        if begun is True:
            return
        self._work = begun or self._protocol.loop.create_task(self._run())
        if self._face.may_wait(self.request):
            self.receiving = self

    def cancel(self) -> None:
        """Cancel the work of the face: the client has disconnected."""
        assert self._work is not None
        self._work.cancel()
        self._give_up()

    async def _run(self) -> None:
        try:
            response = await self._face.answer(self.request)
        except BaseException:
            self._give_up()
            raise
        self._answer(response)

    def _answer(self, response: Response) -> None:
        if not isinstance(response.body, bytes):
            self._reading.end()
            self._protocol.go_on(self, response)
            return
        seconds = self._app.wrong_signatures.hold(self.request, response)
        if seconds:
            self._reading.end()
            self.data, self.receiving, self._is_held = b"", self, True
            self._work = self._protocol.loop.call_later(seconds, self._write, response)
        else:
            self._write(response)

    def _write(self, response: Response) -> None:
        assert isinstance(response.body, bytes)
        if self._protocol.shared.series.on_answer is not None:
            self._protocol.shared.series.on_answer(self.request.caller, len(response.body))
        self._protocol.short_answer(self, response, response.body)
        route = response.route or self._entrance.label(self.request.raw_path)
        self._end(route, response.action, response.status)

    def _give_up(self) -> None:
        """Close without an answer, after a disconnect or an error."""
        self._protocol.transport.close()
        self._end(self._entrance.label(self.request.raw_path), "", ABANDONED)

    def _end(self, route: str, action: str, status: int) -> None:
        if not self._is_over:
            self._is_over = True
            if self._is_held:
                self._app.wrong_signatures.release()
            self._reading.end()
            self._app.count(self._entrance, self.request, route, action, status)


def asking_for(
    protocol: FastProtocol, app: App, head: tuple[bytes, bytes, Lines], body: bytes
) -> Asking | None:
    """Return an inline request if its face can answer inline; None: use ASGI."""
    method, target, lines = head
    path, _, query = target.partition(b"?")
    scope: Scope = {
        "type": "http",
        "method": method.decode(),
        "scheme": protocol.scheme,
        "server": protocol.server,
        "client": protocol.client,
        "raw_path": path,
        "query_string": query,
        "headers": lines.headers,
    }
    raw_path = path.decode("latin-1")
    scope["path"] = unquote(raw_path) if "%" in raw_path else raw_path
    entrance = app.entrance(raw_path, scope)
    face = entrance.face
    if face is None or isinstance(face, AsgiFace):
        return None
    request = app.request(scope, raw_path, perf_counter(), lines.named)
    most = face.most_bytes(request)
    if len(body) > (app.max_body_bytes if most is None else min(app.max_body_bytes, most)):
        return None
    reading = Reading(protocol.traffic)
    if len(body) > _SHORT_BYTES:
        reading = request.reading = Reading(protocol.traffic, protocol.address_share())
    if not reading.add(len(body)):
        reading.end()
        return None
    request.body = body
    return Asking(protocol, app, (entrance, face), request, reading)
