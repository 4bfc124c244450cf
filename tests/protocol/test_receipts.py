import base64
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuegate.protocol import opaque_tokens
from queuegate.protocol.malformed import Malformed
from queuegate.protocol.opaque_tokens import FifoReceipt, Handles, StandardReceipt

IDS = st.integers(0, 2**32 - 1)
NUMBERS = st.integers(1, 2**63 - 1)
COUNTS = st.integers(1, 2**31 - 1)
GROUPS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=128)
KEYED = opaque_tokens.keyed(b"k" * opaque_tokens.SECRET_BYTES)
UNKEYED = opaque_tokens.unkeyed()
VERSIONS = st.sampled_from([KEYED, UNKEYED])
ARGUMENTS = (12, 345678, 1, 1_700_000_000)
FIFO_ARGUMENTS = (12, "group", 345678, 1, 1_700_000_000)
STANDARD = KEYED.encode_standard(*ARGUMENTS)
FIFO = KEYED.encode_fifo(*FIFO_ARGUMENTS)
HANDLES = [
    (KEYED, STANDARD),
    (KEYED, FIFO),
    (UNKEYED, UNKEYED.encode_standard(*ARGUMENTS)),
    (UNKEYED, UNKEYED.encode_fifo(*FIFO_ARGUMENTS)),
]


@given(VERSIONS, IDS, NUMBERS, COUNTS, IDS)
def test_standard_handles_come_back(
    handles: Handles, queue_id: int, sequence: int, count: int, at: int
) -> None:
    handle = handles.encode_standard(queue_id, sequence, count, at)
    assert re.fullmatch(r"[A-Za-z0-9_-]{36}|[A-Za-z0-9_-]{44}", handle)
    assert handles.decode(handle) == StandardReceipt(queue_id, sequence, count, at)


@given(VERSIONS, IDS, GROUPS, NUMBERS, COUNTS)
def test_fifo_handles_come_back(
    handles: Handles, queue_id: int, group_id: str, sequence: int, count: int
) -> None:
    handle = handles.encode_fifo(queue_id, group_id, sequence, count, 7)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,1024}", handle)
    receipt = handles.decode(handle)
    assert receipt == FifoReceipt(queue_id, group_id, sequence, count, 7)
    assert type(receipt) is FifoReceipt


def test_old_handles_are_read_as_they_were_written() -> None:
    """As gateways before the secret wrote them: byte for byte."""
    assert UNKEYED.encode_standard(*ARGUMENTS) == "QGS1AAAADAAAAAAABUZOAAAAAWVT8QAiad6I"
    assert UNKEYED.encode_fifo(*FIFO_ARGUMENTS) == "QGF1m9Ac4gAAAAwAAAAAAAVGTgAAAAFlU_EAZ3JvdXA"


@pytest.mark.parametrize("handles", [KEYED, UNKEYED])
@pytest.mark.parametrize(
    ("sequence", "count"), [(0, 1), (2**63, 1), (2**64 - 1, 1), (1, 0), (1, 2**31), (1, 2**32 - 1)]
)
def test_numbers_that_no_column_holds_are_malformed(
    handles: Handles, sequence: int, count: int
) -> None:
    for handle in (
        handles.encode_standard(12, sequence, count, 7),
        handles.encode_fifo(12, "group", sequence, count, 7),
    ):
        with pytest.raises(Malformed):
            handles.decode(handle)


@pytest.mark.parametrize("handles", [KEYED, UNKEYED])
@pytest.mark.parametrize("group_id", ["", "\0", "a\0b", "a\x1fb", "\ufffe", "x" * 129])
def test_groups_that_no_queue_has_are_malformed(handles: Handles, group_id: str) -> None:
    with pytest.raises(Malformed):
        handles.decode(handles.encode_fifo(12, group_id, 1, 1, 7))


def test_handles_of_another_secret_are_malformed() -> None:
    other = opaque_tokens.keyed(b"l" * opaque_tokens.SECRET_BYTES)
    for handle in (STANDARD, FIFO):
        for reader in (other, UNKEYED):
            with pytest.raises(Malformed):
                reader.decode(handle)


@given(st.text(max_size=60) | st.text(st.sampled_from("QGSF12AZaz09-_+/= "), max_size=60))
def test_other_texts_are_malformed(text: str) -> None:
    for candidate in (text, "QGS2" + text, "QGF2" + text, "QGS2" + text[:40].ljust(40, "A")):
        with pytest.raises(Malformed) as caught:
            KEYED.decode(candidate)
        assert caught.value.kind == "receipt"


@given(st.sampled_from(HANDLES), st.data())
def test_a_handle_with_any_character_changed_is_malformed(
    one: tuple[Handles, str], data: st.DataObject
) -> None:
    handles, handle = one
    place = data.draw(st.integers(0, len(handle) - 1))
    other = data.draw(st.characters().filter(lambda character: character != handle[place]))
    with pytest.raises(Malformed):
        handles.decode(handle[:place] + other + handle[place + 1 :])


@pytest.mark.parametrize(("handles", "handle"), HANDLES)
def test_every_other_last_character_is_malformed(handles: Handles, handle: str) -> None:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    for other in alphabet.replace(handle[-1], ""):
        with pytest.raises(Malformed):
            handles.decode(handle[:-1] + other)


def test_a_handle_has_one_spelling() -> None:
    handle = next(
        found
        for found in (KEYED.encode_standard(0, number, 1, 0) for number in range(1, 10_000))
        if "-" in found or "_" in found
    )
    variants = [
        handle.replace("-", "+").replace("_", "/"),
        handle + "=",
        handle + "\n",
        " " + handle,
        handle[:8] + "\n" + handle[8:],
        handle[:-1],
        FIFO + "=",
        FIFO + "A",
        "QGF2" + handle[4:],
        "QGS2" + FIFO[4:],
    ]
    for variant in variants:
        with pytest.raises(Malformed):
            KEYED.decode(variant)


@pytest.mark.parametrize("text", ["", "x", "QGS2", "QGF2", "QGF2" + "A" * 2000, "x" * 1_000_000])
def test_short_and_huge_texts_are_malformed(text: str) -> None:
    with pytest.raises(Malformed):
        KEYED.decode(text)


def test_plain_base64_of_something_else_is_malformed() -> None:
    with pytest.raises(Malformed):
        KEYED.decode(base64.urlsafe_b64encode(b"q 1 AAAA" * 3).decode())
