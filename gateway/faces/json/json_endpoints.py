"""Endpoints of JSON faces: signature and docstring of a handler route, validate and document.

Types are msgspec Structs with ``forbid_unknown_fields``. A request that they refuse never reaches
the handler, and their descriptions are the schema in the OpenAPI document.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from itertools import count
from operator import or_
from types import UnionType
from typing import Any, Generic, NamedTuple, TypeVar, get_args, get_type_hints
from urllib.parse import urlencode

from msgspec import Raw, Struct, defstruct

from queuegate.gateway.faces.interface import ConnectionHandler, Request
from queuegate.gateway.operations.access.authorization import Effect, effect_of
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.gateway.operations.runtime.replies import Reply, Started
from queuegate.protocol.routing import PathNode, RouteMatch
from queuegate.storage.storage_errors import Kind, OverLimit, Rejected

Content = TypeVar("Content")


class Answer(NamedTuple, Generic[Content]):
    """The result of a handler.

    ``content`` None: no body. ``msgspec.Raw`` is sent as it is. A ``ConnectionHandler`` takes the
    connection over. Pages of operators may stream parts.
    """

    status: int
    content: Content | Raw | ConnectionHandler | AsyncGenerator[bytes, None] | None = None
    headers: Mapping[str, str] | None = None


@dataclass(slots=True)
class Call:
    """One decoded request."""

    engine: Engine
    caller: Caller
    request: Request
    path: Any
    """The parameters of the path; None without."""
    query: Any
    """The decoded query; None without."""
    body: Any
    """The decoded ``body``. None: the endpoint has none, or an optional body was not sent."""
    right: str
    """The permission of the endpoint (``authorization``)."""


Handler = Callable[..., Awaitable[Answer[Any]]]
HandlerType = TypeVar("HandlerType", bound=Handler)


class PreparedCall(NamedTuple):
    """A call that awaits nothing but the reply of a write batcher."""

    start: Callable[[Reply[Any]], Started[Any] | None]
    """Pass the call to the batcher. A call that may wait can be cancelled."""
    answer: Callable[[Any], Answer[Any] | Awaitable[Answer[Any]]]
    """Make the answer of the reply. Slow answers are awaited, and yield to the event loop."""


PAGED = {"Link": 'The next page, rel="next"; absent on the last one.'}
"""Headers of a listing, for `Answered.headers`."""


def next_page(place: str, **parameters: Any) -> dict[str, str]:
    """Return the Link header to the next page of a listing, without parameters that are None.

    Without ``after``, there is no next page.
    """
    if parameters["after"] is None:
        return {}
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
    """Takes the call, and its member of the name ``takes``, if any."""
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
    """A body, if not that of its type. A dict with the key ``examples`` has several by name."""
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
    takes: str = ""


_NOTHING: Mapping[int, Any] = {}
_numbers = count(1)
_DETAILS = {"headers", "links", "media_type"}
_LIMIT = re.compile(r"{limits\.(\w+)}")
_SUCCESS = re.compile(r" Returns (\d{3}): ")


class Endpoints(list[Endpoint]):
    """The endpoints of a tag. A call decorates a handler, which has the name of the operation.

    The docstring of a handler begins with the summary, one sentence. Then it has the description,
    and ``Returns 200: ...`` for each success. ``{limits.name}`` is a limit. A parameter `query` or
    `body` has the type of the query or the body; a body that may be None is optional.
    """

    def __init__(self, tag: str, **path_types: Any) -> None:
        """``path_types``: types of parameters of paths, by name."""
        super().__init__()
        self._tag = tag
        self._path_types = path_types

    def declare(self, route: str, **declared: Any) -> None:
        """Add an endpoint with the type of its path."""
        method, path = route.split()
        if "path_params" not in declared and (names := re.findall(r"{(\w+)}", path)):
            kinds = [(name, self._path_types[name]) for name in names]
            kind = defstruct(f"Path{next(_numbers)}", kinds, forbid_unknown_fields=True)
            declared["path_params"] = kind
        is_safe = method == "GET" and declared.get("is_safe", True)
        if is_safe and effect_of(declared["right"]) is Effect.DATA:
            # Browsing needs the right to receive, and changes nothing.
            declared.setdefault("effect", Effect.READING)
        self.append(Endpoint(method, path, tag=self._tag, **declared))

    def __call__(
        self, route: str, right: str, *, shows: Mapping[int, Any] = _NOTHING, **declared: Any
    ) -> Callable[[HandlerType], HandlerType]:
        """Declare the handler of a method and a path.

        ``shows``: members of examples by status, where types imply others. Members of ``Answered``
        are those of the success with the highest status below 204. Others are of ``Endpoint``.
        """
        details = {name: declared.pop(name) for name in _DETAILS & declared.keys()}

        def declare(handler: HandlerType) -> HandlerType:
            types = get_type_hints(handler, include_extras=True)
            assert not {"query", "body"} <= types.keys(), handler
            for name in {"query", "body"} & types.keys():
                kinds = get_args(types[name])
                if type(None) in kinds:
                    declared["body_is_optional"] = True
                    types[name] = reduce(or_, [one for one in kinds if one is not type(None)])
                declared.update({name: types[name], "takes": name})
            documented = " ".join((handler.__doc__ or "").split())
            text, *found = _SUCCESS.split(_LIMIT.sub(_limit, documented))
            summary, _, description = f"{text} ".partition(". ")
            [content] = get_args(types["return"])
            content = get_args(content) if isinstance(content, UnionType) else content
            statuses = [int(status) for status in found[::2]]
            detailed = max((one for one in statuses if one < 204), default=204)
            answers = tuple(
                Answered(
                    status,
                    None if status in (101, 204) or content is type(None) else content,
                    text,
                    shows.get(status),
                    **(details if status == detailed else {}),
                )
                for status, text in zip(statuses, found[1::2], strict=True)
            )
            self.declare(
                route,
                name=_camel_case(handler.__name__),
                summary=summary,
                description=description.strip(),
                handler=handler,
                answers=answers,
                right=right,
                **declared,
            )
            return handler

        return declare


def _limit(found: re.Match[str]) -> str:
    return str(getattr(LIMITS, found[1]))


def _camel_case(name: str) -> str:
    return re.sub(r"_(\w)", lambda found: found[1].upper(), name)


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
