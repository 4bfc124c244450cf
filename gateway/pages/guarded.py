"""Access control of pages that show or change data.

With ``sigv4``, these pages need an administrator's key. Otherwise they are open to the local
machine. Ephemeral gateways open them to all clients, because their data is temporary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect, Request

from queuegate.gateway.faces.interface import REQUEST
from queuegate.gateway.pages import paths
from queuegate.gateway.pages.answers import json_answer
from queuegate.storage.storage_errors import AuthorizationError, Denied, Rejected

if TYPE_CHECKING:
    from starlette.responses import Response

    from queuegate.gateway.faces.interface import Asgi, CallerAuthenticator, Receive, Scope, Send
    from queuegate.gateway.faces.interface import Request as Asked

_MOST_BODY_BYTES = 65_536
_NOT_YOURS = "This page takes the key of an administrator: sign the request with it, or show it."
_NOT_HERE = (
    "This page is for the gateway's own machine: ask it there at 127.0.0.1, directly, or start the "
    "gateway with --ephemeral, or with QUEUEGATE_AUTH=sigv4 and ask with an administrator's key."
)


class Guarded:
    """Authenticates callers before the router runs, with the body that a signature covers."""

    def __init__(
        self, pages: Asgi, callers: CallerAuthenticator, admits: Callable[[Scope], bool] | None
    ) -> None:
        """``admits`` returns True if a request needs no key; None: every request needs one."""
        self._pages = pages
        self._callers = callers
        self._admits = admits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if paths.is_for_everybody(scope["raw_path"]) or self._is_admitted(scope):
            await self._pages(scope, receive, send)
            return
        body = b""
        try:
            async for part in Request(scope, receive).stream():
                body += part
                if len(body) > _MOST_BODY_BYTES:
                    await _refusal(413, "The body is larger than any that means something here.")(
                        scope, receive, send
                    )
                    return
        except ClientDisconnect:
            return
        scope[REQUEST].body = body
        refusal = self._refusal(scope[REQUEST])
        if refusal is not None:
            await refusal(scope, receive, send)
            return

        async def read() -> dict[str, object]:
            return {"type": "http.request", "body": body, "more_body": False}

        await self._pages(scope, read, send)

    def _is_admitted(self, scope: Scope) -> bool:
        return self._admits is not None and self._admits(scope)

    def _refusal(self, request: Asked) -> Response | None:
        """Return the refusal of the caller; None: the caller is an administrator."""
        try:
            caller = self._callers.caller(request, {}, request.path)
            if not caller.is_administrator:
                raise AuthorizationError(_NOT_YOURS)
        except Rejected as refusal:
            request.refusal = refusal
            if self._admits is not None:
                refusal.denied = Denied("origin")
            return _refusal(403, str(refusal) if self._admits is None else _NOT_HERE)
        return None


def is_administrator(callers: CallerAuthenticator, request: Asked) -> bool:
    """Return True if a request for a public page has the key of an administrator."""
    try:
        return callers.caller(request, {}, request.path).is_administrator
    except Rejected:
        return False


def _refusal(status: int, text: str) -> Response:
    # The rest of the body stays unread, so the connection cannot be reused.
    headers = {"connection": "close"} if status == 413 else None
    return json_answer({"error": text}, status, headers)
