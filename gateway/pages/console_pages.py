"""The web console at /console: its files, sessions of people who sign in with a key, and figures.

The console is a page without a build step. It asks the APIs of this gateway like any other client,
so it has the rights of its key and no others. Its files are public, because they hold no data.

Where the APIs need a key, the console signs in: POST /console/session stores the key, encrypted, in
a cookie that scripts cannot read. A request with the cookie has the rights of the key
(``console_sessions``).
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
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
from queuegate.gateway.operations.queues.live_queues import LivePage, LiveQueues
from queuegate.gateway.pages.public_pages import REQUEST
from queuegate.storage.queues import stored_queues
from queuegate.storage.storage_errors import QueueDoesNotExist, Rejected, Unavailable

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings
    from queuegate.gateway.faces.interface import CallerAuthenticator
    from queuegate.gateway.faces.interface import Request as FaceRequest
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.queues.live_queues import Ask, LiveView
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
_STREAM_USAGE = (
    "Parameters are name: one queue; or find: a text in names, and after: the name before the "
    "first queue. Each has 1 to 80 characters."
)
_USAGE = 'Send {"key": "..."} with a key of this gateway, and "secret" for an access key.'
_MOST_PLACES = 1_000
_RIGHT = "sqs:GetQueueAttributes"
_STREAM_HEADERS = _NO_STORE | {"x-accel-buffering": "no"}
_PARAMETERS = {"name", "find", "after"}
_NAME = re.compile(r"[\x20-\x7e]{1,80}")


def console_routes(
    engine: Engine, settings: Settings, callers: CallerAuthenticator, ask: Ask
) -> list[Route]:
    """Return the routes of the console. ``ask`` asks the other processes of this gateway."""
    site = StaticFiles(directory=_FILES)
    sessions = _Sessions(engine, settings, callers)
    streams = _Streams(engine, callers, LiveQueues(engine, ask))

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
        needs_key = settings.auth == "sigv4" or settings.api_key is not None
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
    """Live figures of queues as Server-Sent Events, with the rights of the session."""

    def __init__(self, engine: Engine, callers: CallerAuthenticator, live: LiveQueues) -> None:
        self._engine = engine
        self._callers = callers
        self._live = live

    async def answer(self, request: Request) -> Response:
        """Stream a page of the account's queues, or one queue."""
        asked = request.scope[REQUEST]
        params = dict(request.query_params)
        if not params.keys() <= _PARAMETERS or not all(map(_NAME.fullmatch, params.values())):
            return _json({"error": _STREAM_USAGE}, 400)
        headers = asked.headers
        try:
            caller = self._check(asked, params)
            if "name" in params:
                await find_own_queue(self._engine, caller, _RIGHT, params["name"])
        except (Rejected, Unavailable) as refusal:
            asked.refusal = refusal
            is_absent = isinstance(refusal, QueueDoesNotExist)
            status = 503 if isinstance(refusal, Unavailable) else 404 if is_absent else 403
            return _json({"error": str(refusal)}, status)
        params["find"] = params.get("find", "").lower()
        page = LivePage(caller.account_id, caller.region, **params)
        if asked.method != "HEAD":
            asked.found = self._stream(asked, headers, page, self._live.view(page))
        return Response(headers=_STREAM_HEADERS, media_type="text/event-stream")

    def _check(self, asked: FaceRequest, params: Mapping[str, str]) -> Caller:
        """Return the caller. Raise the refusal of one without a valid key or the right."""
        caller = self._callers.caller(asked, {}, wants=CredentialRule.KEY)
        resource = own_arn(caller, _RIGHT, params.get("name", "*"))
        check_right(self._engine, caller, _RIGHT, resource)
        return caller

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
                    self._check(asked, {"name": page.name} if page.name else {})
                except Rejected as refusal:
                    yield b"data: %b\n\n" % orjson.dumps({"error": str(refusal)})
                    return
                yield b"data: %b\n\n" % change


def _json(content: dict[str, Any], status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, _NO_STORE, media_type="application/json")
