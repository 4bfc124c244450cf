"""Two PostgreSQL servers, a primary and its standby, of which either may freeze."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from queuegate.storage.embedded.data_directory import DataDirectory, open_ephemeral_directory
from queuegate.storage.embedded.postgres_account import binaries_for, choose_account

_PORT = 5432


class Pair:
    """A primary with a standby, each at a loopback address of its own, so no port is looked for."""

    def __init__(self) -> None:
        self._account = choose_account(None)
        self._directory: DataDirectory = open_ephemeral_directory(self._account)
        self._binaries = binaries_for(self._account, self._directory.path)
        number = os.getpid()
        self.addresses = [f"127.{81 + n}.{number >> 8 & 255}.{number % 253 + 1}" for n in (0, 1)]
        self._folders = [self._directory.make(name) for name in ("first", "second")]
        self._start_first()
        self._start_second()

    def url(self, **query: str) -> str:
        """Both hosts, of which the one is taken that takes writes."""
        hosts = ",".join(f"{address}:{_PORT}" for address in self.addresses)
        words = {"target_session_attrs": "read-write", **query}
        text = "&".join(f"{name}={value}" for name, value in words.items())
        return f"postgresql://queuegate@{hosts}/postgres?{text}"

    def freeze(self) -> None:
        """Stop every process of the first server: its kernel still answers for it."""
        self._signal(self._folders[0], signal.SIGSTOP)

    def promote(self) -> None:
        """Make the second one the primary."""
        self._run("pg_ctl", "-D", "data", "-w", "promote", folder=self._folders[1])

    def stop(self) -> None:
        """End both, whatever state they are in, and delete their data."""
        for folder in self._folders:
            self._signal(folder, signal.SIGKILL)
        self._directory.close()

    @staticmethod
    def _signal(folder: Path, number: signal.Signals) -> None:
        """Send it to every process of a server."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            postmaster = (folder / "data" / "postmaster.pid").read_text().split()[0]
            children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
            for process_id in [postmaster, *children]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(process_id), number)

    def _start_first(self) -> None:
        folder = self._folders[0]
        self._run("initdb", "-D", "data", "-U", "queuegate", "--auth=trust", "-N", folder=folder)
        with (folder / "data" / "pg_hba.conf").open("a") as file:
            file.write("host all all 127.0.0.0/8 trust\nhost replication all 127.0.0.0/8 trust\n")
        self._start(0)

    def _start_second(self) -> None:
        source = f"host={self.addresses[0]} port={_PORT} user=queuegate"
        self._run(
            *("pg_basebackup", "-D", "data", "-R", "-N", "-c", "fast", "-d", source),
            folder=self._folders[1],
        )
        self._start(1)

    def _start(self, number: int) -> None:
        options = f"-p {_PORT} -c listen_addresses={self.addresses[number]} -c fsync=off"
        options += " -c unix_socket_directories= -c max_connections=50 -c shared_buffers=16MB"
        self._run(
            *("pg_ctl", "-D", "data", "-w", "-l", "log", "-o", options, "start"),
            folder=self._folders[number],
        )

    def _run(self, program: str, *arguments: str, folder: Path) -> None:
        subprocess.run(
            [self._binaries / program, *arguments],
            cwd=folder,
            env={**os.environ, "LC_ALL": "C"},
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=60,
            **self._account.popen_options(),
        )
