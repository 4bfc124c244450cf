"""The supervisor with children that are small scripts."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from gateway.command.supervisor import Supervisor

_SERVE = """
import signal, socket, sys
channel = socket.socket(fileno=int(sys.argv[2]))
{before}
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
channel.sendall(b"1")
signal.pause()
"""


def _supervisor(script: str, *, count: int = 2, drain_seconds: float = 10.0) -> Supervisor:
    return Supervisor([sys.executable, "-c", script], count, dict(os.environ), drain_seconds)


def _stop_ourselves() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_all_children_are_ready_before_it_says_so() -> None:
    announced: list[int] = []

    def ready() -> None:
        announced.append(1)
        _stop_ourselves()

    assert _supervisor(_SERVE.format(before=""), count=3).run(ready) == 0
    assert announced == [1]


def test_a_child_that_dies_at_first_is_started_again(tmp_path: Path) -> None:
    mark = tmp_path / "died"
    before = f"""
import os, pathlib
mark = pathlib.Path({str(mark)!r} + sys.argv[1])
if not mark.exists():
    mark.touch()
    os.kill(os.getpid(), 9)
"""
    assert _supervisor(_SERVE.format(before=before)).run(_stop_ourselves) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["died0", "died1"]


def test_children_that_never_start_end_the_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.command.supervisor._LEAST_PAUSE_SECONDS", 0.01)
    assert _supervisor("raise SystemExit(3)", count=1).run(_stop_ourselves) == 1


def test_a_child_that_does_not_drain_is_killed() -> None:
    stubborn = _SERVE.replace("lambda *_: sys.exit(0)", "signal.SIG_IGN").format(before="")
    assert _supervisor(stubborn, count=1, drain_seconds=0.1).run(_stop_ourselves) == 0


def test_signal_handlers_are_given_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    _supervisor(_SERVE.format(before=""), count=1).run(_stop_ourselves)
    assert signal.getsignal(signal.SIGTERM) is before
