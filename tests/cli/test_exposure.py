"""Log lines of a gateway at its start and about senders of nonsense."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.cli.processes import Gateway
from tests.faces.connections import Connection, fetch, request_bytes
from tests.faces.servers import Server


class Logged(Server):
    """A gateway whose stderr goes into a file."""

    def __init__(self, path: Path, *arguments: str, **more: str) -> None:
        self.path = path
        with path.open("w") as self.log:
            super().__init__(*arguments, **more)

    def __enter__(self) -> Logged:
        return self

    def lines(self, text: str) -> list[str]:
        return [line for line in self.path.read_text().splitlines() if text in line]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_port_that_others_reach_is_told_of(tmp_path: Path, workers: str) -> None:
    with Logged(tmp_path / "log", "--host", "0.0.0.0", "--workers", workers) as gateway:
        port = gateway.port
    [line] = gateway.lines("without verifying signatures")
    assert f"port {port} " in line
    assert '"level": "warning"' in line
    [line] = gateway.lines("QUEUEGATE_BASE_URL")
    assert f":{port}" in line


def test_of_several_addresses_those_that_others_reach_are_told_of(tmp_path: Path) -> None:
    with Logged(tmp_path / "log", "--host", "::1", "--host", "0.0.0.0") as gateway:
        pass
    [line] = gateway.lines("without verifying signatures")
    assert "listening on 0.0.0.0 without" in line


def test_a_port_that_nobody_else_reaches_is_not(tmp_path: Path) -> None:
    with Logged(tmp_path / "log") as gateway:
        pass
    assert not gateway.lines("without verifying signatures")
    assert not gateway.lines("QUEUEGATE_BASE_URL")


def test_nonsense_fills_no_log(tmp_path: Path) -> None:
    with Logged(tmp_path / "log") as gateway:
        for _ in range(50):
            with Connection(gateway.url) as connection:
                connection.send(b"nonsense\r\n\r\n")
                assert connection.answer().status == 400
    lines = gateway.lines("Invalid HTTP request")
    # One in ten seconds: fewer than requests, however slow this machine is.
    assert 1 <= len(lines) < 40
    assert "from 127.0.0.1:" in lines[0]


def test_a_refused_page_is_named(tmp_path: Path) -> None:
    """A page is not told why; its author looks here."""
    with Logged(tmp_path / "log") as gateway:
        for _ in range(50):
            with Connection(gateway.url) as connection:
                headers = {"Host": connection.host, "Origin": "http://localhost:5173"}
                connection.send(request_bytes("GET", "/livez", headers))
                assert connection.answer().status == 403
    lines = gateway.lines("http://localhost:5173")
    assert 1 <= len(lines) < 40
    assert "QUEUEGATE_ALLOWED_ORIGINS" in lines[0]


def own_address() -> str:
    """One of this machine that is not loopback; empty: it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        found: str = probe.getsockname()[0]
    return "" if found.startswith("127.") else found


@pytest.mark.skipif(not own_address(), reason="this machine has no address beyond loopback")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_pages_that_tell_or_change_are_not_for_the_network(tmp_path: Path, workers: str) -> None:
    with Logged(tmp_path / "log", "--host", "0.0.0.0", "--workers", workers) as gateway:
        there = f"http://{own_address()}:{gateway.port}"
        for path in ("/_admin/clock", "/_admin/outbox", "/_admin/no"):
            assert fetch(there, path).status == 403
        assert fetch(there, "/_admin/clock", "POST", b'{"advance": "5m"}').status == 403
        for path in ("/livez", "/metrics"):
            assert fetch(there, path).status == 200
        assert fetch(f"http://127.0.0.1:{gateway.port}", "/_admin/clock").status == 200


@pytest.mark.skipif(not own_address(), reason="this machine has no address beyond loopback")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_ephemeral_gateway_shows_them_to_all(workers: str) -> None:
    with Gateway("--ephemeral", "--host", "0.0.0.0", "--workers", workers) as gateway:
        there = f"http://{own_address()}:{gateway.port}"
        assert fetch(there, "/_admin/clock", "POST", b'{"advance": "5m"}').status == 200


def test_who_is_no_proxy_of_ours_is_told_once(tmp_path: Path) -> None:
    with Logged(tmp_path / "log") as gateway:
        for _ in range(3):
            with Connection(gateway.url) as connection:
                headers = {"Host": connection.host, "X-Forwarded-Proto": "https"}
                connection.send(request_bytes("GET", "/v1/openapi.json", headers))
                assert connection.answer().status == 200
    [line] = gateway.lines("QUEUEGATE_TRUSTED_PROXIES")
    assert "127.0.0.1" in line
