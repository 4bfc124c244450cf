"""The JSON wire: bodies of AWS JSON requests and responses (docs/contract/protocol.md 1.2)."""

import sys
from binascii import b2a_base64
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from functools import cache
from typing import Any

import orjson

from queuegate.protocol.malformed import Malformed
from queuegate.protocol.shapes import (
    List,
    Map,
    Scalar,
    ScalarKind,
    Shape,
    Structure,
    parse_blob,
    parse_boolean,
    parse_integer,
    parse_timestamp,
)

# No action takes so many structures: longer lists are only counted, for the refusal.
_MOST_STRUCTURES = 1000

MOST_VALUES = 10_000
"""Approximate maximum of values in a body: commas outside of texts. AWS's largest batch has 500."""

# Bodies up to this length delay nobody, whatever their content.
_SHORT = 65_536
_PIECE = 65_536
# Texts that so many values can be, with a key for each, and what a thousand levels of nesting add.
_MOST_QUOTES = 4 * MOST_VALUES + 8_192

_Reader = Callable[[Any], Any]

_TOKENS: dict[type, str] = {
    int: "NUMBER_VALUE",
    float: "NUMBER_VALUE",
    str: "STRING_VALUE",
    bool: "BOOLEAN_VALUE",
    list: "START_ARRAY",
    dict: "START_OBJECT",
}


def count_values(body: bytes) -> Generator[None, None, None]:
    """Raise Malformed for a body of more than MOST_VALUES values, before parsing it. The generator
    yields between pieces of a large body, so the caller can yield to the event loop."""
    if len(body) <= _SHORT or body.count(b",") <= MOST_VALUES:
        return
    yield
    # Texts may hold any number of commas: only what is outside of them counts. Without the escapes
    # every quotation mark that is left begins or ends a text.
    commas = quotes = start = 0
    in_text = False
    while start < len(body):
        end = start + _PIECE
        piece = body[start:end]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            end += 1
            piece = body[start:end]
        start = end
        bare = piece.replace(rb"\\", b"").replace(rb"\"", b"")
        quotes += bare.count(b'"')
        if quotes <= _MOST_QUOTES:
            parts = bare.split(b'"')
            commas += sum([part.count(b",") for part in parts[in_text::2]])
            in_text ^= len(parts) % 2 == 0
        if quotes > _MOST_QUOTES or commas > MOST_VALUES:
            raise Malformed(f"The request body has more than {MOST_VALUES} values.")
        yield


def decode(structure: Structure, body: bytes, *, is_counted: bool = False) -> dict[str, Any]:
    """Return the members of a request, typed as `structure` says. An empty body is an empty
    request. Null and unknown members are left out. Integers may be text or integral floats,
    booleans may be text; other differences of type raise Malformed, and so do a body that is no
    JSON object and, unless `is_counted`, too many values."""
    if not body:
        return {}
    if len(body) > _SHORT and not is_counted:
        for _ in count_values(body):
            pass
    try:
        payload = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise Malformed("The request body is not valid JSON.") from None
    result: dict[str, Any] = _reader(structure)(payload)
    return result


def encode(structure: Structure | None, result: dict[str, Any]) -> bytes:
    """Return the response body; empty if the action returns nothing (`structure` is None). Members
    that are None, and flattened lists and maps that are empty, are left out at every depth, as on
    AWS."""
    if structure is None:
        return b""
    is_complete = _completeness(structure)
    if is_complete is not None and not is_complete(result):
        result = _pruned(structure, result)
    return orjson.dumps(result, default=_scalar, option=orjson.OPT_PASSTHROUGH_DATETIME)


def encode_in_steps(
    structure: Structure | None, result: dict[str, Any]
) -> Generator[None, None, list[bytes]]:
    """Yield the parts of `encode` for a structure of lists that are not empty."""
    assert structure is not None
    parts = [b"{"]
    for name, items in result.items():
        member = structure.members[name]
        assert isinstance(member, List)
        assert isinstance(member.item, Structure)
        parts.append(b'%b"%b":[' % (b"," if len(parts) > 1 else b"", name.encode()))
        for number, item in enumerate(items):
            parts.append(b"," if number else b"")
            parts.append(encode(member.item, item))
            yield
        parts.append(b"]")
    return [*parts, b"}"]


@cache
def _completeness(shape: Shape) -> Callable[[Any], bool] | None:
    """Return a quick test whether a value has nothing to leave out: pruning costs more than
    writing. False, zero and empty text fail the test too, which only costs time. None: there is
    nothing to test."""
    if isinstance(shape, Structure):
        return _structure_completeness(shape)
    if isinstance(shape, Scalar):
        return None
    each = _completeness(shape.item if isinstance(shape, List) else shape.value)
    if each is None:
        return None
    return lambda items: all(map(each, items.values() if type(items) is dict else items))


