"""POST requests to web hooks, with one deadline, a limit on answers, and no redirects.

Private addresses are refused unless allowed. This module is imported at the first delivery, because
the client library takes 0.1 s to load.
"""

from __future__ import annotations

import asyncio
import io
import os
import socket
import ssl
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from queuegate.protocol.urls import is_private
from queuegate.scheduler.webhook_outcomes import DeliveryOutcome, judge, no_answer

_MOST_ANSWER_BYTES = 64 * 1024
_MOST_AT_ONCE_BYTES = 256 * 1024
# Shorter than the idle timeout of common servers: a request sent as the server closes is lost.
_KEEP_ALIVE_SECONDS = 2.0
_NAMES_SECONDS = 10
# Far above the number of requests to silent endpoints in flight. Look-ups at a silent name server
# hold a place until they time out, and must leave places for others.
_LOOK_UPS = 1_024
_WORDS = {
    "connection reset by peer": "the connection was reset",
    "server disconnected": "the connection was closed before an answer",
}


class PrivateAddress(OSError):
    """The web hook has a private address."""


def make_context(ca_file: Path | None) -> ssl.SSLContext:
    """Return a context that trusts the system's authorities and those in the file. Reads files."""
    context = ssl.create_default_context()
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    return context


class WebHooks:
    """The HTTP client of a process, with connections kept for the next delivery."""

    def __init__(
        self, context: ssl.SSLContext, *, timeout_seconds: float, allow_private: bool
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._allow_private = allow_private
        connector = aiohttp.TCPConnector(
            limit=0,
            ssl=context,
            resolver=_Resolver(self._check),
            ttl_dns_cache=_NAMES_SECONDS,
            keepalive_timeout=_KEEP_ALIVE_SECONDS,
            socket_factory=self._open_socket,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(),
            skip_auto_headers=("Accept", "Content-Type"),
            auto_decompress=False,
            trust_env=False,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> DeliveryOutcome:
        """Send one request. Errors become outcomes.

        An answer counts by its status once it is complete, or once its first 64 KiB have arrived.
        """
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return judge(await self._exchange(url, headers, body))
        except TimeoutError:
            return no_answer(f"no answer within {self._timeout_seconds:g} s")
        except (aiohttp.InvalidURL, UnicodeError):
            # The text of the error quotes the URL, which may contain a password.
            return no_answer("not a URL that can be asked", is_permanent=True)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            refused = _private_address(error)
            if refused is not None:
                return no_answer(str(refused), is_permanent=True)
            return no_answer(_explained(error))

    async def _exchange(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        # Stream large bodies: one large write would block the event loop.
        data = body if len(body) <= _MOST_AT_ONCE_BYTES else io.BytesIO(body)
        async with self._session.post(
            url, data=data, headers=headers, allow_redirects=False
        ) as response:
            size = 0
            async for chunk in response.content.iter_any():
                size += len(chunk)
                if size > _MOST_ANSWER_BYTES:
                    response.close()
                    break
            return response.status

    def _check(self, ip: str) -> None:
        if not self._allow_private and is_private(ip):
            raise PrivateAddress(
                f"{ip} is a private address: see QUEUEGATE_PRIVATE_WEBHOOKS, or web hooks on the "
                "internet"
            )

    def _open_socket(self, address: tuple[Any, ...]) -> socket.socket:
        """Open a socket after checking its address, from the resolver or from the URL itself."""
        family, kind, protocol, _, place = address
        self._check(str(place[0]))
        return socket.socket(family=family, type=kind, proto=protocol)


class _Resolver(AbstractResolver):
    """A resolver with a thread for each look-up: a silent name server blocks no other look-up, and
    no shutdown."""

    def __init__(self, check: Any) -> None:
        self._check = check
        self._free = asyncio.Semaphore(_LOOK_UPS)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the allowed addresses. Raise PrivateAddress if all addresses are private."""
        async with self._free:
            found = await _look_up(host, port, family)
        results: list[ResolveResult] = []
        refused: PrivateAddress | None = None
        for address_family, _, protocol, _, place in found:
            ip = str(place[0])
            try:
                self._check(ip)
            except PrivateAddress as refusal:
                refused = refusal
                continue
            results.append(
                ResolveResult(
                    hostname=host,
                    host=ip,
                    port=port,
                    family=address_family,
                    proto=protocol,
                    flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                )
            )
        if not results:
            raise refused or OSError(f"{host} has no address")
        return results

    async def close(self) -> None:
        """Do nothing: nothing is open."""


async def _look_up(host: str, port: int, family: int) -> list[tuple[Any, ...]]:
    answer: Future[list[tuple[Any, ...]]] = Future()
    # From here on the caller cannot cancel it: the thread always sets a result.
    answer.set_running_or_notify_cancel()

    def ask() -> None:
        try:
            answer.set_result(list(socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)))
        except (OSError, UnicodeError) as error:
            answer.set_exception(error)

    threading.Thread(target=ask, name="look up", daemon=True).start()
    return await asyncio.wrap_future(answer)


def _private_address(error: BaseException) -> PrivateAddress | None:
    """Return the PrivateAddress that caused an error of the client library, if any."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, PrivateAddress):
            return inner
        inner = getattr(inner, "os_error", None) or inner.__cause__ or inner.__context__
    return None


def _explained(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"the certificate is not trusted: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"the host name has no address: {_reason(error.os_error)}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"no connection: {_reason(error.os_error)}"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the connection was closed in the middle of the answer"
    text = str(error).strip() or type(error).__name__
    return _WORDS.get(text.lower().rpartition("] ")[2], text)


def _reason(error: OSError) -> str:
    """Return the system's text of an error. Numbers below zero are a resolver's, with its text."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)
