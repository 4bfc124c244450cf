"""A router for raw paths: a tree of segments, with one dict look-up per segment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

Target = TypeVar("Target")


class PathNode(Generic[Target]):
    """A template of a path and the target of each method. ``methods`` is empty between
    templates."""

    __slots__ = ("below", "methods", "names", "parameter", "rest", "template")

    def __init__(self) -> None:
        self.below: dict[str, PathNode[Target]] = {}
        self.parameter: PathNode[Target] | None = None
        self.rest: PathNode[Target] | None = None
        self.names: tuple[str, ...] = ()
        self.template = ""
        self.methods: dict[str, Target] = {}


class RouteMatch(NamedTuple, Generic[Target]):
    """The node of a path and its parameters, still encoded."""

    place: PathNode[Target]
    values: dict[str, str]


class Router(Generic[Target]):
    """A tree of path templates. Literals win over parameters, and one segment over the rest of a
    path."""

    def __init__(self, routes: Iterable[tuple[str, str, Target]]) -> None:
        """Add routes of method, template and target. ``/queues/{name}`` has a parameter of one
        segment, ``/tags/{arn+}`` one of all remaining segments."""
        self._root: PathNode[Target] = PathNode()
        self._fixed: dict[str, RouteMatch[Target]] = {}
        for method, template, target in routes:
            self._add(method, template, target)

    def _add(self, method: str, template: str, target: Target) -> None:
        place = self._root
        names = []
        for segment in template[1:].split("/"):
            if segment.endswith("+}"):
                names.append(segment[1:-2])
                place.rest = place.rest or PathNode()
                place = place.rest
            elif segment.startswith("{"):
                names.append(segment[1:-1])
                place.parameter = place.parameter or PathNode()
                place = place.parameter
            else:
                place = place.below.setdefault(segment, PathNode())
        assert method not in place.methods, (method, template)
        # Only longer templates may give a parameter another name.
        assert place.template in ("", template), template
        place.template, place.names = template, tuple(names)
        place.methods[method] = target
        if not names:
            self._fixed[template] = RouteMatch(place, {})

    def find(self, raw_path: str) -> RouteMatch[Target] | None:
        """Return the match of a path; None: no template fits. `%2F` is no separator: nothing is
        decoded."""
        fixed = self._fixed.get(raw_path)
        if fixed is not None:
            return fixed
        place = self._root
        values = []
        segments = raw_path[1:].split("/")
        for number, segment in enumerate(segments):
            literal = place.below.get(segment)
            if literal is not None:
                place = literal
            elif place.parameter is not None and segment:
                values.append(segment)
                place = place.parameter
            else:
                left = "/".join(segments[number:])
                if place.rest is None or not left:
                    return None
                values.append(left)
                place = place.rest
                break
        if not place.methods:
            return None
        return RouteMatch(place, dict(zip(place.names, values, strict=True)))
