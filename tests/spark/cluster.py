"""Spark in processes of their own: a cluster of a master and two workers, or a Connect server.

Neither has this repository on its path: what they know of the connectors came with the zip.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyspark
from botocore.client import BaseClient

from tests.spark.waiting import wait_for

ROOT = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
WORKERS = 2
# Ivy keeps the jars that it downloads here; `make clean` deletes them.
IVY = ROOT / ".venvs/ivy"
# For a whole job, on a slow machine.
_JOB_SECONDS = 600
_PASSED_ON = ("HOME", "JAVA_HOME", "LANG", "PATH", "TMPDIR")


def bare_environment(**more: str) -> dict[str, str]:
    """Return the variables that a Spark process needs, without the tests' path and credentials."""
    kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    fixed = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return {**kept, **fixed, **more}


def credentials(endpoint: str) -> dict[str, str]:
    """Variables for a client of either kind; a Java SDK takes only AWS_REGION for the region."""
    return {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL_SQS": endpoint,
        "AWS_ENDPOINT_URL_SNS": endpoint,
    }


@contextlib.contextmanager
def running(
    command: list[str], log: Path, *, ready: str, environment: Mapping[str, str]
) -> Iterator[re.Match[str]]:
    """Run a command until the block ends; the block begins when its log matches `ready`."""
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=log.parent,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield _match(process, log, ready)
    finally:
        # A group of its own: executors and Python workers go with whoever started them.
        _end_group(process)


def _match(process: subprocess.Popen[bytes], log: Path, ready: str) -> re.Match[str]:
    found: list[re.Match[str]] = []

    def is_ready() -> bool:
        matched = re.search(ready, log.read_text("utf-8", "replace"))
        if matched:
            found.append(matched)
        assert matched or process.poll() is None, f"it ended: {log.read_text()[-2000:]}"
        return bool(matched)

    wait_for(is_ready, 120)
    return found[0]


def _end_group(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)


@contextlib.contextmanager
def standalone(directory: Path) -> Iterator[str]:
    """A master and its workers, of one core and 1 GiB each; gives the master's URL."""
    launch = str(SPARK_HOME / "bin/spark-class")
    deploy = "org.apache.spark.deploy"
    ports = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    # The daemons themselves need little; the default is 1 GiB for each.
    environment = bare_environment(SPARK_DAEMON_MEMORY="256m")
    with contextlib.ExitStack() as stack:
        master = stack.enter_context(
            running(
                [launch, f"{deploy}.master.Master", *ports],
                directory / "master.log",
                ready=r"Starting Spark master at (spark://\S+)",
                environment=environment,
            )
        )[1]
        for number in range(WORKERS):
            place = directory / f"worker-{number}"
            work = ["--cores", "1", "--memory", "1g", "--work-dir", str(place), master]
            stack.enter_context(
                running(
                    [launch, f"{deploy}.worker.Worker", *ports, *work],
                    directory / f"worker-{number}.log",
                    ready="Successfully registered with master",
                    environment=environment,
                )
            )
        yield master


@contextlib.contextmanager
def connect_server(directory: Path, **variables: str) -> Iterator[str]:
    """A Spark Connect server with two slots and these variables; gives the URL for ``remote()``."""
    options = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    with running(
        [
            # As start-connect-server.sh does, which PySpark 4.2 lacks.
            str(SPARK_HOME / "bin/spark-submit"),
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
            *("--master", "local[2]"),
            *(word for name in options for word in ("--conf", f"{name}={options[name]}")),
            "spark-internal",
        ],
        directory / "connect.log",
        ready=r"Spark Connect server started at: \S*?:(\d+)",
        environment=bare_environment(**variables),
    ) as matched:
        yield f"sc://127.0.0.1:{matched[1]}"


def submit(arguments: list[str], directory: Path, *, environment: Mapping[str, str]) -> str:
    """Run ``spark-submit`` to its end and return what the job printed.

    Raises AssertionError with the end of its log when it fails.
    """
    base = ["--conf", "spark.ui.enabled=false", "--driver-memory", "1g"]
    command = [str(SPARK_HOME / "bin/spark-submit"), *base, *arguments]
    return run(command, directory, environment=environment)


def run(command: list[str], directory: Path, *, environment: Mapping[str, str]) -> str:
    """Run a command to its end, in a group that ends with it, and return what it printed."""
    with (directory / "stdout").open("w+") as out, (directory / "stderr").open("w+") as err:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            code = process.wait(_JOB_SECONDS)
        finally:
            _end_group(process)
        out.seek(0)
        err.seek(0)
        printed, log = out.read(), err.read()
    assert code == 0, f"exit code {code}: {printed[-1000:]}\n{log[-6000:]}"
    return printed


def result_of(printed: str) -> dict[str, object]:
    """The JSON object that a job printed on a line of its own, the last of them."""
    lines = [line for line in printed.splitlines() if line.startswith("{")]
    assert lines, f"no result in {printed[-2000:]!r}"
    found: dict[str, object] = json.loads(lines[-1])
    return found


def make_zip(directory: Path) -> Path:
    """The connectors as `make spark-zip` writes them."""
    script = ROOT / "deploy/spark_zip.py"
    printed = subprocess.run(
        [sys.executable, str(script), "--directory", str(directory)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return Path(printed.strip())


def fill(client: BaseClient, queue_url: str, count: int) -> list[str]:
    """Send so many messages; returns their bodies, sorted."""
    bodies = sorted(f"message {number}" for number in range(count))
    for start in range(0, count, 10):
        entries = [
            {"Id": str(number), "MessageBody": body}
            for number, body in enumerate(bodies[start : start + 10])
        ]
        answer = client.send_message_batch(QueueUrl=queue_url, Entries=entries)
        assert "Failed" not in answer
    return bodies


def depth(client: BaseClient, queue_url: str) -> int:
    """Messages of a queue, visible or in flight."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    answer = client.get_queue_attributes(QueueUrl=queue_url, AttributeNames=names)
    return sum(int(answer["Attributes"][name]) for name in names)
