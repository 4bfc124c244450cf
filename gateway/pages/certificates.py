"""Pages with the certificates that verify signatures of SNS messages.

They are public, because verifiers have no credentials. Their names are those of AWS's certificates
(docs/contract/sns.md 3.6); /v1/cert is the name in docs/seeds.md 1.2.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from queuegate.storage.storage_errors import Unavailable

if TYPE_CHECKING:
    from queuegate.gateway.operations.topics.message_signing import EnvelopeSigner

_FINGERPRINT = re.compile(r"[0-9a-f]{32}")
_PATIENCE_SECONDS = 5.0

_Page = Callable[[Request], Awaitable[Response]]


def certificate_routes(signer: EnvelopeSigner) -> list[Route]:
    """Return the routes of all certificates."""

    async def current(_: Request) -> Response:
        """Return the certificate of the current signing key. Create the key if none exists."""

        async def find() -> str:
            await signer.ready()
            return signer.certificate_pem

        return await _answer(find())

    async def named(request: Request) -> Response:
        """Return the certificate of the key with this fingerprint, current or former."""
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
    # Do not cancel the task after the time limit: cancelling takes as long as the answer.
    await asyncio.wait([task], timeout=_PATIENCE_SECONDS)
    if not task.done():
        task.add_done_callback(_retrieve_error)
        return _not_now()
    try:
        certificate = task.result()
    except Unavailable:
        return _not_now()
    if certificate is None:
        return _not_found()
    return Response(certificate, media_type="application/x-pem-file")


def _retrieve_error(task: asyncio.Task[str | None]) -> None:
    """Retrieve the error of a late task, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()


def _not_found() -> Response:
    return PlainTextResponse("There is no such certificate.\n", 404)


def _not_now() -> Response:
    text = "The database is not available at the moment.\n"
    return PlainTextResponse(text, 503, {"retry-after": "1"})
