"""The web console at /console: its files, sessions of people who sign in with a key, and figures.

The console is a page without a build step. It asks the APIs of this gateway like any other client,
so it has the rights of its key and no others. Its files are public, because they hold no data.

Where the APIs need a key, the console signs in: POST /console/session stores the key, encrypted, in
a cookie that scripts cannot read. A request with the cookie has the rights of the key
(``console_sessions``).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import AbstractContextManager
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
from queuegate.gateway.operations.access.authorization import check_right, find_own_queue, own_arn
from queuegate.gateway.operations.access.console_sessions import (
    COOKIE,
    SESSION_PATH,
    SESSION_SECONDS,
    TOKEN_HEADER,
)
from queuegate.gateway.operations.telemetry.live_views import RIGHTS, LivePage, LiveViews
from queuegate.gateway.pages.public_pages import REQUEST
from queuegate.storage.queues import stored_queues
from queuegate.storage.storage_errors import (
    AccessDenied,
    QueueDoesNotExist,
    Rejected,
    Unavailable,
)

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings
    from queuegate.gateway.faces.interface import CallerAuthenticator
    from queuegate.gateway.faces.interface import Request as FaceRequest
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.gateway.operations.telemetry.live_views import LiveView

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
_STREAM_USAGE = (
    f"Parameters are name: one queue; or kind: {', '.join(RIGHTS)}; find: a text in names; first: "
    "account/region/name of the first row; and accounts=all. Each has 1 to 360 characters."
)
_USAGE = 'Send {"key": "..."} with a key of this gateway, and "secret" for an access key.'
_MOST_PLACES = 1_000
_STREAM_HEADERS = _NO_STORE | {"x-accel-buffering": "no"}
_PARAMETERS = {"name", "kind", "find", "first", "accounts"}
_VALUE = re.compile(r"[\x20-\x7e]{1,360}")
_QUEUES = ("channel", "queue")


def console_routes(engine: Engine, settings: Settings, callers: CallerAuthenticator) -> list[Route]:
    """Return the routes of the console."""
    site = StaticFiles(directory=_FILES)
    sessions = _Sessions(engine, settings, callers)
    streams = _Streams(engine, settings, callers)

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
        Route("/console/stream", streams.answer),
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
        """Describe the session: how the APIs authenticate, the caller, and the accounts and regions
        to choose from. A caller that the APIs would refuse has no account."""
        settings, asked = self._settings, request.scope[REQUEST]
        needs_key = _needs_key(settings)
        content: dict[str, Any] = {
            "version": version("queuegate"),
            "needs_key": needs_key,
            "ephemeral": settings.ephemeral,
            "region": settings.region,
            "read_only": settings.console == "read-only",
            "account": None if needs_key else settings.account_id,
            "administrator": not needs_key,
            "accounts": {},
            "csrf": self._engine.console.token_of(asked.headers),
        }
        if needs_key and content["csrf"]:
            try:
                caller = self._callers.caller(asked, {}, wants=CredentialRule.KEY)
            except Rejected:
                return _json(content)
            content.update(account=caller.account_id, administrator=caller.is_administrator)
        if content["account"]:
            whose = None if content["administrator"] else content["account"]
            async with self._engine.database.transaction() as tx:
                found = await stored_queues.list_places(tx, whose, _MOST_PLACES)
            for account_id, region in found:
                content["accounts"].setdefault(account_id, []).append(region)
        return _json(content)

    def _signed_in(self, request: Request) -> Response:
        """Answer with the cookie of a key, if the APIs take the key."""
        asked = request.scope[REQUEST]
        try:
            members = orjson.loads(asked.body)
        except orjson.JSONDecodeError:
            members = None
        parts = [members.get("key"), members.get("secret")] if isinstance(members, dict) else []
        shown = [one for one in parts if one]
        if not shown or not all(isinstance(one, str) and _KEY.fullmatch(one) for one in shown):
            return _json({"error": _USAGE}, 400)
        cookie, token = self._engine.console.start(" ".join(shown))
        asked.headers = {"cookie": f"{COOKIE}={cookie}", TOKEN_HEADER: token}
        try:
            self._callers.caller(asked, {}, wants=CredentialRule.KEY)
        except Rejected as refusal:
            asked.refusal = refusal
            return _json({"error": "This gateway does not know the key."}, 403)
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


class _Streams:
    """Live figures as Server-Sent Events, with the rights of the session."""

    def __init__(self, engine: Engine, settings: Settings, callers: CallerAuthenticator) -> None:
        self._engine = engine
        self._settings = settings
        self._callers = callers
        self._live = LiveViews(engine)

    async def answer(self, request: Request) -> Response:
        """Stream a page of an account or of all accounts, or one queue. The page has the kinds that
        the caller has the right to."""
        asked = request.scope[REQUEST]
        params = dict(request.query_params)
        kind, name, accounts = [params.pop(one, "") for one in ("kind", "name", "accounts")]
        if (
            not request.query_params.keys() <= _PARAMETERS
            or not all(map(_VALUE.fullmatch, request.query_params.values()))
            or (kind and kind not in RIGHTS)
            or accounts not in ("", "all")
            or (name and len(request.query_params) > 1)
        ):
            return _json({"error": _STREAM_USAGE}, 400)
        headers = asked.headers
        try:
            caller = self._caller(asked, is_of_all=bool(accounts))
            kinds = _QUEUES if name else (kind,) if kind else self._allowed(caller)
            self._check(caller, kinds, name)
            if name:
                await find_own_queue(self._engine, caller, RIGHTS["queue"], name)
        except (Rejected, Unavailable) as refusal:
            asked.refusal = refusal
            is_absent = isinstance(refusal, QueueDoesNotExist)
            status = 503 if isinstance(refusal, Unavailable) else 404 if is_absent else 403
            return _json({"error": str(refusal)}, status)
        place = ("", "") if accounts else (caller.account_id, caller.region)
        params["find"] = params.get("find", "").lower()
        page = LivePage(kinds, *place, name, **params)
        if asked.method != "HEAD":
            asked.found = self._stream(asked, headers, page, self._live.view(page))
        return Response(headers=_STREAM_HEADERS, media_type="text/event-stream")

    def _caller(self, asked: FaceRequest, *, is_of_all: bool) -> Caller:
        """Return the caller. Raise the refusal of one without a valid key, or AccessDenied."""
        caller = self._callers.caller(asked, {}, wants=CredentialRule.KEY)
        if is_of_all and _needs_key(self._settings) and not caller.is_administrator:
            raise AccessDenied("Only the key of an administrator shows all accounts.")
        return caller

    def _allowed(self, caller: Caller) -> tuple[str, ...]:
        """Return the kinds that the caller has the right to; all of them, if it has none."""
        allowed = []
        for kind in RIGHTS:
            with contextlib.suppress(Rejected):
                self._check(caller, (kind,))
                allowed.append(kind)
        return tuple(allowed or RIGHTS)

    def _check(self, caller: Caller, kinds: Iterable[str], name: str = "") -> None:
        """Raise AccessDenied unless the caller has the right to all of these kinds."""
        for right in {RIGHTS[kind] for kind in kinds}:
            check_right(self._engine, caller, right, own_arn(caller, right, name or "*"))

    async def _stream(
        self,
        asked: FaceRequest,
        headers: Mapping[str, str],
        page: LivePage,
        opened: AbstractContextManager[LiveView],
    ) -> AsyncGenerator[bytes, None]:
        # At once, so that proxies pass the head on.
        yield b":\n\n"
        with opened as view:
            async for change in view.changes():
                # The key may have been revoked since.
                asked.headers = headers
                try:
                    caller = self._caller(asked, is_of_all=not page.account_id)
                    self._check(caller, page.kinds, page.name)
                except Rejected as refusal:
                    yield b"data: %b\n\n" % orjson.dumps({"error": str(refusal)})
                    return
                yield b"data: %b\n\n" % change


def _needs_key(settings: Settings) -> bool:
    """Return True if the APIs verify keys: then there are administrators."""
    return settings.auth == "sigv4" or settings.api_key is not None


def _json(content: dict[str, Any], status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, _NO_STORE, media_type="application/json")
