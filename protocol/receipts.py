"""Receipt handles: opaque to clients, and all that we need to find the message again.

A handle is a prefix of four letters that tells its kind and version, then URL-safe base64 of the
packed fields and a checksum. Whole groups of three bytes need no padding, so no character wants
escaping in JSON, XML or a URL.
"""

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from protocol.errors import Malformed

_STANDARD = "QGS1"
_FIFO = "QGF1"
_FIELDS = Struct(">IQII")
_CHECK = Struct(">I")
_CHECKED_FIELDS = Struct(">IQIII")
_STANDARD_LENGTH = len(_STANDARD) + (_FIELDS.size + _CHECK.size) // 3 * 4
_LONGEST = 1024

# Different seeds, so that a handle of one kind is never taken for the other.
_STANDARD_SEED = crc32(_STANDARD.encode())
_FIFO_SEED = crc32(_FIFO.encode())

_TO_URL = bytes.maketrans(b"+/", b"-_")
# The plain alphabet must not pass for ours: a handle has one spelling.
_FROM_URL = bytes.maketrans(b"-_+/", b"+/!!")


class StandardReceipt(NamedTuple):
    queue_id: int
    sequence: int
    receive_count: int
    received_at: int


class FifoReceipt(NamedTuple):
    queue_id: int
    group_id: str
    sequence: int
    receive_count: int
    received_at: int


def encode_standard(queue_id: int, sequence: int, receive_count: int, received_at: int) -> str:
    """36 characters. All numbers are unsigned; the sequence has 64 bits, the others 32.

    `received_at` is the second of the receive: the twelve hours of a message count from it.
    """
    fields = _FIELDS.pack(queue_id, sequence, receive_count, received_at)
    check = _CHECK.pack(crc32(fields, _STANDARD_SEED))
    return _STANDARD + b2a_base64(fields + check, newline=False).translate(_TO_URL).decode("ascii")


def encode_fifo(
    queue_id: int, group_id: str, sequence: int, receive_count: int, received_at: int
) -> str:
    """At most 208 characters for a group id as SQS allows it."""
    fields = _FIELDS.pack(queue_id, sequence, receive_count, received_at) + group_id.encode()
    check = _CHECK.pack(crc32(fields, _FIFO_SEED))
    encoded = b2a_base64(check + fields, newline=False).translate(_TO_URL)
    return _FIFO + encoded.rstrip(b"=").decode("ascii")


def decode(handle: str) -> StandardReceipt | FifoReceipt:
    """The receipt that was made into exactly this handle. Raises Malformed for every other text."""
    if len(handle) == _STANDARD_LENGTH and handle.startswith(_STANDARD):
        raw = _unpacked(handle[4:])
        queue_id, sequence, receive_count, received_at, check = _CHECKED_FIELDS.unpack(raw)
        if crc32(raw[:20], _STANDARD_SEED) != check:
            raise _malformed()
        return StandardReceipt(queue_id, sequence, receive_count, received_at)
    if len(handle) <= _LONGEST and handle.startswith(_FIFO):
        return _decode_fifo(handle)
    raise _malformed()


def _decode_fifo(handle: str) -> FifoReceipt:
    raw = _unpacked(handle[4:] + "=" * (-len(handle) % 4))
    if len(raw) < _CHECK.size + _FIELDS.size:
        raise _malformed()
    queue_id, sequence, receive_count, received_at = _FIELDS.unpack_from(raw, _CHECK.size)
    try:
        group_id = raw[_CHECK.size + _FIELDS.size :].decode()
    except UnicodeDecodeError:
        raise _malformed() from None
    # The last base64 character may have bits that mean nothing; comparing with our own spelling
    # covers these and the checksum.
    if encode_fifo(queue_id, group_id, sequence, receive_count, received_at) != handle:
        raise _malformed()
    return FifoReceipt(queue_id, group_id, sequence, receive_count, received_at)


def _unpacked(text: str) -> bytes:
    try:
        return a2b_base64(text.encode("ascii").translate(_FROM_URL), strict_mode=True)
    except (Base64Error, UnicodeEncodeError):
        raise _malformed() from None


def _malformed() -> Malformed:
    return Malformed("The text is not a receipt handle.", kind="receipt")
