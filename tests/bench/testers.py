"""`python -m tests.bench.testers [ROUNDS]`: 200 isolated tests, with set-up and tear-down, on each.

Prints seconds of the wall clock and of the CPU, all processes together, from the start of pytest to
the end of its last process. Each test has a queue, a topic and a subscription of its own.
"""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_PLUGIN = Path(__file__).parents[2] / "queuegate" / "pytest_plugin"
_SUBREAPER = 36
_TESTS = """
import boto3
import pytest


@pytest.mark.parametrize("number", range({count}))
def test_an_order_arrives(server, number):
    sqs, sns = boto3.client("sqs"), boto3.client("sns")
    assert "QueueUrls" not in sqs.list_queues()
    queue = sqs.create_queue(QueueName="orders")["QueueUrl"]
    topic = sns.create_topic(Name="news")["TopicArn"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])
    sns.subscribe(
        TopicArn=topic,
        Protocol="sqs",
        Endpoint=arn["Attributes"]["QueueArn"],
        Attributes={{"RawMessageDelivery": "true"}},
    )
    sns.publish(TopicArn=topic, Message=f"order {{number}}")
    [message] = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=5)["Messages"]
    assert message["Body"] == f"order {{number}}"
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
"""
_SERVERS = {
    "queuegate": """
@pytest.fixture
def server(aws):
    pass
""",
    "moto's mock_aws": """
@pytest.fixture
def server():
    with moto.mock_aws():
        yield
""",
    "moto's server, reset": """
@pytest.fixture(scope="session")
def url():
    server = ThreadedMotoServer(port=0)
    server.start()
    yield "http://%s:%s" % server.get_host_and_port()
    server.stop()


@pytest.fixture
def server(url, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    yield
    urllib.request.urlopen(f"{url}/moto-api/reset", b"").read()
""",
}
_HEAD = """
import urllib.request

import pytest
"""
_MOTO = "import moto\nfrom moto.server import ThreadedMotoServer\n"


def measured(server: str, count: int, workers: int) -> tuple[float, float]:
    """(wall, CPU) of a session, in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        head = _HEAD if server == "queuegate" else _HEAD + _MOTO
        Path(folder, "conftest.py").write_text(head + _SERVERS[server])
        Path(folder, "test_orders.py").write_text(_TESTS.format(count=count))
        plugin = ["-p", "queuegate_pytest.plugin"] if server == "queuegate" else []
        words = ["-q", "-p", "no:cacheprovider", *plugin, "-n", str(workers), "--rootdir", folder]
        variables = {"AWS_DEFAULT_REGION": "us-east-1", "PYTHONPATH": str(_PLUGIN)}
        keys = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}
        began, before = time.monotonic(), _cpu_seconds()
        subprocess.run(
            [sys.executable, "-m", "pytest", *words, folder],
            env={**os.environ, **variables, **keys},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        wall = time.monotonic() - began
        _wait_for_orphans()
        return wall, _cpu_seconds() - before


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _wait_for_orphans() -> None:
    """Wait for the gateway, which ends after pytest, so that its CPU counts."""
    try:
        while True:
            os.wait()
    except ChildProcessError:
        return


def main() -> None:
    """Print a row for each server, in turns."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    rounds = [
        (server, workers)
        for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
        for server, workers in [*((server, 0) for server in _SERVERS), ("queuegate", 2)]
    ]
    for server, workers in rounds:
        wall, cpu = measured(server, 200, workers)
        print(f"{server}, {workers or 1} processes: {wall:.1f} s, {cpu:.1f} s of CPU", flush=True)


if __name__ == "__main__":
    main()
