"""Ranges of numbers that conditions of filter policies allow, joined: however many a policy has, a
value is compared with few of them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable

Range = tuple[float, float]
"""Both ends belong to it."""


def closed(lower: str, bottom: float, upper: str, top: float) -> Range:
    """The range between two bounds, `>` or `>=` and `<` or `<=`, of at most 10^9.

    No double and no whole number lies between such a bound and the double next to it.
    """
    if lower == ">":
        bottom = math.nextafter(bottom, math.inf)
    if upper == "<":
        top = math.nextafter(top, -math.inf)
    return bottom, top


def within(ranges: Iterable[Range]) -> Callable[[float], bool]:
    """Whether a number is in one of the ranges, at least one."""
    joined: list[Range] = []
    for bottom, top in sorted(ranges):
        if bottom > top:
            continue
        if joined and bottom <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(top, joined[-1][1])
        else:
            joined.append((bottom, top))
    if len(joined) == 1:
        [(only_bottom, only_top)] = joined
        return lambda number: only_bottom <= number <= only_top
    bottoms = [bottom for bottom, _ in joined]
    tops = [top for _, top in joined]

    def test(number: float) -> bool:
        index = bisect_right(bottoms, number) - 1
        return index >= 0 and number <= tops[index]

    return test
