"""Digests that clients check (docs/contract/sqs.md 2.7 and 2.11), and message attributes as stored:
JSON, with binary values in base64."""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from functools import partial
from hashlib import md5 as _openssl_md5
from hashlib import sha1, sha256
from typing import Any, Final

# For the short texts that most messages are, the interpreter's own MD5 takes half the time of
# OpenSSL's: 0.25 µs against 0.5. Builds that leave it out, as those for FIPS do, have OpenSSL's
# for uses other than security.
try:
    from _md5 import md5 as _md5  # type: ignore[import-not-found]
except ImportError:
    _md5 = partial(_openssl_md5, usedforsecurity=False)

_STRING_MARK = b"\x01"
_BINARY_MARK = b"\x02"


def md5_of_body(body: str) -> str:
    """Return the hexadecimal MD5 of the body's UTF-8 bytes, exactly as stored."""
    return md5_of_bytes(body.encode()).hex()


def md5_of_bytes(encoded: bytes) -> bytes:
    """Return the 16 bytes of the MD5 of a body in UTF-8."""
    digest: bytes = _md5(encoded).digest()
    return digest


def md5_of_attributes(attributes: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the hexadecimal MD5 of message attributes; None without attributes: the field is left
    out. Each has a DataType, and a BinaryValue (bytes) if that begins with Binary, else a
    StringValue. System attributes have the same form and their own digest."""
    if not attributes:
        return None
    parts: list[bytes] = []
    # Sorting by code point is sorting by UTF-8 bytes.
    for name in sorted(attributes):
        attribute = attributes[name]
        data_type: str = attribute["DataType"]
        _append(parts, name.encode())
        _append(parts, data_type.encode())
        if data_type.startswith("Binary"):
            parts.append(_BINARY_MARK)
            _append(parts, attribute["BinaryValue"])
        else:
            parts.append(_STRING_MARK)
            _append(parts, attribute["StringValue"].encode())
    digest: str = _md5(b"".join(parts)).hexdigest()
    return digest


def _append(parts: list[bytes], value: bytes) -> None:
    parts.append(len(value).to_bytes(4, "big"))
    parts.append(value)


def sha1_of(body: str) -> str:
    """Return the deduplication id of a body on a serial queue: hexadecimal SHA-1."""
    return sha1(body.encode(), usedforsecurity=False).hexdigest()


def content_based_id(body: str) -> str:
    """Return the deduplication id of a body: hexadecimal SHA-256 of its UTF-8 bytes, without
    attributes."""
    return sha256(body.encode()).hexdigest()


MOST_OF_RAW_COPIES: Final = 10
"""Maximum number of attributes of a raw copy, which has those of the message as its own."""


def with_bytes(values: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Decode binary values of stored attributes, as digests, envelopes and wires take them."""
    return {
        name: (
            {**value, "BinaryValue": binascii.a2b_base64(value["BinaryValue"])}
            if "BinaryValue" in value
            else value
        )
        for name, value in values.items()
    }


def counted_bytes(values: Mapping[str, Mapping[str, Any]]) -> int:
    """Return the bytes of attributes that count towards a message: names, types and values."""
    size = 0
    for name, value in values.items():
        payload = value.get("BinaryValue")
        if payload is None:
            payload = value.get("StringValue", "").encode()
        size += len(name.encode()) + len(value["DataType"].encode()) + len(payload)
    return size
