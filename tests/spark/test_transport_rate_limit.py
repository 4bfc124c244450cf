"""The limit on a rate, by a clock that moves only when something waits or takes its time."""

from __future__ import annotations

import pytest

from spark_connectors.sink.sender import SendRate


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.pauses: list[float] = []

    def pause(self, seconds: float) -> None:
        assert seconds > 0
        self.pauses.append(seconds)
        self.now += seconds


def limited(clock: Clock, per_second: float | None) -> SendRate:
    return SendRate(per_second, clock=lambda: clock.now, pause=clock.pause)


def test_no_second_has_more_than_the_rate_and_what_was_let_through_at_its_begin() -> None:
    clock = Clock()
    limit = limited(clock, 50)
    sent: list[tuple[float, int]] = []
    for number in range(300):
        count = 1 + number % 10
        limit.wait(count)
        sent.append((clock.now, count))
        clock.now += 0.3 if number % 40 == 0 else 0.001
    for begin, _ in sent:
        within = [count for at, count in sent if begin <= at < begin + 1]
        assert sum(within) <= 50 + 10


def test_a_sender_that_is_always_ready_has_the_whole_rate() -> None:
    clock = Clock()
    limit = limited(clock, 20)
    for _ in range(11):
        limit.wait(10)
    assert clock.pauses == pytest.approx([0.5] * 10)


def test_work_is_part_of_the_time() -> None:
    clock = Clock()
    limit = limited(clock, 20)
    limit.wait(10)
    clock.now += 0.2
    limit.wait(10)
    assert clock.pauses == pytest.approx([0.3])


def test_what_was_not_sent_is_not_made_up_for() -> None:
    clock = Clock()
    limit = limited(clock, 20)
    limit.wait(10)
    clock.now += 60
    limit.wait(10)
    limit.wait(10)
    assert clock.pauses == pytest.approx([0.5])


def test_without_a_rate_nothing_waits() -> None:
    clock = Clock()
    limit = limited(clock, None)
    for _ in range(100):
        limit.wait(1_000_000)
    assert clock.pauses == []
