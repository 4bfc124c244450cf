"""The clock of a process hears of moves in any order."""

from __future__ import annotations

from gateway.operations import looking
from gateway.operations.clock import Clock
from gateway.operations.engine import Engine


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


async def test_a_move_wakes_whoever_waits_for_a_time(engine: Engine) -> None:
    looking.connect(engine)
    told: list[str] = []
    engine.wakeups.on_schedules = lambda: told.append("schedules")
    engine.wakeups.on_deliveries = lambda: told.append("deliveries")
    engine.wakeups.on_clock_moved(60.0, 1)
    assert told == ["schedules", "deliveries"]