def _structure_completeness(structure: Structure) -> Callable[[Any], bool]:
    nested = [
        (name, check)
        for name, member in structure.members.items()
        if (check := _completeness(member)) is not None
    ]

    def check_members(value: dict[str, Any]) -> bool:
        if not all(value.values()):
            return False
        for name, check in nested:  # noqa: SIM110 - a generator would double the time
            if name in value and not check(value[name]):
                return False
        return True

    return check_members


def _scalar(value: object) -> object:
    if isinstance(value, bytes):
        return b2a_base64(value, newline=False).decode("ascii")
    if isinstance(value, datetime):
        seconds = value.timestamp()
        return int(seconds) if seconds.is_integer() else seconds
    raise TypeError(f"cannot encode {type(value).__name__}")


def _pruned(shape: Shape, value: Any) -> Any:
    if isinstance(shape, Structure):
        kept = {}
        for name, item in value.items():
            member = shape.members[name]
            if item is None or (not item and isinstance(member, List | Map) and member.flat):
                continue
            kept[name] = _pruned(member, item)
        return kept
    if isinstance(shape, List):
        return [_pruned(shape.item, item) for item in value]
    if isinstance(shape, Map):
        return {key: _pruned(shape.value, item) for key, item in value.items()}
    return value


@cache
def _reader(shape: Shape) -> _Reader:
    if isinstance(shape, Structure):
        return _structure_reader(shape)
    if isinstance(shape, List):
        return _list_reader(shape)
    if isinstance(shape, Map):
        return _map_reader(shape)
    return _SCALAR_READERS[shape.kind]


def _structure_reader(structure: Structure) -> _Reader:
    members = structure.members
    readers = {name: _reader(member) for name, member in members.items()}
    # Most members are text without conversion: one look-up decides.
    plain = {
        name: str
        for name, member in members.items()
        if isinstance(member, Scalar) and member.kind == "string"
    }

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise _unexpected(value, "Structure")
        for name, item in value.items():
            if plain.get(name) is not type(item):
                break
        else:
            # Nearly every entry of a batch needs no conversion and has nothing to leave out.
            return value
        result = {}
        for name, item in value.items():
            if plain.get(name) is type(item):
                result[name] = item
            elif item is not None and (reader := readers.get(name)) is not None:
                result[name] = reader(item)
        return result

    return read


def _list_reader(shape: List) -> _Reader:
    reader = _reader(shape.item)
    most = _MOST_STRUCTURES if isinstance(shape.item, Structure) else sys.maxsize

    def read(value: Any) -> Any:
        if type(value) is not list:
            raise _unexpected(value, "List")
        if len(value) > most:
            return [{}] * (len(value) - value.count(None))
        return [reader(item) for item in value if item is not None]

    return read


def _map_reader(shape: Map) -> _Reader:
    reader = _reader(shape.value)

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise _unexpected(value, "Map")
        return {key: reader(item) for key, item in value.items() if item is not None}

    return read


def _read_string(value: Any) -> Any:
    if type(value) is not str:
        raise _unexpected(value, "String")
    return value


def _integer_reader(kind: ScalarKind) -> _Reader:
    def read(value: Any) -> Any:
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is int or type(value) is str:
            return parse_integer(kind, value)
        raise _unexpected(value, kind.capitalize())

    return read


def _read_boolean(value: Any) -> Any:
    if type(value) is bool:
        return value
    if type(value) is str:
        return parse_boolean(value)
    raise _unexpected(value, "Boolean")


def _read_blob(value: Any) -> Any:
    if type(value) is not str:
        raise _unexpected(value, "Blob")
    return parse_blob(value)


def _read_timestamp(value: Any) -> Any:
    if type(value) is int or type(value) is float:
        try:
            return datetime.fromtimestamp(value, UTC)
        except (ValueError, OverflowError, OSError):
            raise Malformed("NUMBER_VALUE can not be converted to a Timestamp") from None
    if type(value) is str:
        return parse_timestamp(value)
    raise _unexpected(value, "Timestamp")


def _unexpected(value: object, wanted: str) -> Malformed:
    found = _TOKENS.get(type(value), "VALUE_NULL")
    return Malformed(f"{found} can not be converted to a {wanted}")


_SCALAR_READERS: dict[ScalarKind, _Reader] = {
    "string": _read_string,
    "integer": _integer_reader("integer"),
    "long": _integer_reader("long"),
    "boolean": _read_boolean,
    "blob": _read_blob,
    "timestamp": _read_timestamp,
}
