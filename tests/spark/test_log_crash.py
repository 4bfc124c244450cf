"""A log as a stream, killed wherever that could matter: nothing lost, nothing twice, in order."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from tests.spark.crash.log_scenario import LogScenario
from tests.spark.crash.points import Plan
from tests.spark.crash.scenario import MODEL, SPARK, Kill, Runner
from tests.spark.test_soak import Soak

_names = itertools.count()
KILLS = {
    "where it begins": Kill(Plan("planned", 1)),
    "read": Kill(Plan("read", 2)),
    "uncommitted": Kill(Plan("committed", 2), uncommits=True),
}


def scenario_of(
    gateway: str, where: Path, runner: Runner, *, start: str = "earliest", **options: object
) -> LogScenario:
    log = f"crash-{os.getpid()}-{next(_names)}"
    given = {"startingOffsets": start, "groupId": "spark", **options}
    return LogScenario(gateway, log, where / "scenario", runner=runner, **given)


def test_a_job_survives(gateway: str, tmp_path: Path) -> None:
    scenario_of(gateway, tmp_path, MODEL).survives(KILLS.values())


@pytest.mark.soak
def test_one_that_begins_at_the_latest_forgets_nothing_published_while_it_was_dead(
    gateway: str, tmp_path: Path
) -> None:
    scenario = scenario_of(gateway, tmp_path, MODEL, start="latest")
    scenario.send(100)
    scenario.sent.clear()
    # It is told where it begins, and dies.
    scenario.dies(KILLS["where it begins"])
    scenario.calls.publish(scenario.log, [b'{"key": "k0", "payload": "0000000"}'])
    scenario.sent.append("0000000")
    scenario.drain()


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.usefixtures("quick_spark")
def test_many_random_kills_of_spark(
    gateway: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def tell(line: str) -> None:
        with capsys.disabled():
            print(f"  {line}", flush=True)

    scenario = scenario_of(gateway, tmp_path, SPARK, maxOffsetsPerTrigger=2_000)
    Soak(scenario, tell).run(kills=20, count=200_000)
