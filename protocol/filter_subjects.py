"""Subjects of filter policies: the attributes or the body of one message, found by path.

A subject is prepared once for a message and shared by all policies of a topic. Each path is
searched at its first use, and `subject[path]` is a `Found`. Reading a body is linear in its size,
for any nesting and any policies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from queuegate.protocol.names import is_number

# The scalars at one path. Texts, numbers and None stand for themselves; true and false must not
# equal 1 and 0 and have values of their own. The set is empty if there is nothing at the path.
Found = frozenset[Any]

TRUE: Final = object()
FALSE: Final = object()
# This value equals no scalar, so it satisfies nothing but `exists`.
OPAQUE: Final = object()

ABSENT: Final[Found] = frozenset()
PRESENT: Final[Found] = frozenset({OPAQUE})
# Neither absent nor present: what a body without paths has everywhere. Known by identity.
UNREADABLE: Final[Found] = frozenset({OPAQUE})

_DECIMALS = 5
_NOT_PLAIN = frozenset({bool, float, list, dict})
# Fewer items are sooner looked at one by one.
_FEW = 8
# A longer path is compared with the keys that are there: to cut it at every dot, again in every
# object, could take quadratic time.
_MOST_DOTS = 16
_MOST_CHARACTERS = 256


class FilterSubject(dict[str, Found]):
    """The values that the paths of policies find. Look paths up with `subject[path]` only."""

    __slots__ = ()

    def __missing__(self, path: str) -> Found:
        found = self[path] = self._find(path)
        return found

    def _find(self, path: str) -> Found:
        raise NotImplementedError


def prepare_attributes(values: Mapping[str, Mapping[str, Any]]) -> FilterSubject:
    """Prepare message attributes in wire form, `{name: {"DataType", "StringValue"|"BinaryValue"}}`.

    Unreadable values (Binary, an invalid Number, a String.Array that is neither a JSON array nor a
    number) are present, and match nothing else.
    """
    return _Attributes(values)


def prepare_body(text: str) -> FilterSubject:
    """Prepare the body of a message. No policy with a key matches a body that is no JSON object."""
    return _Body(text)


def token(scalar: Any) -> Any:
    """Return the token of a JSON scalar in `Found`. Numbers are compared to five decimals."""
    if type(scalar) is float:
        return round(scalar, _DECIMALS)
    if scalar is True:
        return TRUE
    return FALSE if scalar is False else scalar


class _Attributes(FilterSubject):
    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Mapping[str, Any]]) -> None:
        self._values = values

    def _find(self, path: str) -> Found:
        attribute = self._values.get(path)
        return ABSENT if attribute is None else _found_in_attribute(attribute)


def _found_in_attribute(attribute: Mapping[str, Any]) -> Found:
    value = attribute.get("StringValue")
    data_type = attribute.get("DataType")
    if not isinstance(value, str) or not isinstance(data_type, str):
        return PRESENT
    if data_type == "String.Array":
        return _found_in_array(value)
    base_type = data_type.partition(".")[0]
    if base_type == "String":
        return frozenset((value,))
    # A double tells apart all numbers that a policy may have: 10 digits and 5 decimals.
    if base_type == "Number" and is_number(value):
        return frozenset((token(float(value)),))
    return PRESENT


def _found_in_array(text: str) -> Found:
    """Read a String.Array. An empty array is present, unlike one in a body.

    A number alone counts as an array of one: LocalStack does so, and no recording decides
    (docs/contract/sns.md 3.7).
    """
    try:
        array = orjson.loads(text)
    except orjson.JSONDecodeError:
        return PRESENT
    if type(array) in (int, float):
        array = [array]
    return (_spread(array)[0] or PRESENT) if isinstance(array, list) else PRESENT


class _Body(FilterSubject):
    __slots__ = ("_is_read", "_root", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._is_read = False
        self._root: _Level | None = None

    def _find(self, path: str) -> Found:
        if not self._is_read:
            self._read()
        if self._root is None:
            return UNREADABLE
        if "." not in path:
            return self._root.below(path)[0]
        return _find_dotted(self._root, path)

    def _read(self) -> None:
        self._is_read = True
        try:
            body = orjson.loads(self._text)
        except orjson.JSONDecodeError:
            return
        if isinstance(body, dict):
            self._root = _Level([body])


class _Level:
    """The objects of a body at one path; more than one if an array leads there.

    Objects are merged, so each part of a body is walked once for all paths and policies. Two keys
    may therefore match in different elements of an array: docs/contract/sns.md 3.7 leaves that
    open, and LocalStack does the same.
    """

    __slots__ = ("_known", "_members", "_objects")

    def __init__(self, objects: list[dict[str, Any]]) -> None:
        self._objects = objects
        self._members: dict[str, Any] | None = None
        self._known: dict[str, tuple[Found, _Level | None]] = {}

    def members(self) -> dict[str, Any]:
        if self._members is None:
            self._members = _merged(self._objects)
        return self._members

    def below(self, key: str) -> tuple[Found, _Level | None]:
        """Return the scalars at a key, and the objects there."""
        known = self._known.get(key)
        if known is not None:
            return known
        members = self.members()
        if key not in members:
            return ABSENT, None
        found, objects = _spread(members[key])
        known = self._known[key] = found, _Level(objects) if objects else None
        return known

    def heads(self, path: str, start: int) -> Iterator[str]:
        """Return the keys that the path, from `start` on, is or passes."""
        members = self.members()
        cut = path.find(".", start)
        while cut >= 0:
            if (key := path[start:cut]) in members:
                yield key
            cut = path.find(".", cut + 1)
        if (key := path[start:]) in members:
            yield key

    def heads_of_long(self, path: str, start: int) -> Iterator[str]:
        """Do the same in time proportional to the number of keys."""
        end = len(path)
        for key in self.members():
            after = start + len(key)
            if path.startswith(key, start) and (after == end or path[after] == "."):
                yield key


def _find_dotted(root: _Level, path: str) -> Found:
    """Find a path in a body whose keys may contain dots."""
    is_long = len(path) > _MOST_CHARACTERS or path.count(".") > _MOST_DOTS
    heads = _Level.heads_of_long if is_long else _Level.heads
    parts: list[Found] = []
    pending = [(root, 0)]
    while pending:
        level, start = pending.pop()
        for key in heads(level, path, start):
            found, objects = level.below(key)
            after = start + len(key)
            if after == len(path):
                parts.append(found)
            elif objects is not None:
                pending.append((objects, after + 1))
    return ABSENT.union(*parts)


def _merged(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """Merge objects into one: several values of a key become an array."""
    if len(objects) == 1:
        return objects[0]
    members: defaultdict[str, list[Any]] = defaultdict(list)
    for each in objects:
        for key, value in each.items():
            members[key].append(value)
    return members


def _spread(value: Any) -> tuple[Found, list[dict[str, Any]]]:
    """Return the scalars and objects of a value, out of arrays on any level. Empty ones vanish."""
    if not isinstance(value, list):
        if isinstance(value, dict):
            return ABSENT, [value]
        return frozenset((token(value),)), []
    scalars: set[Any] = set()
    objects: list[dict[str, Any]] = []
    arrays = [value]
    while arrays:
        array = arrays.pop()
        if len(array) > _FEW and _NOT_PLAIN.isdisjoint(map(type, array)):
            scalars.update(array)
            continue
        for item in array:
            if isinstance(item, dict):
                objects.append(item)
            elif isinstance(item, list):
                if item:
                    arrays.append(item)
            else:
                scalars.add(token(item))
    return frozenset(scalars), objects
