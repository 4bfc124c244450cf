"""The web console at /console: its files, and sessions of people who sign in with a key.

The console is a page without a build step. It asks the APIs of this gateway like any other client,
so it has the rights of its key and no others. Its files are public, because they hold no data.

Where the APIs need a key, the console signs in: POST /console/session stores the key, encrypted, in
a cookie that scripts cannot read. A request with the cookie has the rights of the key
(``console_sessions``).
"""

from __future__ import annotations

import re
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

from queuegate.gateway.faces.interface import CredentialRule
from queuegate.gateway.operations.access.console_sessions import (
    COOKIE,
    SESSION_PATH,
    SESSION_SECONDS,
)
from queuegate.gateway.pages.public_pages import REQUEST
from queuegate.storage.queues import stored_queues
from queuegate.storage.storage_errors import Rejected

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings
    from queuegate.gateway.faces.interface import CallerAuthenticator
    from queuegate.gateway.operations.runtime.engine import Engine

_FILES = str(files("queuegate.gateway.pages") / "console")
_START = "index.html"
_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_NO_STORE = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_KEY = re.compile(r"[\x21-\x7e]{1,256}")
_USAGE = 'Send {"key": "..."} with a key of this gateway.'
_MOST_ACCOUNTS = 1_000


def console_routes(engine: Engine, settings: Settings, callers: CallerAuthenticator) -> list[Route]:
    """Return the routes of the console."""
    site = StaticFiles(directory=_FILES)
    sessions = _Sessions(engine, settings, callers)

    async def start(_: Request) -> Response:
        return RedirectResponse("/console/", headers=_HEADERS)

    async def page(request: Request) -> Response:
        """Answer with a file, or with the start page for the address of a view."""
        path = request.path_params["path"]
        if not path.startswith("assets/"):
            path = f"assets/{_START}"
        try:
            answer = await site.get_response(path.removeprefix("assets/"), request.scope)
        except (HTTPException, OSError, ValueError):
            return PlainTextResponse("There is no such file.\n", 404, _HEADERS)
        answer.headers.update(_HEADERS)
        return answer

    return [
        Route("/console", start),
        Route(SESSION_PATH, sessions.answer, methods=["GET", "POST", "DELETE"]),
        Route("/console/{path:path}", page),
    ]


class _Sessions:
    def __init__(self, engine: Engine, settings: Settings, callers: CallerAuthenticator) -> None:
        self._engine = engine
        self._settings = settings
        self._callers = callers

    async def answer(self, request: Request) -> Response:
        if request.method == "GET":
            return await self._shown(request)
        if request.method == "DELETE":
            answer = Response(status_code=204, headers=_NO_STORE)
            answer.delete_cookie(COOKIE, path="/")
            return answer
        return self._signed_in(request)

    async def _shown(self, request: Request) -> Response:
        """Describe the session: how the APIs authenticate, and the caller. A caller that the APIs
        would refuse has no account."""
        settings, asked = self._settings, request.scope[REQUEST]
        needs_key = settings.auth == "sigv4" or settings.api_key is not None
        content: dict[str, Any] = {
            "version": version("queuegate"),
            "needs_key": needs_key,
            "ephemeral": settings.ephemeral,
            "region": settings.region,
            "read_only": settings.console == "read-only",
            "account": None if needs_key else settings.account_id,
            "administrator": not needs_key,
            "accounts": [],
            "csrf": self._engine.console.token_of(asked.headers),
        }
        if needs_key and content["csrf"]:
            try:
                caller = self._callers.caller(asked, {}, wants=CredentialRule.KEY)
            except Rejected:
                return _json(content)
            content.update(account=caller.account_id, administrator=caller.is_administrator)
        if not needs_key:
            async with self._engine.database.transaction() as tx:
                content["accounts"] = await stored_queues.list_accounts(tx, _MOST_ACCOUNTS)
        return _json(content)

    def _signed_in(self, request: Request) -> Response:
        """Answer with the cookie of a key, if the APIs take the key."""
        asked = request.scope[REQUEST]
        try:
            members = orjson.loads(asked.body)
        except orjson.JSONDecodeError:
            members = None
        key = members.get("key") if isinstance(members, dict) else None
        if not isinstance(key, str) or _KEY.fullmatch(key) is None:
            return _json({"error": _USAGE}, 400)
        asked.headers = {**asked.headers, "authorization": f"Bearer {key}"}
        try:
            self._callers.caller(asked, {}, wants=CredentialRule.KEY)
        except Rejected as refusal:
            asked.refusal = refusal
            return _json({"error": "This gateway does not know the key."}, 403)
        cookie, token = self._engine.console.start(key)
        answer = _json({"csrf": token})
        answer.set_cookie(
            COOKIE,
            cookie,
            max_age=SESSION_SECONDS,
            secure=asked.base_url.startswith("https:"),
            httponly=True,
            samesite="strict",
        )
        return answer


def _json(content: dict[str, Any], status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, _NO_STORE, media_type="application/json")
