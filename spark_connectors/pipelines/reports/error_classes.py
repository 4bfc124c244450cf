"""Error classes of dead letters: a few words that are equal for equal causes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from spark_connectors.errors import ConnectorError

_LONGEST = 120
_DEPTH = 2
_MOST_KEYS = 12
# ErrorCode is Lambda's attribute of dead letters; the others are those of frameworks. SNS adds none
# to its own: there the body, or its shape, has the class.
_ATTRIBUTE = re.compile(
    r"^(x-)?(last)?(error|exception|failure|fault)(code|type|class|name|classname|reason|fqcn)?$"
)
_BEST = ("errorcode", "errortype", "exceptionclass", "exceptiontype", "exception", "error")
# The last error of a log's group; a consumer's own attribute may be more specific.
_OF_LOGS = "queuegatelasterror"
_MASKS = (
    (re.compile(r"\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "<uuid>"),
    (
        re.compile(r"\b\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?([.,]\d+)?(Z|[+-]\d\d:?\d\d)?)?\b"),
        "<time>",
    ),
    (re.compile(r"\b(?=[0-9a-fA-F]*\d)(?=[0-9a-fA-F]*[a-fA-F])[0-9a-fA-F]{8,}\b"), "<hex>"),
    (re.compile(r"\"[^\"]{0,400}\"|'[^']{0,400}'"), "<text>"),
    (re.compile(r"[\w.+-]{1,100}@[\w-]{1,100}\.[\w.-]{1,100}"), "<mail>"),
    (re.compile(r"\d+([.,]\d+)*"), "<n>"),
)
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\['([^']+)'\]")


class BadPath(ConnectorError):
    """An invalid JSON path."""


class Classifier(NamedTuple):
    """Rules that classify messages. ``attributes``: names to read, in this order, instead of those
    that resemble errors; ``json_path``: the place of the class in a JSON body, such as
    ``$.error.code``."""

    attributes: tuple[str, ...] = ()
    json_path: str | None = None

    def check(self) -> Classifier:
        """Return this classifier. Raises BadPath."""
        if self.json_path is not None:
            steps_of(self.json_path)
        return self

    def error_class(self, body: str, attributes: Mapping[str, str | None]) -> str:
        """Return an attribute, else the value at the path, else the shape of the body."""
        found = self._attribute(attributes)
        if found is None and self.json_path is not None:
            found = at_path(body, self.json_path)
        return masked(found) if found else fingerprint(body)

    def _attribute(self, attributes: Mapping[str, str | None]) -> str | None:
        if self.attributes:
            return next(
                (attributes[name] for name in self.attributes if attributes.get(name)), None
            )
        plain = {_plain(name): value for name, value in attributes.items() if value}
        named = [name for name in _BEST if name in plain] or error_names(plain)
        return plain[named[0]] if named else plain.get(_OF_LOGS)


def error_names(names: Iterable[str]) -> list[str]:
    """Return the names that resemble an error attribute, sorted."""
    return sorted(name for name in names if _ATTRIBUTE.match(_plain(name)))


def _plain(name: str) -> str:
    return re.sub(r"[-_. ]", "", name).lower()


def steps_of(path: str) -> list[str | int]:
    """Parse a JSON path: ``$.a.b[0]['c']``. Raises BadPath."""
    rest = path.removeprefix("$")
    if not rest.startswith((".", "[")):
        rest = "." + rest
    found: list[str | int] = []
    while rest:
        match = _STEP.match(rest)
        if match is None:
            raise BadPath(f"'{path}' is no JSON path such as $.error.code or $.errors[0]['type']")
        found.append(int(match[2]) if match[2] else match[1] or match[3])
        rest = rest[match.end() :]
    return found


def at_path(body: str, path: str) -> str | None:
    """Return the value at the path as text; None when the body is no JSON or has no such value."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    for step in steps_of(path):
        if isinstance(step, int):
            found = found[step] if isinstance(found, list) and step < len(found) else None
        else:
            found = found.get(step) if isinstance(found, dict) else None
    if found is None or isinstance(found, str):
        return found
    return json.dumps(found, sort_keys=True)


def fingerprint(body: str) -> str:
    """Return the shape of a JSON body, or a text with its variable parts masked."""
    stripped = body.strip()
    if stripped.startswith(("{", "[")):
        try:
            return _cut("JSON " + _shape(json.loads(stripped), _DEPTH))
        except (ValueError, RecursionError):
            pass
    return masked(stripped) or "(empty body)"


def masked(text: str) -> str:
    """Return the first line, with ids, times, quoted parts, addresses and numbers replaced."""
    line = text.strip().partition("\n")[0][: 8 * _LONGEST]
    for pattern, word in _MASKS:
        line = pattern.sub(word, line)
    return _cut(" ".join(line.split()))


def _shape(value: Any, depth: int) -> str:
    if isinstance(value, dict):
        if depth == 0:
            return "{…}"
        shown = sorted(value)[:_MOST_KEYS]
        inner = [
            f"{key}:{_shape(value[key], depth - 1)}"
            if isinstance(value[key], dict | list)
            else str(key)
            for key in shown
        ]
        return "{" + ", ".join(inner) + (", …" if len(value) > len(shown) else "") + "}"
    if isinstance(value, list):
        return "[" + (_shape(value[0], depth - 1) if value and depth else "") + "]"
    return type(value).__name__


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
