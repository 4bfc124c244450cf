"""Pages for operators and testers: liveness, readiness, metrics and the other admin pages."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from queuegate.gateway.faces.interface import REQUEST, AsgiFace
from queuegate.gateway.faces.interface import Request as Asked
from queuegate.gateway.faces.interface import Response as Refusal
from queuegate.gateway.http.origins import Origins
from queuegate.gateway.metrics.scraping import Scrape
from queuegate.gateway.pages import paths
from queuegate.gateway.pages.answers import json_answer
from queuegate.gateway.pages.certificates import certificate_routes
from queuegate.gateway.pages.clock import clock_route
from queuegate.gateway.pages.documentation import documentation_routes
from queuegate.gateway.pages.front import front_route
from queuegate.gateway.pages.guarded import Guarded, is_administrator
from queuegate.gateway.pages.outbox import outbox_routes
from queuegate.storage import stored_clocks as stored_settings
from queuegate.storage.storage_errors import Rejected, RequestTooLarge, Unavailable

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings
    from queuegate.gateway.faces.interface import CallerAuthenticator, Scope
    from queuegate.gateway.metrics.scraping import MetricsPage
    from queuegate.gateway.operations.runtime.engine import Engine

_READY_SECONDS = 2.0
_STUCK_SECONDS = 5.0


class _Pages:
    def __init__(
        self, engine: Engine, metrics: MetricsPage, shows_all: Callable[[Asked], bool]
    ) -> None:
        self._engine = engine
        self._shows_all = shows_all
        self._metrics = metrics
        self._version = version("queuegate")
        self._asking: asyncio.Task[str] | None = None

    def routes(self) -> list[Route]:
        """Return the routes for monitoring."""
        return [Route(path, getattr(self, path[1:])) for path in paths.PROBES]

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
        page = await self._metrics.render(Scrape(names, in_total, is_packed))
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


_MOVED = [Route(path, _elsewhere) for path in paths.PROBES]


def probes(engine: Engine, metrics: MetricsPage) -> AsgiFace:
    """Return the face at QUEUEGATE_OPERATIONS_ADDRESS."""
    handlers = _Pages(engine, metrics, lambda _: True)
    return AsgiFace(Router(handlers.routes()), _turned_away)


def pages(
    engine: Engine, metrics: MetricsPage, settings: Settings, callers: CallerAuthenticator
) -> AsgiFace:
    """Return the face of all pages. Pages with messages authenticate by ``callers``."""

    def shows_all(asked: Asked) -> bool:
        # Metrics by account would reveal accounts to strangers.
        return settings.auth != "sigv4" or is_administrator(callers, asked)

    handlers = _Pages(engine, metrics, shows_all)
    admits = _admits(settings)
    router = Router(
        [
            *(handlers.routes() if settings.operations_address is None else _MOVED),
            clock_route(engine, settings),
            front_route(settings),
            *documentation_routes(),
            *certificate_routes(engine.signer),
            *outbox_routes(engine, callers),
        ]
    )
    return AsgiFace(Guarded(router, callers, admits), _turned_away)


def _admits(settings: Settings) -> Callable[[Scope], bool] | None:
    """Return the check for requests that need no key on restricted pages; None: all need one."""
    if settings.auth == "sigv4":
        return None
    if settings.ephemeral:
        # Test data needs no protection.
        return lambda _: True
    origins = Origins(settings.trusted_proxies)
    return lambda scope: origins.is_local(scope["client"], scope["headers"])


def _turned_away(_: Asked, refusal: Rejected | Unavailable) -> Refusal:
    headers = [(b"content-type", b"application/json")]
    status = 403
    if isinstance(refusal, RequestTooLarge | Unavailable):
        status = 413 if isinstance(refusal, RequestTooLarge) else 503
        # The rest of the body is dropped, so the connection cannot be reused.
        headers.append((b"connection", b"close"))
    return Refusal(status, headers, json.dumps({"error": str(refusal)}).encode() + b"\n")
