"""Deduplication ids that are the same for the same row, however often it is sent."""

from __future__ import annotations

import datetime
import hashlib
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType

_NULL = b"n"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


class Identity(NamedTuple):
    """The identity of a task: equal for every attempt at the same rows."""

    job: str
    partition: int


def can_be_in_a_digest(kind: DataType) -> bool:
    """Return True if values of this Spark type have one encoding: maps and variants have not."""
    from pyspark.sql.types import ArrayType, AtomicType, StructType, VariantType

    if isinstance(kind, ArrayType):
        return can_be_in_a_digest(kind.elementType)
    if isinstance(kind, StructType):
        return all(can_be_in_a_digest(field.dataType) for field in kind.fields)
    return isinstance(kind, AtomicType) and not isinstance(kind, VariantType)


def digest_of_values(prefix: bytes, parts: Sequence[bytes]) -> str:
    """Return the SHA-256 in 64 hexadecimal digits of parts whose encoding is unambiguous."""
    return hashlib.sha256(prefix + b"".join(parts)).hexdigest()


def _framed(tag: bytes, data: bytes) -> bytes:
    return tag + struct.pack(">I", len(data)) + data


def encoded_text(value: str | None) -> bytes:
    """Encode a text or null unambiguously."""
    return _NULL if value is None else _framed(b"s", value.encode())


def encoded(value: object) -> bytes:
    """Encode a value with its kind and its length: no two values, nor two rows of them, are alike.

    Whole numbers of every width are one kind, so widening a column changes no id.
    """
    if value is None:
        return _NULL
    if isinstance(value, str):
        return _framed(b"s", value.encode())
    if isinstance(value, bool):
        return _framed(b"b", b"1" if value else b"0")
    if isinstance(value, int):
        return _framed(b"i", str(value).encode())
    if isinstance(value, bytes):
        return _framed(b"y", value)
    if isinstance(value, dict):
        return _framed(b"r", b"".join(encoded(each) for each in value.values()))
    if isinstance(value, list):
        return _framed(b"l", b"".join(encoded(each) for each in value))
    if isinstance(value, datetime.datetime):
        # Microseconds since 1970: the time zone of the session must not change an id.
        epoch = _EPOCH if value.tzinfo else _EPOCH.replace(tzinfo=None)
        return _framed(b"t", str((value - epoch) // _MICROSECOND).encode())
    # float, Decimal, date, time and timedelta: Python's texts of them are exact.
    return _framed(b"x", repr(value).encode())


def ids_of_columns(batch: pa.RecordBatch, names: Sequence[str], prefix: str = "") -> list[str]:
    """Return an id for each row, from the named columns."""
    start = encoded_text(prefix) if prefix else b""
    columns = [map(encoded, batch.column(name).to_pylist()) for name in names]
    return [digest_of_values(start, parts) for parts in zip(*columns, strict=True)]


def id_of_content(
    body: bytes, group_id: str | None, attributes: Mapping[str, tuple[str, str | bytes]]
) -> str:
    """Return the id of a message's content: equal messages of one group have equal ids."""
    parts = [_framed(b"y", body), encoded_text(group_id)]
    for name in sorted(attributes):
        kind, value = attributes[name]
        parts += [encoded_text(name), encoded_text(kind), encoded(value)]
    return digest_of_values(b"", parts)


def id_of_position(identity: Identity, position: int) -> str:
    """Return the id of a position in a write, in a readable form."""
    return f"{identity.job}|{identity.partition}|{position}"
