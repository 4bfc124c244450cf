"""Parameters in paths and queries: text to the values of a Struct, and refusals that teach."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import Struct, inspect

from queuegate.gateway.faces.json.explaining import explained
from queuegate.storage.errors import MalformedInput

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,18})").fullmatch
_BOOLEANS = {"true": True, "false": False}
_MOST_SHOWN = 60


def unquoted(text: str) -> str:
    """Percent-decoded once. Raises MalformedInput when that is not UTF-8, or holds a NUL."""
    if "%" not in text and text.isascii():
        return text
    try:
        plain = unquote_to_bytes(text.encode("latin-1")).decode()
    except UnicodeDecodeError:
        raise MalformedInput(f"{_shown(text)} is not UTF-8, percent-encoded.") from None
    if "\x00" in plain:
        raise MalformedInput(f"{_shown(text)} holds a NUL character.")
    return plain


def decode_path(kind: type[Struct], raw: Mapping[str, str]) -> Any:
    """The parameters of a path, from its raw segments. Raises MalformedInput."""
    return _converted(kind, {name: unquoted(text) for name, text in raw.items()}, "path parameter")


def decode_query(kind: type[Struct] | None, query: bytes) -> Any:
    """The parameters of a query string; each may come once. Raises MalformedInput."""
    given: dict[str, str] = {}
    for part in query.decode("latin-1").split("&"):
        if not part:
            continue
        name, _, text = part.partition("=")
        name = unquoted(name.replace("+", " "))
        if name in given:
            raise MalformedInput(f"The query parameter `{_shown(name)}` is there twice.")
        given[name] = unquoted(text.replace("+", " "))
    if kind is None:
        if given:
            raise MalformedInput(
                f"The query parameter `{_shown(next(iter(given)))}` is not known: this endpoint "
                "takes none."
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
            raise MalformedInput(f"The {what} `{_shown(name)}` is not known. Known are {known}.")
        value = reader(text)
        if value is None:
            raise MalformedInput(
                f"The {what} `{name}` is {_shown(text)!r}: {_EXPECTED[reader]} is expected."
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
    """How to read each parameter."""
    information = inspect.type_info(kind)
    assert isinstance(information, inspect.StructType)
    return {one.encode_name: _reader(one.type) for one in information.fields}


def _reader(kind: inspect.Type) -> Reader:
    if isinstance(kind, inspect.Metadata):
        return _reader(kind.type)
    if isinstance(kind, inspect.UnionType):
        # None cannot be written in a query string: the other one is meant.
        return _reader(next(one for one in kind.types if not isinstance(one, inspect.NoneType)))
    if isinstance(kind, inspect.IntType):
        return _integer
    return _boolean if isinstance(kind, inspect.BoolType) else str


def _shown(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "..."
