"""Routing keys of events, and the patterns that subscriptions have (FACES.md 2).

A key is made of segments between dots; in a pattern a segment may also be `*`, which stands for
exactly one segment, or `#`, which stands for any number of them, none included: `order.#` takes
`order`, too.
"""

from __future__ import annotations

import re
from typing import Final, Generic, TypeVar

from protocol.errors import Malformed

LONGEST: Final = 256
"""Characters of a key or pattern, as of the name of an SNS topic."""

_ONE = "*"
_ANY = "#"
_SEGMENT = re.compile(r"[A-Za-z0-9_-]+")
_KEY = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_CHARACTERS = "letters, digits, hyphens and underscores"

Value = TypeVar("Value")


def is_key(text: str) -> bool:
    """Whether an event may have this key."""
    return len(text) <= LONGEST and _KEY.fullmatch(text) is not None


def is_pattern(text: str) -> bool:
    """Whether a subscription may have this pattern; every key is one."""
    return len(text) <= LONGEST and all(map(_is_pattern_segment, text.split(".")))


def check_key(text: str) -> None:
    """Raises Malformed, with a text that says what a key looks like."""
    if not is_key(text):
        raise _refusal("routing key", text, f"segments of {_CHARACTERS}")


def check_pattern(text: str) -> None:
    """Raises Malformed, with a text that says what a pattern looks like."""
    if not is_pattern(text):
        raise _refusal(
            "pattern", text, f"segments of {_CHARACTERS}, or * (one segment) or # (any number)"
        )


def matches(pattern: str, key: str) -> bool:
    """Whether the pattern takes the key."""
    trie: Trie[None] = Trie()
    trie.add(pattern, None)
    return bool(trie.match(key))


class _Node(Generic[Value]):
    """What has been read of patterns so far. ``repeats``: its last segment was a `#`."""

    __slots__ = ("children", "repeats", "values")

    def __init__(self, *, repeats: bool) -> None:
        self.children: dict[str, _Node[Value]] = {}
        self.values: list[Value] = []
        self.repeats = repeats


class Trie(Generic[Value]):
    """Many patterns, each with a value. A match looks at each node once per segment at most, and at
    those only that what was read of the key has led to."""

    def __init__(self) -> None:
        self._root: _Node[Value] = _Node(repeats=False)

    def add(self, pattern: str, value: Value) -> None:
        """One more value; a pattern may have several."""
        node = self._root
        for segment in pattern.split("."):
            child = node.children.get(segment)
            if child is None:
                child = node.children[segment] = _Node(repeats=segment == _ANY)
            node = child
        node.values.append(value)

    def match(self, key: str) -> list[Value]:
        """The values of all patterns that take the key, in no particular order."""
        nodes = _with_empty([self._root])
        for segment in key.split("."):
            following = []
            for node in nodes:
                if node.repeats:
                    following.append(node)
                for name in (segment, _ONE):
                    child = node.children.get(name)
                    if child is not None:
                        following.append(child)
            if not following:
                return []
            nodes = _with_empty(following)
        return [value for node in nodes for value in node.values]


def _with_empty(nodes: list[_Node[Value]]) -> list[_Node[Value]]:
    """These nodes, each once, and those that a `#` for no segment leads to from them."""
    found = dict.fromkeys(nodes)
    for node in nodes:
        child = node.children.get(_ANY)
        while child is not None and child not in found:
            found[child] = None
            child = child.children.get(_ANY)
    return list(found)


def _is_pattern_segment(segment: str) -> bool:
    return segment in (_ONE, _ANY) or _SEGMENT.fullmatch(segment) is not None


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
