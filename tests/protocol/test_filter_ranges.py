"""Many ranges as one."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import example, given
from hypothesis import strategies as st

from queuegate.protocol.filter_conditions import closed, within

BOUNDS = st.integers(-4, 4) | st.sampled_from([-1e9, 0.1, 0.5, -0.0, 1e9])
NUMBERS = BOUNDS | st.floats(allow_nan=False)
BELOW: dict[str, Callable[[float, float], bool]] = {
    "<": lambda value, top: value < top,
    "<=": lambda value, top: value <= top,
}
ABOVE: dict[str, Callable[[float, float], bool]] = {
    ">": lambda value, bottom: value > bottom,
    ">=": lambda value, bottom: value >= bottom,
}
RANGES = st.tuples(st.sampled_from([*ABOVE]), BOUNDS, st.sampled_from([*BELOW]), BOUNDS)


@given(st.lists(RANGES, max_size=5), st.lists(NUMBERS | st.floats(-5, 5), max_size=9))
@example([(">", 1, "<", 1.0000000000000002)], [1, 1.0000000000000002])
@example([(">=", 1, "<", 2), (">", 2, "<=", 3)], [1, 2, 3])
def test_a_number_is_within_when_one_range_has_it(
    ranges: list[tuple[str, float, str, float]], numbers: list[float]
) -> None:
    is_within = within([closed(*one) for one in ranges])
    for number in numbers:
        wanted = any(
            ABOVE[lower](number, bottom) and BELOW[upper](number, top)
            for lower, bottom, upper, top in ranges
        )
        assert is_within(number) == wanted


def test_numbers_beyond_doubles() -> None:
    first = 2**127 + 1
    is_within = within([(first, first), (first + 4, first + 9)])
    assert [is_within(first + n) for n in (-1, 0, 1, 3, 4, 9, 10)] == [
        False, True, False, False, True, True, False,
    ]  # fmt: skip
