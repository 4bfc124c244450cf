"""WebSockets as a client writes them: bytes of frames, well made or not."""

from __future__ import annotations

_MASK = b"\x37\xfa\x21\x3d"


def masked(opcode: int, payload: bytes, *, final: bool = True) -> bytes:
    """One frame of a client."""
    size = len(payload)
    first = bytes([opcode | (0x80 if final else 0)])
    if size < 126:
        head = bytes([0x80 | size])
    elif size < 65_536:
        head = b"\xfe" + size.to_bytes(2, "big")
    else:
        head = b"\xff" + size.to_bytes(8, "big")
    covered = bytes([byte ^ _MASK[place % 4] for place, byte in enumerate(payload)])
    return first + head + _MASK + covered
