"""Tasks that die; drivers and queries that share what they must not."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spark.clocks import Clock
from tests.spark.crash.jobs import Running
from tests.spark.crash.points import Plan
from tests.spark.crash.scenario import (
    MODEL,
    SPARK,
    VISIBILITY_SECONDS,
    Runner,
    Scenario,
    compared,
)
from tests.spark.waiting import wait_for

# The default is less than what a single run may take.
pytestmark = pytest.mark.timeout(900)

Make = Callable[..., Scenario]
# A batch that takes longer than the visibility timeout.
SLOW = VISIBILITY_SECONDS + 5
# Every task may fail four times.
WITH_RETRIES = "local[2,4]"


@pytest.fixture
def make(gateway: str, make_queue: Callable[..., str], clock: Clock, tmp_path: Path) -> Make:
    """A scenario with a queue of its own, of the name of a directory."""

    def scenario(runner: Runner, name: str = "scenario", **options: object) -> Scenario:
        given = {**options}
        url = str(given.pop("queueUrl", "")) or make_queue(gateway)
        return Scenario(gateway, url, tmp_path / name, runner=runner, clock=clock, **given)

    return scenario


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_worker_is_killed_in_a_task(make: Make) -> None:
    """Spark runs the task again; the query does not notice."""
    scenario = make(SPARK)
    scenario.send(100)
    job = scenario.job._replace(master=WITH_RETRIES)
    scenario.start(Plan("read", 2, action="fall"), job).ends_well()
    scenario.drain()


def test_two_drivers_of_one_checkpoint(make: Make) -> None:
    """One at least ends, and says why; what they did together is right."""
    both_run(make(MODEL))


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_two_drivers_of_one_checkpoint_in_spark(make: Make) -> None:
    both_run(make(SPARK))


def both_run(scenario: Scenario) -> None:
    scenario.send(20)
    scenario.start().ends_well()
    job = scenario.job._replace(is_available_now=False)
    end_of_one(scenario, [scenario.start(job=job), scenario.start(job=job)])
    scenario.wait_visible()
    scenario.drain()


def end_of_one(scenario: Scenario, jobs: list[Running]) -> None:
    """Send until one of these jobs ends, and says why."""
    pause = threading.Event()
    rounds = 0
    while not any(one.has_ended for one in jobs):
        scenario.send(20)
        pause.wait(0.2)
        rounds += 1
        assert rounds < 600, "both go on"
    for one in jobs:
        if one.has_ended:
            assert says_why(one), one.log[-4000:]
        one.kill()


def test_a_driver_that_was_thought_dead_comes_back(make: Make) -> None:
    """It was only held up, with messages in its hands; meanwhile another one went on."""
    scenario = make(MODEL)
    job = scenario.job._replace(is_available_now=False)
    old = scenario.start(job=job)
    scenario.send(100)
    wait_for(lambda: len(scenario.rows()) >= 40)
    scenario.send(60)
    old.signal(signal.SIGSTOP)
    scenario.wait_visible()
    new = scenario.start(job=job)
    wait_for(lambda: len(scenario.rows()) >= 160)
    scenario.send(40)
    old.signal(signal.SIGCONT)
    # Whatever each of them does now: one at least has to end.
    end_of_one(scenario, [old, new])
    scenario.wait_visible()
    scenario.drain()


def says_why(job: Running) -> bool:
    """Return True if the log tells its reader that there are two."""
    clear = (
        "SpoolTaken",
        "SpoolMismatch",
        "FileExistsError",
        "CONCURRENT_STREAM_LOG_UPDATE",
        "concurrently",
    )
    return any(word in job.log for word in clear)


def test_two_queries_of_one_spool(make: Make) -> None:
    """The second, with a checkpoint of its own, is refused as long as the first has not failed."""
    first = make(MODEL)
    first.send(50)
    first.start().ends_well()
    second = make(MODEL, "second", queueUrl=first.url, spoolPath=first.spool)
    running = second.start()
    assert running.wait() == 1
    assert "SpoolMismatch" in running.log
    first.drain()
    other = make(MODEL, "other", spoolPath=first.spool)
    running = other.start()
    assert running.wait() == 1
    assert "SpoolMismatch" in running.log


def test_two_queries_that_begin_at_once(make: Make) -> None:
    """None has committed anything yet: what one has written ends the other."""
    first = make(MODEL)
    second = make(MODEL, "second", queueUrl=first.url, spoolPath=first.spool)
    both = (first, second)
    end_of_one(first, [one.start(job=one.job._replace(is_available_now=False)) for one in both])


def test_a_batch_longer_than_the_visibility_timeout(make: Make) -> None:
    scenario = make(MODEL)
    scenario.send(120)
    slow = scenario.job._replace(is_available_now=False, batch_seconds=SLOW)
    running = scenario.start(job=slow)
    wait_for(lambda: len(scenario.rows()) >= 120, 120)
    running.kill()
    scenario.drain()


@pytest.mark.parametrize("delete_mode", ["commit", "spool"])
def test_a_slow_batch_and_a_restart(make: Make, delete_mode: str) -> None:
    """A delete with an expired receipt is answered well and does nothing: the ids remain."""
    scenario = make(MODEL, deleteMode=delete_mode, spoolRetentionBatches=0)
    scenario.send(80)
    slow = scenario.job._replace(batch_seconds=SLOW)
    scenario.start(Plan("deleted", 2), slow).dies()
    scenario.wait_visible()
    scenario.start(Plan("committed", 1), slow).dies()
    scenario.drain()
    rows = [body for body, _, _ in scenario.rows()]
    assert compared(scenario.sent, rows) == ([], [])


def test_ids_are_kept_as_long_as_they_were_asked_for(make: Make, clock: Clock) -> None:
    scenario = make(MODEL, dedupeWindow=3, spoolRetentionBatches=0)
    scenario.send(10)
    scenario.start().ends_well()
    first = scenario.contents().ids
    assert first
    until = max(kept.forget_at for kept in first.values())
    assert until <= time.time() + 4
    clock.advance(until - time.time() + 1)
    # The next batch that is done takes them away.
    scenario.send(10)
    scenario.drain()
    assert not first.keys() & scenario.contents().ids.keys()
