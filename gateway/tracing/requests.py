"""Spans of requests on the ordinary path: AWS's actions, the native API and the pages."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from time import perf_counter
from typing import TYPE_CHECKING, Any

from gateway.pages.paths import is_page, page_label
from gateway.tracing import spans
from gateway.tracing.parents import parent_of
from gateway.tracing.spans import CURRENT, Noting

if TYPE_CHECKING:
    from gateway.faces.aws.face import Binding, Call, Members, Request, Response
    from gateway.http.app import Asgi, Receive, Rest, Scope, Send
    from gateway.tracing.spans import Tracing
    from storage.errors import Rejected, Unavailable

_BROKEN = 500
_NATIVE = "/v1"
_REQUEST_IDS = (b"x-amzn-requestid", b"x-request-id")


class TracedApp:
    """The app, with a span around each request that is sampled."""

    def __init__(self, app: Asgi, tracing: Tracing) -> None:
        self._app = app
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        parent = parent_of(scope["headers"])
        method, route = scope["method"], _route(scope["raw_path"].decode("latin-1"))
        name = spans.request_name(method, route)
        span = self._tracing.request(parent, name, perf_counter())
        # Whatever this task was made from, the request is its own.
        CURRENT.set(span)
        if span is None:
            await self._app(scope, receive, send)
            return
        spans.note_route(span, method, route)
        status = spans.ABANDONED

        async def watching(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                for name, value in message["headers"]:
                    if name in _REQUEST_IDS:
                        spans.note_id(span, value.decode("latin-1"))
            await send(message)

        try:
            with Noting(span):
                await self._app(scope, receive, watching)
        except BaseException:
            status = _BROKEN
            raise
        finally:
            spans.answered(span, status)


def _route(path: str) -> str:
    """What a request is counted under, of bounded number; never the path, which may say more."""
    if path == "/":
        return path
    return page_label(path) if is_page(path) else _NATIVE if path.startswith("/v1/") else "/"


class TracedRest:
    """The native API, which says in the span of a request what template its path fits."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    def may_wait(self, request: Request) -> bool:
        """Whether the request may be a long poll."""
        return self._rest.may_wait(request)

    async def answer(self, request: Request) -> Response:
        """The response to any request."""
        return _named(request, await self._rest.answer(request))

    def turned_away(self, request: Request, refusal: Rejected | Unavailable) -> Response:
        """The refusal of a request whose body was not read to its end."""
        return _named(request, self._rest.turned_away(request, refusal))


def _named(request: Request, response: Response) -> Response:
    span = CURRENT.get()
    if span is not None:
        spans.describe_native(span, request.method, response.action, request.path)
    return response


def traced_bindings(
    bindings: Mapping[str, Mapping[str, Binding]],
) -> dict[str, dict[str, Binding]]:
    """The bindings of each service; they say in the span of their request what it is about."""
    return {
        service: {name: _traced(binding) for name, binding in actions.items()}
        for service, actions in bindings.items()
    }


def _traced(binding: Binding) -> Binding:
    async def traced(call: Call) -> Members | None:
        span = CURRENT.get()
        if span is None:
            return await binding(call)
        detected = call.detected
        members = call.members
        if detected.path_queue is not None and not members.get("QueueUrl"):
            members = {**members, "QueueUrl": detected.path_queue.name}
        spans.describe(span, detected.service, detected.action or "", members)
        with Noting(span):
            result = await binding(call)
        spans.note_result(span, result)
        return result

    return traced
