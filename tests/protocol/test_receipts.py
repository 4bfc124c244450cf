import base64
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import receipts
from protocol.errors import Malformed
from protocol.receipts import FifoReceipt, StandardReceipt

NUMBERS = st.integers(0, 2**64 - 1)
COUNTS = st.integers(0, 2**32 - 1)
GROUPS = st.text(st.characters(exclude_categories=["Cs"]), max_size=128)
STANDARD = receipts.encode_standard(12, 345678, 1, 1_700_000_000)
FIFO = receipts.encode_fifo(12, "group", 345678, 1, 1_700_000_000)


@given(COUNTS, NUMBERS, COUNTS, COUNTS)
def test_standard_handles_come_back(queue_id: int, sequence: int, count: int, at: int) -> None:
    handle = receipts.encode_standard(queue_id, sequence, count, at)
    assert re.fullmatch(r"[A-Za-z0-9_-]{36}", handle)
    assert receipts.decode(handle) == StandardReceipt(queue_id, sequence, count, at)


@given(COUNTS, GROUPS, NUMBERS, COUNTS)
def test_fifo_handles_come_back(queue_id: int, group_id: str, sequence: int, count: int) -> None:
    handle = receipts.encode_fifo(queue_id, group_id, sequence, count, 7)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,1024}", handle)
    receipt = receipts.decode(handle)
    assert receipt == FifoReceipt(queue_id, group_id, sequence, count, 7)
    assert type(receipt) is FifoReceipt


@given(st.text(max_size=60) | st.text(st.sampled_from("QGSF1AZaz09-_+/= "), max_size=60))
def test_other_texts_are_malformed(text: str) -> None:
    for candidate in (text, "QGS1" + text, "QGF1" + text, "QGS1" + text[:32].ljust(32, "A")):
        with pytest.raises(Malformed) as caught:
            receipts.decode(candidate)
        assert caught.value.kind == "receipt"


@given(st.sampled_from([STANDARD, FIFO]), st.data())
def test_a_handle_with_any_character_changed_is_malformed(handle: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(handle) - 1))
    other = data.draw(st.characters().filter(lambda character: character != handle[place]))
    with pytest.raises(Malformed):
        receipts.decode(handle[:place] + other + handle[place + 1 :])


@pytest.mark.parametrize("handle", [STANDARD, FIFO])
def test_every_other_last_character_is_malformed(handle: str) -> None:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    for other in alphabet.replace(handle[-1], ""):
        with pytest.raises(Malformed):
            receipts.decode(handle[:-1] + other)


def test_a_handle_has_one_spelling() -> None:
    handle = next(
        found
        for found in (receipts.encode_standard(0, number, 1, 0) for number in range(10_000))
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
        "QGF1" + handle[4:],
        "QGS1" + FIFO[4:],
    ]
    for variant in variants:
        with pytest.raises(Malformed):
            receipts.decode(variant)


@pytest.mark.parametrize("text", ["", "x", "QGS1", "QGF1", "QGF1" + "A" * 2000, "x" * 1_000_000])
def test_short_and_huge_texts_are_malformed(text: str) -> None:
    with pytest.raises(Malformed):
        receipts.decode(text)


def test_plain_base64_of_something_else_is_malformed() -> None:
    with pytest.raises(Malformed):
        receipts.decode(base64.urlsafe_b64encode(b"q 1 AAAA" * 3).decode())
