"""Processes of a gateway: several on one port, and the privileges of a gateway that root starts.

The bundled PostgreSQL does not run as root, and its account has to read and write the data. With
the account `queuegate`, the whole gateway runs unprivileged: it becomes that account before it
touches data. Otherwise PostgreSQL runs as a shared account, such as `nobody`, and is only as safe
as that account.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import multiprocessing
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import TYPE_CHECKING

from queuegate.gateway.configuration.settings import use_home
from queuegate.storage.embedded.data_directory import hand_over_data
from queuegate.storage.embedded.postgres_account import (
    OWN_ACCOUNT,
    Account,
    account_to_become,
    can_enter,
    choose_account,
    may_read,
)

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings

_log = logging.getLogger("queuegate.supervisor")

_LEAST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 10.0
# A process that ran for so long resets the pause before the next restart.
_STEADY_SECONDS = 60.0
_FAILED_STARTS = 5
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)

_CREATE_ACCOUNT = f"useradd --system --user-group --shell /usr/sbin/nologin {OWN_ACCOUNT}"


@dataclass
class _Child:
    number: int
    process: ForkProcess | None = None
    channel: socket.socket | None = None
    ready: bool = False
    started_at: float = 0.0
    restart_at: float = 0.0
    pause: float = field(default_factory=lambda: _LEAST_PAUSE_SECONDS)
    failed_starts: int = 0


@dataclass
class Supervisor:
    """Runs `work(number, channel)` in `count` children, and restarts those that end.

    Children are forked: they share the memory of modules that are imported before. A child keeps
    its channel and the standard streams open, nothing else. It writes one byte to the channel when
    it serves. The other end closes when the supervisor dies of any cause; a child treats that as
    SIGTERM. `work` returns the exit code.
    """

    work: Callable[[int, socket.socket], int]
    count: int
    drain_seconds: float
    _children: list[_Child] = field(default_factory=list)
    _signals: list[int] = field(default_factory=list)

    def run(self, on_ready: Callable[[], None]) -> int:
        """Serve until SIGINT or SIGTERM; call `on_ready` once all children serve."""
        announced = False
        # A garbage collection writes to shared memory and so copies it.
        gc.freeze()
        with selectors.DefaultSelector() as selector, self._wakeups(selector):
            self._children = [_Child(number) for number in range(self.count)]
            try:
                while not self._asked_to_stop():
                    self._start_due(selector)
                    self._wait(selector, self._next_start())
                    if any(child.failed_starts >= _FAILED_STARTS for child in self._children):
                        _log.error("a worker cannot start; giving up")
                        return 1
                    if not announced and all(child.ready for child in self._children):
                        announced = True
                        on_ready()
                return 0
            finally:
                self._drain(selector)

    def _asked_to_stop(self) -> bool:
        return signal.SIGTERM in self._signals or signal.SIGINT in self._signals

    def _start_due(self, selector: selectors.BaseSelector) -> None:
        for child in self._children:
            if child.process is None and child.restart_at <= time.monotonic():
                self._start(child, selector)

    def _start(self, child: _Child, selector: selectors.BaseSelector) -> None:
        ours, theirs = socket.socketpair()
        child.process = multiprocessing.get_context("fork").Process(
            target=_run_child, args=(self.work, child.number, theirs)
        )
        # Signals stay blocked until the child has installed its own handlers.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        with theirs:
            child.process.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        child.channel, child.ready, child.started_at = ours, False, time.monotonic()
        selector.register(ours, selectors.EVENT_READ, child)

    def _next_start(self) -> float | None:
        waiting = [child.restart_at for child in self._children if child.process is None]
        return max(0.0, min(waiting) - time.monotonic()) if waiting else None

    def _wait(self, selector: selectors.BaseSelector, patience: float | None) -> None:
        """Wait for a signal, the byte of a child or its end, at most ``patience`` seconds."""
        for key, _ in selector.select(patience):
            child = key.data
            if child is None:
                assert isinstance(key.fileobj, socket.socket)
                with contextlib.suppress(BlockingIOError):
                    self._signals.extend(key.fileobj.recv(256))
                continue
            if child.channel is not None and child.channel.recv(1):
                child.ready, child.failed_starts = True, 0
            else:
                # The child is ending; SIGCHLD follows when it has ended.
                selector.unregister(key.fileobj)
        for child in self._children:
            if child.process is not None and child.process.exitcode is not None:
                self._reap(child, selector)

    def _reap(self, child: _Child, selector: selectors.BaseSelector) -> None:
        assert child.process is not None
        assert child.channel is not None
        status, lived = child.process.exitcode, time.monotonic() - child.started_at
        with contextlib.suppress(KeyError):
            selector.unregister(child.channel)
        child.channel.close()
        child.failed_starts += 0 if child.ready else 1
        child.process, child.channel, child.ready = None, None, False
        if self._asked_to_stop():
            return
        steady = lived > _STEADY_SECONDS
        child.pause = _LEAST_PAUSE_SECONDS if steady else child.pause
        child.restart_at = time.monotonic() + child.pause
        child.pause = min(child.pause * 2, _LONGEST_PAUSE_SECONDS)
        _log.error("worker %s ended with status %s; restarting it", child.number, status)

    def _drain(self, selector: selectors.BaseSelector) -> None:
        """Terminate every child, wait, and kill those that miss the deadline."""
        self._signals.append(signal.SIGTERM)
        for child in self._children:
            if child.process is not None:
                child.process.terminate()
        limit = time.monotonic() + self.drain_seconds
        while any(child.process is not None for child in self._children):
            left = limit - time.monotonic()
            if left <= 0:
                break
            self._wait(selector, left)
        for child in self._children:
            if child.process is not None:
                _log.error("worker %s missed the shutdown deadline; killing it", child.number)
                child.process.kill()
                child.process.join()
                self._reap(child, selector)

    @contextlib.contextmanager
    def _wakeups(self, selector: selectors.BaseSelector) -> Iterator[None]:
        """Let signals end the wait of the selector, and record them."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        before = {number: signal.signal(number, lambda *_: None) for number in _SIGNALS}
        previous = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        selector.register(ours, selectors.EVENT_READ, None)
        try:
            yield
        finally:
            signal.set_wakeup_fd(previous)
            for number, handler in before.items():
                signal.signal(number, handler)
            ours.close()
            theirs.close()


