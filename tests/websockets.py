"""WebSockets as a client sees them: it writes frames, well made or not, and reads a server's."""

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


def frames(data: bytearray) -> list[tuple[int, bytes]]:
    """Opcode and payload of the whole frames at the beginning of what a server sent; they are taken
    away from it."""
    found = []
    at = 0
    while len(data) >= at + 2:
        size, start = data[at + 1], at + 2
        if size > 125:
            start += 2 if size == 126 else 8
            size = int.from_bytes(data[at + 2 : start], "big")
        if len(data) < start + size:
            break
        found.append((data[at] & 0x0F, bytes(data[start : start + size])))
        at = start + size
    del data[:at]
    return found
