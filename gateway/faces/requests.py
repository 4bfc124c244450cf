"""What comes into a face and what it answers, whatever its wire is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.authorization import Effect
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.runtime.traffic import Reading
    from queuegate.storage.errors import Rejected, Unavailable

from queuegate.gateway.operations.access.caller import RequestOrigin

Headers = list[tuple[bytes, bytes]]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

_UNKNOWN = RequestOrigin()

REQUEST = "queuegate.request"
"""In the scope of a face of ASGI: its ``Request``, without the body that it reads itself."""


class Asked(NamedTuple):
    """What a request wants, as its face understood it."""

    operation: str
    """The service or the face, a colon, and what it calls it."""
    right: str
    """What it needs; empty: it is about nobody's things."""
    about: Any = None
    """The decoded request, in which names of what it is about may be."""
    effect: Effect | None = None
    """Where it is another than others with the right have."""


@dataclass(slots=True)
class Request:
    """One HTTP request. Header names are lower case."""

    method: str
    path: str
    query: bytes
    headers: Mapping[str, str]
    body: bytes
    """Empty until it is read: who decides by the head alone does not see it."""
    base_url: str
    """How the client reaches us."""
    links_url: str
    """How everybody does: where links in messages lead."""
    request_id: str
    started: float = field(default_factory=perf_counter)
    raw_path: str = ""
    """The path as it came over the wire, still encoded."""
    origin: RequestOrigin = _UNKNOWN
    """Where it comes from."""
    raw_headers: Sequence[tuple[bytes, bytes]] = ()
    """All headers in their order; ``headers`` has the last of each name."""
    found: Any = None
    """What its face found at the path, to look once."""
    caller: Caller | None = None
    """Who asks, once that is known."""
    asked: Asked | None = None
    """What for, once that is."""
    refusal: Rejected | Unavailable | None = None
    """Why it was refused."""
    reading: Reading | None = None
    """Bytes that count for the caller as soon as it is known."""
    is_cut: bool = False
    """The body was not read to its end, for the head cannot authenticate."""

    def listed(self, name: bytes) -> list[str]:
        """The members of a list that may be spread over several headers of that name."""
        if name.decode() not in self.headers:
            return []
        values = [value for named, value in self.raw_headers if named == name]
        return [one.strip() for one in b",".join(values).decode("latin-1").split(",")]


class Line(Protocol):
    """A connection as its taker sees it."""

    def write(self, data: bytes) -> None:
        """Send; what the client does not read lies here (``Taker.pause``)."""

    def unsent_bytes(self) -> int:
        """How much of what was written, the end of it, is still here."""

    def pause_reading(self) -> None:
        """Let what the client sends wait."""

    def resume_reading(self) -> None:
        """Hand on again what it sends."""

    def hang_up_after(self, seconds: int) -> None:
        """Let the system close the connection when what it sent was not acknowledged by the
        peer's for so long, where it can."""

    def end(self) -> None:
        """Close behind what was written; what still comes is dropped."""

    def abort(self) -> None:
        """Close at once."""


class Taker(ABC):
    """Takes a connection over behind the head of its answer, and keeps it: a stream of events, a
    WebSocket. Called back, so that a connection that waits costs no task.
    """

    __slots__ = ()

    @abstractmethod
    def begin(self, line: Line) -> None:
        """The head of the answer is written."""

    @abstractmethod
    def data_received(self, data: bytes) -> None:
        """The client sent this."""

    @abstractmethod
    def pause(self) -> None:
        """The client reads slower than we write: write nothing more that can wait."""

    @abstractmethod
    def resume(self) -> None:
        """It has read nearly all."""

    @abstractmethod
    def unread(self) -> None:
        """It has not read a byte for long; the connection is lost next."""

    @abstractmethod
    def shutdown(self) -> None:
        """The server drains: end the line."""

    @abstractmethod
    def lost(self) -> None:
        """The connection is no more, or was gone before it was taken. The last call."""


@dataclass(slots=True)
class Response:
    """One HTTP response. Who counts requests goes by ``route`` and ``action``."""

    status: int
    headers: Headers
    body: bytes | AsyncIterator[bytes] | Taker
    """All of it, or its parts as they come: each is sent at once, and when the client goes away
    the iterator is cancelled where it waits. Or whoever takes the connection over; no request
    follows on it."""
    action: str = ""
    """What was asked for, where the path does not say it."""
    route: str = ""
    """The template that the path fits; empty: what the entrance says of it."""
