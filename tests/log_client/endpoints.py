"""An endpoint that answers as a test says, for what a gateway does seldom."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from aiohttp import web


class Endpoint:
    """Answers as it is told to, one request after the other, and then with the last again."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[tuple[str, str, Any]] = []
        self.answers: list[Callable[[web.Request], Awaitable[web.Response]]] = []

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.requests.append((request.method, request.path_qs, json.loads(body or b"null")))
        self.headers = request.headers
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await answer(request)


def saying(body: object, status: int = 200, **headers: str) -> Any:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response(body, status=status, headers=headers)

    return answer


async def hang_up(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@contextlib.asynccontextmanager
async def listening() -> AsyncIterator[Endpoint]:
    """An endpoint that can be asked."""
    found = Endpoint()
    application = web.Application(client_max_size=16 << 20)
    application.router.add_route("*", "/{rest:.*}", found.answer)
    runner = web.AppRunner(application, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield found
    finally:
        await runner.cleanup()
