"""Random kill -9 while messages are being sent: every one arrives, once."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spark.clocks import Clock
from tests.spark.crash.jobs import Job
from tests.spark.crash.scenario import MODEL, SPARK, Runner, Scenario
from tests.spark.waiting import wait_for

# The default is less than what a single run may take.
pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

kinds = pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])


class Soak:
    """Rounds of: start, send, kill at some moment, let the visibility timeout pass."""

    def __init__(self, scenario: Scenario, tell: Callable[[str], None]) -> None:
        self._scenario = scenario
        self._tell = tell
        self._random = random.Random(20_26)
        self._pause = threading.Event()

    def run(self, kills: int, count: int) -> None:
        """So many kills and messages, then everything is read and checked."""
        scenario = self._scenario
        for number in range(1, kills + 1):
            committed = self._last_commit()
            sender = threading.Thread(target=scenario.send, args=(count // kills,))
            sender.start()
            self._kill(scenario.job._replace(is_available_now=False), committed)
            sender.join()
            scenario.wait_visible()
            batches = f"batches {self._last_commit() + 1}"
            self._tell(f"kill {number}: sent {len(scenario.sent)}, {batches}")
        scenario.drain()
        self._tell(f"{len(scenario.rows())} rows of {len(scenario.sent)} messages")

    def _kill(self, job: Job, committed: int) -> None:
        running = self._scenario.start(job=job)

        def has_committed() -> bool:
            assert not running.has_ended, running.log[-4000:]
            return self._last_commit() > committed

        # Most of them while it works, some while it starts.
        if self._random.random() < 0.8:
            wait_for(has_committed, 240)
            self._pause.wait(self._random.uniform(0, 2))
        else:
            self._pause.wait(self._random.uniform(0.5, 8))
        assert not running.has_ended, running.log[-4000:]
        running.kill()

    def _last_commit(self) -> int:
        commits = (self._scenario.checkpoint / "commits").glob("*")
        return max((int(one.name) for one in commits if one.name.isdigit()), default=-1)


@pytest.fixture
def soak(
    gateway: str,
    make_queue: Callable[..., str],
    clock: Clock,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., Soak]:
    """A soak with a queue of its own."""

    def tell(line: str) -> None:
        with capsys.disabled():
            print(f"  {line}", flush=True)

    def make(runner: Runner, fifo: bool = False, **options: object) -> Soak:
        url = make_queue(gateway, fifo=fifo)
        given = {"spoolRetentionBatches": 2, **options}
        where = tmp_path / "soak"
        return Soak(Scenario(gateway, url, where, runner=runner, clock=clock, **given), tell)

    return make


@kinds
def test_random_kills(soak: Callable[..., Soak], fifo: bool) -> None:
    soak(MODEL, fifo).run(kills=4, count=2_000)


@pytest.mark.timeout(1800)
def test_random_kills_of_spark(soak: Callable[..., Soak]) -> None:
    soak(SPARK, maxOffsetsPerTrigger=1_000).run(kills=3, count=10_000)


@pytest.mark.timeout(7200)
@kinds
def test_many_random_kills(soak: Callable[..., Soak], fifo: bool) -> None:
    soak(MODEL, fifo, maxOffsetsPerTrigger=500).run(kills=100, count=100_000)


@pytest.mark.timeout(7200)
def test_many_random_kills_of_spark(soak: Callable[..., Soak]) -> None:
    soak(SPARK, maxOffsetsPerTrigger=2_000).run(kills=20, count=200_000)
