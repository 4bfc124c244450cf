"""Decoding of paths, queries and bodies, and the texts of their refusals."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from functools import cache
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, inspect

from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.protocol import json_wire
from queuegate.storage.storage_errors import MalformedInput

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
_MOST_TEXT = 300
_MOST_LETTERS = 4_000


def explained(error: msgspec.ValidationError, kind: Any, what: str = "field") -> str:
    """Return the text of a refusal. ``what`` is a field or a kind of parameter."""
    text, place = str(error), "$"
    if len(text) > 2 * _MOST_LETTERS:
        # The message quotes the value, and ends with its place.
        text = text[:_MOST_LETTERS] + text[-_MOST_LETTERS:]
    found = _PLACE(text)
    if found is not None:
        text, place = found.groups()
    key = _KEY(place)
    if key is not None:
        place = key[1]
    unknown, missing = _UNKNOWN(text), _MISSING(text)
    if unknown is not None:
        name = unknown[1][:_MOST_TEXT]
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
    return text[:_MOST_TEXT].rstrip(".")


def _named(place: str, what: str) -> str:
    """Name the value at a place: the body, an entry or a field."""
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
    """Return the allowed range of an integer."""
    number = _plain(node, inspect.IntType)
    if not isinstance(number, inspect.IntType) or not _OUT_OF_RANGE(text):
        return None
    if number.ge is None or number.le is None:
        return None
    return f"allowed is {number.ge} to {number.le}"


def _choices(kind: Any, place: str, text: str) -> str | None:
    """Return the allowed values of a literal."""
    if not _NO_CHOICE(text):
        return None
    literal = _plain(_node_at(kind, place), inspect.LiteralType)
    if isinstance(literal, inspect.LiteralType):
        words = list(literal.values)
    else:
        # The tag field of an object.
        around, _, name = place.rpartition(".")
        structs = _structs(_node_at(kind, around))
        words = [one.tag for one in structs if one.tag_field == name and one.tag is not None]
    return f"allowed is {' or '.join(map(str, words))}" if words else None


def _known_at(kind: Any, place: str) -> str:
    """List the known fields of the object at a place, by its alternatives."""
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
    """Return the alternative objects of a type."""
    if isinstance(node, inspect.Metadata):
        return _structs(node.type)
    if isinstance(node, inspect.UnionType):
        return [struct for one in node.types for struct in _structs(one)]
    return [node] if isinstance(node, inspect.StructType) else []


def _plain(node: inspect.Type | None, wanted: type[inspect.Type]) -> inspect.Type | None:
    """Return the member of a union that is of the wanted kind, without its metadata."""
    if isinstance(node, inspect.Metadata):
        return _plain(node.type, wanted)
    if isinstance(node, inspect.UnionType):
        found = [_plain(one, wanted) for one in node.types]
        return next((one for one in found if isinstance(one, wanted)), None)
    return node


_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,18})").fullmatch
_BOOLEANS = {"true": True, "false": False}
_MOST_SHOWN = 60


def unquoted(text: str) -> str:
    """Percent-decode once. Raises MalformedInput for invalid UTF-8 and for NUL."""
    if "%" not in text and text.isascii():
        return text
    try:
        plain = unquote_to_bytes(text.encode("latin-1")).decode()
    except UnicodeDecodeError:
        raise MalformedInput(f"{_shortened(text)} is not UTF-8, percent-encoded.") from None
    if "\x00" in plain:
        raise MalformedInput(f"{_shortened(text)} holds a NUL character.")
    return plain


def decode_path(kind: type[Struct], raw: Mapping[str, str]) -> Any:
    """Decode the parameters of a path from its raw segments. Raises MalformedInput."""
    return _converted(kind, {name: unquoted(text) for name, text in raw.items()}, "path parameter")


def decode_query(kind: type[Struct] | None, query: bytes) -> Any:
    """Decode a query string without repeated parameters. Raises MalformedInput."""
    given: dict[str, str] = {}
    for part in query.decode("latin-1").split("&"):
        if not part:
            continue
        name, _, text = part.partition("=")
        name = unquoted(name.replace("+", " "))
        if name in given:
            raise MalformedInput(f"The query parameter `{_shortened(name)}` is there twice.")
        given[name] = unquoted(text.replace("+", " "))
    if kind is None:
        if given:
            raise MalformedInput(
                f"The query parameter `{_shortened(next(iter(given)))}` is not known: "
                "this endpoint takes none."
            )
        return None
    return _converted(kind, given, "query parameter")


def _converted(kind: type[Struct], given: Mapping[str, str], what: str) -> Any:
    readers = _readers(kind)
    values = {}
    for name, text in given.items():
        reader = readers.get(name)
        if reader is None:
            known = ", ".join(f"`{one}`" for one in readers)
            raise MalformedInput(
                f"The {what} `{_shortened(name)}` is not known. Known are {known}."
            )
        value = reader(text)
        if value is None:
            raise MalformedInput(
                f"The {what} `{name}` is {_shortened(text)!r}: {_EXPECTED[reader]} is expected."
            )
        values[name] = value
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise MalformedInput(explained(error, kind, what)) from None


def _integer(text: str) -> int | None:
    return int(text) if _INTEGER(text) else None


def _boolean(text: str) -> bool | None:
    return _BOOLEANS.get(text)


Reader = Callable[[str], Any]
_EXPECTED: Mapping[Reader, str] = {_integer: "a whole number", _boolean: "true or false"}


@cache
def _readers(kind: type[Struct]) -> dict[str, Reader]:
    """Return the reader of each parameter."""
    information = inspect.type_info(kind)
    assert isinstance(information, inspect.StructType)
    return {one.encode_name: _reader(one.type) for one in information.fields}


def _reader(kind: inspect.Type) -> Reader:
    if isinstance(kind, inspect.Metadata):
        return _reader(kind.type)
    if isinstance(kind, inspect.UnionType):
        # A query string cannot express None: use the other member.
        return _reader(next(one for one in kind.types if not isinstance(one, inspect.NoneType)))
    if isinstance(kind, inspect.IntType):
        return _integer
    return _boolean if isinstance(kind, inspect.BoolType) else str


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "..."


SHORT = 65_536
"""Maximum bytes of a body that decodes fast enough without counting, whatever it holds."""

_PARTS_AT_ONCE = 16


class _Part(Struct):
    """The members of an entry that may be long, which are skipped and not decoded."""

    message: Raw = Raw(b"")
    payload: Raw = Raw(b"")
    headers: Raw = Raw(b"")
    target: Raw = Raw(b"")


# Decoding of an array struct ends at the first element too many. A list would be built to its end.
_Batch = msgspec.defstruct(
    "_Batch",
    [(f"part_{number}", Raw | UnsetType, UNSET) for number in range(LIMITS.sent_messages)],
    array_like=True,
    forbid_unknown_fields=True,
)
_batch = msgspec.json.Decoder(_Batch)
_part = msgspec.json.Decoder(_Part)


def check_parts(body: bytes) -> Generator[None, None, None]:
    """Check the size of a long body before objects are made of it, in steps.

    Messages may hold any number of values, because they are stored as text. Entries and headers
    may not. The body is one message or a batch. Raises MalformedInput for too many entries and for
    more than ``Limits.request_bytes`` beside messages and headers, Malformed for more than
    ``json_wire.MOST_VALUES`` values in all headers, and msgspec.DecodeError for invalid JSON.
    """
    if len(body) <= SHORT:
        return
    parts = [body]
    if body[:SHORT].lstrip()[:1] == b"[":
        try:
            found = msgspec.structs.astuple(_batch.decode(body))
        except msgspec.ValidationError:
            raise MalformedInput(
                f"The body is refused: expected an array of length <= {LIMITS.sent_messages}."
            ) from None
        parts = [bytes(one) for one in found if one is not UNSET]
        yield
    rest = len(body)
    headers: list[bytes] = []
    for number, part in enumerate(parts):
        if number % _PARTS_AT_ONCE == 0 or len(part) > SHORT:
            yield
        rest -= _note(part, headers)
    if rest > LIMITS.request_bytes:
        raise MalformedInput(
            f"The body has {rest} bytes beside messages and headers: the maximum is "
            f"{LIMITS.request_bytes}."
        )
    yield
    yield from json_wire.count_values(headers[0] if len(headers) == 1 else b",".join(headers))


def _note(part: bytes, headers: list[bytes], *, is_target: bool = False) -> int:
    """Collect the headers of a part. Returns the bytes of its headers and its message.

    A schedule has both in its ``target``. A target within a target is ignored, because each level
    reads the whole text again.
    """
    if part[:SHORT].lstrip()[:1] != b"{":
        return 0
    found = _part.decode(part)
    size = memoryview(found.message).nbytes + memoryview(found.payload).nbytes
    if found.headers:
        headers.append(bytes(found.headers))
        size += len(headers[-1])
    if found.target and not is_target:
        size += _note(bytes(found.target), headers, is_target=True)
    return size


_FRACTION = re.compile(rb"-?[0-9]{1,19}(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?").fullmatch
_WHOLE = re.compile(rb"-?[0-9]+").fullmatch

_object = msgspec.json.Decoder(dict[str, Raw])
_array = msgspec.json.Decoder(list[Raw])


def needs_whole_numbers(error: msgspec.ValidationError) -> bool:
    """Return True if the body was refused for a float where an integer belongs."""
    return "Expected `int" in str(error) and "got `float`" in str(error)


def with_whole_numbers(kind: Any, body: bytes) -> bytes:
    """Return the JSON with 30.0 as 30 where the type is an integer.

    JSON Schema accepts 30.0 as an integer, msgspec does not. Call only after a refusal, so that
    other requests do not pay for it.
    """
    return bytes(_rewritten(inspect.type_info(kind), body))


def _rewritten(kind: inspect.Type, raw: bytes) -> bytes:
    if isinstance(kind, inspect.Metadata):
        return _rewritten(kind.type, raw)
    if isinstance(kind, inspect.UnionType):
        for one in kind.types:
            raw = _rewritten(one, raw)
        return raw
    if isinstance(kind, inspect.IntType):
        return _whole(raw)
    first = raw.lstrip()[:1]
    if isinstance(kind, inspect.StructType) and first == b"{":
        types = {one.encode_name: one.type for one in kind.fields}
        return msgspec.json.encode(
            {
                name: _raw(types[name], value) if name in types else value
                for name, value in _object.decode(raw).items()
            }
        )
    if isinstance(kind, inspect.ListType) and first == b"[":
        # The decoder refuses the first entry too many. Millions of entries would take seconds.
        entries = _array.decode(raw)[: None if kind.max_length is None else kind.max_length + 1]
        return msgspec.json.encode([_raw(kind.item_type, one) for one in entries])
    return raw


def _raw(kind: inspect.Type, raw: Raw) -> Raw:
    return Raw(_rewritten(kind, bytes(raw)))


def _whole(raw: bytes) -> bytes:
    if _WHOLE(raw) or not _FRACTION(raw):
        return raw
    number = float(raw)
    return b"%d" % int(number) if number.is_integer() else raw
