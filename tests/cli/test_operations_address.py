"""QUEUEGATE_OPERATIONS_ADDRESS: probes and metrics where clients do not come."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys

import pytest

from queuegate.gateway.command.gateway_client import operators_url
from queuegate.gateway.configuration.settings import BadSetting, Settings
from tests.cli.processes import Gateway, children, environment, run
from tests.faces.clients import Sqs
from tests.faces.connections import Answer, Closed, Connection, fetch, request_bytes
from tests.faces.servers import Server
from tests.waiting import until

PROBES = ("/livez", "/readyz", "/metrics")


class Apart(Server):
    """A gateway whose probes are elsewhere: at ``probes``."""

    def __init__(self, *arguments: str, address: str = "127.0.0.1:0") -> None:
        super().__init__(*arguments, QUEUEGATE_OPERATIONS_ADDRESS=address)
        found = re.search(r"  operate  (http://\S+)/metrics", self.printed)
        assert found is not None
        self.probes = found[1]

    def metrics(self, name: str = "") -> str:
        """They are there."""
        return fetch(self.probes, f"/metrics?name[]={name}").text


def ask(url: str, method: str, headers: dict[str, str], body: bytes = b"") -> Answer:
    with Connection(url) as connection:
        connection.send(request_bytes(method, "/", {"Host": connection.host} | headers, body))
        return connection.answer()


def test_probes_are_there_and_nothing_else_is() -> None:
    with Apart() as server:
        for path in PROBES:
            assert fetch(server.probes, path).status == 200
            moved = fetch(server.url, path)
            assert (moved.status, "QUEUEGATE_OPERATIONS_ADDRESS" in moved.text) == (404, True)
        page = ask(server.url, "GET", {"Accept": "text/html"})
        assert page.status == 200
        assert "/metrics" not in page.text
        for path in ("/", "/_admin/clock", "/_admin/outbox", "/v1/queues", "/v1/cert", "/x", "//"):
            assert fetch(server.probes, path).status == 404
        send = {"X-Amz-Target": "AmazonSQS.ListQueues", "Authorization": "any"}
        assert ask(server.probes, "POST", send, b"{}").status == 404
        assert fetch(server.url, "/_admin/clock").status == 200
        # Of a page in a browser, whose name was pointed here.
        assert ask(server.probes, "GET", {"Host": "queues.example"}).status == 403
        address = server.probes.removeprefix("http://")
        healthy = run("health", QUEUEGATE_OPERATIONS_ADDRESS=address)
        assert healthy.returncode == 0, healthy.stderr


class Alone(Gateway):
    """`queuegate worker` with probes at ``url``."""

    def __init__(self, dsn: str, address: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "queuegate", "worker"],
            env=environment(DATABASE_URL=dsn, QUEUEGATE_OPERATIONS_ADDRESS=address),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.printed = self.process.stdout.readline() + self.process.stdout.readline()
        found = re.search(r"  operate  (http://\S+)/metrics", self.printed)
        assert found is not None
        self.url = found[1]


def test_a_worker_without_faces_has_metrics_and_probes(database_dsn: str) -> None:
    with Alone(database_dsn, "127.0.0.1:0") as worker:
        assert [worker.get(path)[0] for path in PROBES] == [200] * 3
        assert worker.get("/")[0] == 404
        page = "/metrics?name[]=queuegate_worker_last_round_timestamp_seconds"
        until(lambda: worker.get(page)[1], lambda text: 'worker="deliver"' in text)
        taken = run(
            "worker",
            DATABASE_URL=database_dsn,
            QUEUEGATE_OPERATIONS_ADDRESS=worker.url.removeprefix("http://"),
        )
        assert taken.returncode == 1
        assert "QUEUEGATE_OPERATIONS_ADDRESS" in taken.stderr
        assert taken.stderr.count("\n") == 1
        assert worker.stop(signal.SIGTERM) == 0


def test_of_several_workers_one_answers_for_all() -> None:
    """Of two workers, and again when that one was killed and started anew."""
    with Apart("--workers", "2") as server:
        with Sqs("json", server.url) as sqs:
            url = sqs.create()
            connections = [sqs.other() for _ in range(12)]
            for other in connections:
                with other:
                    other.send(url)
        name = url.rpartition("/")[2]
        server.until(f'queue_messages_sent_total{{queue="{name}"}}', 12)
        first, _ = children(server.process.pid)
        os.kill(first, signal.SIGKILL)
        until(lambda: children(server.process.pid), lambda found: first not in found)
        until(lambda: _status(server.probes), lambda status: status == 200)


def _status(url: str) -> int:
    try:
        return fetch(url, "/readyz").status
    except (Closed, OSError):
        # The killed process had accepted it.
        return 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_port_that_is_taken_is_one_line(workers: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        place = f"127.0.0.1:{port}"
        flags = ("--ephemeral", "--port", "0", "--workers", workers)
        done = run("serve", *flags, QUEUEGATE_OPERATIONS_ADDRESS=place)
        looked = run("doctor", "--port", "0", QUEUEGATE_OPERATIONS_ADDRESS=place)
    assert done.returncode == 1
    assert done.stderr.startswith(f"queuegate: port {port} on 127.0.0.1 is taken")
    assert "another port with QUEUEGATE_OPERATIONS_ADDRESS (" in done.stderr
    assert done.stderr.count("\n") == 1
    assert "FAIL  port: " in looked.stdout


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("[::1]:9325", "http://[::1]:9325"),
        ("localhost:9325", "http://127.0.0.1:9325"),
        (":9325", "http://127.0.0.1:9325"),
        ("10.0.0.7:9325", "http://10.0.0.7:9325"),
    ],
)
def test_where_it_is(text: str, url: str) -> None:
    settings = Settings.from_env({"QUEUEGATE_OPERATIONS_ADDRESS": text})
    assert operators_url(settings) == url
    assert operators_url(Settings.from_env({})) == "http://127.0.0.1:9324"


@pytest.mark.parametrize("text", ["9325", "localhost", "localhost:", "localhost:99999"])
def test_what_is_no_address_is_told(text: str) -> None:
    with pytest.raises(BadSetting, match="QUEUEGATE_OPERATIONS_ADDRESS"):
        Settings.from_env({"QUEUEGATE_OPERATIONS_ADDRESS": text})
