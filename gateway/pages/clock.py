"""`/_admin/clock`: shows the clocks, and moves them for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from queuegate.gateway.operations.runtime import clock_moves
from queuegate.gateway.operations.runtime.clock_moves import BadMove
from queuegate.gateway.pages.answers import json_answer

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings
    from queuegate.gateway.operations.runtime.account_clocks import Clock
    from queuegate.gateway.operations.runtime.engine import Engine

_MOST_BODY_BYTES = 4096
_OFF = "Moving the clock is off: start with --ephemeral or QUEUEGATE_ADMIN_CLOCK=true."


def clock_route(engine: Engine, settings: Settings) -> Route:
    """Return the route: GET shows the clocks, POST moves one (``clock_moves.USAGE``)."""
    page = _Page(engine, settings)
    return Route("/_admin/clock", page.answer, methods=["GET", "POST"])


class _Page:
    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine = engine
        self._settings = settings

    async def answer(self, request: Request) -> Response:
        try:
            account_id = await self._account_to_show(request)
        except BadMove as refusal:
            return _refusal(400, str(refusal))
        except _TooLarge:
            # The rest of the body stays unread, so the connection cannot be reused.
            text = f"The body is larger than {_MOST_BODY_BYTES} bytes."
            return _refusal(413, text, {"connection": "close"})
        except _Off:
            return _refusal(403, _OFF)
        except ClientDisconnect:
            # The client has disconnected and does not read the response.
            return _refusal(400, "The client has gone.", {"connection": "close"})
        return json_answer(self._standing(account_id))

    async def _account_to_show(self, request: Request) -> str | None:
        """Move a clock if asked to; return the account whose clock to show; None: all."""
        if request.method != "POST":
            shown = request.query_params.get("account")
            return None if shown is None else clock_moves.read_account(shown)
        if not self._settings.admin_clock:
            raise _Off
        wanted = clock_moves.read_move(_read_json(await _small_body(request)))
        await clock_moves.move(self._engine, wanted)
        return wanted.account_id

    def _standing(self, account_id: str | None) -> dict[str, Any]:
        common = self._engine.clock
        if account_id is not None:
            clock = common.of(account_id)
            ahead = 0.0 if clock is common else clock.ahead_seconds
            return {"account": account_id, **_shown(clock), "ahead_seconds": ahead}
        accounts = {name: _shown(clock) for name, clock in sorted(common.accounts.items())}
        return {**_shown(common), "accounts": accounts}


def _shown(clock: Clock) -> dict[str, Any]:
    now = clock.instant().isoformat(timespec="milliseconds")
    return {"ahead_seconds": clock.ahead_seconds, "now": now, "frozen": clock.is_frozen}


class _TooLarge(Exception):
    """The body is larger than any valid body."""


class _Off(Exception):
    """Moving the clock is not allowed."""


async def _small_body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BODY_BYTES:
            raise _TooLarge
    return body


def _read_json(body: bytes) -> object:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        raise BadMove(f"The body is not JSON. {clock_moves.USAGE}") from None


def _refusal(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    return json_answer({"error": text}, status, headers)
