"""Endpoints of JSON faces: one declaration routes, validates and documents.

Types are msgspec Structs with ``forbid_unknown_fields``. A request that they refuse never reaches
the handler, and their descriptions are the schema in the OpenAPI document.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

from msgspec import Struct

from queuegate.gateway.faces.interface import Request
from queuegate.gateway.operations.access.authorization import Effect
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.runtime.replies import Reply, Started
from queuegate.protocol.routing import PathNode, RouteMatch
from queuegate.storage.storage_errors import Kind, OverLimit, Rejected


class Answer(NamedTuple):
    """The result of a handler.

    ``content`` None: no body. ``msgspec.Raw`` is sent as it is. A ``ConnectionHandler`` takes the
    connection over.
    """

    status: int
    content: Any = None
    headers: Mapping[str, str] | None = None


@dataclass(slots=True)
class Call:
    """One decoded request."""

    engine: Engine
    caller: Caller
    request: Request
    path: Any
    """An instance of ``path_params``; None without."""
    query: Any
    """An instance of ``query``; None without."""
    body: Any
    """The decoded ``body``. None: the endpoint has none, or an optional body was not sent."""
    right: str
    """The permission of the endpoint (``authorization``)."""


StructType = TypeVar("StructType", bound=type[Struct])


def schema_name(name: str) -> Callable[[StructType], StructType]:
    """Name the schema of a Struct in the OpenAPI document, where its class has another name."""

    def rename(kind: StructType) -> StructType:
        kind.__name__ = name
        return kind

    return rename


Handler = Callable[[Call], Awaitable[Answer]]


class PreparedCall(NamedTuple):
    """A call that awaits nothing but the reply of a write batcher."""

    start: Callable[[Reply[Any]], Started[Any] | None]
    """Pass the call to the batcher. A call that may wait can be cancelled."""
    answer: Callable[[Any], Answer | Awaitable[Answer]]
    """Make the answer of the reply. Slow answers are awaited, and yield to the event loop."""


PAGED = {"Link": 'The next page, rel="next"; absent on the last one.'}
"""Headers of a listing, for `Answered.headers`."""


def next_page(place: str, **parameters: Any) -> dict[str, str]:
    """Return the Link header to the next page of a listing, without parameters that are None."""
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
    """The type of the body, or a tuple of alternatives. None: no body."""
    text: str
    example: Any = None
    """A body as JSON-like Python values."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Name -> description of the headers of the answer."""
    media_type: str = "application/json"
    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """operationId -> {parameter: runtime expression}: next requests with values of this answer,
    such as ``$response.body#/name``."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A method on a path."""

    method: str
    path: str
    """A template with the prefix of its face: ``/made/of/{name}``. A parameter is a whole segment
    (``protocol.routing``)."""
    name: str
    """The operationId."""
    summary: str
    description: str
    tag: str
    handler: Handler
    answers: tuple[Answered, ...]
    right: str = field(kw_only=True)
    """The IAM action that a caller needs. Empty: none."""
    resource: str = field(default="", kw_only=True)
    """The resource of the permission: the end of its ARN, such as ``schedule/{name}``.

    Names in braces are parameters of the path or, without these, members of the body. Empty: a
    queue or a topic, which the handler finds by ``access``.
    """
    effect: Effect | None = field(default=None, kw_only=True)
    """The effect, if it differs from that of other operations with the same permission
    (``authorization``)."""
    refusals: tuple[int, ...] = (404,)
    """Statuses of refusals beside those of every endpoint: 400, 403, 413 and 503."""
    path_params: type[Struct] | None = None
    query: type[Struct] | None = None
    body: Any = None
    example: Any = None
    """A body. A dict with the one key ``examples`` holds several: {name: body}."""
    body_is_optional: bool = False
    carries_messages: bool = False
    """True if the body holds messages, and so may exceed ``Limits.request_bytes``."""
    public: bool = False
    """True if no credentials are needed. The endpoint then has no answer 403."""
    is_safe: bool = True
    """True for a GET without side effects, which HEAD may call, too."""
    prepare: Callable[[Call], PreparedCall | None] | None = None
    """Do the work of ``handler`` without a task, if nothing has to be awaited first.

    Returns None, without side effects, for a queue that is not cached or a rate limit to wait for.
    """
    may_wait: bool = False
    """True for a long poll: the handler is cancelled when its client disconnects."""


def endpoint_for(method: str, found: RouteMatch[Endpoint] | None) -> Endpoint | None:
    """Return the endpoint for a method. HEAD uses a GET without side effects."""
    if found is None:
        return None
    endpoint = found.place.methods.get(method)
    if endpoint is None and method == "HEAD":
        endpoint = found.place.methods.get("GET")
        return endpoint if endpoint is not None and endpoint.is_safe else None
    return endpoint


def allowed(place: PathNode[Endpoint]) -> str:
    """Return the value of the header Allow."""
    methods = {*place.methods, "OPTIONS"}
    if "GET" in place.methods and place.methods["GET"].is_safe:
        methods.add("HEAD")
    return ", ".join(sorted(methods))


_STATUSES: Mapping[Kind, int] = {
    Kind.ABSENT: 404,
    Kind.BUSY: 409,
    Kind.DISABLED: 409,
    Kind.EXISTS: 409,
    Kind.FORBIDDEN: 403,
    Kind.FULL: 429,
    Kind.INVALID: 400,
    Kind.LIMIT: 409,
    Kind.MALFORMED: 400,
    Kind.THROTTLED: 429,
    Kind.TOO_LARGE: 413,
    Kind.UNKNOWN: 404,
    Kind.UNSUPPORTED: 400,
}


def status_of(refusal: Rejected) -> int:
    """Return the HTTP status of a refusal.

    OverLimit is 429 and not 409, because the number of messages in flight falls by itself.
    """
    return 429 if isinstance(refusal, OverLimit) else _STATUSES[refusal.kind]


class Error(Struct):
    """The refusal of a request. The text has the necessary change."""

    error: str
