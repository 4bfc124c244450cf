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
from tests.spark.crash.scenario import KILLS, MODEL, SPARK, SPARK_WITH_DELTA, Kill, Runner, Scenario

# The default is less than what a single run may take.
pytestmark = pytest.mark.timeout(900)

Make = Callable[..., Scenario]
kinds = pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
FEW = ("received", "half spooled", "uncommitted", "acknowledged", "failing deletes")
# Delta Lake for the newest Spark does not exist yet.
with_delta = pytest.mark.skipif(
    not pyspark.__version__.startswith("4.2."), reason="there is no Delta Lake for this Spark"
)


@pytest.fixture
def make(gateway: str, make_queue: Callable[..., str], clock: Clock, tmp_path: Path) -> Make:
    """A scenario with a queue of its own."""

    def scenario(runner: Runner, *, fifo: bool = False, **options: object) -> Scenario:
        url = make_queue(gateway, fifo=fifo)
        # One segment stays, so that those before it are dropped.
        given = {"spoolRetentionBatches": 1, **options}
        where = tmp_path / "scenario"
        return Scenario(gateway, url, where, runner=runner, clock=clock, **given)

    return scenario


def shuffled(seed: int) -> list[Kill]:
    """All kills in some order."""
    kills = list(KILLS.values())
    random.Random(seed).shuffle(kills)
    return kills


@kinds
def test_a_job_survives(make: Make, fifo: bool) -> None:
    make(MODEL, fifo=fifo).survives(KILLS[name] for name in FEW)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", KILLS)
@kinds
def test_a_job_survives_it_again_and_again(make: Make, fifo: bool, name: str) -> None:
    make(MODEL, fifo=fifo).survives([KILLS[name]] * 4)


@pytest.mark.usefixtures("quick_spark")
@pytest.mark.parametrize(("fifo", "name"), [(False, "uncommitted"), (True, "half spooled")])
def test_a_job_of_spark_survives(make: Make, fifo: bool, name: str) -> None:
    make(SPARK, fifo=fifo).survives([KILLS[name]])


@pytest.mark.soak
@pytest.mark.timeout(1800)
@kinds
def test_a_job_of_spark_survives_more(make: Make, fifo: bool) -> None:
    names = ("received", "spooled", "uncommitted") if fifo else ("half spooled", "read", "deleted")
    make(SPARK, fifo=fifo).survives(KILLS[name] for name in names)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@kinds
def test_a_job_of_spark_survives_everything(make: Make, fifo: bool) -> None:
    make(SPARK, fifo=fifo).survives(shuffled(1))


@with_delta
@pytest.mark.delta
@pytest.mark.timeout(1800)
def test_a_table_of_delta_survives(make: Make) -> None:
    make(SPARK_WITH_DELTA).survives([KILLS["uncommitted"]])


@with_delta
@pytest.mark.delta
@pytest.mark.soak
@pytest.mark.timeout(3600)
@kinds
def test_a_table_of_delta_survives_everything(make: Make, fifo: bool) -> None:
    make(SPARK_WITH_DELTA, fifo=fifo).survives(shuffled(2))


def test_another_endpoint_survives(
    moto: str, make_queue: Callable[..., str], tmp_path: Path
) -> None:
    """Receives of moto take longer the more there is in the queue: it gets little."""
    where, url = tmp_path / "scenario", make_queue(moto)
    scenario = Scenario(moto, url, where, runner=MODEL, clock=None)
    scenario.survives([KILLS[name] for name in ("received", "spooled", "uncommitted")], count=60)
