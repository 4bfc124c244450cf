"""Exporting: what comes of a collector that is away, slow or refuses, and of the last spans."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from queuegate.gateway.configuration.settings import BadSetting, Settings
from queuegate.gateway.tracing.otlp_setup import collector as collector_of
from tests.cli.processes import PATIENCE_SECONDS, Gateway, environment, run
from tests.faces.clients import Sqs
from tests.faces.connections import fetch
from tests.faces.servers import Server
from tests.ports import reserved_port
from tests.tracing.collector import Collector, GrpcCollector
from tests.waiting import until

_LOGGER = "queuegate.tracing"

both = pytest.mark.parametrize("kind", [Collector, GrpcCollector])


class Logged(Server):
    """A gateway whose log goes to a file."""

    def __init__(self, log: IO[str], **more: str) -> None:
        self.log = log
        super().__init__(**more)


@contextmanager
def logged(log: Path, kind: type[Collector | GrpcCollector], port: int) -> Iterator[Gateway]:
    """A gateway that exports all that it does to a collector of this kind on that port."""
    settings = {
        "QUEUEGATE_OTLP_ENABLED": "true",
        "QUEUEGATE_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "QUEUEGATE_OTLP_PROTOCOL": kind.protocol,
        "QUEUEGATE_OTLP_SAMPLE_RATE": "1",
        "QUEUEGATE_LOG_FORMAT": "json",
        "QUEUEGATE_LOG_LEVEL": "info",
    }
    with log.open("w") as file, Logged(file, **settings) as gateway:
        yield gateway


def lines(log: Path) -> list[dict[str, Any]]:
    """Return the lines of a log, without those of the server."""
    found = [json.loads(line) for line in log.read_text().splitlines()]
    return [line for line in found if line["logger"] != "queuegate.server"]


@both
def test_a_collector_that_is_away_is_told_of_once_and_found_when_it_comes(
    tmp_path: Path, kind: type[Collector | GrpcCollector]
) -> None:
    """The exporters wait before they try again."""
    log = tmp_path / "log"
    with reserved_port() as port, logged(log, kind, port) as gateway:

        def asked(text: str) -> bool:
            assert fetch(gateway.url, "/livez").status == 200
            return any(text in line["message"] for line in lines(log))

        until(lambda: asked("not exported"))
        with kind(port) as collector:
            until(lambda: asked("again") and bool(collector.spans))
            # Without the collector it would be told of again.
            told = lines(log)
    assert [line["level"] for line in told] == ["warning", "info"]
    assert {line["logger"] for line in told} == {_LOGGER}
    assert f"http://127.0.0.1:{port}" in told[0]["message"]
    assert "refused" in told[0]["message"]


@both
def test_refused_batches_are_told_of_once(
    tmp_path: Path, kind: type[Collector | GrpcCollector]
) -> None:
    log = tmp_path / "log"
    with kind() as collector:
        collector.is_refusing = True
        with logged(log, kind, collector.port) as gateway:

            def refused() -> bool:
                assert fetch(gateway.url, "/livez").status == 200
                return collector.refused >= 3

            until(refused)
            gateway.stop(signal.SIGTERM)
    [told] = lines(log)
    assert "traces are not exported" in told["message"]
    assert "400" in told["message"]


@both
def test_what_is_left_is_exported_at_the_end_by_every_process(
    kind: type[Collector | GrpcCollector],
) -> None:
    with kind() as collector:
        settings = collector.settings | {
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_EXPORTER_OTLP_HEADERS": "x-key=of-the-collector",
        }
        with Server("--workers", "2", **settings) as gateway:
            count = 0
            seen: set[str] = set()
            # Whichever process a connection comes to.
            while len(seen) < 2:
                assert fetch(gateway.url, "/livez").status == 200
                count += 1
                if count % 20 == 0:
                    collector.until(lambda it: bool(it.requests))
                    seen = {span.resource["service.instance.id"] for span in collector.spans}
            # All but the last one have all the time that they need.
            collector.until(lambda it: [one.name for one in it.spans].count("GET /livez") == count)
            assert fetch(gateway.url, "/readyz").status == 200
            assert gateway.stop(signal.SIGTERM) == 0
        names = [span.name for span in collector.spans]
        assert names.count("GET /readyz") == 1
        assert names.count("GET /livez") == count
        assert {headers["x-key"] for headers in collector.requests} == {"of-the-collector"}
        if kind is Collector:
            assert {headers["content-encoding"] for headers in collector.requests} == {"gzip"}


@both
def test_a_collector_that_hangs_delays_the_end_by_two_seconds_at_most(
    tmp_path: Path, kind: type[Collector | GrpcCollector]
) -> None:
    """A gateway with its PostgreSQL, and the two seconds."""
    log = tmp_path / "log"
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        logged(log, kind, silent.getsockname()[1]) as gateway,
    ):
        assert fetch(gateway.url, "/livez").status == 200
        # It is exporting now, and gets no answer.
        silent.settimeout(PATIENCE_SECONDS)
        connection, _ = silent.accept()
        with connection:
            began = time.monotonic()
            assert gateway.stop(signal.SIGTERM) == 0
            lasted = time.monotonic() - began
    # The rest, of which the database has the most, takes what this machine takes for it.
    assert 1.5 < lasted < 30
    assert "did not take the last traces in 2 s" in lines(log)[-1]["message"]


def test_more_spans_than_can_wait_are_dropped_and_told_of_once() -> None:
    done = _run(
        """
