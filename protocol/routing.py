"""From a raw path to what is there: a tree of segments, one dict look-up per segment."""

from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

Target = TypeVar("Target")


class Place(Generic[Target]):
    """One template of a path and what each method does there. ``methods`` is empty between
    templates."""

    __slots__ = ("below", "methods", "names", "parameter", "rest", "template")

    def __init__(self) -> None:
        self.below: dict[str, Place[Target]] = {}
        self.parameter: Place[Target] | None = None
        self.rest: Place[Target] | None = None
        self.names: tuple[str, ...] = ()
        self.template = ""
        self.methods: dict[str, Target] = {}


class Found(NamedTuple, Generic[Target]):
    """The place of a path and its parameters, still encoded."""

    place: Place[Target]
    values: dict[str, str]


class Router(Generic[Target]):
    """Finds the place of a path. A literal segment goes before a parameter, and one segment before
    the rest of a path."""

    def __init__(self, routes: Iterable[tuple[str, str, Target]]) -> None:
        """``routes`` are methods, templates and what is there: ``/queues/{name}`` has a parameter
        of one segment, ``/tags/{arn+}`` one of all that are left."""
        self._root: Place[Target] = Place()
        self._fixed: dict[str, Found[Target]] = {}
        for method, template, target in routes:
            self._add(method, template, target)

    def _add(self, method: str, template: str, target: Target) -> None:
        place = self._root
        names = []
        for segment in template[1:].split("/"):
            if segment.endswith("+}"):
                names.append(segment[1:-2])
                place.rest = place.rest or Place()
                place = place.rest
            elif segment.startswith("{"):
                names.append(segment[1:-1])
                place.parameter = place.parameter or Place()
                place = place.parameter
            else:
                place = place.below.setdefault(segment, Place())
        assert method not in place.methods, (method, template)
        # Longer templates may call a parameter otherwise, the methods of one place may not.
        assert place.template in ("", template), template
        place.template, place.names = template, tuple(names)
        place.methods[method] = target
        if not names:
            self._fixed[template] = Found(place, {})

    def find(self, raw_path: str) -> Found[Target] | None:
        """What is at a path; None when no template fits. Nothing is decoded: `%2F` is no
        separator."""
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
        return Found(place, dict(zip(place.names, values, strict=True)))
