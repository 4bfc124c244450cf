"""The clock of a process hears of moves in any order."""

from __future__ import annotations

from gateway.operations.clock import Clock


def test_news_that_come_late_do_not_move_the_clock_back() -> None:
    clock = Clock()
    assert clock.move(900, 2)
    assert not clock.move(600, 1)
    assert clock.ahead_seconds == 900
    assert clock.move(0, 3)
    assert clock.now() is None


def test_a_clock_that_older_versions_have_moved_counts() -> None:
    clock = Clock()
    assert clock.move(600, 0)
    assert clock.ahead_seconds == 600
