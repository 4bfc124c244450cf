"""The rest-json wire: method and path name the action. Members come in the path, the query string
and a JSON body (docs/contract/scheduler.md 4.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from queuegate.protocol import json_wire
from queuegate.protocol.malformed import Malformed
from queuegate.protocol.query_wire import unescaped_text, utf8_text
from queuegate.protocol.routing import Router
from queuegate.protocol.shapes import Action, List, Scalar, Shape, Structure, parse_integer

CONTENT_TYPE = "application/json"

_MOST_PARAMETERS = 4096


@dataclass(frozen=True, slots=True)
class RestRoute:
    """A method and an encoded path. With a `label` the rest of the path is that member: one
    segment, or more only for an ARN. `query` maps parameters of the query string to members."""

    method: str
    path: str
    label: str | None
    action: str
    query: Mapping[str, str] = field(default_factory=dict)


class RestMatch(NamedTuple):
    """The route of a request. `route` None: no route; `methods` are those of the path, if any."""

    route: RestRoute | None
    label: str
    methods: tuple[str, ...] = ()


def router(routes: Iterable[RestRoute]) -> Router[RestRoute]:
    """Return the router for ``find``. It also understands ARNs with unescaped slashes."""
    return Router((one.method, _template(one), one) for one in routes)


def _template(route: RestRoute) -> str:
    if route.label is None:
        return route.path
    return f"{route.path}{{{route.label}{'+' if route.label.endswith('Arn') else ''}}}"


def find(routes: Router[RestRoute], method: str, raw_path: str) -> RestMatch:
    """Return the route of a request by its path as received: `%2F` is no separator."""
    found = routes.find(raw_path)
    if found is None:
        return RestMatch(None, "")
    route = found.place.methods.get(method)
    if route is None:
        return RestMatch(None, "", tuple(found.place.methods))
    return RestMatch(route, found.values[route.label] if route.label else "")


def decode(
    action: Action, found: RestMatch, query: bytes, body: bytes, *, is_counted: bool = False
) -> dict[str, Any]:
    """Return the members of a request to `found.route`, typed as the action's input says. Members
    of the path or the query string are not read from the body, and unknown parameters are ignored.
    Raises Malformed as `json_wire.decode` does, and for text that is not UTF-8."""
    route = found.route
    assert route is not None
    located = dict.fromkeys(route.query.values())
    if route.label is not None:
        located[route.label] = None
    members = action.input.members
    result: dict[str, Any] = {}
    if route.method in ("POST", "PUT"):
        payload = json_wire.decode(action.input, body, is_counted=is_counted)
        result = {name: value for name, value in payload.items() if name not in located}
    if route.label is not None:
        result[route.label] = utf8_text(unquote_to_bytes(found.label.encode("latin-1")))
    parameters = _parameters(query)
    for name, member in route.query.items():
        texts = parameters.get(name)
        if texts:
            result[member] = _read(members[member], texts)
    return result


def _parameters(query: bytes) -> dict[str, list[str]]:
    """Return every value of each parameter."""
    if query.count(b"&") >= _MOST_PARAMETERS:
        raise Malformed(f"The request has more than {_MOST_PARAMETERS} parameters.")
    found: dict[str, list[str]] = {}
    for pair in query.split(b"&"):
        if pair:
            name, _, value = pair.partition(b"=")
            found.setdefault(unescaped_text(name), []).append(unescaped_text(value))
    return found


def _read(shape: Shape, texts: list[str]) -> Any:
    if isinstance(shape, List):
        return texts
    assert isinstance(shape, Scalar)
    return texts[0] if shape.kind == "string" else parse_integer(shape.kind, texts[0])


def encode(structure: Structure | None, result: dict[str, Any]) -> bytes:
    """Return the body of a success: always a JSON object. Timestamps are seconds since the
    epoch."""
    return json_wire.encode(structure or Structure({}), result)
