"""FairQueue: how many requests each subscription may have in flight."""

from __future__ import annotations

from uuid import UUID

import pytest

from queuegate.scheduler.webhook_outcomes import DELIVERED, DeliveryOutcome, judge, no_answer
from queuegate.scheduler.webhook_pacing import FairQueue

A, B, C = (UUID(int=number) for number in (1, 2, 3))
SILENT = no_answer("no answer within 15 s")


def begin(turns: FairQueue, most: int = 1_000, time: float = 0.0) -> dict[UUID, int]:
    """Begin all that may begin; more is due everywhere."""
    chosen = turns.choose(time, most)
    for key, count in chosen.items():
        turns.began(key, count, count)
    return chosen


def test_success_raises_the_limit_to_32() -> None:
    turns = FairQueue(256)
    turns.add(A)
    begun = []
    for _ in range(7):
        begun.append(begin(turns)[A])
        for _ in range(begun[-1]):
            turns.ended(A, DELIVERED)
    assert begun == [2, 4, 8, 16, 32, 32, 32]


def test_failures_lower_it() -> None:
    turns = FairQueue(256)
    turns.add(A)
    for _ in range(5):
        for _ in range(begin(turns)[A]):
            turns.ended(A, DELIVERED)
    begin(turns)
    turns.ended(A, judge(500))
    turns.ended(A, judge(404))
    for _ in range(30):
        turns.ended(A, None)
    assert begin(turns)[A] == 16
    turns.ended(A, SILENT)
    for _ in range(15):
        turns.ended(A, None)
    assert begin(turns)[A] == 1


def test_what_has_no_more_due_leaves() -> None:
    turns = FairQueue(256)
    turns.add(A)
    assert turns.choose(0.0, 10) == {A: 2}
    turns.began(A, 2, 1)
    assert turns.choose(0.0, 10) == {}
    turns.add(A)
    assert turns.choose(0.0, 10) == {A: 1}


def test_places_are_shared_and_taken_in_turn() -> None:
    turns = FairQueue(256)
    for key in (A, B, C):
        turns.add(key)
    assert begin(turns, most=2) == {A: 1, B: 1}
    assert begin(turns, most=2) == {C: 1, A: 1}
    assert begin(turns, most=10) == {B: 1, C: 1}


def test_silent_ones_leave_half_of_the_places() -> None:
    turns = FairQueue(8)
    keys = [UUID(int=number) for number in range(10, 30)]
    for key in keys:
        turns.add(key)
    assert sum(begin(turns).values()) == 6
    for key in keys[:3]:
        turns.ended(key, SILENT)
        turns.ended(key, SILENT)
    # Nothing is known of the others yet.
    assert sum(begin(turns).values()) == 6
    for key in keys[3:6]:
        turns.ended(key, SILENT)
        turns.ended(key, SILENT)
    turns = FairQueue(8)
    for key in keys:
        turns.add(key)
    for _ in range(10):
        for key, count in begin(turns).items():
            for _ in range(count):
                turns.ended(key, SILENT)
    assert begin(turns).keys() <= set(keys)
    assert sum(begin(turns).values()) == 0
    turns.add(A)
    assert begin(turns) == {A: 2}


def test_silent_ones_in_front_do_not_hide_the_others() -> None:
    turns = FairQueue(16)
    keys = [UUID(int=number) for number in range(10, 60)]
    for key in keys:
        turns.add(key)
    for _ in range(30):
        for key, count in begin(turns).items():
            for _ in range(count):
                turns.ended(key, SILENT)
    turns.add(A)
    chosen = begin(turns)
    assert chosen[A] == 2
    assert sum(chosen.values()) == 10


def test_pauses_end_by_the_clock() -> None:
    turns = FairQueue(8)
    turns.add(A)
    turns.add(B)
    turns.pause(A, 5.0)
    assert turns.next_time() == 5.0
    assert turns.choose(4.9, 8) == {B: 2}
    assert turns.choose(5.0, 8) == {A: 2, B: 2}
    assert turns.next_time() == float("inf")


@pytest.mark.parametrize("outcome", [SILENT, judge(500), judge(429)])
def test_after_failures_in_a_row_each_costs_a_rest(outcome: DeliveryOutcome) -> None:
    turns = FairQueue(8)
    turns.add(A)
    for _ in range(10):
        turns.choose(5.0, 1)
        turns.began(A, 1, 1)
        turns.ended(A, outcome, 5.0)
    assert begin(turns, time=5.0) == {A: 1}
    turns.ended(A, outcome, 5.0)
    assert begin(turns, time=5.09) == {}
    assert begin(turns, time=5.11) == {A: 1}
    turns.ended(A, DELIVERED, 5.2)
    assert begin(turns, time=5.2) == {A: 2}
    turns.ended(A, outcome, 5.2)
    turns.ended(A, outcome, 5.2)
    assert begin(turns, time=5.2) == {A: 1}


def test_many_silent_ones_do_not_keep_others_out() -> None:
    turns = FairQueue(8)
    for number in range(10_000):
        turns.add(UUID(int=100 + number))
    turns.add(A)
    seen: set[UUID] = set()
    for _ in range(500):
        for key, count in begin(turns).items():
            seen.add(key)
            for _ in range(count):
                turns.ended(key, SILENT)
    assert A in seen
