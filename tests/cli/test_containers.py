"""Starts of a container as stock Testcontainers modules do them, and users of common images.

Each test does what the published source of a module does: its variables, its command, its condition
of readiness, and a first request with its credentials. There is no container engine: the entrypoint
runs under `sh` with the variables of the Dockerfile, and any free port stands for the mapped one.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest

from tests.cli.processes import PATIENCE_SECONDS, environment
from tests.faces.connections import fetch

_ROOT = Path(__file__).parents[2]
_ENTRYPOINT = str(_ROOT / "deploy" / "docker-entrypoint.sh")
_ACCOUNT = "000000000000"


def image_variables(stage: str) -> dict[str, str]:
    """ENV of the stage `run` and of this one, in the Dockerfile."""
    found: dict[str, str] = {}
    text = (_ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    for part in text.split("\nFROM ")[1:]:
        if part.partition("\n")[0].endswith((" AS run", f" AS {stage}")):
            for line in re.findall(r"^ENV (.*)$", part, re.MULTILINE):
                found |= dict(word.split("=", 1) for word in line.split())
    return {name: value for name, value in found.items() if name.startswith("QUEUEGATE_")}


class Container:
    """A container of the image: its output by stream, and the port that 4566 is mapped to."""

    def __init__(
        self, *command: str, stage: str = "localstack", port: str = "0", **variables: str
    ) -> None:
        ours = image_variables(stage) | {"QUEUEGATE_PORT": port}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.process = subprocess.Popen(
            command or ("sh", _ENTRYPOINT),
            env=environment(**{**ours, "PATH": path, **variables}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.printed: dict[str, str] = {"stdout": "", "stderr": ""}
        self._changed = threading.Condition()
        self._readers = [threading.Thread(target=self._read, args=(name,)) for name in self.printed]
        for reader in self._readers:
            reader.start()

    def _read(self, name: str) -> None:
        with getattr(self.process, name) as stream:
            for line in stream:
                with self._changed:
                    self.printed[name] += line
                    self._changed.notify_all()

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(signal.SIGTERM)

    def stop(self, number: signal.Signals) -> str:
        """Send a signal to all its processes; return what it printed in all."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)
        self.process.wait(PATIENCE_SECONDS)
        for reader in self._readers:
            reader.join()
        return self.printed["stdout"] + self.printed["stderr"]

    def wait_for(self, pattern: str, *streams: str) -> None:
        """Wait until a stream has a match; without streams, either."""
        with self._changed:
            found = self._changed.wait_for(
                lambda: any(
                    re.search(pattern, self.printed[one]) for one in streams or self.printed
                ),
                PATIENCE_SECONDS,
            )
        assert found, self.printed

    @property
    def url(self) -> str:
        """Address on the host, as a module makes it of the host and the mapped port."""
        self.wait_for(r"listen .*:\d+", "stdout")
        found = re.search(r"listen +\S+:(\d+)", self.printed["stdout"])
        assert found is not None
        return f"http://127.0.0.1:{found[1]}"

    def client(self, service: str, key: str = "test", region: str = "us-east-1") -> Any:
        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name=region,
            aws_access_key_id=key,
            aws_secret_access_key=key,
        )


def created(container: Container, **more: str) -> str:
    """URL of a queue that a client of the module creates and uses."""
    sqs = container.client("sqs", **more)
    url: str = sqs.create_queue(QueueName="orders")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="order 42")
    assert [one["Body"] for one in sqs.receive_message(QueueUrl=url)["Messages"]] == ["order 42"]
    return url


@pytest.mark.parametrize(
    ("variables", "host"),
    [
        # Version 2 of the module, and version 1 with a tag of 2.0 or later.
        ({"LOCALSTACK_HOST": "localhost"}, None),
        ({"LOCALSTACK_HOST": "stack", "SERVICES": "sqs,sns"}, "stack:4566"),
        # Version 1 of the module with another tag.
        (
            {"HOSTNAME_EXTERNAL": "stack", "SERVICES": "sqs", "EAGER_SERVICE_LOADING": "1"},
            "stack:4566",
        ),
    ],
)
def test_java(tmp_path: Path, variables: dict[str, str], host: str | None) -> None:
    starter = tmp_path / "testcontainers_start.sh"
    wait = f"while [ ! -f {starter} ]; do sleep 0.1; done; {starter}"
    labels = "-l org.testcontainers.sessionId=1 -l org.testcontainers.lang=java"
    script = "#!/bin/bash\n"
    for name in ("LAMBDA", "ECS", "EC2", "BATCH"):
        script += f'export {name}_DOCKER_FLAGS="{labels}"\n'
    with Container("sh", "-c", wait, **variables) as container:
        copied = tmp_path / "copied"
        copied.write_text(f"{script}{_ENTRYPOINT}\n")
        copied.chmod(0o777)
        copied.rename(starter)
        container.wait_for(r"(?m)^.*Ready\.\n")
        mapped = container.url.removeprefix("http://")
        assert created(container) == f"http://{host or mapped}/{_ACCOUNT}/orders"
        assert "SERVICES" not in container.printed["stderr"]


