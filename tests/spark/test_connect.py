"""The connectors through Spark Connect: a client without a JVM, a server without the package."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.spark import cluster
from tests.spark.queues import client_of

pytestmark = [pytest.mark.every_version, pytest.mark.soak, pytest.mark.timeout(900)]

JOB = Path(__file__).parent / "pipeline_job.py"
COUNT = 150


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cluster.make_zip(tmp_path_factory.mktemp("zip"))


@pytest.fixture(scope="module", params=["on the server", "brought by the client"])
def remote(
    request: pytest.FixtureRequest,
    gateway: str,
    archive: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, str]]:
    """A server, as the job is to use it, that has the package or does not."""
    # Credentials belong to the server: that is where the connectors run.
    variables = cluster.credentials(gateway)
    has_it = request.param == "on the server"
    if has_it:
        variables["PYTHONPATH"] = str(archive)
    with cluster.connect_server(tmp_path_factory.mktemp("connect"), **variables) as url:
        yield {"remote": url} if has_it else {"remote": url, "zip": str(archive)}


def test_a_pipeline_runs_through_connect(
    remote: dict[str, str],
    *,
    gateway: str,
    archive: Path,
    make_queue: Callable[..., str],
    tmp_path: Path,
) -> None:
    source, sink = make_queue(gateway), make_queue(gateway)
    sent = cluster.fill(client_of("sqs", gateway), source, COUNT)
    directory = str(tmp_path / "data")
    given = {
        "endpoint": gateway,
        "source": source,
        "sink": sink,
        "directory": directory,
        **remote,
    }
    # A client that brings the package has it, to register it; another one needs nothing.
    environment = cluster.bare_environment(
        **({"PYTHONPATH": str(archive)} if "zip" in given else {})
    )
    printed = cluster.run(
        [sys.executable, str(JOB), json.dumps(given)], tmp_path, environment=environment
    )
    result = cluster.result_of(printed)
    assert result["bodies"] == sent
    assert result["sent"] == COUNT
    assert cluster.depth(client_of("sqs", gateway), sink) == COUNT
    # From where it was meant to come, and not from some other installation.
    assert isinstance(result["places"], list)
    found = {place.partition("/spark_connectors")[0] for place in result["places"]}
    assert (str(archive) in found) == ("zip" not in given)
    assert {Path(place).name for place in found} == {archive.name}
