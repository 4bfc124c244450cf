"""Frames of WebSockets for a server (RFC 6455), without extensions.

The package websockets parses and writes frames, without I/O. This module assembles whole messages
and passes control frames on: the writer decides when to answer them.
"""

from __future__ import annotations

from base64 import b64decode
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
    """A breach of the protocol by the peer: the connection is closed with this code, and reading
    stops."""

    code: int
    reason: str


def accept_key(key: str) -> str | None:
    """Return the answer to a handshake's key; None: it is no key."""
    try:
        if len(b64decode(key, validate=True)) != _KEY_BYTES:
            return None
    except ValueError:
        return None
    return _accept_key(key)


def frame(opcode: Opcode, payload: bytes) -> bytes:
    """Return one unmasked frame with the whole message."""
    return Frame(opcode, payload).serialize(mask=False)


def close_frame(code: int, reason: str = "") -> bytes:
    """Return a close frame. A reason that is too long is cut off."""
    text = reason.encode()[:_MOST_REASON_BYTES].decode(errors="ignore")
    return frame(Opcode.CLOSE, Close(code, text).serialize())


class FrameReader:
    """A reader of client frames: whole messages and control frames, or the first violation. It
    holds at most a message of ``most_bytes`` and a head."""

    __slots__ = ("_begun", "_frames", "_message")

    def __init__(self, most_bytes: int) -> None:
        self._frames = Protocol(Side.SERVER, max_size=most_bytes)
        self._begun: Opcode | None = None
        """Opcode of a fragmented message."""
        self._message = bytearray()

    @property
    def held_bytes(self) -> int:
        return len(self._frames.reader.buffer) + len(self._message)

    def read(self, data: bytes) -> list[Incoming | Violation]:
        """Return the messages that these bytes complete. After a violation reading must stop."""
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
        # Pongs and closing frames of the library: the receiver of these messages writes its own.
        frames.data_to_send()
        if frames.parser_exc is not None and frames.close_sent is not None:
            found.append(Violation(frames.close_sent.code, frames.close_sent.reason))
        return found

    def _taken(self, one: Frame) -> Incoming | Violation | None:
        """Return the messages that this frame completes."""
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
