"""Routing keys and patterns: which are valid, and what matches, against a regular expression."""

from __future__ import annotations

import random
import re
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuegate.protocol import routing_keys
from queuegate.protocol.malformed import Malformed
from queuegate.protocol.routing_keys import Trie

NAMES = st.sampled_from(["a", "b", "order", "a-b", "A_1"])
KEYS = st.lists(NAMES, min_size=1, max_size=6).map(".".join)
PATTERNS = st.lists(NAMES | st.sampled_from(["*", "#"]), min_size=1, max_size=6).map(".".join)


def as_expression(pattern: str) -> re.Pattern[str]:
    """For keys with a dot behind them: `*` is one segment, `#` any number of them."""
    parts = {"*": r"[^.]+\.", "#": r"(?:[^.]+\.)*"}
    words = [parts.get(segment) or re.escape(segment) + r"\." for segment in pattern.split(".")]
    return re.compile("".join(words))


def is_match(pattern: str, key: str) -> bool:
    return as_expression(pattern).fullmatch(key + ".") is not None


@given(PATTERNS, KEYS)
def test_a_pattern_matches_what_its_expression_matches(pattern: str, key: str) -> None:
    assert routing_keys.matches(pattern, key) == is_match(pattern, key)


@given(st.lists(PATTERNS, max_size=30), KEYS)
def test_a_tree_of_patterns_finds_every_value_once(patterns: list[str], key: str) -> None:
    trie: Trie[int] = Trie()
    for number, pattern in enumerate(patterns):
        trie.add(pattern, number)
    expected = [number for number, pattern in enumerate(patterns) if is_match(pattern, key)]
    assert sorted(trie.match(key)) == expected


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("order.created", ["order.created"], ["order", "order.created.x", "orderXcreated"]),
        ("order.*", ["order.created"], ["order", "order.a.b", "orders.a"]),
        ("*.created", ["order.created"], ["created", "a.b.created"]),
        ("order.#", ["order", "order.a", "order.a.b.c"], ["orders", "a.order"]),
        ("#.created", ["created", "a.created", "a.b.created"], ["created.a"]),
        ("a.#.z", ["a.z", "a.b.z", "a.b.c.z", "a.z.z"], ["a", "z", "a.z.b"]),
        ("#", ["a", "a.b.c"], []),
        ("*", ["a"], ["a.b"]),
        ("#.*", ["a", "a.b"], []),
        ("*.#.*", ["a.b", "a.b.c"], ["a"]),
        ("#.a.#", ["a", "b.a", "b.a.c", "a.a"], ["b", "b.c"]),
    ],
)
def test_examples(pattern: str, matching: list[str], others: list[str]) -> None:
    for key in matching:
        assert routing_keys.matches(pattern, key), key
        assert is_match(pattern, key), key
    for key in others:
        assert not routing_keys.matches(pattern, key), key
        assert not is_match(pattern, key), key


def test_many_wildcards_take_no_more_time_than_there_are_segments() -> None:
    """A backtracking matcher would run for years."""
    pattern = ".".join(["#", "a"] * 60)
    assert len(pattern) <= routing_keys.LONGEST
    assert not routing_keys.matches(pattern, ".".join(["a"] * 120) + ".b")
    assert routing_keys.matches(pattern, ".".join(["a"] * 128))
    assert routing_keys.matches(".".join(["#"] * 128), "a")


def test_thousands_of_long_patterns_hold_nobody_up() -> None:
    """Each of them has as many wildcards as it can, and matches: what a tree alone does in ten
    seconds."""
    choice = random.Random(1).choice
    trie: Trie[int] = Trie()
    for number in range(2_000):
        middle = ".".join([choice("a*") for _ in range(120)])
        trie.add(f"#.{middle}.#.a", number)
    key = ".".join(["a"] * 128)
    started = process_time()
    assert len(trie.match(key)) == 2_000
    assert process_time() - started < 2


VALID_KEYS = ["a", "order.created", "A-Z_9", "a.b.c.d", "a" * 256, "x.fifo"]
ONLY_PATTERNS = ["*", "#", "order.*", "#.a", "*.*.#", "#.#"]
INVALID = [
    ("", "it is empty"),
    (".", "there is nothing before"),
    ("a.", "there is nothing before"),
    (".a", "there is nothing before"),
    ("a..b", "there is nothing before"),
    ("a b", "it has other characters"),
    ("a/b", "it has other characters"),
    ("ä", "it has other characters"),
    ("a\n", "it has other characters"),
    ("a.b\u0663", "it has other characters"),
    ("a*", "it has other characters"),
    ("a.#b", "it has other characters"),
    ("**", "it has other characters"),
    ("a" * 257, "it has 257 characters, at most 256 are allowed"),
]


@pytest.mark.parametrize("text", VALID_KEYS)
def test_a_valid_key_is_a_valid_pattern(text: str) -> None:
    routing_keys.check_key(text)
    routing_keys.check_pattern(text)
    assert routing_keys.matches(text, text)


@pytest.mark.parametrize("text", ONLY_PATTERNS)
def test_wildcards_are_for_patterns(text: str) -> None:
    routing_keys.check_pattern(text)
    with pytest.raises(Malformed, match="The routing key is not valid: it has other characters"):
        routing_keys.check_key(text)


@pytest.mark.parametrize(("text", "fault"), INVALID)
def test_a_refusal_says_what_is_wrong_and_what_is_right(text: str, fault: str) -> None:
    with pytest.raises(Malformed) as key:
        routing_keys.check_key(text)
    assert str(key.value).startswith(f"The routing key is not valid: {fault}")
    assert str(key.value).endswith(
        "It is made of segments of letters, digits, hyphens and underscores, with dots between."
    )
    with pytest.raises(Malformed) as pattern:
        routing_keys.check_pattern(text)
    assert str(pattern.value).startswith(f"The pattern is not valid: {fault}")
    assert "or * (one segment) or # (any number)" in str(pattern.value)


@given(st.text(alphabet="ab.*#-_ /\n\u0661", max_size=12))
def test_whatever_is_valid_is_made_of_valid_segments(text: str) -> None:
    segments = text.split(".")
    is_plain = [re.fullmatch("[A-Za-z0-9_-]+", one, re.ASCII) is not None for one in segments]
    assert routing_keys.is_key(text) == all(is_plain)
    others = [one for one, plain in zip(segments, is_plain, strict=True) if not plain]
    assert routing_keys.is_pattern(text) == (set(others) <= {"*", "#"})