def _run_child(
    work: Callable[[int, socket.socket], int], number: int, channel: socket.socket
) -> None:
    """Drop signal handlers and files of the supervisor, and work."""
    signal.set_wakeup_fd(-1)
    for one in _SIGNALS:
        signal.signal(one, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    # Ctrl-C at the terminal has to reach the supervisor only, which terminates the children.
    os.setpgid(0, 0)
    # Other children and PostgreSQL notice the end of the supervisor by its files: close them here.
    for descriptor in map(int, os.listdir("/dev/fd")):
        if descriptor > 2 and descriptor != channel.fileno():
            # The descriptor of the directory listing is closed already.
            with contextlib.suppress(OSError):
                os.close(descriptor)
    sys.exit(work(number, channel))


def give_up_root(settings: Settings) -> None:
    """As root, hand the data over to its owner or to `queuegate`, and become that account.

    Raises CannotStart if the data cannot be handed over.
    """
    account = _account_to_become(settings)
    if account is None or _closed_to(account, settings) is not None:
        return
    if not settings.ephemeral:
        hand_over_data(settings.data_dir, account)
    os.initgroups(account.name, account.gid)
    os.setgid(account.gid)
    os.setuid(account.uid)
    use_home(account.home)


def remaining_risk(settings: Settings) -> str:
    """Return the risk of running as root, and its remedy; empty if there is none."""
    if os.geteuid() != 0 or settings.database_url is not None:
        return ""
    account = _account_to_become(settings)
    closed = None if account is None else _closed_to(account, settings)
    if account is not None and closed is None:
        return ""
    data = None if settings.ephemeral else settings.data_dir / "pgdata"
    runs_as = choose_account(data).name
    risk = f"started by root, PostgreSQL runs as {runs_as}: other programs of {runs_as} can " + (
        "read, change and delete all messages"
    )
    if account is None:
        return f"{risk}. Create an account for the next start: {_CREATE_ACCOUNT}"
    return f"{risk}. The gateway itself stays root: {account.name} cannot read {closed}"


def _account_to_become(settings: Settings) -> Account | None:
    if os.geteuid() != 0 or settings.database_url is not None:
        return None
    return account_to_become(None if settings.ephemeral else settings.data_dir)


def _closed_to(account: Account, settings: Settings) -> Path | None:
    """Return the first path of the gateway that the account cannot read."""
    for folder in _program():
        if not can_enter(account, folder):
            return folder
    named = (settings.signing_key_file, settings.signing_certificate_file, settings.webhook_ca_file)
    for file in (Path(__file__), *named):
        if file is not None and not may_read(account, file):
            return file
    return None


def _program() -> Iterator[Path]:
    yield Path(sys.executable).resolve().parent
    for entry in sys.path:
        if entry and Path(entry).is_dir():
            yield Path(entry)
