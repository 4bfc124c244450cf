"""Times within a start and an end, and windows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from queuegate.protocol.timing import Timing, drawn_due_at, next_within

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
MINUTES = Timing("rate", seconds=60, anchor=NOON)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("after", "starts", "ends", "wanted"),
    [
        (0, None, None, 60),
        (-5, None, None, 0),
        # The start and the end may be times themselves.
        (0, 120, None, 120),
        (0, 121, None, 180),
        (120, 120, None, 180),
        (0, None, 60, 60),
        (0, None, 59, None),
        (0, 300, 240, None),
    ],
)
def test_the_next_time_lies_within_start_and_end(
    after: float, starts: float | None, ends: float | None, wanted: float | None
) -> None:
    found = next_within(
        MINUTES,
        at(after),
        None if starts is None else at(starts),
        None if ends is None else at(ends),
    )
    assert found == (None if wanted is None else at(wanted))


def test_a_single_time_does_not_come_again() -> None:
    timing = Timing("once", instant=at(60))
    assert next_within(timing, at(0)) == at(60)
    assert next_within(timing, at(60)) is None


@pytest.mark.parametrize(
    ("window", "now", "share", "wanted"),
    [
        (0, 0, 0.7, 60),
        (100, 0, 0.0, 60),
        (100, 0, 0.5, 110),
        # What is over of the window is not drawn any more.
        (100, 120, 0.5, 140),
        (100, 500, 0.5, 160),
    ],
)
def test_what_is_left_of_a_window_is_drawn_from(
    window: int, now: float, share: float, wanted: float
) -> None:
    assert drawn_due_at(at(60), window, at(now), share) == at(wanted)


def test_without_a_time_there_is_nothing_to_draw() -> None:
    assert drawn_due_at(None, 60, NOON, 0.5) is None


def test_a_window_ends_with_the_calendar() -> None:
    last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert drawn_due_at(last, 86_400, NOON, 0.0) == last
    assert drawn_due_at(last, 86_400, NOON, 1.0) == datetime.max.replace(tzinfo=UTC)
