"""Routing keys of events, and patterns of subscriptions (docs/seeds.md 1.3).

A key has segments between dots. In a pattern a segment may be `*`, which matches exactly one
segment, or `#`, which matches any number of segments, also none: `order.#` matches `order`, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from typing import Final, Generic, TypeVar

from queuegate.protocol.malformed import Malformed

LONGEST: Final = 256
"""Maximum characters of a key or pattern, as of the name of an SNS topic."""

_ONE = "*"
_ANY = "#"
_SEGMENT = re.compile(r"[A-Za-z0-9_-]+")
_KEY = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_CHARACTERS = "letters, digits, hyphens and underscores"

Value = TypeVar("Value")


def is_key(text: str) -> bool:
    return len(text) <= LONGEST and _KEY.fullmatch(text) is not None


def is_pattern(text: str) -> bool:
    """Return True for a valid pattern of a subscription. Every key is one."""
    return len(text) <= LONGEST and all(
        segment in (_ONE, _ANY) or _SEGMENT.fullmatch(segment) for segment in text.split(".")
    )


def check_key(text: str) -> None:
    """Raise Malformed, with a text that describes keys, for an invalid key."""
    if not is_key(text):
        raise _refusal("routing key", text, f"segments of {_CHARACTERS}")


def check_pattern(text: str) -> None:
    """Raise Malformed, with a text that describes patterns, for an invalid pattern."""
    if not is_pattern(text):
        raise _refusal(
            "pattern", text, f"segments of {_CHARACTERS}, or * (one segment) or # (any number)"
        )


def matches(pattern: str, key: str) -> bool:
    trie: Trie[None] = Trie()
    trie.add(pattern, None)
    return bool(trie.match(key))


class _Rest(Generic[Value]):
    """The part of a pattern from its first `#` on: one bit for each position, all moved at once."""

    __slots__ = ("_any", "_end", "_fewest", "_literals", "_one", "literals", "value")

    def __init__(self, segments: list[str], value: Value) -> None:
        self.value = value
        self._any = self._one = 0
        self._literals: dict[str, int] = {}
        place = 1
        for number, segment in enumerate(segments):
            if segment == _ANY:
                if number and segments[number - 1] == _ANY:
                    # Two `#` in a row equal one.
                    continue
                self._any |= place
            elif segment == _ONE:
                self._one |= place
            else:
                self._literals[segment] = self._literals.get(segment, 0) | place
            place <<= 1
        self._end = place
        self._fewest = sum([segment != _ANY for segment in segments])
        self.literals: Set[str] = self._literals.keys()

    def takes(self, segments: list[str]) -> bool:
        """Return True if the part matches these segments, which include all of its literals."""
        if len(segments) < self._fewest:
            return False
        if not self._literals:
            # A `#` makes up for the segments beyond its `*`.
            return True
        wild, one, literals = self._any, self._one, self._literals
        # Positions that the segments so far may have reached. The first `#` may match nothing.
        places = 0b11
        for segment in segments:
            places = (places & wild) | (places & (one | literals.get(segment, 0))) << 1
            places |= (places & wild) << 1
        return bool(places & self._end)


class _Node(Generic[Value]):
    """The beginning of patterns, without a `#`. ``rests`` are the patterns with a `#` here, each
    under the literal segment that it shares with the fewest, or under None if it has none."""

    __slots__ = ("children", "rests", "values")

    def __init__(self) -> None:
        self.children: dict[str, _Node[Value]] = {}
        self.values: list[Value] = []
        self.rests: dict[str | None, list[_Rest[Value]]] = {}


class Trie(Generic[Value]):
    """Many patterns, each with a value. A match visits each node at most once, and only nodes that
    the key leads to. After a `#` it visits only patterns whose literal segments are all in the key,
    once per segment."""

    def __init__(self) -> None:
        self._root: _Node[Value] = _Node()

    def add(self, pattern: str, value: Value) -> None:
        """Add a value. A pattern may have several."""
        node = self._root
        segments = pattern.split(".")
        for number, segment in enumerate(segments):
            if segment == _ANY:
                rest = _Rest(segments[number:], value)
                by_size = sorted(rest.literals, key=lambda one: len(node.rests.get(one, ())))
                node.rests.setdefault(by_size[0] if by_size else None, []).append(rest)
                return
            child = node.children.get(segment)
            if child is None:
                child = node.children[segment] = _Node()
            node = child
        node.values.append(value)

    def match(self, key: str) -> list[Value]:
        """Return the values of all patterns that match the key, in no particular order."""
        found: list[Value] = []
        segments = key.split(".")
        nodes = [self._root]
        for number, segment in enumerate(segments):
            following = []
            left = segments[number:]
            for node in nodes:
                if node.rests:
                    found += _taking(node.rests, left)
                for name in (segment, _ONE):
                    child = node.children.get(name)
                    if child is not None:
                        following.append(child)
            nodes = following
            if not nodes:
                return found
        for node in nodes:
            found += node.values
            if node.rests:
                found += _taking(node.rests, [])
        return found


def _taking(rests: Mapping[str | None, list[_Rest[Value]]], segments: list[str]) -> list[Value]:
    """Return the values of the parts that match the segments."""
    there = set(segments)
    found = [rest for name in (None, *there) for rest in rests.get(name, ())]
    return [rest.value for rest in found if rest.literals <= there and rest.takes(segments)]


def _refusal(noun: str, text: str, segments: str) -> Malformed:
    if len(text) > LONGEST:
        fault = f"it has {len(text)} characters, at most {LONGEST} are allowed"
    elif not text:
        fault = "it is empty"
    elif "" in text.split("."):
        fault = "there is nothing before, after or between its dots"
    else:
        fault = "it has other characters"
    return Malformed(
        f"The {noun} is not valid: {fault}. It is made of {segments}, with dots between."
    )
