"""Several gateway processes on one port: started, started again when they die, stopped together."""

from __future__ import annotations

import contextlib
import logging
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_log = logging.getLogger("queuegate.supervisor")

_LEAST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 10.0
# A process that lived this long has recovered from whatever killed the one before it.
_STEADY_SECONDS = 60.0
_FAILED_STARTS = 5


@dataclass
class _Child:
    number: int
    process: subprocess.Popen[bytes] | None = None
    channel: socket.socket | None = None
    ready: bool = False
    started_at: float = 0.0
    restart_at: float = 0.0
    pause: float = field(default_factory=lambda: _LEAST_PAUSE_SECONDS)
    failed_starts: int = 0


@dataclass
class Supervisor:
    """Runs `command NUMBER FD` `count` times and keeps it so.

    A child writes one byte to FD when it serves. The other end of FD closes when the supervisor
    dies, whatever the cause; a child takes that as SIGTERM.
    """

    command: Sequence[str]
    count: int
    environment: Mapping[str, str]
    drain_seconds: float
    _children: list[_Child] = field(default_factory=list)
    _signals: list[int] = field(default_factory=list)

    def run(self, on_ready: Callable[[], None]) -> int:
        """Serve until SIGINT or SIGTERM; the exit code. `on_ready` runs once all children serve."""
        announced = False
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
        with theirs:
            child.process = subprocess.Popen(
                [*self.command, str(child.number), str(theirs.fileno())],
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                # A Ctrl-C at the terminal reaches the supervisor only, which passes it on once.
                process_group=0,
            )
        child.channel, child.ready, child.started_at = ours, False, time.monotonic()
        selector.register(ours, selectors.EVENT_READ, child)

    def _next_start(self) -> float | None:
        waiting = [child.restart_at for child in self._children if child.process is None]
        return max(0.0, min(waiting) - time.monotonic()) if waiting else None

    def _wait(self, selector: selectors.BaseSelector, patience: float | None) -> None:
        """Until something happens or the time is over: a signal, a word of a child, its end."""
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
                # The child closed its end: it is ending. SIGCHLD says when it has.
                selector.unregister(key.fileobj)
        for child in self._children:
            if child.process is not None and child.process.poll() is not None:
                self._bury(child, selector)

    def _bury(self, child: _Child, selector: selectors.BaseSelector) -> None:
        assert child.process is not None
        assert child.channel is not None
        status, lived = child.process.returncode, time.monotonic() - child.started_at
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
        _log.error("worker %s ended with status %s; starting it again", child.number, status)

    def _drain(self, selector: selectors.BaseSelector) -> None:
        """Ask every child to finish, wait for them, and end those that do not."""
        self._signals.append(signal.SIGTERM)
        for child in self._children:
            if child.process is not None:
                child.process.send_signal(signal.SIGTERM)
        limit = time.monotonic() + self.drain_seconds
        while any(child.process is not None for child in self._children):
            left = limit - time.monotonic()
            if left <= 0:
                break
            self._wait(selector, left)
        for child in self._children:
            if child.process is not None:
                _log.error("worker %s did not finish in time; ending it", child.number)
                child.process.kill()
                child.process.wait()
                self._bury(child, selector)

    @contextlib.contextmanager
    def _wakeups(self, selector: selectors.BaseSelector) -> Iterator[None]:
        """Make signals end the selector's wait, and remember which came."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)
        before = {number: signal.signal(number, lambda *_: None) for number in numbers}
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