import asyncio, logging, sys
logging.basicConfig(format="%(name)s %(message)s")
from queuegate.gateway.tracing.exporters import span_exporter_for
from queuegate.gateway.tracing.exporters import TraceExporter

async def run():
    exporting = TraceExporter(span_exporter_for(sys.argv[1], "http/protobuf"))
    tracer = exporting.tracer
    for _ in range(20_000):
        tracer.start_span("x").end()
    await exporting.close()

asyncio.run(run())
""",
        "http://127.0.0.1:9",
    )
    told = done.stderr.splitlines()
    assert len([line for line in told if "some are dropped" in line]) == 1, told
    assert all(line.startswith(_LOGGER) for line in told), told


def test_off_nothing_of_it_is_loaded_and_no_thread_runs() -> None:
    done = _run(
        """
import asyncio, sys, threading
from queuegate.gateway.process import gateway_process
from queuegate.gateway.configuration.settings import Settings
from queuegate.gateway.tracing.otlp_setup import open_tracing

async def run():
    async with open_tracing(Settings.from_env({})) as tracing:
        assert tracing is None
    extra = ("opentelemetry", "requests", "grpc")
    loaded = [name for name in sys.modules if name.startswith(extra)]
    assert loaded == [], loaded
    ours = [name for name in sys.modules if name.startswith("queuegate.gateway.tracing")]
    assert ours == ["queuegate.gateway.tracing", "queuegate.gateway.tracing.otlp_setup"], ours
    assert threading.active_count() == 1

asyncio.run(run())
"""
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_on_it_is_loaded() -> None:
    done = _run(
        """
import asyncio, sys, threading
from queuegate.gateway.configuration.settings import Settings
from queuegate.gateway.tracing.otlp_setup import open_tracing

async def run():
    settings = Settings.from_env({"OTLP_ENABLED": "true", "OTLP_ENDPOINT": "http://127.0.0.1:9"})
    async with open_tracing(settings) as tracing:
        assert tracing is not None
    assert "opentelemetry.sdk.trace" in sys.modules
    assert "grpc" not in sys.modules

asyncio.run(run())
"""
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("url", ["http://user:geheim@host:4318", "http://geheim@host"])
def test_an_endpoint_with_credentials_is_refused_without_showing_them(url: str) -> None:
    with pytest.raises(BadSetting) as refusal:
        Settings.from_env({"QUEUEGATE_OTLP_ENDPOINT": url})
    assert "QUEUEGATE_OTLP_ENDPOINT" in str(refusal.value)
    assert "geheim" not in str(refusal.value)


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, ("http://localhost:4318", "http/protobuf")),
        ({"OTLP_PROTOCOL": "grpc"}, ("http://localhost:4317", "grpc")),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ("http://localhost:4317", "grpc")),
        # As docs/seeds.md 1.5 has it, over gRPC.
        ({"OTLP_ENDPOINT": "http://here:4317"}, ("http://here:4317", "grpc")),
        ({"OTLP_ENDPOINT": "http://here:4318"}, ("http://here:4318", "http/protobuf")),
        ({"OTLP_ENDPOINT": "https://here"}, ("https://here", "http/protobuf")),
        (
            {"OTLP_ENDPOINT": "http://here:4317", "OTLP_PROTOCOL": "http/protobuf"},
            ("http://here:4317", "http/protobuf"),
        ),
    ],
)
def test_the_protocol_and_the_port_belong_together(
    environ: dict[str, str], wanted: tuple[str, str]
) -> None:
    assert collector_of(Settings.from_env(environ)) == wanted


def test_a_protocol_that_is_neither_is_refused() -> None:
    with pytest.raises(BadSetting, match="allowed is http/protobuf or grpc"):
        Settings.from_env({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"})


@pytest.fixture
def without_the_extra(tmp_path: Path) -> dict[str, str]:
    """An environment in which what comes with queuegate[otlp] cannot be imported."""
    for name in ("opentelemetry", "grpc", "requests"):
        text = f"raise ModuleNotFoundError('No module named {name}', name={name!r})"
        (tmp_path / f"{name}.py").write_text(text)
    return {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}


@pytest.mark.parametrize("command", ["serve", "worker", "doctor"])
def test_without_the_extra_traces_are_refused_in_one_sentence(
    without_the_extra: dict[str, str], command: str
) -> None:
    done = run(command, OTLP_ENABLED="true", **without_the_extra)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'queuegate[otlp]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_without_the_extra_everything_else_is_there(without_the_extra: dict[str, str]) -> None:
    with Server(**without_the_extra) as server, Sqs("json", server.url) as sqs:
        sqs.send(sqs.create(), "b")
        assert server.get("/readyz")[0] == 200
        assert server.get("/metrics")[0] == 200


def _run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
