"""`queuegate serve` as real processes: starting, stopping, being killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest

from tests.cli.processes import (
    PATIENCE_SECONDS,
    Gateway,
    Watch,
    children,
    environment,
    postmaster,
    run,
)

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="watches processes by pidfd")


def test_serve_prints_where_it_and_its_data_are_and_how_to_use_it(data: Path) -> None:
    """Starts a gateway with data of its own, and a Python that loads boto3."""
    with Gateway("--data", str(data)) as gateway:
        assert gateway.get("/livez")[0] == 200
        assert f"data     {data} (" in gateway.printed
        assert f"pages    {gateway.url}/docs {gateway.url}/console\n" in gateway.printed
        variables, command = gateway.usage()
        assert gateway.printed.count("\n") == 5
        assert variables["AWS_ENDPOINT_URL"] == gateway.url
        if shutil.which("curl") is not None:
            made = subprocess.run(command, shell=True, capture_output=True, text=True)
            assert "<QueueUrl>" in made.stdout, made.stderr


def test_boto3_says_hello_with_the_variables_of_the_banner() -> None:
    """A Python that loads boto3."""
    with Gateway("--ephemeral") as gateway:
        assert gateway.hello() == "Hello\n"


def test_health_asks_the_gateway(used_data: Path) -> None:
    with Gateway("--data", str(used_data)) as gateway:
        assert run("health", QUEUEGATE_PORT=gateway.port).returncode == 0
        missing = run("health", "--url", gateway.url + "/nothing/here/at/all")
        assert missing.returncode == 1


@linux_only
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_stop_takes_the_database_along(
    used_data: Path, number: signal.Signals, workers: str
) -> None:
    with Gateway("--data", str(used_data), "--workers", workers) as gateway:
        database = Watch(postmaster(used_data))
        assert gateway.stop(number) == 0
        assert database.wait()
        assert not (used_data / "pgdata" / "postmaster.pid").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("command", "code"), [(("serve", "--port", "0"), 0), (("migrate",), 1), (("worker",), 0)]
)
def test_a_stop_before_the_database_answers(
    number: signal.Signals, command: tuple[str, ...], code: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://somebody:secret@127.0.0.1:{silent.getsockname()[1]}/queues"
        process = subprocess.Popen(
            [sys.executable, "-m", "queuegate", *command],
            env=environment(DATABASE_URL=url),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        silent.settimeout(PATIENCE_SECONDS)
        taken, _ = silent.accept()
        with taken, process:
            process.send_signal(number)
            printed, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, printed) == (code, "")


@linux_only
@pytest.mark.parametrize("workers", ["1", "2"])
def test_kill_9_takes_the_database_along_and_the_next_start_finds_the_data(
    used_data: Path, workers: str
) -> None:
    """Two starts of a gateway with its PostgreSQL."""
    with Gateway("--data", str(used_data), "--workers", workers) as gateway:
        database = Watch(postmaster(used_data))
        family = [Watch(child) for child in children(gateway.process.pid)]
        assert len(family) == (2 if workers == "2" else 0)
        gateway.stop(signal.SIGKILL)
        assert database.wait()
        assert all(member.wait() for member in family)
    marker = (used_data / "pgdata" / "PG_VERSION").stat().st_ino
    with Gateway("--data", str(used_data)) as gateway:
        assert gateway.get("/readyz")[0] == 200
        assert (used_data / "pgdata" / "PG_VERSION").stat().st_ino == marker


def test_a_start_right_after_kill_9_succeeds(data: Path) -> None:
    """Two starts of a gateway with its PostgreSQL."""
    made = []
    for _ in range(3):
        with Gateway("--data", str(data)) as gateway:
            assert gateway.get("/readyz")[0] == 200
            made.append((data / "pgdata" / "PG_VERSION").stat().st_ino)
            gateway.stop(signal.SIGKILL)
    assert len(set(made)) == 1


def test_a_second_gateway_on_the_same_data_is_refused(used_data: Path) -> None:
    with Gateway("--data", str(used_data)) as gateway:
        done = run("serve", "--port", "0", "--data", str(used_data))
        assert done.returncode == 1
        assert f"another Queuegate (process {gateway.process.pid}) is using" in done.stderr
        assert done.stderr.count("\n") == 1
        assert gateway.get("/readyz")[0] == 200


def _sqs(gateway: Gateway) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=gateway.url,
        region_name="us-east-1",
        aws_access_key_id="111122223333",
        aws_secret_access_key="any",
    )


def test_an_ephemeral_gateway_refuses_what_sqs_refuses_when_asked_to() -> None:
    """Starts a gateway with its PostgreSQL."""
    with Gateway("--ephemeral", "--aws-cooldowns") as gateway:
        sqs = _sqs(gateway)
        url = sqs.create_queue(QueueName="q")["QueueUrl"]
        sqs.purge_queue(QueueUrl=url)
        with pytest.raises(sqs.exceptions.PurgeQueueInProgress):
            sqs.purge_queue(QueueUrl=url)
        sqs.delete_queue(QueueUrl=url)
        with pytest.raises(sqs.exceptions.QueueDeletedRecently):
            sqs.create_queue(QueueName="q")
        move = json.dumps({"advance": "1m", "account": "111122223333"}).encode()
        urllib.request.urlopen(f"{gateway.url}/_admin/clock", move, 30).close()
        sqs.create_queue(QueueName="q")


def test_ephemeral_data_is_gone_at_exit() -> None:
    with Gateway("--ephemeral") as gateway:
        assert "ephemeral" in gateway.printed
        [owner] = _directories_of(gateway)
        gateway.stop(signal.SIGTERM)
        assert not owner.exists()


def test_ephemeral_data_of_a_killed_gateway_is_swept_by_the_next() -> None:
    """Two starts of a gateway with its PostgreSQL."""
    with Gateway("--ephemeral") as gateway:
        [left] = _directories_of(gateway)
        watch = Watch(postmaster(left))
        gateway.stop(signal.SIGKILL)
        assert watch.wait()
    with Gateway("--ephemeral") as gateway:
        assert not left.exists()


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("is_ephemeral", [True, False])
def test_a_gateway_whose_directory_is_gone_ends_with_a_line(
    used_data: Path, tmp_path: Path, workers: str, is_ephemeral: bool
) -> None:
    """Starts a gateway with its PostgreSQL."""
    place = ("--ephemeral",) if is_ephemeral else ("--data", str(used_data))
    log = tmp_path / "log"
    with log.open("w") as stderr:
        logged = type("Logged", (Gateway,), {"log": stderr})
        with logged(*place, "--workers", workers, QUEUEGATE_LOG_FORMAT="text") as gateway:
            [directory] = _directories_of(gateway) if is_ephemeral else [used_data]
            shutil.rmtree(directory, ignore_errors=True)
            assert gateway.process.wait(PATIENCE_SECONDS) == 1
    last = log.read_text().splitlines()[-1]
    assert (
        last
        == f"queuegate: the data directory {directory} was deleted while it was in use: stopped"
    )


@linux_only
def test_a_worker_that_dies_is_replaced(used_data: Path) -> None:
    with Gateway("--data", str(used_data), "--workers", "2") as gateway:
        victim, survivor = children(gateway.process.pid)
        watch = Watch(victim)
        os.kill(victim, signal.SIGKILL)
        assert watch.wait()
        assert gateway.get("/readyz")[0] == 200
        # The stop waits for the replacement too, so it must have become a child in good order.
        assert gateway.stop(signal.SIGTERM) == 0
        assert survivor not in children(gateway.process.pid)


def _directories_of(gateway: Gateway) -> list[Path]:
    """Return the temporary directories of an ephemeral gateway."""
    found = Path(tempfile.gettempdir()).glob("queuegate-ephemeral-*")
    return [path for path in found if _is_of(path, gateway)]


def _is_of(path: Path, gateway: Gateway) -> bool:
    try:
        return (path / "gateway.lock").read_text().strip() == str(gateway.process.pid)
    except OSError:
        return False
