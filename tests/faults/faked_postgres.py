"""A PostgreSQL of the test's own that stands still, or whose clock steps: libfaketime (Debian's
package `faketime`) is in front of it."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from queuegate.storage.embedded.data_directory import hand_over
from queuegate.storage.embedded.postgres_account import binaries_for, choose_account
from tests.cli.processes import processes_of
from tests.waiting import until


class FakedPostgres:
    """A PostgreSQL whose clock the test moves, if ``library`` is there, and that it stops."""

    def __init__(self, directory: Path, library: Path | None) -> None:
        self._account = choose_account(None)
        self._directory = directory
        self._offset = directory / "offset"
        hand_over(directory, self._account)
        self._binaries = binaries_for(self._account, directory)
        self.move(0)
        data = str(directory / "pgdata")
        initdb = ["initdb", "-D", data, "-U", "queuegate", "--auth=trust", "--no-sync"]
        assert self._popen(*initdb, "--locale=C", "--encoding=UTF8").wait() == 0
        faked = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._offset),
            "FAKETIME_NO_CACHE": "1",
            # Both spellings: that of old versions and that of new ones.
            "DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        self._faked = faked if library else {}
        self.dsn = f"postgresql://queuegate@/postgres?host={directory}"
        self._start()

    def _start(self) -> None:
        self._server = self._popen(
            *("postgres", "-D", str(self._directory / "pgdata"), "-k", str(self._directory)),
            *("-c", "listen_addresses=", "-c", "fsync=off"),
            **self._faked,
        )
        until(lambda: "ready" in self._state())

    def _state(self) -> str:
        assert self._server.poll() is None, (self._directory / "log").read_text()
        try:
            return (self._directory / "pgdata" / "postmaster.pid").read_text()
        except OSError:
            return ""

    def _popen(self, program: str, *arguments: str, **more: str) -> subprocess.Popen[bytes]:
        with (self._directory / "log").open("ab") as log:
            return subprocess.Popen(
                [str(self._binaries / program), *arguments],
                cwd="/",
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC", **more},
                stdout=log,
                stderr=log,
                **self._account.popen_options(),
            )

    def move(self, seconds: float) -> None:
        """Let the clock stand so far from the true time."""
        new = self._offset.with_suffix(".new")
        new.write_text(f"{seconds:+f}\n")
        new.chmod(0o644)
        new.rename(self._offset)

    def restart(self, seconds: float) -> None:
        """Start it anew, with a clock that stands so far from the true time."""
        self._server.send_signal(signal.SIGINT)
        self._server.wait(60)
        self.move(seconds)
        self._start()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """All its processes stand still."""
        # The first one first: it starts others.
        os.kill(self._server.pid, signal.SIGSTOP)
        processes = [self._server.pid, *processes_of(self._server.pid)]
        try:
            for process in processes:
                os.kill(process, signal.SIGSTOP)
            yield
        finally:
            for process in processes:
                os.kill(process, signal.SIGCONT)

    def stop(self) -> None:
        self._server.terminate()
        self._server.wait(60)


@contextmanager
def faked_postgres(library: Path | None) -> Iterator[FakedPostgres]:
    """One that runs until the end of the block."""
    # Short, and open to the account that PostgreSQL runs as.
    with tempfile.TemporaryDirectory(prefix="queuegate-clock-") as directory:
        Path(directory).chmod(0o755)
        running = FakedPostgres(Path(directory), library)
        try:
            yield running
        finally:
            running.stop()
