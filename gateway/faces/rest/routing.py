"""From a raw path to an endpoint: a tree of segments, one dict look-up per segment."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.faces.rest.endpoints import Endpoint


class Place:
    """One template of a path and what can be done there. ``methods`` is empty between templates."""

    __slots__ = ("below", "methods", "names", "parameter", "template")

    def __init__(self) -> None:
        self.below: dict[str, Place] = {}
        self.parameter: Place | None = None
        self.names: tuple[str, ...] = ()
        self.template = ""
        self.methods: dict[str, Endpoint] = {}

    @property
    def allow(self) -> str:
        """The value of the header Allow."""
        methods = set(self.methods) | {"OPTIONS"}
        if "GET" in self.methods and self.methods["GET"].is_safe:
            methods.add("HEAD")
        return ", ".join(sorted(methods))


class Router:
    """Finds the place of a path. A literal segment goes before a parameter."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._root = Place()
        for endpoint in endpoints:
            self._add(endpoint)

    def _add(self, endpoint: Endpoint) -> None:
        place = self._root
        names = []
        for segment in endpoint.path[1:].split("/"):
            if segment.startswith("{"):
                names.append(segment[1:-1])
                place.parameter = place.parameter or Place()
                place = place.parameter
            else:
                place = place.below.setdefault(segment, Place())
        assert endpoint.method not in place.methods, (endpoint.method, endpoint.path)
        # Longer templates may call a parameter otherwise, the methods of one place may not.
        assert place.template in ("", endpoint.path), endpoint.path
        place.template, place.names = endpoint.path, tuple(names)
        place.methods[endpoint.method] = endpoint

    def find(self, raw_path: str) -> tuple[Place, dict[str, str]] | None:
        """The place and its raw parameters; None when no template fits. Nothing is decoded: `%2F`
        is no separator."""
        place = self._root
        values = []
        for segment in raw_path[1:].split("/"):
            literal = place.below.get(segment)
            if literal is not None:
                place = literal
            elif place.parameter is not None and segment:
                values.append(segment)
                place = place.parameter
            else:
                return None
        return (place, dict(zip(place.names, values, strict=True))) if place.methods else None
