"""The interface between the HTTP server and faces: requests, responses, callers and mounts.

``gateway.process`` lists the faces of a process. ``gateway.http.app`` finds the face of each
request. Neither knows the answers of a face.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from queuegate.gateway.operations.access.caller import Caller, RequestOrigin
from queuegate.storage.storage_errors import Rejected, Unavailable

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.authorization import Effect
    from queuegate.gateway.operations.runtime.traffic import Reading


Headers = list[tuple[bytes, bytes]]

_UNKNOWN = RequestOrigin()


class RequestedOperation(NamedTuple):
    """The operation of a request, as its face understood it."""

    operation: str
    """The service or the face, a colon, and its name for the operation."""
    right: str
    """The permission that the operation needs. Empty: none."""
    about: Any = None
    """The decoded request, with the names of resources."""
    effect: Effect | None = None
    """The effect, if it differs from that of other operations with the same permission."""


@dataclass(slots=True)
class Request:
    """One HTTP request. Header names are lower case."""

    method: str
    path: str
    query: bytes
    headers: Mapping[str, str]
    body: bytes
    """Empty until it is read: decisions by the head alone do not see it."""
    base_url: str
    """The URL by which this client reaches the gateway."""
    links_url: str
    """The URL for links in messages, which all clients can follow."""
    request_id: str
    started: float = field(default_factory=perf_counter)
    raw_path: str = ""
    """The path as received, still percent-encoded."""
    origin: RequestOrigin = _UNKNOWN
    """The address of the client."""
    raw_headers: Sequence[tuple[bytes, bytes]] = ()
    """All headers in their order; ``headers`` has the last of each name."""
    peer: tuple[str, int] | None = None
    """Address and port of the socket's peer, which may be a proxy."""
    found: Any = None
    """The route match of the face, kept so that routing happens once."""
    caller: Caller | None = None
    """The caller, after authentication."""
    asked: RequestedOperation | None = None
    """The operation, after routing."""
    refusal: BaseException | None = None
    """The reason for a refusal, or the error behind a 500."""
    reading: Reading | None = None
    """Buffered bytes, which count for the caller after authentication."""
    is_cut: bool = False
    """True if the body was not read to its end because the head cannot authenticate."""
    ending: str = ""
    """The end of the answer by a fault on purpose (``operations.runtime.faults.Ending``)."""
    span: Any = None
    """The ``gateway.tracing.spans.RequestSpan`` of a traced request."""

    def listed(self, name: bytes) -> list[str]:
        """Return the members of a list header, which may be spread over several headers."""
        if name.decode() not in self.headers:
            return []
        values = [value for named, value in self.raw_headers if named == name]
        return [one.strip() for one in b",".join(values).decode("latin-1").split(",")]


class ConnectionWriter(Protocol):
    """The write side of a connection, for its handler."""

    def write(self, data: bytes) -> None:
        """Send, or buffer until the client reads (``ConnectionHandler.pause``)."""

    def unsent_bytes(self) -> int:
        """Return the number of written bytes that are still in the buffer."""

    def pause_reading(self) -> None:
        """Stop reading from the client."""

    def resume_reading(self) -> None:
        """Read from the client again."""

    def hang_up_after(self, seconds: int) -> None:
        """Let the system close the connection if the peer acknowledges nothing for so long.

        No effect where the system cannot.
        """

    def end(self) -> None:
        """Close after the written bytes. Received bytes are discarded from now on."""

    def abort(self) -> None:
        """Close at once."""


