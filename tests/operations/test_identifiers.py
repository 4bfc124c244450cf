"""Ids are distinct, and differ wherever somebody cuts them."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from uuid import RFC_4122, UUID

import pytest

from queuegate.gateway.operations.runtime.identifiers import STEP, new_id

_OF_A_PROCESS = (
    "from queuegate.gateway.operations.runtime.identifiers import new_id\n"
    "for _ in range(1000): print(new_id())"
)


@pytest.fixture(scope="module")
def drawn() -> list[str]:
    return [new_id() for _ in range(1_000_000)]


def test_a_million_ids_are_distinct(drawn: list[str]) -> None:
    assert len(set(drawn)) == len(drawn)


def test_ids_are_random_uuids_in_form(drawn: list[str]) -> None:
    for text in drawn[:1000]:
        read = UUID(text)
        assert (str(read), read.version, read.variant) == (text, 4, RFC_4122)


def test_no_number_comes_back() -> None:
    """Fibonacci numbers of steps come nearest to a multiple of 2^128. Ids are distinct while that
    distance is more than the 48 bits that are left out."""
    before, steps = 1, 1
    while steps < 1 << 78:
        off = steps * STEP % (1 << 128)
        assert min(off, (1 << 128) - off) > 1 << 48
        before, steps = steps, before + steps


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("shards", [2, 10, 16, 256])
@pytest.mark.parametrize("digits", [slice(0, 8), slice(-8, None)], ids=["first", "last"])
def test_shards_are_filled_alike(drawn: list[str], digits: slice, shards: int, stride: int) -> None:
    """A send takes two ids, one for the request: messages may have every other one."""
    taken = drawn[: 1000 * shards * stride : stride]
    filled = Counter(int(text[digits], 16) % shards for text in taken)
    assert len(filled) == shards
    assert all(800 < count < 1200 for count in filled.values()), filled


def test_ids_of_a_process_differ_in_most_digits(drawn: list[str]) -> None:
    firsts = {text[:8] for text in drawn[:10_000]}
    lasts = {text[-12:] for text in drawn[:10_000]}
    assert len(firsts) == len(lasts) == 10_000


def test_processes_have_nothing_in_common() -> None:
    first, second = (
        subprocess.run(
            [sys.executable, "-c", _OF_A_PROCESS], capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(2)
    )
    for part in (slice(0, 13), slice(8, 24), slice(-12, None)):
        assert not {text[part] for text in first} & {text[part] for text in second}
    assert first[0][:8] != second[0][:8]
