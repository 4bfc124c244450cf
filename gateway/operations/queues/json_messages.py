"""Messages as JSON: bodies, headers and message attributes in the form that queues store."""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterable, Mapping
from itertools import accumulate
from operator import sub
from typing import Any

import msgspec
import orjson

from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.protocol import names
from queuegate.storage.storage_errors import InvalidParameterValue

Values = Mapping[str, Mapping[str, Any]]
"""{name: {"DataType": ..., "StringValue": str | "BinaryValue": bytes}}, as faces decode them."""


def stored(values: Values) -> str:
    """Return the stored JSON: binary values in base64, as on the JSON wire."""
    return orjson.dumps(values, default=_base64).decode()


def _base64(value: object) -> str:
    if isinstance(value, bytes):
        return binascii.b2a_base64(value, newline=False).decode()
    raise TypeError(type(value))


_JSON = "String.json"
_BOOLEAN = "String.boolean"
_NULL = "String.null"
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?").fullmatch
_QUOTED = re.compile(rb'"[^"]*"')
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - {*b'[]{}"'})
_RUNS = re.compile(rb"\[+|\]+").findall
_MOST_PEAKS = 50_000
"""Maximum number of peaks to inspect one by one, about as expensive as three passes over the
largest message."""
_MOST_PASSES = 8
_LITERALS = frozenset({"true", "false", "null"})
_FAULTS = {
    "empty": "it is empty",
    "length": "it has more than 256 characters",
    "characters": "allowed are letters, digits, hyphens, underscores and periods",
    "dots": "a period may neither begin nor end it, nor follow another",
    "reserved": "what begins with AWS. or Amazon. is reserved",
}
_raw = msgspec.json.Decoder(msgspec.Raw)
_text = msgspec.json.Decoder(str)
_encode = msgspec.json.Encoder().encode


def body_of(message: bytes) -> str:
    """Return the body of a JSON message: its text, unchanged. Only two characters that XML does not
    allow are escaped. The text must be JSON and UTF-8. Raises InvalidParameterValue if it is nested
    too deeply."""
    if _is_too_deep(message):
        raise InvalidParameterValue(
            f"The message is nested deeper than {LIMITS.nesting_levels} levels."
        )
    return _carried(message)


def _carried(json_text: bytes) -> str:
    """Escape the two characters: valid JSON has them only in strings."""
    text = json_text.decode()
    if "\ufffe" in text or "\uffff" in text:
        return text.replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")
    return text


def attributes_of(headers: Mapping[str, bytes] | None) -> tuple[str | None, int]:
    """Return headers (name -> JSON text) as stored message attributes, and their size in bytes.
    Raises InvalidParameterValue for too many headers, and for a name that SQS refuses."""
    if not headers:
        return None, 0
    if len(headers) > LIMITS.headers:
        raise InvalidParameterValue(
            f"There are {len(headers)} headers; a message has at most {LIMITS.headers}."
        )
    values: dict[str, dict[str, str]] = {}
    size = 0
    for name, raw in headers.items():
        fault = names.attribute_name_fault(name)
        if fault is not None:
            shown = name[:100]
            raise InvalidParameterValue(f"The header name `{shown}` is refused: {_FAULTS[fault]}.")
        if _is_too_deep(raw):
            raise InvalidParameterValue(
                f"The header `{name}` is nested deeper than {LIMITS.nesting_levels} levels."
            )
        data_type, text = _typed(raw)
        values[name] = {"DataType": data_type, "StringValue": text}
        size += len(name.encode()) + len(data_type) + len(text.encode())
    if size > LIMITS.message_bytes:
        # Longer than any message: skip the check of its digits.
        return None, size
    return stored(values), size


def _typed(raw: bytes) -> tuple[str, str]:
    """Return DataType and StringValue of a header."""
    first = raw[:1]
    if first == b'"':
        text = _text.decode(raw)
        if text and not names.invalid_characters(text):
            return "String", text
        return _JSON, _carried(raw)
    text = _carried(raw)
    if first in b"tf":
        return _BOOLEAN, text
    if first == b"n":
        return _NULL, text
    if first in b"{[":
        return _JSON, text
    return ("Number", text) if names.is_number(text) else (_JSON, text)


def headers_of(attributes: str | None) -> bytes:
    """Return the stored attributes of a message as a JSON object of headers."""
    if not attributes:
        return b"{}"
    values: dict[str, dict[str, str]] = orjson.loads(attributes)
    return _encode({name: _header(value) for name, value in values.items()})


def _header(value: Mapping[str, str]) -> Any:
    data_type = value["DataType"]
    text = value.get("StringValue")
    if text is None:
        # Bytes, in base64.
        return value["BinaryValue"]
    if data_type == "String":
        return text
    if data_type == _JSON:
        return msgspec.Raw(message_of(text))
    if data_type in (_BOOLEAN, _NULL):
        return msgspec.Raw(text.encode()) if text in _LITERALS else text
    if names.base_type(data_type) == "Number" and _NUMBER(text):
        return msgspec.Raw(text.encode())
    return text


def message_of(body: str) -> bytes:
    """Return the body if it is JSON; otherwise the body as a JSON string."""
    encoded = body.encode()
    try:
        _raw.decode(encoded)
    except (msgspec.DecodeError, RecursionError):
        return _encode(body)
    return _encode(body) if _is_too_deep(encoded) else encoded


def _is_too_deep(json_text: bytes) -> bool:
    """Return True if objects and arrays are nested too deeply. Texts with few brackets cannot be;
    texts that are too long are refused later, so their brackets are not inspected."""
    if len(json_text) > LIMITS.message_bytes:
        return False
    if json_text.count(b"[") + json_text.count(b"{") <= LIMITS.nesting_levels:
        return False
    plain = json_text.replace(rb"\\", b"").replace(rb"\"", b"").translate(_ONE_KIND, _NO_BRACKETS)
    # Adjacent strings count as one.
    brackets = _QUOTED.sub(b"", plain.replace(b'""', b""))
    levels = 0
    while brackets.count(b"[]") > _MOST_PEAKS and levels < _MOST_PASSES:
        # Remove the innermost pairs, all at once: little is left of flat arrays of objects.
        brackets = brackets.replace(b"[]", b"")
        levels += 1
    runs = [len(run) for run in _RUNS(brackets)]
    first = runs[0] if runs else 0
    heights: Iterable[int] = accumulate(map(sub, runs[2::2], runs[1::2]), initial=first)
    return levels + max(heights) > LIMITS.nesting_levels