class ConnectionHandler(ABC):
    """The owner of a connection behind the head of its answer: an event stream or a WebSocket.

    The server calls it back, so an idle connection costs no task.
    """

    __slots__ = ()

    @abstractmethod
    def connection_made(self, writer: ConnectionWriter) -> None:
        """Start: the head of the answer is written."""

    @abstractmethod
    def data_received(self, data: bytes) -> None:
        """Handle bytes from the client."""

    @abstractmethod
    def pause(self) -> None:
        """Write nothing more that can wait: the client reads slower than the handler writes."""

    @abstractmethod
    def resume(self) -> None:
        """Write again: the client has read nearly everything."""

    @abstractmethod
    def unread(self) -> None:
        """Note that the peer stopped reading. The server closes the connection next."""

    @abstractmethod
    def shutdown(self) -> None:
        """End the connection: the server drains."""

    @abstractmethod
    def lost(self) -> None:
        """Clean up after the connection, also one that closed before ``connection_made``.

        The last call.
        """


@dataclass(slots=True)
class Response:
    """One HTTP response. Metrics count requests by ``route`` and ``action``."""

    status: int
    headers: Headers
    body: bytes | AsyncGenerator[bytes, None] | ConnectionHandler
    """The whole body, its parts, or the next owner of the connection.

    Each part is sent at once. The generator is closed when the client disconnects. No request
    follows on a connection with a handler.
    """
    action: str = ""
    """The operation, if the path does not name it."""
    route: str = ""
    """The path template. Empty: the label of the mount."""


class CredentialRule(Enum):
    """The credentials that a face requires.

    A key arrives in X-Api-Key, api-key or Authorization: Bearer. Faces for browsers also take the
    parameter ``api_key``, because EventSource sends no headers. On every face, a value in the form
    of a Queuegate key must be a valid key, and names the account.
    """

    CREDENTIALS = auto()
    """Those of QUEUEGATE_AUTH: as for AWS, a signature or any value in its place."""
    KEY = auto()
    """QUEUEGATE_API_KEY if it is set, or a Queuegate key. Otherwise none."""
    NAME = auto()
    """None. Any value names the producer for rate limits."""


class CallerAuthenticator(Protocol):
    """Authenticates callers by their credentials (``gateway.http.authentication``).

    Both paths pass all that a signature covers: method, path and query as received, all headers,
    and the body.
    """

    def caller(
        self,
        request: Request,
        params: Mapping[str, str],
        resource: str = "",
        *,
        may_be_anonymous: bool = False,
        wants: CredentialRule = CredentialRule.CREDENTIALS,
    ) -> Caller:
        """Return the caller of a request that was read to its end, or of a page before its body.

        ``params`` holds the credentials of a presigned request: its query, and its form if there is
        one. Raises AccessDenied with the name of the resource for missing or wrong credentials,
        UnrecognizedClient for an unknown key, and IncompleteSignature for unreadable ones.
        """

    def claimed(
        self,
        request: Request,
        params: Mapping[str, str],
        wants: CredentialRule = CredentialRule.CREDENTIALS,
    ) -> str | None:
        """Return the account that a head claims, before the body is read.

        Nothing is verified that needs the body. None: ``caller`` refuses any body.
        """

    @property
    def reads(self) -> frozenset[bytes]:
        """Return the headers that ``fast_caller`` needs beside those of the fast path."""

    def fast_caller(
        self, headers: Mapping[bytes, bytes], service: str, path: bytes, body: bytes
    ) -> Caller | None:
        """Return the caller on the fast path. None: use ``caller``.

        ``headers`` has each header once, without blanks around its value.
        """


class Work(Protocol):
    """The work of a face on one request."""

    def cancel(self) -> object:
        """Stop: the client disconnected."""


