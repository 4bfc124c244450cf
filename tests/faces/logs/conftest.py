"""Clients of logs, and the command."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from queuegate.gateway.cli import main
from tests.faces.logs.client import Logs
from tests.faces.servers import Server

Run = Callable[..., str]


@pytest.fixture
def logs(server: Server) -> Iterator[Logs]:
    """A client in an account of its own."""
    with Logs(server.url) as client:
        yield client


@pytest.fixture
def run(logs: Logs, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `queuegate log` as somebody of that account; what it printed."""

    def run(*arguments: str, code: int = 0) -> str:
        place = ("--url", logs.url, "--account", logs.account)
        assert main(["log", *arguments, *place]) == code
        captured = capsys.readouterr()
        return captured.err + captured.out

    return run
