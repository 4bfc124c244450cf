"""Backups with PostgreSQL's own tools: the commands of docs/how-to/backup.md, run and counted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from queuegate.storage.embedded.data_directory import DataDirectory, open_ephemeral_directory
from queuegate.storage.embedded.postgres_account import binaries_for, choose_account
from tests.cli.processes import environment, run
from tests.ports import reserved_port
from tests.tidy.source import ROOT

pytestmark = pytest.mark.timeout(180)

_PAGE = ROOT / "docs/how-to/backup.md"
_DEBIAN = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
_BLOCK = re.compile(r"^```(bash|ini)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(section: str) -> list[str]:
    """The commands and settings of a section of the page."""
    text = _PAGE.read_text("utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    found = [block for _, block in _BLOCK.findall(text)]
    assert found
    return found


class Tools:
    """A PostgreSQL that was made with its own programs, and a shell that has them."""

    def __init__(self, binaries: Path | None, settings: str) -> None:
        self._account = choose_account(None)
        self.directory: DataDirectory = open_ephemeral_directory(self._account)
        self.folder = self.directory.make("tools")
        self._binaries = binaries or binaries_for(self._account, self.directory.path)
        self._reserved = reserved_port()
        self.port = self._reserved.__enter__()
        self.shell("mkdir -p backup/wal; initdb -D data -U queuegate --auth=trust -N")
        with (self.folder / "data/postgresql.conf").open("a") as file:
            file.write(self.placed(settings))
            file.write("listen_addresses = '127.0.0.1'\nunix_socket_directories = ''\n")
            file.write(f"port = {self.port}\nshared_buffers = 16MB\n")
        self.shell("pg_ctl -D data -w -l log start")

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://queuegate@127.0.0.1:{self.port}/{database}"

    def placed(self, text: str) -> str:
        """The text of the page with directories of this test."""
        text = text.replace("/var/lib/postgresql/restored", f"{self.folder}/restored")
        return text.replace("/backup/", f"{self.folder}/backup/")

    def shell(self, commands: str, **more: str) -> str:
        """Run commands as the account of PostgreSQL; return what they print."""
        path = os.pathsep.join(
            [str(self._binaries), str(Path(sys.executable).parent), os.environ["PATH"]]
        )
        ran = subprocess.run(
            ["bash", "-ec", self.placed(commands)],
            cwd=self.folder,
            env=environment(PATH=path, LC_ALL="C", HOME=str(self.folder), **more),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=120,
            **self._account.popen_options(),
        )
        printed: str = ran.stdout
        return printed

    def sql(self, statement: str, database: str = "postgres") -> str:
        """The only value of a statement, as text."""
        arguments = ["psql", "-XqAt", "-d", self.url(database), "-c", statement]
        return self.shell(" ".join(f"'{one}'" for one in arguments)).strip()

    def send(self, count: int) -> None:
        """Add so many messages."""
        self.sql(
            "INSERT INTO queuegate.messages (visible_at, sent_at, queue_id, message_id, sender_id,"
            f" body) SELECT now(), now(), 1, gen_random_uuid(), $$me$$, $$b$$ || n"
            f" FROM generate_series(1, {count}) AS n"
        )

    def count(self, database: str = "postgres") -> int:
        return int(self.sql("SELECT count(*) FROM queuegate.messages", database))

    def stop(self) -> None:
        for data in ("data", "restored"):
            if (self.folder / data / "postmaster.pid").exists():
                self.shell(f"pg_ctl -D {data} -m immediate stop")
        self._reserved.__exit__(None, None, None)
        self.directory.close()


@pytest.fixture(params=["bundled", "Debian's"])
def tools(request: pytest.FixtureRequest) -> Iterator[Tools]:
    binaries = _DEBIAN[-1].parent if _DEBIAN else None
    if request.param == "Debian's" and binaries is None:
        pytest.skip("there is no PostgreSQL of Debian")
    [settings] = [text for text in blocks("Recover to a point in time") if "archive_mode" in text]
    made = Tools(binaries if request.param == "Debian's" else None, settings)
    assert run("migrate", DATABASE_URL=made.url()).returncode == 0
    made.send(1_000)
    yield made
    made.stop()


def test_a_dump_restores_all_messages(tools: Tools) -> None:
    """A server, its programs and a gateway's checks."""
    dump, load = blocks("Use pg_dump")
    urls: dict[str, Any] = {"DATABASE_URL": tools.url(), "RESTORED_URL": tools.url("restored")}
    tools.shell(dump, **urls)
    tools.send(7)
    load, doctor = load.rstrip("\n").rsplit("\n", 1)
    tools.shell(load, **urls)
    assert doctor == "DATABASE_URL=$RESTORED_URL queuegate doctor"
    assert (tools.count("restored"), tools.count()) == (1_000, 1_007)
    done = run("doctor", "--port", "0", DATABASE_URL=tools.url("restored"))
    assert done.returncode == 0, done.stdout


def test_an_instant_is_recovered_from_a_base_backup_and_its_log(tools: Tools) -> None:
    """Two servers, one after the other."""
    _, take, restore = blocks("Recover to a point in time")
    tools.shell(take, DATABASE_URL=tools.url())
    tools.send(100)
    instant = tools.sql("SELECT clock_timestamp()")
    tools.send(10)
    tools.sql("SELECT pg_switch_wal()")
    # A fast stop archives all of the log.
    tools.shell("pg_ctl -D data -m fast -w stop")
    assert "2026-11-28 10:15:00+00" in restore
    tools.shell(restore.replace("2026-11-28 10:15:00+00", instant) + "\n", PGOPTIONS="")
    assert tools.count() == 1_100
    assert run("doctor", "--port", "0", DATABASE_URL=tools.url()).returncode == 0


def test_a_base_backup_alone_has_what_was_there(tools: Tools) -> None:
    """Two servers, one after the other."""
    take, restore = blocks("Recover to a point in time")[1:]
    tools.shell(take, DATABASE_URL=tools.url())
    tools.send(100)
    tools.shell("pg_ctl -D data -m fast -w stop")
    copy, start = restore.splitlines()[0], restore.splitlines()[-1]
    tools.shell(f"{copy}\n{start}")
    assert tools.count() == 1_000


def test_backups_move_between_versions(tools: Tools, tmp_path: Path, own_database_dsn: str) -> None:
    """From this server into the bundled one, and back into another database."""
    first, second = tmp_path / "first", tmp_path / "second"
    assert run("backup", str(first), DATABASE_URL=tools.url()).returncode == 0
    assert run("restore", str(first), DATABASE_URL=own_database_dsn).returncode == 0
    assert run("backup", str(second), DATABASE_URL=own_database_dsn).returncode == 0
    tools.sql("CREATE DATABASE again")
    assert run("restore", str(second), DATABASE_URL=tools.url("again")).returncode == 0
    assert tools.count("again") == 1_000
