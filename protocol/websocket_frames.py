"""Frames of WebSockets as a server reads and writes them (RFC 6455), without extensions.

The package websockets reads and writes them, without I/O of its own. Here are whole messages, and
control frames that are handed on instead of being answered: who writes decides when.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from typing import NamedTuple

from websockets.frames import Close, CloseCode, Frame, Opcode
from websockets.protocol import Protocol, Side
from websockets.utils import accept_key as _accept_key

__all__ = ["CloseCode", "FrameReader", "Incoming", "Opcode", "Violation"]

VERSION = "13"
_KEY_BYTES = 16
_MOST_REASON_BYTES = 123


class Incoming(NamedTuple):
    """A whole message, or a control frame."""

    opcode: Opcode
    payload: bytes


class Violation(NamedTuple):
    """What the peer sent must not be: the connection is closed with this, and nothing more is
    read."""

    code: int
    reason: str


def accept_key(key: str) -> str | None:
    """The answer to a handshake's key; None: it is no key."""
    try:
        if len(b64decode(key, validate=True)) != _KEY_BYTES:
            return None
    except (Base64Error, ValueError):
        return None
    return _accept_key(key)


def frame(opcode: Opcode, payload: bytes) -> bytes:
    """One unmasked frame with the whole message."""
    return Frame(opcode, payload).serialize(mask=False)


def close_frame(code: int, reason: str = "") -> bytes:
    """A close frame. A reason that is too long for one is cut off."""
    text = reason.encode()[:_MOST_REASON_BYTES].decode(errors="ignore")
    return frame(Opcode.CLOSE, Close(code, text).serialize())


class FrameReader:
    """Reads what a client sends: whole messages and control frames, or the first violation.

    It never holds more than a message of ``most_bytes`` and a head.
    """

    __slots__ = ("_begun", "_frames", "_message")

    def __init__(self, most_bytes: int) -> None:
        self._frames = Protocol(Side.SERVER, max_size=most_bytes)
        self._begun: Opcode | None = None
        """Of a message that comes in fragments."""
        self._message = bytearray()

    @property
    def held_bytes(self) -> int:
        """How many bytes came of what is not whole yet."""
        return len(self._frames.reader.buffer) + len(self._message)

    def read(self, data: bytes) -> list[Incoming | Violation]:
        """What is whole with these bytes. After a violation nothing may be read any more."""
        frames = self._frames
        frames.receive_data(data)
        found: list[Incoming | Violation] = []
        for one in frames.events_received():
            assert isinstance(one, Frame)
            incoming = self._taken(one)
            if incoming is None:
                continue
            found.append(incoming)
            if isinstance(incoming, Violation):
                return found
        # Pongs and closing frames: the reader of these messages writes its own.
        frames.data_to_send()
        if frames.parser_exc is not None and frames.close_sent is not None:
            found.append(Violation(frames.close_sent.code, frames.close_sent.reason))
        return found

    def _taken(self, one: Frame) -> Incoming | Violation | None:
        """What is whole with this frame."""
        opcode, payload = one.opcode, bytes(one.data)
        if opcode < Opcode.CLOSE:
            if not one.fin or self._begun is not None:
                self._begun = opcode if self._begun is None else self._begun
                self._message += payload
                if not one.fin:
                    return None
                opcode, payload = self._begun, bytes(self._message)
                self._begun = None
                self._message.clear()
            if opcode is Opcode.TEXT and not _is_utf8(payload):
                return Violation(CloseCode.INVALID_DATA, "Texts are UTF-8.")
        return Incoming(opcode, payload)


def _is_utf8(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True