def test_python() -> None:
    key = "testcontainers-localstack"
    variables = {
        "AWS_DEFAULT_REGION": "us-west-1",
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": key,
        "SERVICES": "sqs,s3",
    }
    with Container(**variables) as container:
        container.wait_for(r"Ready\.\n")
        mapped = container.url
        assert created(container, key=key, region="us-west-1") == f"{mapped}/{_ACCOUNT}/orders"
        assert "SERVICES names s3" in container.printed["stderr"]


def test_go() -> None:
    with Container(LOCALSTACK_HOST="localhost") as container:
        assert fetch(container.url, "/_localstack/health").status == 200
        queue = created(container)
        assert queue == f"{container.url}/{_ACCOUNT}/orders"
        # Links lead to the mapped port, too.
        sns = container.client("sns")
        topic = sns.create_topic(Name="news")["TopicArn"]
        arn = f"arn:aws:sqs:us-east-1:{_ACCOUNT}:orders"
        sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
        sns.publish(TopicArn=topic, Message="hello")
        received = container.client("sqs").receive_message(QueueUrl=queue, WaitTimeSeconds=5)
        assert json.loads(received["Messages"][0]["Body"])["UnsubscribeURL"].startswith(
            container.url
        )


def test_node_waits_for_a_word_that_no_earlier_line_has(tmp_path: Path) -> None:
    """The module takes the first line with "Ready" in it, on either stream."""
    script = tmp_path / "ready.d" / "slow.sh"
    script.parent.mkdir()
    script.write_text("echo from a script; sleep 0.5; awslocal || true\n")
    more = {"LOCALSTACK_HOST": "localhost", "LAMBDA_DOCKER_FLAGS": " -l id=1"}
    with Container(QUEUEGATE_INIT_DIR=str(tmp_path), **more) as container:
        container.wait_for("Ready")
        assert container.printed["stdout"].endswith("\nReady.\n")
        [stage] = [json.loads(fetch(container.url, "/_localstack/init/ready").body)]
        assert stage["completed"], stage
        created(container)
        assert "from a script" in container.stop(signal.SIGTERM)


def test_rust_reads_stdout_which_ends_with_the_line() -> None:
    with Container(ACTIVATE_PRO="0") as container:
        container.wait_for(r"Ready\.", "stdout")
        created(container, key="fake")
        # The health check of the image, for which the module's other type waits.
        port = container.url.rpartition(":")[2]
        more = image_variables("localstack") | {"QUEUEGATE_PORT": port}
        words = [sys.executable, "-m", "queuegate", "health"]
        assert subprocess.run(words, env=environment(**more), check=False).returncode == 0
        container.stop(signal.SIGTERM)
        assert container.printed["stdout"].endswith("\nReady.\n")


@pytest.mark.parametrize("stage", ["run", "localstack"])
def test_the_image_exposes_the_port_that_modules_map(stage: str) -> None:
    text = (_ROOT / "Dockerfile").read_text()
    [part] = [
        one for one in text.split("\nFROM ") if one.partition("\n")[0].endswith(f"AS {stage}")
    ]
    assert f"\nEXPOSE {'9324' if stage == 'run' else '4566'}\n" in part


def test_elasticmq() -> None:
    with Container(stage="run", QUEUEGATE_LIKE="elasticmq") as container:
        container.wait_for("Started SQS rest server", "stdout")
        health = fetch(container.url, "/health")
        assert (health.status, health.text) == (200, "OK")
        assert "QueueUrls" not in container.client("sqs", "fakeKey").list_queues()
        assert created(container, key="fakeKey").startswith(container.url)


def test_moto() -> None:
    with Container(stage="run", QUEUEGATE_LIKE="moto") as container:
        container.wait_for(r"Running on http://")
        assert fetch(container.url, "/moto-api/").status == 200
        assert created(container) == f"{container.url}/123456789012/orders"
        assert fetch(container.url, "/moto-api/reset", "POST").status == 200
        assert "QueueUrls" not in container.client("sqs").list_queues()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--version"], "queuegate "),
        (["--help"], "usage: queuegate"),
        (["health", "--help"], "usage: queuegate health"),
        (["--like", "moto", "--help"], "usage: queuegate serve"),
    ],
)
def test_arguments_of_a_container_are_a_command_or_options(words: list[str], text: str) -> None:
    with Container("sh", _ENTRYPOINT, *words) as container:
        container.process.wait(PATIENCE_SECONDS)
        assert container.stop(signal.SIGTERM).startswith(text)
