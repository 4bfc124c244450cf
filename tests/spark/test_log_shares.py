"""Shares of a batch in each partition, their readers, and offsets as Spark keeps them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_connectors.log.log_tasks import cut, joined, limited, shared_out
from spark_connectors.log.progress import BadOffset, OffsetSpan, between, of_json, to_json

sizes = st.lists(st.integers(0, 10_000), min_size=1, max_size=60)
spans = st.lists(
    st.builds(
        lambda number, start, size: OffsetSpan("log", number, start, start + size),
        st.integers(0, 99),
        st.integers(0, 1_000),
        st.integers(1, 10_000),
    ),
    min_size=1,
    max_size=60,
)


@given(sizes, st.integers(1, 20_000), st.integers(0, 1_000))
def test_a_batch_has_as_many_as_it_may_in_proportion(each: list[int], most: int, turn: int) -> None:
    shares = limited(each, most, turn)
    assert sum(shares) == min(most, sum(each))
    total = sum(each)
    for share, size in zip(shares, each, strict=True):
        assert 0 <= share <= size
        if total > most:
            assert abs(share - size * most / total) <= 1


@given(st.integers(2, 50), st.integers(1, 10))
def test_no_partition_waits_for_ever_for_a_large_one(small: int, most: int) -> None:
    """However much the large one has, each small one has its turn."""
    waiting = dict.fromkeys(range(small), 1)
    turn = 0
    for _ in range(small * 2 + 2):
        each = [1_000_000, *(waiting[number] for number in range(small))]
        shares = limited(each, most, turn)
        turn += sum(share > 0 for share in shares)
        for number in range(small):
            waiting[number] -= shares[number + 1]
    assert sum(waiting.values()) == 0


@given(spans, st.integers(1, 40))
def test_tasks_have_all_and_nothing_twice(found: list[OffsetSpan], tasks: int) -> None:
    whole = joined(found, tasks)
    assert [span for task in whole for span in task] == found
    assert len(whole) <= tasks
    pieces = cut(found, tasks)
    assert len(pieces) == min(tasks, sum(span.size for span in found))
    offsets = [
        (one.partition, at) for task in pieces for one in task for at in (one.start, one.stop)
    ]
    assert offsets[0] == (found[0].partition, found[0].start)
    assert offsets[-1] == (found[-1].partition, found[-1].stop)
    counts = [sum(span.size for span in task) for task in pieces]
    assert sum(counts) == sum(span.size for span in found)
    assert max(counts) - min(counts) <= 1


def test_thousands_of_small_partitions_are_few_tasks() -> None:
    small = [OffsetSpan("log", number, 0, 3) for number in range(5_000)]
    assert [len(task) for task in shared_out(small, None, 4)] == [1_250] * 4
    assert [len(task) for task in shared_out(small, 2, 4)] == [2_500] * 2
    assert len(shared_out([OffsetSpan("log", 0, 0, 100)], 8, 4)) == 8
    assert len(shared_out([OffsetSpan("log", 0, 0, 100)], None, 4)) == 1


def test_offsets_are_written_as_kafkas_and_always_the_same() -> None:
    given = {"b": {10: 7, 2: 1}, "a": {}}
    assert list(to_json(given, {})) == ["a", "b"]
    assert to_json(given, {})["b"] == {"2": 1, "10": 7}
    assert list(to_json(given, {})["b"]) == ["2", "10"]
    assert of_json(to_json(given, {})) == given


@pytest.mark.parametrize("foreign", [{"spool": "x", "seq": 3}, {"a": [1]}, {"a": {"x": 1}}])
def test_an_offset_of_another_source_is_refused(foreign: dict[str, object]) -> None:
    with pytest.raises(BadOffset, match="is of no log"):
        of_json(foreign)


def test_what_lies_between_two_offsets() -> None:
    start = {"a": {0: 5, 1: 5, 2: 5}}
    end = {"a": {0: 9, 1: 5, 2: 2, 3: 4}, "new": {0: 1}}
    assert list(between(start, end)) == [
        OffsetSpan("a", 0, 5, 9),
        OffsetSpan("a", 2, 0, 2, may_begin_later=True),
        OffsetSpan("a", 3, 0, 4),
        OffsetSpan("new", 0, 0, 1, may_begin_later=True),
    ]