class Face(Protocol):
    """An API. Decides limits by the head of a request, and answers after its body."""

    def most_bytes(self, _request: Request) -> int | None:
        """Return the maximum body length by the head. None: the limit of the gateway."""
        return None

    def may_wait(self, _request: Request) -> bool:
        """Return True if the answer may wait for an event, as a long poll does.

        The server then cancels the work when the client disconnects.
        """
        return False

    def claimed(self, _request: Request) -> str | None:
        """Return the account that a head claims, before authentication. Empty: none.

        None: this head cannot authenticate, so ``answer`` refuses any body.
        """
        return ""

    async def answer(self, request: Request) -> Response:
        """Return the response to any request. Errors become responses, too."""

    def try_start(self, _request: Request, _done: Callable[[Response], None]) -> Work | bool:
        """Answer without a task, if only a write batcher has to reply.

        A task costs as much as a short request. ``done`` receives the response, in this call or
        later. Work that may wait is returned for cancellation. False: nothing was started, so the
        server must call ``answer``.
        """
        return False

    def turned_away(self, request: Request, refusal: Rejected | Unavailable) -> Response:
        """Return the refusal of a request whose body was not read to its end.

        The body is too large, its buffer is full, or the origin of the request is not allowed. The
        server closes the connection after the first two.
        """


DOCUMENT = "/openapi.json"
"""Path of the OpenAPI document below the prefix of a face."""

RequestCheck = Callable[[Request], bool]


def no_navigation(_: Request) -> bool:
    """Allow no navigation from other sites."""
    return False


def is_navigation(request: Request) -> bool:
    """Return True if a browser follows a link and shows the answer."""
    headers = request.headers
    return (
        request.method in ("GET", "HEAD")
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest", "document") == "document"
    )


def _document_below(path: str) -> RequestCheck:
    document = path + DOCUMENT
    return lambda request: request.raw_path == document and is_navigation(request)


_making = threading.Lock()
"""Makes faces one at a time. msgspec 0.22.0 shows a struct to other threads before it knows the
fields, and a decoder in another thread then follows a null pointer."""


class Mount:
    """A face, the requests that reach it, and their label in metrics.

    A thread makes the face at its first request or soon after the start, because its imports may
    take 0.1 s.
    """

    def __init__(
        self,
        make: Callable[[], Face],
        *,
        prefixes: tuple[str, ...],
        also: RequestCheck | None = None,
        label: Callable[[str], str],
        may_navigate: RequestCheck = no_navigation,
        is_operators: bool = False,
    ) -> None:
        self.face: Face | None = None
        self._make = make
        self._prefixes = prefixes
        self.paths: Container[str] = ()
        """Further paths that belong to this face."""
        self._also = also
        self.label = label
        """Map a path to one of a few labels, for responses without a route."""
        self.may_navigate = may_navigate
        """Allow links of other sites to pages that only show data or need a token to change it."""
        self.is_operators = is_operators
        """True for operators and probes: no access log, and no request in flight, because a scrape
        would count itself."""

    @classmethod
    def below(cls, prefix: str, make: Callable[[], Face], *, roots: tuple[str, ...] = ()) -> Self:
        """Mount a face on all paths below a prefix. Links may lead to its OpenAPI document.

        ``roots``: the paths of a face that shares its prefix, with all paths below them.
        """
        mount = cls(
            make,
            prefixes=tuple(f"{one}/" for one in (prefix, *roots)),
            label=lambda _: f"{prefix}/",
            may_navigate=_document_below(prefix),
        )
        mount.paths = roots
        return mount

    @classmethod
    def at(cls, path: str, make: Callable[[], Face]) -> Self:
        """Mount a face on one path and on its OpenAPI document below that path."""
        mount = cls(make, prefixes=(), label=lambda _: path, may_navigate=_document_below(path))
        mount.paths = (path, path + DOCUMENT)
        return mount

    def is_for(self, request: Request) -> bool:
        """Return True if the path belongs to this face.

        Paths are compared as received: an encoded path is another path, as for the rules of a proxy
        in front.
        """
        path, also = request.raw_path, self._also
        is_here = path.startswith(self._prefixes) or path in self.paths
        return is_here or (also is not None and also(request))

    async def open(self) -> Face:
        """Return the face, and make it at the first call."""
        if self.face is not None:
            return self.face
        return await asyncio.to_thread(self._made)

    def _made(self) -> Face:
        with _making:
            made = self.face
            if made is None:
                made = self.face = self._make()
            return made
