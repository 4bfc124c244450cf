"""Frames of WebSockets as a server reads and writes them (RFC 6455), without extensions.

A connection that waits holds nothing but a reader with an empty buffer; DECISIONS.md says what was
measured of libraries.
"""

from __future__ import annotations

from base64 import b64encode
from binascii import Error as Base64Error
from binascii import a2b_base64
from enum import IntEnum
from hashlib import sha1
from struct import Struct
from typing import NamedTuple

VERSION = "13"
_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY_BYTES = 16
_FINAL = 0x80
_RESERVED = 0x70
_MASKED = 0x80
_LENGTH = 0x7F
_SHORT = 125
_IN_TWO_BYTES = 126
_TWO_BYTES = Struct(">BBH")
_EIGHT_BYTES = Struct(">BBQ")
_CODE = Struct(">H")


class Opcode(IntEnum):
    """What a frame is."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class CloseCode(IntEnum):
    """Why a connection is closed: those of the RFC that a server sends."""

    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    UNSUPPORTED_DATA = 1003
    INVALID_TEXT = 1007
    POLICY = 1008
    TOO_BIG = 1009
    INTERNAL_ERROR = 1011
    TRY_AGAIN_LATER = 1013


_CLIENT_CODES = frozenset((1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014))


class Incoming(NamedTuple):
    """A whole message, or a control frame."""

    opcode: Opcode
    payload: bytes


class Violation(NamedTuple):
    """What the peer sent must not be: the connection is closed with this, and nothing more is
    read."""

    code: CloseCode
    reason: str


class _Broken(Exception):
    pass


def accept_key(key: str) -> str | None:
    """The answer to a handshake's key; None: it is no key."""
    try:
        if len(a2b_base64(key, strict_mode=True)) != _KEY_BYTES:
            return None
    except (Base64Error, ValueError):
        return None
    return b64encode(sha1(key.encode() + _MAGIC, usedforsecurity=False).digest()).decode()


def frame(opcode: Opcode, payload: bytes) -> bytes:
    """One unmasked frame with the whole message."""
    size = len(payload)
    if size <= _SHORT:
        return bytes((_FINAL | opcode, size)) + payload
    if size <= 0xFFFF:
        return _TWO_BYTES.pack(_FINAL | opcode, _IN_TWO_BYTES, size) + payload
    return _EIGHT_BYTES.pack(_FINAL | opcode, _IN_TWO_BYTES + 1, size) + payload


def close_frame(code: int, reason: str = "") -> bytes:
    """A close frame. A reason that is too long for one is cut off."""
    text = reason.encode()[: _SHORT - _CODE.size].decode(errors="ignore").encode()
    return frame(Opcode.CLOSE, _CODE.pack(code) + text)


class FrameReader:
    """Reads what a client sends: whole messages and control frames, or the first violation.

    It never holds more than a message of ``most_bytes`` and a head.
    """

    __slots__ = ("_begun", "_data", "_message", "_most_bytes")

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._data = b""
        self._begun: Opcode | None = None
        """Of a message that comes in fragments."""
        self._message = bytearray()

    @property
    def held_bytes(self) -> int:
        """How many bytes came of what is not whole yet."""
        return len(self._data) + len(self._message)

    def read(self, data: bytes) -> list[Incoming | Violation]:
        """What is whole with these bytes. After a violation nothing may be read any more."""
        data = self._data + data if self._data else data
        found: list[Incoming | Violation] = []
        at = 0
        try:
            while len(data) - at > 1:
                end, incoming = self._next(data, at)
                if not end:
                    break
                at = end
                if incoming is not None:
                    found.append(incoming)
        except _Broken as broken:
            found.append(Violation(*broken.args))
            at = len(data)
        self._data = data[at:]
        return found

    def _next(self, data: bytes, at: int) -> tuple[int, Incoming | None]:
        """Where the frame ends that begins there (0: it is not whole), and what is whole with
        it."""
        opcode = self._opcode(data[at], data[at + 1])
        length, start = data[at + 1] & _LENGTH, at + 2
        if length > _SHORT:
            start += 2 if length == _IN_TWO_BYTES else 8
            if len(data) < start:
                return 0, None
            length = int.from_bytes(data[at + 2 : start], "big")
        if opcode < Opcode.CLOSE and length + len(self._message) > self._most_bytes:
            text = f"Messages of more than {self._most_bytes} bytes are not taken."
            raise _Broken(CloseCode.TOO_BIG, text)
        end = start + 4 + length
        if len(data) < end:
            return 0, None
        payload = _unmasked(data[start + 4 : end], data[start : start + 4])
        return end, self._taken(opcode, bool(data[at] & _FINAL), payload)

    def _opcode(self, first: int, second: int) -> Opcode:
        """The kind of a frame with such a head."""
        try:
            opcode = Opcode(first & 0x0F)
        except ValueError:
            raise _Broken(CloseCode.PROTOCOL_ERROR, "There is no such opcode.") from None
        if first & _RESERVED:
            raise _Broken(CloseCode.PROTOCOL_ERROR, "No extension was agreed on.")
        if not second & _MASKED:
            raise _Broken(CloseCode.PROTOCOL_ERROR, "Frames of clients are masked.")
        if opcode >= Opcode.CLOSE:
            if not first & _FINAL or second & _LENGTH > _SHORT:
                raise _Broken(CloseCode.PROTOCOL_ERROR, "Control frames are short and whole.")
        elif (opcode is Opcode.CONTINUATION) != (self._begun is not None):
            raise _Broken(CloseCode.PROTOCOL_ERROR, "A fragment is out of place.")
        return opcode

    def _taken(self, opcode: Opcode, is_final: bool, payload: bytes) -> Incoming | None:
        if opcode >= Opcode.CLOSE:
            if opcode is Opcode.CLOSE:
                _check_close(payload)
            return Incoming(opcode, payload)
        begun = opcode if self._begun is None else self._begun
        if not is_final or self._begun is not None:
            self._begun = begun
            self._message += payload
            if not is_final:
                return None
            payload = bytes(self._message)
            self._begun = None
            self._message.clear()
        if begun is Opcode.TEXT:
            _check_text(payload)
        return Incoming(begun, payload)


def _check_close(payload: bytes) -> None:
    if not payload:
        return
    code = int.from_bytes(payload[:2], "big") if len(payload) > 1 else 0
    if code not in _CLIENT_CODES and not 3000 <= code < 5000:
        raise _Broken(CloseCode.PROTOCOL_ERROR, "Nobody closes with such a code.")
    _check_text(payload[2:])


def _check_text(payload: bytes) -> None:
    try:
        payload.decode()
    except UnicodeDecodeError:
        raise _Broken(CloseCode.INVALID_TEXT, "The text is not UTF-8.") from None


def _unmasked(payload: bytes, mask: bytes) -> bytes:
    size = len(payload)
    whole = mask * (size // 4 + 1)
    key = int.from_bytes(whole[:size], "little")
    return (int.from_bytes(payload, "little") ^ key).to_bytes(size, "little")
