"""Why a value was refused, in words: which field, what is wrong with it, what is allowed."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import inspect

_PLACE = re.compile(r"(.*?) - at `(.*)`", re.DOTALL).fullmatch
_KEY = re.compile(r"key` in `(.*)").fullmatch
_STEPS = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL).fullmatch
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL).fullmatch
_OUT_OF_RANGE = re.compile(r"Expected `int` [<>]=? ").match
_NO_CHOICE = re.compile(r"Invalid (?:enum )?value ").match
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a string",
    "object": "an object",
    "array": "an array",
    "null": "null",
    "datetime": "an instant such as 2030-01-31T09:00:00Z",
}
_TYPES = re.compile(r"`([a-z |]+)`")
_MOST_SHOWN = 300
_MOST_LETTERS = 4_000


def explained(error: msgspec.ValidationError, kind: Any, what: str = "field") -> str:
    """The refusal of a value of that type. ``what`` is a field, or a parameter of some kind."""
    text, place = str(error), "$"
    if len(text) > 2 * _MOST_LETTERS:
        # It quotes what was sent, and says at its end where that was.
        text = text[:_MOST_LETTERS] + text[-_MOST_LETTERS:]
    found = _PLACE(text)
    if found is not None:
        text, place = found.groups()
    key = _KEY(place)
    if key is not None:
        place = key[1]
    unknown, missing = _UNKNOWN(text), _MISSING(text)
    if unknown is not None:
        name = unknown[1][:_MOST_SHOWN]
        return f"The {what} `{name}`{_inside(place)} is not known. {_known_at(kind, place)}"
    if missing is not None:
        return f"The {what} `{missing[1]}`{_inside(place)} is missing."
    rule = None
    if key is None:
        rule = _range(_node_at(kind, place), text) or _choices(kind, place, text)
    subject = _named(place, what)
    if key is not None:
        subject = "A name in " + subject[0].lower() + subject[1:]
    return f"{subject} is refused: {rule or _in_words(text)}."


def _in_words(text: str) -> str:
    def words(match: re.Match[str]) -> str:
        return " or ".join(_WORDS.get(one.strip(), one.strip()) for one in match[1].split("|"))

    text = _TYPES.sub(words, text)
    if text.startswith("Expected "):
        text = "expected " + text[len("Expected ") :]
    return text[:_MOST_SHOWN].rstrip(".")


def _named(place: str, what: str) -> str:
    """What is at a place: the body, an entry, or a field."""
    steps = _STEPS.findall(place)
    if not steps:
        return "The body" if what == "field" else f"The {what}"
    name, position = steps[-1]
    inside = _inside_steps(steps[:-1])
    if name:
        return f"The {what} `{name}`{inside}"
    return f"An entry{inside}" if position == "..." else f"Entry {int(position) + 1}{inside}"


def _inside(place: str) -> str:
    return _inside_steps(_STEPS.findall(place))


def _inside_steps(steps: list[tuple[str, str]]) -> str:
    parts = [
        f" of `{name}`" if name else f" of entry {int(position) + 1}"
        for name, position in reversed(steps)
        if position != "..."
    ]
    return "".join(parts)


def _range(node: inspect.Type | None, text: str) -> str | None:
    """What is allowed of a whole number that is out of its range."""
    number = _plain(node, inspect.IntType)
    if not isinstance(number, inspect.IntType) or not _OUT_OF_RANGE(text):
        return None
    if number.ge is None or number.le is None:
        return None
    return f"allowed is {number.ge} to {number.le}"


def _choices(kind: Any, place: str, text: str) -> str | None:
    """What is allowed where one of a few words is expected."""
    if not _NO_CHOICE(text):
        return None
    literal = _plain(_node_at(kind, place), inspect.LiteralType)
    if isinstance(literal, inspect.LiteralType):
        words = list(literal.values)
    else:
        # The field that says of which kind an object is.
        around, _, name = place.rpartition(".")
        structs = _structs(_node_at(kind, around))
        words = [one.tag for one in structs if one.tag_field == name and one.tag is not None]
    return f"allowed is {' or '.join(map(str, words))}" if words else None


def _known_at(kind: Any, place: str) -> str:
    """The fields of the object at that place of a type; of each, where it may be one of several."""
    structs = [one for one in _structs(_node_at(kind, place)) if one.fields]
    parts = []
    for one in structs:
        names = ", ".join(f"`{field.encode_name}`" for field in one.fields)
        parts.append(names if len(structs) == 1 else f"with `{one.tag_field}` {one.tag} {names}")
    return f"Known are {'; '.join(parts)}."


def _node_at(kind: Any, place: str) -> inspect.Type | None:
    node: inspect.Type | None = inspect.type_info(kind)
    for name, _ in _STEPS.findall(place):
        node = _step(node, name)
    return node


def _step(node: inspect.Type | None, name: str) -> inspect.Type | None:
    if name:
        fields = [one for struct in _structs(node) for one in struct.fields]
        return next((one.type for one in fields if one.encode_name == name), None)
    entries = _plain(node, inspect.ListType)
    return entries.item_type if isinstance(entries, inspect.ListType) else None


def _structs(node: inspect.Type | None) -> list[inspect.StructType]:
    """The objects that may be there."""
    if isinstance(node, inspect.Metadata):
        return _structs(node.type)
    if isinstance(node, inspect.UnionType):
        return [struct for one in node.types for struct in _structs(one)]
    return [node] if isinstance(node, inspect.StructType) else []


def _plain(node: inspect.Type | None, wanted: type[inspect.Type]) -> inspect.Type | None:
    """The member of a union that is of the wanted kind, without its metadata."""
    if isinstance(node, inspect.Metadata):
        return _plain(node.type, wanted)
    if isinstance(node, inspect.UnionType):
        found = [_plain(one, wanted) for one in node.types]
        return next((one for one in found if isinstance(one, wanted)), None)
    return node
