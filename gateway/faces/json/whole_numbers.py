"""Whole numbers that are written as others: JSON Schema takes 30.0 for an integer, msgspec not.

Only looked at when a body was refused for one, so that nobody else pays for it.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Raw, inspect

_FRACTION = re.compile(rb"-?[0-9]{1,19}(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?").fullmatch
_WHOLE = re.compile(rb"-?[0-9]+").fullmatch

_object = msgspec.json.Decoder(dict[str, Raw])
_array = msgspec.json.Decoder(list[Raw])


def was_the_fault(error: msgspec.ValidationError) -> bool:
    """Whether a body was refused because of a number where a whole number belongs."""
    return "Expected `int" in str(error) and "got `float`" in str(error)


def rewritten(kind: Any, body: bytes) -> bytes:
    """The same JSON with 30.0 as 30 where the type wants a whole number; all else as it was."""
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
        # One too many is refused, whatever it is; millions would take seconds.
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
