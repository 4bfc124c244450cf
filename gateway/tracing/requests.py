"""Spans of requests on the ordinary path: AWS's actions, the native API and the pages."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from time import perf_counter
from typing import TYPE_CHECKING, Any

from queuegate.gateway.http.app import App
from queuegate.gateway.tracing import spans
from queuegate.gateway.tracing.parents import parent_of
from queuegate.gateway.tracing.spans import CURRENT, Noting

if TYPE_CHECKING:
    from queuegate.gateway.faces.aws.aws_face import AwsCall, Binding, Members
    from queuegate.gateway.faces.interface import (
        Face,
        Mount,
        Receive,
        Request,
        Response,
        Scope,
        Send,
    )
    from queuegate.gateway.http.app import Reader
    from queuegate.gateway.tracing.spans import Tracing

_BROKEN = 500
_REQUEST_IDS = (b"x-amzn-requestid", b"x-request-id")


class TracedApp(App):
    """The app, with a span around each request that is sampled."""

    def __init__(self, tracing: Tracing, *doors: Any) -> None:
        super().__init__(*doors)
        self._tracing = tracing

    async def _enter(
        self, entrance: Mount, path: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        parent = parent_of(scope["headers"])
        # Never the path, which may say more.
        method, route = scope["method"], entrance.label(path).rstrip("/") or "/"
        span = self._tracing.request(parent, spans.request_name(method, route), perf_counter())
        # Whatever this task was made from, the request is its own.
        CURRENT.set(span)
        if span is None:
            await super()._enter(entrance, path, scope, receive, send)
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
                await super()._enter(entrance, path, scope, receive, watching)
        except BaseException:
            status = _BROKEN
            raise
        finally:
            spans.answered(span, status)

    async def _ask(
        self, face: Face, request: Request, scope: Scope, reader: Reader, reason: str
    ) -> Response:
        """A response that knows which template the path fits says so in the span."""
        response = await super()._ask(face, request, scope, reader, reason)
        span = CURRENT.get()
        if span is not None and response.route:
            spans.describe_native(span, request.method, response.route, request.raw_path)
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
    async def traced(call: AwsCall) -> Members | None:
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
