"""The scripts of compose.full.yaml, with the programs of a real PostgreSQL: a pair comes up."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from queuegate.storage.embedded.data_directory import hand_over
from queuegate.storage.embedded.postgres_account import binaries_for, choose_account
from tests.waiting import until

SCRIPTS = Path(__file__).parents[2] / "deploy/compose"


class Machine:
    """A place for two servers, which listen on sockets in directories of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._account = choose_account(None)
        self._binaries = binaries_for(self._account, folder)
        self.servers: list[subprocess.Popen[bytes]] = []
        for name in ("primary", "standby"):
            (folder / name).mkdir()
            hand_over(folder / name, self._account)
        for script in SCRIPTS.iterdir():
            copy = folder / script.name
            copy.write_bytes(script.read_bytes())
            copy.chmod(0o755)

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """Start a program with the variables of a container."""
        own = self.folder / name
        primary = self.folder / "primary"
        return subprocess.Popen(
            command,
            cwd="/",
            env={
                "PATH": f"{self._binaries}:/usr/bin:/bin",
                "PGDATA": str(own / "18" / "docker"),
                "PGHOST": str(primary),
                "POSTGRES_USER": "queuegate",
                "POSTGRES_DB": "postgres",
                "PRIMARY": f"host={primary} user=queuegate application_name=standby",
            },
            stdout=subprocess.DEVNULL,
            **self._account.popen_options(),
        )

    def run(self, name: str, *command: str) -> None:
        assert self.start(name, *command).wait(60) == 0

    def serve(self, name: str, *command: str) -> None:
        options = ("-c", "listen_addresses=", "-c", "fsync=off", "-k", str(self.folder / name))
        self.servers.append(self.start(name, *command, *options))
        until(lambda: (self.folder / name / ".s.PGSQL.5432").exists())

    def ask(self, name: str, query: str) -> object:
        async def asked() -> object:
            dsn = f"postgresql://queuegate@/postgres?host={self.folder / name}"
            connection = await asyncpg.connect(dsn)
            try:
                return await connection.fetchval(query)
            finally:
                await connection.close()

        return asyncio.run(asked())


@pytest.fixture
def machine() -> Iterator[Machine]:
    # Short, and open to the account that PostgreSQL runs as.
    with tempfile.TemporaryDirectory(prefix="queuegate-pair-") as name:
        Path(name).chmod(0o755)
        machine = Machine(Path(name))
        yield machine
        for server in reversed(machine.servers):
            server.terminate()
            server.wait(60)


def test_a_pair_comes_up(machine: Machine) -> None:
    """May take more than 5 s: two servers start."""
    machine.run("primary", "sh", "-c", "initdb -U queuegate -A trust -N")
    machine.serve("primary", "postgres")
    machine.run("primary", "sh", str(machine.folder / "replication.sh"))
    # A copy that was interrupted lies there.
    interrupted = machine.folder / "standby/18/docker.new"
    machine.run("standby", "mkdir", "-p", str(interrupted / "base"))
    machine.serve("standby", "sh", str(machine.folder / "standby.sh"))
    streams = "SELECT state FROM pg_stat_replication WHERE application_name = 'standby'"
    until(lambda: machine.ask("primary", streams), lambda state: state == "streaming")
    assert machine.ask("primary", "SELECT active FROM pg_replication_slots") is True
    assert machine.ask("standby", "SELECT pg_is_in_recovery()") is True
    # It starts again without another copy.
    standby = machine.servers.pop()
    standby.terminate()
    standby.wait(60)
    machine.serve("standby", "sh", str(machine.folder / "standby.sh"))
    until(lambda: machine.ask("primary", streams), lambda state: state == "streaming")
