"""Pages with the certificates by which receivers of SNS messages check signatures.

Anybody may read them: a verifier has no credentials. The names are those that AWS's certificates
have (docs/contract/sns.md 3.6), and /v1/cert is the name of docs/seeds.md 1.2.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from queuegate.storage.errors import Unavailable

if TYPE_CHECKING:
    from queuegate.gateway.operations.topics.message_signing import EnvelopeSigner

_FINGERPRINT = re.compile(r"[0-9a-f]{32}")
_PATIENCE_SECONDS = 5.0

_Page = Callable[[Request], Awaitable[Response]]


def certificate_routes(signer: EnvelopeSigner) -> list[Route]:
    """The routes of all certificates."""

    async def current(_: Request) -> Response:
        """The certificate of the key that signs now; the key is made if there is none yet."""

        async def find() -> str:
            await signer.ready()
            return signer.certificate_pem

        return await _answer(find())

    async def named(request: Request) -> Response:
        """The certificate of the key with this fingerprint, also when another one signs by now."""
        fingerprint = request.path_params["fingerprint"]
        if not _FINGERPRINT.fullmatch(fingerprint):
            return _not_found()
        return await _answer(signer.certificate(fingerprint))

    pages: dict[str, _Page] = {
        "/SimpleNotificationService-{fingerprint}.pem": named,
        "/SimpleNotificationService.pem": current,
        "/v1/cert": current,
    }
    return [Route(path, page) for path, page in pages.items()]


async def _answer(find: Coroutine[Any, Any, str | None]) -> Response:
    task = asyncio.create_task(find)
    # Not cancelled when it takes too long: that would take as long as the answer.
    await asyncio.wait([task], timeout=_PATIENCE_SECONDS)
    if not task.done():
        task.add_done_callback(_look_at)
        return _not_now()
    try:
        certificate = task.result()
    except Unavailable:
        return _not_now()
    if certificate is None:
        return _not_found()
    return Response(certificate, media_type="application/x-pem-file")


def _look_at(task: asyncio.Task[str | None]) -> None:
    """What comes too late is nobody's news."""
    if not task.cancelled():
        task.exception()


def _not_found() -> Response:
    return PlainTextResponse("There is no such certificate.\n", 404)


def _not_now() -> Response:
    text = "The database is not available at the moment.\n"
    return PlainTextResponse(text, 503, {"retry-after": "1"})
