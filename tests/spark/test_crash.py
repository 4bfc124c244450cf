"""Kill -9 at every point from a receive to the last mark: nothing lost, nothing twice, in order.

Most of it runs on a model of Spark's micro-batches, which starts in a second; Spark itself then
shows that the model is right.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest

from tests.spark.clocks import Clock
from tests.spark.crash.points import Plan
from tests.spark.crash.scenario import KILLS, MODEL, SPARK, SPARK_WITH_DELTA, Kill, Runner, Scenario
from tests.spark.waiting import wait_for

# The default is less than what a single run may take.
pytestmark = pytest.mark.timeout(900)

Make = Callable[..., Scenario]
modes = pytest.mark.parametrize("mode", ["driver", "executor"])
kinds = pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
FEW = ("received", "half spooled", "uncommitted", "acknowledged", "failing deletes")
# At their first hit: before each of them the queue is empty, and then has too little for tasks.
TAKEN_BY_THE_DRIVER = [
    Kill(Plan(point))
    for point in (
        "received",
        "after segments",
        "planned",
        "after done",
        "half segments",
        "after order",
        "before delete",
        "deleted",
        "before done",
        "read",
    )
]
# Delta Lake for the newest Spark does not exist yet.
with_delta = pytest.mark.skipif(
    not pyspark.__version__.startswith("4.2."), reason="there is no Delta Lake for this Spark"
)


@pytest.fixture
def make(gateway: str, make_queue: Callable[..., str], clock: Clock, tmp_path: Path) -> Make:
    """A scenario with a queue of its own."""

    def scenario(runner: Runner, mode: str, *, fifo: bool = False, **options: object) -> Scenario:
        url = make_queue(gateway, fifo=fifo)
        # One segment stays, so that those before it are dropped.
        given = {"receiveMode": mode, "spoolRetentionBatches": 1, **options}
        where = tmp_path / "scenario"
        return Scenario(gateway, url, where, runner=runner, clock=clock, **given)

    return scenario


def shuffled(seed: int) -> list[Kill]:
    """All kills in some order."""
    kills = list(KILLS.values())
    random.Random(seed).shuffle(kills)
    return kills


@kinds
@modes
def test_a_job_survives(make: Make, mode: str, fifo: bool) -> None:
    make(MODEL, mode, fifo=fifo).survives(KILLS[name] for name in FEW)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", KILLS)
@kinds
@modes
def test_a_job_survives_it_again_and_again(make: Make, mode: str, fifo: bool, name: str) -> None:
    make(MODEL, mode, fifo=fifo).survives([KILLS[name]] * 4)


def test_what_the_driver_of_executors_received_survives(make: Make) -> None:
    """A small batch is the driver's slot, written before the batch is reported to Spark."""
    make(MODEL, "executor").survives_each(TAKEN_BY_THE_DRIVER[:4])


@pytest.mark.soak
@kinds
@pytest.mark.parametrize("delete_mode", ["commit", "spool"])
def test_it_survives_everything(make: Make, fifo: bool, delete_mode: str) -> None:
    options = {"fifo": fifo, "deleteMode": delete_mode}
    make(MODEL, "executor", **options).survives_each(TAKEN_BY_THE_DRIVER * 2)


@pytest.mark.parametrize("point", ["received", "after segments", "after order"])
def test_a_driver_of_executors_dies_of_what_it_waited_for(make: Make, point: str) -> None:
    scenario = make(MODEL, "executor")
    job = scenario.start(Plan(point), scenario.job._replace(is_available_now=False))
    wait_for(lambda: (scenario.spool / "drivers").is_dir())
    scenario.send(8)
    job.dies()
    scenario.drain()


@pytest.mark.usefixtures("quick_spark")
@pytest.mark.parametrize(
    ("mode", "fifo", "name"), [("driver", False, "uncommitted"), ("executor", True, "half spooled")]
)
def test_a_job_of_spark_survives(make: Make, mode: str, fifo: bool, name: str) -> None:
    make(SPARK, mode, fifo=fifo).survives([KILLS[name]])


@pytest.mark.soak
@pytest.mark.timeout(1800)
@kinds
@modes
def test_a_job_of_spark_survives_more(make: Make, mode: str, fifo: bool) -> None:
    names = ("received", "spooled", "uncommitted") if fifo else ("half spooled", "read", "deleted")
    make(SPARK, mode, fifo=fifo).survives(KILLS[name] for name in names)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@kinds
@modes
def test_a_job_of_spark_survives_everything(make: Make, mode: str, fifo: bool) -> None:
    make(SPARK, mode, fifo=fifo).survives(shuffled(1))


@with_delta
@pytest.mark.delta
@pytest.mark.timeout(1800)
@modes
def test_a_table_of_delta_survives(make: Make, mode: str) -> None:
    make(SPARK_WITH_DELTA, mode).survives([KILLS["uncommitted"]])


@with_delta
@pytest.mark.delta
@pytest.mark.soak
@pytest.mark.timeout(3600)
@kinds
@modes
def test_a_table_of_delta_survives_everything(make: Make, mode: str, fifo: bool) -> None:
    make(SPARK_WITH_DELTA, mode, fifo=fifo).survives(shuffled(2))


@modes
def test_another_endpoint_survives(
    moto: str, make_queue: Callable[..., str], tmp_path: Path, mode: str
) -> None:
    """Receives of moto take longer the more there is in the queue: it gets little."""
    where, url = tmp_path / "scenario", make_queue(moto)
    scenario = Scenario(moto, url, where, runner=MODEL, clock=None, receiveMode=mode)
    scenario.survives([KILLS[name] for name in ("received", "spooled", "uncommitted")], count=60)
