"""Receipt handles as anybody can compute them who read how they were made before the secret."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import crc32
from struct import pack, unpack
from typing import NamedTuple

_CRC_BYTES = 4
_TAG_BYTES = 10
_FIELDS_BYTES = 20


class Fields(NamedTuple):
    """The fields of a receipt handle; ``group`` is None in a standard queue."""

    queue_id: int
    sequence: int
    receive_count: int
    received_at: int
    group: bytes | None = None


def fields_of(handle: str) -> Fields:
    """Read a handle of either version without checking it."""
    raw = urlsafe_b64decode(handle[4:] + "=" * (-len(handle) % 4))
    if handle.startswith("QGS"):
        queue_id, sequence, receive_count, received_at = unpack(">IQII", raw[:_FIELDS_BYTES])
        return Fields(queue_id, sequence, receive_count, received_at)
    start = _CRC_BYTES if handle.startswith("QGF1") else _TAG_BYTES
    end = start + _FIELDS_BYTES
    queue_id, sequence, receive_count, received_at = unpack(">IQII", raw[start:end])
    return Fields(queue_id, sequence, receive_count, received_at, raw[end:])


def old_handle(fields: Fields) -> str:
    """The handle with its CRC32."""
    packed = pack(">IQII", *fields[:4])
    if fields.group is None:
        packed += pack(">I", crc32(packed, crc32(b"QGS1")))
        return "QGS1" + urlsafe_b64encode(packed).decode()
    packed += fields.group
    packed = pack(">I", crc32(packed, crc32(b"QGF1"))) + packed
    return "QGF1" + urlsafe_b64encode(packed).decode().rstrip("=")


def impossible(fields: Fields) -> list[Fields]:
    """The same with values that no message has."""
    changes: list[dict[str, int | bytes]] = [
        {"sequence": 0},
        {"sequence": 2**63},
        {"sequence": 2**64 - 1},
        {"receive_count": 0},
        {"receive_count": 2**31},
        {"receive_count": 2**32 - 1},
    ]
    if fields.group is not None:
        changes += [{"group": b""}, {"group": b"a\0b"}, {"group": b"a b"}, {"group": b"x" * 200}]
    return [fields._replace(**change) for change in changes]  # type: ignore[arg-type] # by name
