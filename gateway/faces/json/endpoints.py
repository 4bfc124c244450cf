"""What an endpoint of a face of JSON is: one declaration that routes, validates and documents.

Types are msgspec Structs with ``forbid_unknown_fields``: what they refuse is refused before the
handler runs, and what they say of themselves is the schema in the OpenAPI document.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

from msgspec import Struct

from queuegate.gateway.faces.requests import Request
from queuegate.gateway.operations.access.authorization import Effect
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.runtime.replies import Reply, Started
from queuegate.protocol.routing import PathNode, RouteMatch


class Answer(NamedTuple):
    """What a handler returns. ``content`` None: no body; ``msgspec.Raw`` is sent as it is; a
    ``Taker`` gets the connection."""

    status: int
    content: Any = None
    headers: Mapping[str, str] | None = None


@dataclass(slots=True)
class Call:
    """One decoded request: what handlers work with."""

    engine: Engine
    caller: Caller
    request: Request
    path: Any
    """An instance of ``path_params``; None without."""
    query: Any
    """An instance of ``query``; None without."""
    body: Any
    """What ``body`` decoded to; None without, or when an optional body was not sent."""
    right: str
    """What the endpoint needs (``authorization``)."""


Handler = Callable[[Call], Awaitable[Answer]]


class Begun(NamedTuple):
    """A call for which all is known that has to be awaited but what a lane replies."""

    start: Callable[[Reply[Any]], Started[Any] | None]
    """Hands it to the lane. What may wait can be given up."""
    answer: Callable[[Any], Answer | Awaitable[Answer]]
    """From what the lane replied. Awaited is what would hold others up."""


PAGED = {"Link": 'The next page, rel="next"; absent on the last one.'}
"""What comes with a listing, for `Answered.headers`."""


def next_page(place: str, **parameters: Any) -> dict[str, str]:
    """The header that leads to the rest of a listing; parameters that are None are left out."""
    given = {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in parameters.items()
        if value is not None
    }
    return {"link": f'<{place}?{urlencode(given)}>; rel="next"'}


@dataclass(frozen=True, slots=True)
class Answered:
    """One success that an endpoint documents."""

    status: int
    type: Any
    """The type of the body, or a tuple of those that it may have; None: there is no body."""
    text: str
    example: Any = None
    """A body, as JSON-like Python values."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Name -> description of the headers that come with it."""
    media_type: str = "application/json"
    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """operationId -> {parameter: runtime expression}, such as ``$response.body#/name``: what can be
    asked next with values from this answer."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A method on a path."""

    method: str
    path: str
    """A template, with the prefix of its face: ``/made/of/{name}``. A parameter is a whole
    segment (``protocol.routing``)."""
    name: str
    """The operationId."""
    summary: str
    description: str
    tag: str
    handler: Handler
    answers: tuple[Answered, ...]
    right: str = field(kw_only=True)
    """What a caller needs for it, as IAM calls it; empty: it is about nobody's things."""
    resource: str = field(default="", kw_only=True)
    """What it needs the right to: the end of its ARN, in which parameters of the path may be, or
    where that has none members of the body, such as ``schedule/{name}``. Empty: a queue or a topic,
    and the handler finds it by ``access``."""
    effect: Effect | None = field(default=None, kw_only=True)
    """What it does, where that is not what others with its right do (``authorization``)."""
    refusals: tuple[int, ...] = (404,)
    """Statuses of refusals beside 400, 403, 413 and 503, which all have. Most are about something
    that may not be there."""
    path_params: type[Struct] | None = None
    query: type[Struct] | None = None
    body: Any = None
    example: Any = None
    """Of the body. A dict with the one key ``examples`` holds several: {name: body}."""
    body_is_optional: bool = False
    carries_messages: bool = False
    """Whether the body holds messages, and so may be longer than ``Limits.request_bytes``."""
    public: bool = False
    """Whether it takes no credentials; 403 is then no answer of it."""
    is_safe: bool = True
    """Of GET: whether asking changes nothing, so that HEAD may ask, too."""
    begin: Callable[[Call], Begun | None] | None = None
    """What ``handler`` does, where nothing has to be awaited first: a queue that is not cached, a
    permit. None, or what it answers: something has to be, and nothing was done."""
    may_wait: bool = False
    """Whether it waits: when its client goes away meanwhile the handler is cancelled."""


def asked(method: str, found: RouteMatch[Endpoint] | None) -> Endpoint | None:
    """The endpoint for a method. HEAD asks what GET asks, unless that changes something."""
    if found is None:
        return None
    endpoint = found.place.methods.get(method)
    if endpoint is None and method == "HEAD":
        endpoint = found.place.methods.get("GET")
        return endpoint if endpoint is not None and endpoint.is_safe else None
    return endpoint


def allowed(place: PathNode[Endpoint]) -> str:
    """The value of the header Allow."""
    methods = {*place.methods, "OPTIONS"}
    if "GET" in place.methods and place.methods["GET"].is_safe:
        methods.add("HEAD")
    return ", ".join(sorted(methods))
