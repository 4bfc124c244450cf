"""The connectors on a cluster whose executors have PySpark, and the zip that the job brought."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.spark import cluster
from tests.spark.queues import client_of

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]

JOB = Path(__file__).parent / "pipeline_job.py"
COUNT = 150


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster.standalone(tmp_path_factory.mktemp("cluster")) as url:
        yield url


def test_a_pipeline_runs_on_two_executors(
    master: str, gateway: str, make_queue: Callable[..., str], tmp_path: Path
) -> None:
    source, sink = make_queue(gateway), make_queue(gateway)
    sent = cluster.fill(client_of("sqs", gateway), source, COUNT)
    variables = cluster.credentials(gateway)
    settings = [f"spark.executorEnv.{name}={variables[name]}" for name in variables]
    # Tasks begin when both executors are there, so both get some. Of how many cores the ratio is,
    # a standalone cluster knows only by cores.max.
    settings += [f"spark.cores.max={cluster.WORKERS}"]
    settings += ["spark.scheduler.minRegisteredResourcesRatio=1.0"]
    settings += ["spark.scheduler.maxRegisteredResourcesWaitingTime=120s"]
    archive = cluster.make_zip(tmp_path)
    given = {
        "endpoint": gateway,
        "source": source,
        "sink": sink,
        "directory": str(tmp_path / "data"),
        "options": {},
    }
    printed = cluster.submit(
        [
            *("--master", master, "--py-files", str(archive)),
            *(word for setting in settings for word in ("--conf", setting)),
            *(str(JOB), json.dumps(given)),
        ],
        tmp_path,
        environment=cluster.bare_environment(**variables),
    )
    result = cluster.result_of(printed)
    assert result["bodies"] == sent
    assert result["sent"] == COUNT
    assert cluster.depth(client_of("sqs", gateway), sink) == COUNT
    assert isinstance(result["executors"], list)
    assert len(result["executors"]) == cluster.WORKERS
    # Executors have it in their own directories.
    assert isinstance(result["places"], list)
    found = {place.partition("/spark_connectors")[0] for place in result["places"]}
    assert str(archive) not in found
    assert {Path(place).name for place in found} == {archive.name}
