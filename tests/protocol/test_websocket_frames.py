"""Frames of WebSockets: what a client may send, in whatever pieces, and what ends the connection.

Examples are those of RFC 6455, 1.3 and 5.7.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuegate.protocol.websocket_frames import (
    CloseCode,
    FrameReader,
    Incoming,
    Opcode,
    Violation,
    accept_key,
    close_frame,
    frame,
)
from tests.websockets import masked

MOST = 1000
HELLO = bytes.fromhex("818537fa213d7f9f4d5158")
HELLO_UNMASKED = bytes.fromhex("810548656c6c6f")


def read(*pieces: bytes) -> list[Incoming | Violation]:
    reader = FrameReader(MOST)
    return [found for piece in pieces for found in reader.read(piece)]


def test_the_example_of_a_handshake() -> None:
    assert accept_key("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@pytest.mark.parametrize("key", ["", "no", "dGhlIHNhbXBsZSBub25jZQ", "AAAA", "ü" * 24])
def test_what_is_no_key(key: str) -> None:
    assert accept_key(key) is None


def test_the_examples_of_frames() -> None:
    assert read(HELLO) == [Incoming(Opcode.TEXT, b"Hello")]
    assert frame(Opcode.TEXT, b"Hello") == HELLO_UNMASKED
    pong = bytes.fromhex("8a8537fa213d7f9f4d5158")
    assert read(pong) == [Incoming(Opcode.PONG, b"Hello")]


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_lengths_are_written_in_the_shortest_way(size: int) -> None:
    written = frame(Opcode.BINARY, b"x" * size)
    head = 2 if size < 126 else 4 if size < 65_536 else 10
    assert len(written) == head + size
    assert int.from_bytes(written[1:head], "big") & ((1 << 63) - 1) >= size


@given(st.lists(st.binary(max_size=300), max_size=5), st.lists(st.integers(1, 50), min_size=1))
def test_pieces_make_no_difference(messages: list[bytes], sizes: list[int]) -> None:
    data = b"".join(masked(2, message) for message in messages)
    pieces: list[bytes] = []
    while data:
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(data[:size])
        data = data[size:]
    assert read(*pieces) == [Incoming(Opcode.BINARY, message) for message in messages]


@given(st.binary(max_size=200))
def test_whatever_comes_is_read_or_refused(data: bytes) -> None:
    found = read(data)
    assert not [one for one in found[:-1] if isinstance(one, Violation)]


def test_fragments_are_one_message_with_pings_in_between() -> None:
    found = read(
        masked(1, b"gr", final=False),
        masked(9, b"?"),
        masked(0, "ü".encode()[:1], final=False),
        masked(0, "ü".encode()[1:]),
    )
    assert found == [Incoming(Opcode.PING, b"?"), Incoming(Opcode.TEXT, "grü".encode())]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (HELLO_UNMASKED, CloseCode.PROTOCOL_ERROR),
        (masked(3, b""), CloseCode.PROTOCOL_ERROR),
        (masked(0, b""), CloseCode.PROTOCOL_ERROR),
        (masked(1, b"", final=False) + masked(1, b""), CloseCode.PROTOCOL_ERROR),
        (masked(9, b"", final=False), CloseCode.PROTOCOL_ERROR),
        (masked(9, b"x" * 126), CloseCode.PROTOCOL_ERROR),
        (bytes([0xC1, 0x80, 0, 0, 0, 0]), CloseCode.PROTOCOL_ERROR),
        (masked(1, b"\xff"), CloseCode.INVALID_DATA),
        (masked(1, b"x" * (MOST + 1))[:8], CloseCode.MESSAGE_TOO_BIG),
        (masked(1, b"x" * MOST, final=False) + masked(0, b"x"), CloseCode.MESSAGE_TOO_BIG),
        (bytes([0x81, 0xFF]) + b"\xff" * 8, CloseCode.MESSAGE_TOO_BIG),
        (masked(8, b"\x03"), CloseCode.PROTOCOL_ERROR),
        (masked(8, b"\x03\xed"), CloseCode.PROTOCOL_ERROR),
        (masked(8, b"\x03\xe8\xff"), CloseCode.INVALID_DATA),
    ],
)
def test_what_ends_the_connection(data: bytes, code: CloseCode) -> None:
    *before, last = read(data)
    assert not before
    assert isinstance(last, Violation)
    assert last.code == code


def test_many_small_frames_in_one_read_take_no_longer_each() -> None:
    """A read of a quarter of a megabyte holds tens of thousands of them."""
    assert len(read(masked(9, b"") * 40_000)) == 40_000


def test_close_frames_keep_to_their_length() -> None:
    assert close_frame(1001, "bye") == b"\x88\x05\x03\xe9bye"
    assert len(close_frame(1001, "ü" * 100)) == 2 + 124
    assert read(masked(8, b"")) == [Incoming(Opcode.CLOSE, b"")]
