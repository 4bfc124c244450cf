"""The supervisor with children that do little."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from queuegate.gateway.command.supervisor import Supervisor
from queuegate.gateway.operations.runtime.identifiers import new_id


def _serve(_: int, channel: socket.socket) -> int:
    """Until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    channel.sendall(b"1")
    signal.pause()
    return 1


def _stop_ourselves() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_all_children_are_ready_before_it_says_so() -> None:
    announced: list[int] = []

    def ready() -> None:
        announced.append(1)
        _stop_ourselves()

    assert Supervisor(_serve, 3, 10).run(ready) == 0
    assert announced == [1]


def test_a_child_that_dies_at_first_is_started_again(tmp_path: Path) -> None:
    def work(number: int, channel: socket.socket) -> int:
        mark = tmp_path / f"died{number}"
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return _serve(number, channel)

    assert Supervisor(work, 2, 10).run(_stop_ourselves) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["died0", "died1"]


def test_children_that_never_start_end_the_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queuegate.gateway.command.supervisor._LEAST_PAUSE_SECONDS", 0.01)
    assert Supervisor(lambda *_: 3, 1, 10).run(_stop_ourselves) == 1


def test_a_child_that_does_not_drain_is_killed() -> None:
    def work(_: int, channel: socket.socket) -> int:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        channel.sendall(b"1")
        while True:
            signal.pause()

    assert Supervisor(work, 1, 0.1).run(_stop_ourselves) == 0


def test_children_have_nothing_of_the_supervisor_and_ids_of_their_own(tmp_path: Path) -> None:
    """An inherited descriptor would hide the supervisor's death from others."""

    def work(number: int, channel: socket.socket) -> int:
        # One more is that of the directory.
        assert {0, 1, 2, channel.fileno()} <= {*map(int, listed := os.listdir("/dev/fd"))}
        assert len(listed) == 5
        assert os.readlink("/dev/fd/0") == os.devnull
        assert os.getpgrp() == os.getpid()
        (tmp_path / new_id()).touch()
        return _serve(number, channel)

    assert Supervisor(work, 3, 10).run(_stop_ourselves) == 0
    ids = [new_id(), *(path.name for path in tmp_path.iterdir())]
    for part in (slice(0, 8), slice(8, 24)):
        assert len({one[part] for one in ids}) == 4


def test_signal_handlers_are_given_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    Supervisor(_serve, 1, 10).run(_stop_ourselves)
    assert signal.getsignal(signal.SIGTERM) is before
