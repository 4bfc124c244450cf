"""A PostgreSQL server, and a standby of it that may come and go; either may freeze."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
from pathlib import Path

from queuegate.storage.embedded.data_directory import DataDirectory, open_ephemeral_directory
from queuegate.storage.embedded.postgres_account import binaries_for, choose_account

_PORT = 5432
_SMALL = "fsync = off\nmax_connections = 50\nshared_buffers = 16MB\n"
_NETS = itertools.count(81)


class Pair:
    """A primary with a standby, each at a loopback address of its own, so no port is looked for."""

    def __init__(self, settings: str = _SMALL, *, has_standby: bool = True) -> None:
        """``settings`` are lines of postgresql.conf."""
        self._account = choose_account(None)
        self._directory: DataDirectory = open_ephemeral_directory(self._account)
        self._binaries = binaries_for(self._account, self._directory.path)
        number = os.getpid()
        host = f"{number >> 8 & 255}.{number % 253 + 1}"
        self.addresses = [f"127.{next(_NETS)}.{host}" for _ in range(2)]
        self._folders = [self._directory.make(name) for name in ("first", "second")]
        self._start_first(settings)
        if has_standby:
            self.start_standby()

    def url(self, **query: str) -> str:
        """Both hosts, of which the one is taken that takes writes."""
        hosts = ",".join(f"{address}:{_PORT}" for address in self.addresses)
        words = {"target_session_attrs": "read-write", **query}
        text = "&".join(f"{name}={value}" for name, value in words.items())
        return f"postgresql://queuegate@{hosts}/postgres?{text}"

    def freeze(self, number: int = 0) -> None:
        """Stop every process of the first or second server: its kernel still answers for it."""
        signal_server(self._folders[number] / "data", signal.SIGSTOP)

    def thaw(self, number: int) -> None:
        """Let a frozen server go on."""
        signal_server(self._folders[number] / "data", signal.SIGCONT)

    def kill(self, number: int) -> None:
        """End a server as a loss of power would."""
        signal_server(self._folders[number] / "data", signal.SIGKILL)

    def dsn(self, number: int, **query: str) -> str:
        """The first or second server alone."""
        text = "&".join(f"{name}={value}" for name, value in query.items())
        return f"postgresql://queuegate@{self.addresses[number]}:{_PORT}/postgres?{text}"

    def promote(self) -> None:
        """Make the second one the primary."""
        self._run("pg_ctl", "-D", "data", "-w", "promote", folder=self._folders[1])

    def start_standby(self, settings: str = "") -> None:
        """Copy the primary as it is now, and start the copy with further settings."""
        source = f"host={self.addresses[0]} port={_PORT} user=queuegate"
        self._run(
            *("pg_basebackup", "-D", "data", "-R", "-N", "-c", "fast", "-d", source),
            folder=self._folders[1],
        )
        self._configure(self._folders[1], settings)
        self._start(1)

    def stop_standby(self) -> None:
        """End the standby as a shutdown does; its data stays."""
        self._run("pg_ctl", "-D", "data", "-w", "-m", "fast", "stop", folder=self._folders[1])

    def stop(self) -> None:
        """End both, whatever state they are in, and delete their data."""
        for folder in self._folders:
            signal_server(folder / "data", signal.SIGKILL)
        self._directory.close()

    def _start_first(self, settings: str) -> None:
        folder = self._folders[0]
        self._run("initdb", "-D", "data", "-U", "queuegate", "--auth=trust", "-N", folder=folder)
        with (folder / "data" / "pg_hba.conf").open("a") as file:
            file.write("host all all 127.0.0.0/8 trust\nhost replication all 127.0.0.0/8 trust\n")
        self._configure(folder, settings)
        self._start(0)

    @staticmethod
    def _configure(folder: Path, settings: str) -> None:
        with (folder / "data" / "postgresql.conf").open("a") as file:
            file.write(f"unix_socket_directories = ''\n{settings}")

    def _start(self, number: int) -> None:
        options = f"-p {_PORT} -c listen_addresses={self.addresses[number]}"
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


def signal_server(data: Path, number: signal.Signals) -> None:
    """Send a signal to every process of the server on this directory."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        postmaster = (data / "postmaster.pid").read_text().split()[0]
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        for process_id in [postmaster, *children]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process_id), number)
