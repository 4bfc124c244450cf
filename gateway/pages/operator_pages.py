"""Pages for operators and testers: liveness, readiness, metrics, the clock and the outbox.

With ``sigv4``, pages that show or change data need an administrator's key. Otherwise they are open
to the local machine. Ephemeral gateways open them to all clients, because their data is temporary.

Pages below /_admin are declared as endpoints (``admin_pages``).
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, MutableMapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NoReturn

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router

from queuegate.gateway.faces.interface import Face
from queuegate.gateway.faces.interface import Request as FaceRequest
from queuegate.gateway.faces.interface import Response as FaceResponse
from queuegate.gateway.faces.json.json_openapi import with_document
from queuegate.gateway.http.admission import Origins
from queuegate.gateway.metrics.scraping import Scrape
from queuegate.gateway.pages import page_paths
from queuegate.gateway.pages.admin_endpoints import AdminPages
from queuegate.gateway.pages.admin_pages import ABOUT, ENDPOINTS
from queuegate.gateway.pages.console_pages import console_routes
from queuegate.gateway.pages.public_pages import (
    REQUEST,
    certificate_routes,
    documentation_routes,
    front_route,
)
from queuegate.storage import stored_clocks as stored_settings
from queuegate.storage.storage_errors import (
    AuthorizationError,
    Denied,
    Rejected,
    RequestTooLarge,
    Unavailable,
)

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings
    from queuegate.gateway.faces.interface import CallerAuthenticator
    from queuegate.gateway.metrics.scraping import MetricsPage
    from queuegate.gateway.operations.runtime.engine import Engine


_READY_SECONDS = 2.0
_STUCK_SECONDS = 5.0

_log = logging.getLogger("queuegate.pages")

_MOST_BODY_BYTES = 65_536
_CLOCK = "/_admin/clock"
_NOT_YOURS = "This page takes the key of an administrator: sign the request with it, or show it."
_NOT_HERE = (
    "This page is for the gateway's own machine: ask it there at 127.0.0.1, directly, or start the "
    "gateway with --ephemeral, or with QUEUEGATE_AUTH=sigv4 and ask with an administrator's key."
)

_MOST_MOVE_BYTES = 4096
_MOST_SEED_BYTES = 16_777_216


class _Pages:
    def __init__(
        self, engine: Engine, metrics: MetricsPage, shows_all: Callable[[FaceRequest], bool]
    ) -> None:
        self._engine = engine
        self._shows_all = shows_all
        self._metrics = metrics
        self._version = version("queuegate")
        self._asking: asyncio.Task[str] | None = None

    def routes(self) -> list[Route]:
        """Return the routes for monitoring."""
        return [Route(path, getattr(self, path[1:])) for path in page_paths.PROBES]

    async def livez(self, _: Request) -> Response:
        """Answer 200 while the process runs. The database is not asked."""
        return json_answer({"status": "ok", "version": self._version})

    async def readyz(self, _: Request) -> Response:
        """Answer 200 if the gateway can serve requests, otherwise 503 with the reason."""
        if self._engine.stopping:
            return json_answer(
                {"status": "degraded", "reason": "The gateway is shutting down."}, 503
            )
        reason = self._stuck_lanes() or await self._database_trouble()
        if reason:
            return json_answer({"status": "degraded", "reason": reason}, 503)
        if self._engine.faults is not None:
            count = len(self._engine.faults)
            warning = f"Faults are on: rules of /_admin/faults ({count}) make requests fail."
            return json_answer({"status": "ok", "warning": warning})
        if self._engine.refuses_sends:
            # Receives and deletes free capacity, so the gateway must stay in the load balancer.
            return json_answer({"status": "ok", "warning": self._engine.refuses_sends})
        return json_answer({"status": "ok"})

    def _stuck_lanes(self) -> str:
        """Return a text about lanes whose flush lasts too long; empty: there are none."""
        now = time.monotonic()
        lanes = self._engine.lanes
        stuck = [lane.name for lane in lanes if lane.stuck_seconds(now) > _STUCK_SECONDS]
        if not stuck:
            return ""
        return f"The database has not answered for {_STUCK_SECONDS:g} s: {', '.join(stuck)}."

    async def _database_trouble(self) -> str:
        """Run a query and return what is wrong with the database; empty: nothing."""
        asking = self._asking
        if asking is None or asking.done():
            asking = self._asking = asyncio.create_task(self._ask_database())
        # Do not cancel the query after the time limit: cancelling takes as long as the answer.
        done, _ = await asyncio.wait([asking], timeout=_READY_SECONDS)
        if not done:
            return f"The database did not answer in {_READY_SECONDS:g} s."
        return asking.result()

    async def _ask_database(self) -> str:
        database = self._engine.database
        try:
            async with database.transaction() as tx:
                await stored_settings.read_clock(tx)
        except Unavailable as error:
            return str(error)
        reason = await database.refusal()
        return reason and f"The database refuses the connections of lanes: {reason}"

    async def metrics(self, request: Request) -> Response:
        """Answer with the Prometheus metrics of all processes of this gateway."""
        names = frozenset(request.query_params.getlist("name[]"))
        is_packed = _takes_gzip(request.headers.get("accept-encoding", ""))
        in_total = not self._shows_all(request.scope[REQUEST])
        has_old_names = {"old": True, "new": False}.get(request.query_params.get("names", ""))
        page = await self._metrics.render(Scrape(names, in_total, is_packed, has_old_names))
        headers = {"vary": "accept-encoding, authorization"}
        if is_packed:
            headers["content-encoding"] = "gzip"
        return Response(page, headers=headers, media_type="text/plain; version=0.0.4")


def _takes_gzip(accepted: str) -> bool:
    """Return True if the client accepts gzip."""
    for one in accepted.lower().split(","):
        name, _, weight = one.replace(" ", "").partition(";")
        if name == "gzip":
            return weight not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


async def _elsewhere(_: Request) -> Response:
    return json_answer({"error": "This is at QUEUEGATE_OPERATIONS_ADDRESS, and not here."}, 404)


_MOVED = [Route(path, _elsewhere) for path in page_paths.PROBES]


def probes(engine: Engine, metrics: MetricsPage) -> PageFace:
    """Return the face at QUEUEGATE_OPERATIONS_ADDRESS."""
    handlers = _Pages(engine, metrics, lambda _: True)
    return PageFace(handlers.routes())


def pages(
    engine: Engine,
    metrics: MetricsPage,
    settings: Settings,
    callers: CallerAuthenticator,
) -> PageFace:
    """Return the face of all pages. Pages with messages authenticate by ``callers``."""

    def shows_all(asked: FaceRequest) -> bool:
        # Metrics by account would reveal accounts to strangers.
        return settings.auth != "sigv4" or is_administrator(callers, asked)

    handlers = _Pages(engine, metrics, shows_all)
    return PageFace(
        [
            *(handlers.routes() if settings.operations_address is None else _MOVED),
            front_route(settings),
            *documentation_routes(),
            *certificate_routes(engine.signer),
            *(console_routes(engine, settings, callers) if settings.console != "off" else ()),
        ],
        restriction(settings, callers),
        AdminPages(engine, callers, settings, with_document(ENDPOINTS, "/_admin", ABOUT), metrics),
    )


def _admits(settings: Settings) -> Callable[[FaceRequest], bool] | None:
    """Return the check for requests that need no key on restricted pages; None: all need one."""
    if settings.auth == "sigv4":
        return None
    if settings.ephemeral:
        # Test data needs no protection.
        return lambda _: True
    origins = Origins(settings.trusted_proxies)
    return lambda request: origins.is_local(request.peer, request.raw_headers)


def json_answer(content: dict[str, Any], status: int = 200) -> Response:
    """Return a JSON response that ends with a newline, for terminals."""
    text = orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)
    return Response(text, status, media_type="application/json")


class PageFace(Face):
    """Serves routes of Starlette, and the declared endpoints of /_admin."""

    def __init__(
        self,
        routes: Sequence[BaseRoute],
        restriction: Callable[[FaceRequest], str | None] = lambda _: None,
        admin: AdminPages | None = None,
    ) -> None:
        """``restriction`` returns the refusal of a caller; None: the page may answer."""
        self._router = Router(routes)
        self._admin = admin
        self._restriction = restriction

    def most_bytes(self, request: FaceRequest) -> int:
        """Return the limit of a move of the clock, of a seed, or of bodies that pages ignore."""
        limits = {_CLOCK: _MOST_MOVE_BYTES, page_paths.SEED: _MOST_SEED_BYTES}
        return limits.get(request.path, _MOST_BODY_BYTES)

    def may_wait(self, request: FaceRequest) -> bool:
        """Return True for the page that waits for events."""
        return request.path == page_paths.EVENTS

    async def answer(self, request: FaceRequest) -> FaceResponse:
        """Return the response of a page."""
        head: MutableMapping[str, Any] = {}
        parts: list[bytes] = []

        async def receive() -> NoReturn:
            # Pages take the body of REQUEST. Responses wait here for a disconnect.
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: MutableMapping[str, Any]) -> None:
            head.update(message)
            parts.append(message.get("body", b""))

        scope = {
            "type": "http",
            # The server leaves out the body, and sends its length.
            "method": "GET" if request.method == "HEAD" else request.method,
            "scheme": request.origin.scheme,
            "path": request.path,
            "raw_path": request.raw_path.encode("latin-1"),
            "query_string": request.query,
            "root_path": "",
            "headers": request.raw_headers,
            REQUEST: request,
        }
        refusal = self._restriction(request)
        try:
            if refusal is None and self._admin is not None:
                answered = await self._admin.answer(request)
                if answered is not None:
                    return answered
            page = self._router if refusal is None else json_answer({"error": refusal}, 403)
            await page(scope, receive, send)
        except Exception:  # noqa: BLE001 - the outermost handler: bugs become a 500 without detail
            _log.exception("%s %s failed", request.request_id, request.raw_path)
            return FaceResponse(500, [], b"Internal Server Error")
        headers = [header for header in head["headers"] if header[0] != b"content-length"]
        return FaceResponse(head["status"], headers, request.found or b"".join(parts))

    def turned_away(self, _: FaceRequest, refusal: Rejected | Unavailable) -> FaceResponse:
        """Return the refusal of a request whose body was not read to its end."""
        headers = [(b"content-type", b"application/json")]
        status = 403
        if isinstance(refusal, RequestTooLarge | Unavailable):
            status = 413 if isinstance(refusal, RequestTooLarge) else 503
        return FaceResponse(status, headers, json.dumps({"error": str(refusal)}).encode() + b"\n")


def restriction(
    settings: Settings, callers: CallerAuthenticator
) -> Callable[[FaceRequest], str | None]:
    """Return the check of callers of pages that show or change data. It returns the text of the
    refusal; None: the page may answer."""
    admits = _admits(settings)

    def refusal_of(request: FaceRequest) -> str | None:
        if page_paths.is_public(request.raw_path):
            return None
        if admits is not None and admits(request):
            return None
        try:
            caller = callers.caller(request, {}, request.path)
            if not caller.is_administrator:
                raise AuthorizationError(_NOT_YOURS)
        except Rejected as refusal:
            request.refusal = refusal
            if admits is not None:
                refusal.denied = Denied("origin")
            return str(refusal) if admits is None else _NOT_HERE
        return None

    return refusal_of


def is_administrator(callers: CallerAuthenticator, request: FaceRequest) -> bool:
    """Return True if a request for a public page has the key of an administrator."""
    try:
        return callers.caller(request, {}, request.path).is_administrator
    except Rejected:
        return False
