"""The operations' pages: liveness, readiness, metrics, and the clock of testers."""

from __future__ import annotations

import asyncio
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from gateway.certificates import certificate_routes
from gateway.front_page import front_routes
from gateway.outbox_page import outbox_routes
from storage import settings as stored_settings
from storage.errors import Unavailable

if TYPE_CHECKING:
    from gateway.app import Asgi
    from gateway.config import Settings
    from gateway.metrics import Metrics
    from gateway.operations.engine import Engine
    from gateway.outbox_page import Callers

_READY_SECONDS = 2.0
_STUCK_SECONDS = 5.0
_MOST_BODY_BYTES = 4096
_MOST_AHEAD_SECONDS = 10 * 365 * 86_400
_TOO_FAR = "The clock can stand between 0 and ten years ahead of the real one."


def _json(
    content: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    return Response(
        orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE),
        status,
        headers,
        media_type="application/json",
    )


class _Pages:
    def __init__(self, engine: Engine, metrics: Metrics, settings: Settings) -> None:
        self._engine = engine
        self._metrics = metrics
        self._settings = settings
        self._version = version("queuegate")
        self._asking: asyncio.Task[str] | None = None

    async def livez(self, _: Request) -> Response:
        """200 while the process answers; never asks the database."""
        return _json({"status": "ok", "version": self._version})

    async def readyz(self, _: Request) -> Response:
        """200 when requests can be served, 503 with the reason when not."""
        if self._engine.stopping:
            return _json({"status": "degraded", "reason": "The gateway is shutting down."}, 503)
        reason = self._stuck_lanes() or await self._database_trouble()
        if reason:
            return _json({"status": "degraded", "reason": reason}, 503)
        if self._engine.refuses_sends:
            # Receives and deletes make room: nobody should be sent away for it.
            return _json({"status": "ok", "warning": self._engine.refuses_sends})
        return _json({"status": "ok"})

    def _stuck_lanes(self) -> str:
        """What to say of lanes whose flush has lasted for too long; nothing if there are none."""
        now = time.monotonic()
        lanes = self._engine.lanes
        stuck = [lane.name for lane in lanes if lane.stuck_seconds(now) > _STUCK_SECONDS]
        if not stuck:
            return ""
        return f"The database has not answered for {_STUCK_SECONDS:g} s: {', '.join(stuck)}."

    async def _database_trouble(self) -> str:
        """Ask the database something; what is wrong, or nothing."""
        asking = self._asking
        if asking is None or asking.done():
            asking = self._asking = asyncio.create_task(self._ask_database())
        # Not cancelled: without an answer giving up takes as long as the answer.
        done, _ = await asyncio.wait([asking], timeout=_READY_SECONDS)
        if not done:
            return f"The database did not answer in {_READY_SECONDS:g} s."
        return asking.result()

    async def _ask_database(self) -> str:
        try:
            async with self._engine.database.transaction() as tx:
                await stored_settings.clock(tx)
        except Unavailable as error:
            return str(error)
        return ""

    async def metrics(self, request: Request) -> Response:
        """Prometheus text of all processes of this gateway."""
        names = frozenset(request.query_params.getlist("name[]"))
        return Response(await self._metrics.render(names), media_type="text/plain; version=0.0.4")

    async def clock(self, request: Request) -> Response:
        """GET tells where the clock stands, POST moves it (``_wanted_move``)."""
        engine = self._engine
        if request.method == "POST":
            if not self._settings.admin_clock:
                text = (
                    "Moving the clock is off: start with --ephemeral or QUEUEGATE_ADMIN_CLOCK=true."
                )
                return _json({"error": text}, 403)
            body = await _small_body(request)
            if body is None:
                text = f"The body is larger than {_MOST_BODY_BYTES} bytes."
                # What the client still sends is not read: the connection cannot be used again.
                return _json({"error": text}, 413, {"connection": "close"})
            wanted = _wanted_move(body)
            if isinstance(wanted, str):
                return _json({"error": wanted}, 400)
            async with engine.database.transaction() as tx:
                held = await stored_settings.hold_clock(tx)
                ahead = wanted.seconds + (held.ahead_seconds if wanted.is_relative else 0.0)
                if not 0 <= ahead <= _MOST_AHEAD_SECONDS:
                    return _json({"error": _TOO_FAR}, 400)
                moved = await stored_settings.move_clock(tx, held, ahead)
            engine.wakeups.on_clock_moved(moved.ahead_seconds, moved.moves)
        now = engine.clock.instant().isoformat(timespec="milliseconds")
        return _json({"ahead_seconds": engine.clock.ahead_seconds, "now": now})


async def _small_body(request: Request) -> bytes | None:
    """The body; None when it is larger than any that means something here."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BODY_BYTES:
            return None
    return body


class _Move(NamedTuple):
    seconds: float
    is_relative: bool


def _wanted_move(body: bytes) -> _Move | str:
    """Where to, or what is wrong with the request."""
    usage = 'Send {"advance_seconds": 300} to move on, or {"ahead_seconds": 0} to go back.'
    try:
        wanted = orjson.loads(body)
    except orjson.JSONDecodeError:
        return f"The body is not JSON. {usage}"
    if not isinstance(wanted, dict) or len(wanted) != 1:
        return usage
    [(name, value)] = wanted.items()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return usage
    if name not in ("advance_seconds", "ahead_seconds"):
        return usage
    return _Move(float(value), name == "advance_seconds")


def pages(engine: Engine, metrics: Metrics, settings: Settings, callers: Callers) -> Asgi:
    """The router of all pages. Those that show messages ask ``callers`` who wants to see them."""
    handlers = _Pages(engine, metrics, settings)
    return Router(
        [
            Route("/livez", handlers.livez),
            Route("/readyz", handlers.readyz),
            Route("/metrics", handlers.metrics),
            Route("/_admin/clock", handlers.clock, methods=["GET", "POST"]),
            *front_routes(settings),
            *certificate_routes(engine.signer),
            *outbox_routes(engine, callers),
        ]
    )
