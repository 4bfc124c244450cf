"""Digests that clients check (docs/contract/sqs.md 2.7 and 2.11)."""

from collections.abc import Mapping
from functools import partial
from hashlib import md5 as _openssl_md5
from hashlib import sha1, sha256
from typing import Any

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
    """Hexadecimal MD5 of the body's UTF-8 bytes, exactly as stored."""
    return md5_of_bytes(body.encode()).hex()


def md5_of_bytes(encoded: bytes) -> bytes:
    """The 16 bytes of the MD5 of a body that is in UTF-8 already."""
    digest: bytes = _md5(encoded).digest()
    return digest


def md5_of_attributes(attributes: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Hexadecimal MD5 of message attributes, or None for no attributes: the field is then left out.

    Each has a DataType, and a BinaryValue (bytes) if that begins with Binary, else a StringValue.
    System attributes have the same form and their own digest.
    """
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
    """The deduplication id that a body implies on a serial queue: hexadecimal SHA-1."""
    return sha1(body.encode(), usedforsecurity=False).hexdigest()


def content_based_id(body: str) -> str:
    """The deduplication id that a body implies: hexadecimal SHA-256 of its UTF-8 bytes,
    attributes left aside.
    """
    return sha256(body.encode()).hexdigest()
