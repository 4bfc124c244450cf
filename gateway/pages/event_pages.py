"""The page of the events of an account: what happens to its messages, as it happens.

GET answers a question, or streams Server-Sent Events to clients that accept them. The first one
starts the recording of the account; PUT and POST start it until DELETE stops it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from queuegate.gateway.operations.telemetry.event_recordings import (
    KINDS,
    MOST_EVENTS,
    EventReader,
    read_events,
)
from queuegate.gateway.pages import page_paths
from queuegate.gateway.pages.operator_pages import (
    CallerPages,
    json_answer,
    read_number,
    read_params,
)
from queuegate.gateway.pages.public_pages import REQUEST
from queuegate.storage.storage_errors import MalformedInput

if TYPE_CHECKING:
    from queuegate.gateway.faces.interface import CallerAuthenticator
    from queuegate.gateway.faces.interface import Request as FaceRequest
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.runtime.engine import Engine

_MEMBERS = ("queue", "topic", "message_id")
_ASKED = ("account", *_MEMBERS, "kind", "after", "wait", "quiet", "limit")
_MOST_WAIT_SECONDS = 60
_TWELVE_DIGITS = re.compile(r"[0-9]{12}")
_STREAM = "text/event-stream"
_STREAM_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
_KEEP_ALIVE_SECONDS = 15.0
_WRITTEN_AT_ONCE = 50


class _EventPages(CallerPages):
    async def answer(self, request: Request, caller: Caller) -> Response:
        """Answer by method."""
        if request.method in ("GET", "HEAD"):
            return await self._show(request, caller)
        account_id = _account(read_params(request, ("account",)), caller)
        if request.method == "DELETE":
            await self.engine.events.stop(account_id)
            return json_answer({"account": account_id, "recording": False})
        ring = await self.engine.events.ring_of(account_id, is_kept=True)
        next_cursor = ring.cursor(ring.end)
        return json_answer({"account": account_id, "recording": True, "next": next_cursor})

    async def _show(self, request: Request, caller: Caller) -> Response:
        params = read_params(request, _ASKED)
        account_id = _account(params, caller)
        most = read_number(params, "limit", MOST_EVENTS, (1, MOST_EVENTS))
        wait_seconds = read_number(params, "wait", 0, (0, _MOST_WAIT_SECONDS))
        quiet_ms = read_number(params, "quiet", 0, (1, _MOST_WAIT_SECONDS * 1000))
        asked: FaceRequest = request.scope[REQUEST]
        is_stream = asked.method == "GET" and _STREAM in request.headers.get("accept", "")
        after = params.get("after", "now" if quiet_ms else "")
        if is_stream:
            after = request.headers.get("last-event-id") or after
        members = {name: params[name] for name in _MEMBERS if name in params}
        if "message_id" in members:
            members["message_id"] = members["message_id"].lower()
        kinds = _kinds(params)
        ring = await self.engine.events.ring_of(account_id)
        reader = EventReader(ring, kinds, members, after)
        if is_stream:
            asked.found = _stream(reader)
            return Response(headers=_STREAM_HEADERS, media_type=_STREAM)
        found, is_quiet = await read_events(reader, most, wait_seconds, quiet_ms / 1000)
        page = {"account": account_id, "recording": not ring.is_ended, "events": found}
        quiet = {"quiet": is_quiet} if quiet_ms else {}
        return json_answer({**page, **quiet, "lost": reader.lost, "next": reader.cursor})


def _account(params: dict[str, str], caller: Caller) -> str:
    account_id = params.get("account", caller.account_id)
    if _TWELVE_DIGITS.fullmatch(account_id) is None:
        raise MalformedInput("account is the 12 digits of an account.")
    return account_id


def _kinds(params: dict[str, str]) -> set[str]:
    kinds = set(params["kind"].split(",")) if "kind" in params else set()
    if not kinds <= {*KINDS}:
        raise MalformedInput(f"kind is one of {', '.join(KINDS)}, or several, with commas.")
    return kinds


async def _stream(reader: EventReader) -> AsyncIterator[bytes]:
    """Yield events until the recording ends. Nothing waits for a slow client: it reads from the
    ring later, and is told how many events it has lost."""
    # At once, so that proxies pass the head on.
    yield b":\n\n"
    lost: int | None = 0
    while not reader.ring.is_ended:
        until = asyncio.get_running_loop().time() + _KEEP_ALIVE_SECONDS
        found = await reader.wait(_WRITTEN_AT_ONCE, until)
        if reader.lost != lost:
            lost = reader.lost
            yield b"event: lost\ndata: %b\n\n" % orjson.dumps({"lost": lost})
        yield b"".join([one.shown for one in found]) or b":\n\n"
    yield b"event: end\ndata: {}\n\n"


def event_routes(engine: Engine, callers: CallerAuthenticator) -> list[Route]:
    """Return the route of the page."""
    page = _EventPages(engine, callers)
    methods = ["GET", "PUT", "POST", "DELETE"]
    return [Route(page_paths.EVENTS, page.page(page.answer), methods=methods)]
