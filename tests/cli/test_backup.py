"""`queuegate backup`, `restore`, and the backup before `migrate`."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO
from zipfile import ZipFile

import pytest

from queuegate.gateway.command import backup_command
from queuegate.gateway.command.database_session import complete_file
from tests.cli.calling import call
from tests.cli.processes import Gateway, run
from tests.databases import Databases
from tests.faces.servers import Server

_NOT_IN_IT = "Not in a backup: the master key, without which access keys cannot be used;"


def send(url: str, body: str) -> None:
    text = json.dumps({"message": body}).encode()
    headers = {"Authorization": "any", "Content-Type": "application/json"}
    place = f"{url}/v1/queues/orders/messages"
    with urllib.request.urlopen(urllib.request.Request(place, text, headers)):
        pass


def bodies(url: str) -> list[str]:
    headers = {"Authorization": "any"}
    place = f"{url}/v1/queues/orders/messages?max=10"
    with urllib.request.urlopen(urllib.request.Request(place, headers=headers)) as answer:
        return [one["message"] for one in json.load(answer)]


def query(dsn: str, statement: str) -> str:
    """Run a statement, and return its first value as text."""
    import asyncio

    import asyncpg

    async def ask() -> object:
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    return str(asyncio.run(ask()))


def test_a_backup_beside_a_gateway(tmp_path: Path) -> None:
    """A start of a gateway."""
    file = tmp_path / "monday.backup"
    with Server() as gateway:
        call("queues", "create", "orders", "--url", gateway.url)
        send(gateway.url, "one")
        done = call("backup", str(file), DATABASE_URL=gateway.dsn)
        assert (done.returncode, done.stderr) == (0, "")
        told, note = done.stdout.splitlines()
        assert told.startswith(f"Backed up 1 message, 1 queue, 0 topics, 0 logs to {file}: ")
        assert note.startswith(_NOT_IN_IT)
        assert file.stat().st_mode & 0o777 == 0o600
        with ZipFile(file) as archive:
            assert b"one" in archive.read("messages.copy")
            assert "orders" in archive.read("queues.copy").decode()
        refused = call("backup", str(file), DATABASE_URL=gateway.dsn)
        assert refused.returncode == 1
        assert refused.stderr == (
            f"queuegate: {file} exists: name another file, or replace a file with --force\n"
        )
        send(gateway.url, "two")
        done = call("backup", str(file), "--force", DATABASE_URL=gateway.dsn)
        assert done.stdout.startswith("Backed up 2 messages")
        assert os.listdir(tmp_path) == ["monday.backup"]
        into = call("restore", str(file), "--replace", DATABASE_URL=gateway.dsn)
        assert into.returncode == 1
        assert "gateways or commands are connected to" in into.stderr


def test_a_file_that_another_command_wrote_meanwhile_stays(tmp_path: Path) -> None:
    file = tmp_path / "backup"

    @contextlib.contextmanager
    def taken(path: Path) -> Iterator[IO[bytes]]:
        with complete_file(path) as opened:
            path.write_text("theirs")
            yield opened

    with Server() as gateway, pytest.MonkeyPatch.context() as patch:
        patch.setattr(backup_command, "complete_file", taken)
        refused = call("backup", str(file), DATABASE_URL=gateway.dsn)
    assert (refused.returncode, file.read_text()) == (1, "theirs")
    assert os.listdir(tmp_path) == ["backup"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("backup", "/dev/null", "--force"), "/dev/null exists: name another file"),
        (("backup", "/proc/1/backup"), "/proc/1/backup cannot be written: "),
        (("backup", "a" * 300), "cannot be written: File name too long"),
        (("restore", "nothing"), "nothing cannot be read: No such file or directory"),
        (("restore", __file__), "the file is no complete backup (File is not a zip file)"),
        (("restore", "/dev/null"), "the file is no complete backup"),
        (("restore", "/"), "there is no data in /: "),
    ],
)
def test_files_that_cannot_be(
    arguments: tuple[str, ...], text: str, database_dsn: str, tmp_path: Path
) -> None:
    refused = call(*arguments, DATABASE_URL=database_dsn)
    assert refused.returncode == 1
    assert text in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_move_from_the_bundled_postgresql_is_one_command(
    data: Path, databases: Databases
) -> None:
    """Two starts of a gateway."""
    with Gateway("--data", str(data)) as gateway:
        call("queues", "create", "orders", "--url", gateway.url)
        send(gateway.url, "kept")
        dsn = databases.copy()
        refused = run("restore", str(data), DATABASE_URL=dsn)
        assert refused.returncode == 1
        assert f"a gateway runs on {data}: " in refused.stderr
    moved = run("restore", str(data), DATABASE_URL=dsn)
    assert (moved.returncode, moved.stderr) == (0, "")
    assert moved.stdout.startswith("Restored 1 message, 1 queue, 0 topics, 0 logs of ")
    with Server(dsn=dsn) as server:
        assert bodies(server.url) == ["kept"]
    databases.drop(dsn)


def test_a_restore_makes_the_data_directory(
    data: Path, tmp_path: Path, databases: Databases
) -> None:
    """A gateway starts on it."""
    file = tmp_path / "backup"
    with Server() as gateway:
        call("queues", "create", "orders", "--url", gateway.url)
        send(gateway.url, "kept")
        call("backup", str(file), DATABASE_URL=gateway.dsn)
    damaged = tmp_path / "damaged"
    damaged.write_bytes(file.read_bytes()[:-1])
    assert run("restore", str(damaged), "--data", str(data)).returncode == 1
    assert not data.exists()
    assert run("restore", str(file), "--data", str(data)).returncode == 0
    with Gateway("--data", str(data)) as gateway:
        assert bodies(gateway.url) == ["kept"]


def migrated(*arguments: str, dsn: str) -> subprocess.CompletedProcess[str]:
    return call("migrate", *arguments, DATABASE_URL=dsn)


def test_migrate_backs_up_data_that_it_changes(databases: Databases, tmp_path: Path) -> None:
    dsn, file = databases.copy(), tmp_path / "before"
    none = migrated("--backup", str(file), dsn=dsn)
    assert (none.returncode, none.stderr) == (0, f"no data to migrate: {file} is not written\n")
    query(dsn, "DELETE FROM queuegate.schema_functions WHERE file_name = 'present'")
    assert migrated(dsn=dsn).stderr == ""
    query(dsn, "INSERT INTO queuegate.sms_opted_out VALUES ('000000000000', 'us-east-1', '1')")
    query(dsn, "DELETE FROM queuegate.schema_functions WHERE file_name = 'present'")
    file.write_text("mine")
    refused = migrated("--backup", str(file), dsn=dsn)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"{file} exists: " in refused.stderr
    file.unlink()
    done = migrated("--backup", str(file), dsn=dsn)
    assert done.returncode == 0
    assert done.stdout.startswith("Backed up 0 messages")
    assert done.stdout.endswith("applied functions/present\n")
    query(dsn, "DELETE FROM queuegate.schema_functions WHERE file_name = 'present'")
    told = migrated(dsn=dsn)
    assert (told.returncode, told.stdout) == (0, "applied functions/present\n")
    assert told.stderr == (
        "queuegate: a migration cannot be undone: `queuegate migrate --backup FILE` backs the data "
        "up first\n"
    )
    query(dsn, "DROP SCHEMA queuegate CASCADE")
    assert call("restore", str(file), DATABASE_URL=dsn).returncode == 0
    assert query(dsn, "SELECT count(*) FROM queuegate.sms_opted_out") == "1"
    databases.drop(dsn)
