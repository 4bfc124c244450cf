"""A gateway, a moto server and a Spark session for the tests of the connectors, each once a run."""

from __future__ import annotations

import importlib.util
import itertools
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.spark import clocks
from tests.spark.queues import REGION, client_of
from tests.spark.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.readers import Place

if importlib.util.find_spec("pyspark") is None:
    raise pytest.UsageError("these tests run where PySpark is: make test-spark ARGS=tests/spark/…")

# How long an example takes says how busy the machine is.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

ROOT = Path(__file__).parents[2]
# Settings for Spark, and its Python.
QUICK = Path(__file__).parent / "quick"
ACCOUNT = "000000000000"
_names = itertools.count()

# Spark workers and the connectors' own processes take these from the environment, as a job does.
os.environ.update(
    AWS_ACCESS_KEY_ID="testing",
    AWS_SECRET_ACCESS_KEY="testing",
    AWS_DEFAULT_REGION=REGION,
    AWS_EC2_METADATA_DISABLED="true",
    PYSPARK_PYTHON=sys.executable,
    PYSPARK_DRIVER_PYTHON=sys.executable,
    SPARK_LOCAL_IP="127.0.0.1",
    PYTHONPATH=str(ROOT),
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say what is only for the soak, and which tests share the one session of Spark.

    Each worker has a gateway of its own, whose clock its tests may move.
    """
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        is_moto = "moto" in fixtures or item.get_closest_marker("moto") is not None
        if is_moto and item.get_closest_marker("elsewhere") is None:
            item.add_marker(pytest.mark.soak)
        if item.get_closest_marker("delta") is not None:
            item.add_marker(pytest.mark.soak)
        if "spark" in fixtures:
            item.add_marker(pytest.mark.session)


def _stop(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    if process.stdout is not None:
        process.stdout.close()


@pytest.fixture(scope="session")
def gateway() -> Iterator[str]:
    """The endpoint of a gateway of our own, with its own PostgreSQL.

    It lives in another environment than Spark: QUEUEGATE_COMMAND names the command.
    """
    command = os.environ.get("QUEUEGATE_COMMAND", str(ROOT / ".venv/bin/queuegate"))
    inherited = {n: value for n, value in os.environ.items() if not n.startswith("PY")}
    process = subprocess.Popen(
        [*shlex.split(command), "serve", "--ephemeral", "--port", "0"],
        env=inherited,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        found = None
        while found is None:
            line = process.stdout.readline()
            assert line, f"the gateway ended with {process.wait()}"
            found = re.search(r"ready: (\S+)", line)
        yield found[1]
    finally:
        _stop(process)


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    """The endpoint of a moto server: SQS, SNS and S3 that are not ours."""
    command = [sys.executable, "-m", "tests.spark.moto_server"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        found = None
        while found is None:
            line = process.stderr.readline()
            assert line, f"moto ended with {process.wait()}"
            found = re.search(r"Running on (http://127\S+)", line)
        # Nobody reads its log: without this it stops when the pipe is full.
        drain = subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
        endpoint = found[1]
        wait_for(lambda: urllib.request.urlopen(f"{endpoint}/moto-api/").status == 200)
        yield endpoint
        _stop(process)
        drain.wait(30)
    finally:
        _stop(process)
        process.stderr.close()


@pytest.fixture(params=["gateway", pytest.param("moto", marks=pytest.mark.moto)])
def endpoint(request: pytest.FixtureRequest) -> str:
    """Either of them: what the connectors do must not depend on whose endpoint it is."""
    found: str = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session")
def clock_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Says how far the clock of our gateway is ahead; processes that are started know of it."""
    file = tmp_path_factory.mktemp("clock") / "ahead"
    file.write_text("0")
    os.environ[clocks.VARIABLE] = str(file)
    return file


@pytest.fixture
def clock(
    gateway: str, clock_file: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[clocks.Clock]:
    """The clock of our gateway and of whatever this test runs. Nobody else uses that gateway."""
    moved = clocks.Clock(gateway, clock_file)
    monkeypatch.setattr(time, "time", time.time)
    clocks.follow()
    yield moved
    _stop_readers()
    moved.reset()


@pytest.fixture
def make_queue() -> Callable[..., str]:
    """Create a queue and return its URL: ``make_queue(endpoint, fifo=True, ...)``."""

    def make(endpoint: str, *, fifo: bool = False, **attributes: str) -> str:
        name = f"spark-{os.getpid()}-{next(_names)}" + (".fifo" if fifo else "")
        if fifo:
            attributes["FifoQueue"] = "true"
        created = client_of("sqs", endpoint).create_queue(QueueName=name, Attributes=attributes)
        url: str = created["QueueUrl"]
        return url

    return make


@pytest.fixture
def place(gateway: str, make_queue: Callable[..., str], tmp_path: Path) -> Place:
    """An empty queue of our gateway, and a directory for its spool."""
    from tests.spark.readers import Place

    return Place(gateway, make_queue(gateway), tmp_path)


def be_quick(environment: pytest.MonkeyPatch) -> None:
    """Let sessions that are started now be made for tests."""
    environment.setenv("SPARK_CONF_DIR", str(QUICK))
    environment.setenv("PYSPARK_PYTHON", str(QUICK / "python"))


@pytest.fixture
def quick_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that this test starts elsewhere has the settings of the shared one."""
    be_quick(monkeypatch)


@pytest.fixture(autouse=True)
def no_reader_outlives_its_test() -> Iterator[None]:
    """A reader that nobody stops receives to the end of the run."""
    yield
    _stop_readers()


def _stop_readers() -> None:
    from tests.spark.readers import stop_readers

    stop_readers()


@pytest.fixture(scope="session")
def spark(clock_file: Path) -> Iterator[SparkSession]:
    """A local session with two slots, made for many small tests."""
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as environment:
        be_quick(environment)
        session = (
            SparkSession.builder.master("local[2]")
            .appName("queuegate-tests")
            .config("spark.driver.memory", "1g")
            .config("spark.sql.session.timeZone", "UTC")
            .getOrCreate()
        )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
