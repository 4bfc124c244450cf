"""Log lines about a database that does not answer."""

from __future__ import annotations

import pytest

from queuegate.storage.database import Availability


class Told:
    """Moves the clock, and reads what was logged since it last read."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.now = 1000.0
        self.availability = Availability(lambda: self.now)
        self._caplog = caplog

    def lines(self) -> list[str]:
        found = [record.getMessage() for record in self._caplog.records]
        self._caplog.clear()
        return found


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Told:
    return Told(caplog)


def test_it_is_told_when_it_goes_once_a_minute_and_when_it_is_back(told: Told) -> None:
    for second in range(600):
        told.now = 1000.0 + second
        told.availability.failed(OSError("refused"), 2)
    told.now += 1
    told.availability.answered()
    first, *others, last = told.lines()
    assert first == "the database does not answer: refused"
    assert others == [
        f"the database has not answered for {minute * 60} s, {minute * 120 + 2} calls failed: "
        "refused"
        for minute in range(1, 10)
    ]
    assert last == "the database answers again after 600.0 s, 1200 calls failed"


def test_the_next_time_it_goes_is_told_at_once(told: Told) -> None:
    for _ in range(2):
        told.availability.failed(TimeoutError(), 0)
        told.now += 11
        told.availability.answered()
        assert told.lines() == [
            "the database does not answer: TimeoutError",
            "the database answers again after 11.0 s, 0 calls failed",
        ]


def test_connections_lost_again_and_again_are_few_lines(told: Told) -> None:
    for _ in range(1000):
        told.availability.failed("lost")
        told.now += 1
        told.availability.answered()
    lines = told.lines()
    assert len(lines) == 200
    # Nothing that was not told is forgotten.
    assert sum(int(line.split(", ")[1].split()[0]) for line in lines[1::2]) == 991


def test_one_answer_between_failures_says_nothing(told: Told) -> None:
    told.availability.failed("one connection is lost")
    told.lines()
    for _ in range(100):
        told.availability.answered()
        told.now += 0.5
        told.availability.failed("and another one")
    assert told.availability.is_away
    assert told.lines() == []


def test_whatever_answers_says_nothing(told: Told) -> None:
    told.availability.answered()
    assert told.lines() == []
