"""What comes into a face and what it answers, whatever its wire is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

Headers = list[tuple[bytes, bytes]]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

REQUEST = "queuegate.request"
"""In the scope of a face of ASGI: its ``Request``, without the body that it reads itself."""


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
    raw_headers: Sequence[tuple[bytes, bytes]] = ()
    """All headers in their order; ``headers`` has the last of each name."""


@dataclass(slots=True)
class Response:
    """One HTTP response. Who counts requests goes by ``route`` and ``action``."""

    status: int
    headers: Headers
    body: bytes | AsyncIterator[bytes]
    """All of it, or its parts as they come: each is sent at once, and when the client goes away
    the iterator is cancelled where it waits."""
    action: str = ""
    """What was asked for, where the path does not say it."""
    route: str = ""
    """The template that the path fits; empty: what the entrance says of it."""
