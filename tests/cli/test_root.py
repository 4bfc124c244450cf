"""Started by root: what another process of the account that PostgreSQL runs as can do then, and the
account `queuegate` that ends it."""

from __future__ import annotations

import contextlib
import os
import pwd
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncpg
import pytest

from queuegate.storage.embedded import data_directory
from queuegate.storage.embedded.data_directory import hand_over_data, holder_of
from queuegate.storage.embedded.embedded_server import EmbeddedPostgres
from queuegate.storage.embedded.postgres_account import (
    Account,
    CannotStart,
    can_enter,
    choose_account,
    closed_parent,
)
from tests.cli.processes import Gateway, run
from tests.faces.clients import Sqs

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="is about what root does"),
    pytest.mark.timeout(180),
]

ACCOUNT = "000000000000"
SECRET = "root:x:secret\n"
# No user of any system that the tests run on.
OWN_ID = 61_234


@contextlib.contextmanager
def running(data: Path) -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL that takes connections; stopped at the end."""
    server = EmbeddedPostgres(data)
    try:
        server.start()
        server.wait_ready()
        yield server
    finally:
        server.stop()


async def ask(dsn: str, statement: str) -> object:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


@pytest.fixture
def victim(data: Path) -> Path:
    """A file of root's that nobody else can read or write."""
    file = data.parent / "victim"
    file.write_text(SECRET)
    file.chmod(0o600)
    return file


def as_it_was(file: Path) -> bool:
    facts = file.stat()
    whose = (facts.st_uid, facts.st_gid, facts.st_mode & 0o777)
    return file.read_text() == SECRET and whose == (0, 0, 0o600)


def give_back(data: Path) -> None:
    """Make of it what earlier versions left: everything but lock and log is the account's, which
    needs no password."""
    account = choose_account(data / "pgdata")
    (data / "password").unlink()
    (data / "pg_hba.conf").unlink()
    (data / "queuegate.conf").rename(data / "pgdata" / "queuegate.conf")
    for path in (data, data / "pgdata" / "queuegate.conf"):
        os.chown(path, account.uid, account.gid)
    data.chmod(0o700)


@pytest.mark.parametrize(
    "name", ["gateway.lock", "postgres.log", "postgres.log.1", "password", "queuegate.conf.new"]
)
@pytest.mark.parametrize("plant", [os.symlink, os.link], ids=["symbolic", "hard"])
def test_links_in_the_data_directory_lead_root_nowhere(
    used_data: Path, victim: Path, name: str, plant: Callable[[Path, Path], None]
) -> None:
    give_back(used_data)
    # Long enough to be moved out of the way.
    os.truncate(used_data / "postgres.log", 9 << 20)
    (used_data / name).unlink(missing_ok=True)
    plant(victim, used_data / name)
    with running(used_data):
        pass
    assert as_it_was(victim)


@pytest.mark.parametrize("name", ["queuegate.conf", "postmaster.pid", "queuegate.conf.new"])
def test_links_among_postgres_own_files_lead_root_nowhere(
    used_data: Path, victim: Path, name: str
) -> None:
    give_back(used_data)
    (used_data / "pgdata" / name).unlink(missing_ok=True)
    (used_data / "pgdata" / name).symlink_to(victim)
    # PostgreSQL itself may stumble over it, as the account that made it.
    with contextlib.suppress(CannotStart), running(used_data):
        pass
    assert as_it_was(victim)


def test_a_pipe_in_place_of_the_lock_file_holds_nobody_up(data: Path) -> None:
    data.mkdir()
    os.mkfifo(data / "postmaster.pid")
    assert data_directory.running_process_id(data) is None
    os.mkfifo(data / "gateway.lock")
    assert holder_of(data) == ""


def test_a_lock_file_ends_no_process_of_somebody_else(used_data: Path) -> None:
    pgdata = used_data / "pgdata"
    # Looks like a server of this directory, and is root's.
    other = subprocess.Popen(
        [sys.executable, "-c", "input()", "-D", str(pgdata), "end"], stdin=subprocess.PIPE
    )
    (pgdata / "postmaster.pid").write_text(f"{other.pid}\n")
    with running(used_data):
        assert other.poll() is None
    other.communicate(b"\n")
    assert other.returncode == 0


def owned_by_root(data: Path) -> set[str]:
    return {path.name for path in [data, *data.iterdir()] if path.lstat().st_uid == 0}


async def test_only_postgres_own_directories_are_the_accounts(data: Path) -> None:
    with running(data) as server:
        everything = {"data", "gateway.lock", "pgdata", "postgres.log", "socket"}
        everything |= {"password", "pg_hba.conf", "queuegate.conf"}
        assert owned_by_root(data) == everything - {"pgdata", "socket"}
        assert await ask(server.dsn, "SELECT rolpassword FROM pg_authid WHERE rolcanlogin")
        without = server.dsn.partition("@")[2]
        with pytest.raises(asyncpg.InvalidPasswordError):
            await ask(f"postgresql://queuegate@{without}", "SELECT 1")


async def test_data_of_an_earlier_version_are_found(used_data: Path) -> None:
    with running(used_data) as server:
        await ask(server.dsn, "CREATE TABLE kept AS SELECT 7 AS number")
    give_back(used_data)
    for _ in range(2):
        with running(used_data) as server:
            assert await ask(server.dsn, "SELECT number FROM kept") == 7


def test_a_directory_that_can_be_replaced_is_refused(data: Path) -> None:
    account = choose_account(None)
    os.chown(data.parent, account.uid, account.gid)
    with pytest.raises(CannotStart, match=f"because {data.parent} lets it"):
        EmbeddedPostgres(data)


def test_a_second_name_is_not_handed_over(used_data: Path, victim: Path) -> None:
    os.link(victim, used_data / "pgdata" / "mine")
    account = Account(OWN_ID, OWN_ID, "queuegate", switch=True)
    with pytest.raises(CannotStart, match="mine has another name elsewhere"):
        hand_over_data(used_data, account)
    (used_data / "pgdata" / "mine").unlink()
    assert as_it_was(victim)


def test_doctor_and_a_line_at_start_say_how_to_make_the_account(used_data: Path) -> None:
    with pytest.raises(KeyError):
        pwd.getpwnam("queuegate")
    checked = run("doctor", "--port", "0", "--data", str(used_data))
    assert "can read, change and delete all messages. Create an account" in checked.stdout
    file = used_data.parent / "log"
    with file.open("w") as log:
        logged = type("Logged", (Gateway,), {"log": log})
        with logged("--data", str(used_data)):
            pass
    assert file.read_text().count("useradd --system") == 1


def opened(folder: Path, stash: Path) -> list[str]:
    """Commands after which everybody can enter a folder that lies in a closed one."""
    reader = Account(OWN_ID, OWN_ID, "queuegate", switch=True)
    if can_enter(reader, folder):
        return []
    closed = closed_parent(reader, folder)
    stash.mkdir(exist_ok=True)
    return [
        f"mount --bind {folder} {stash}",
        f"mount -t tmpfs -o mode=755 tmpfs {closed}",
        f"mkdir -p {folder}",
        f"mount --bind {stash} {folder}",
    ]


class OwnAccount(Gateway):
    """A gateway that root starts on a system that has the account `queuegate`."""

    def __init__(self, data: Path, *arguments: str) -> None:
        self._mounts = opened(Path(sys.base_prefix), data.parent / "python")
        for name, line in (
            ("passwd", f"queuegate:x:{OWN_ID}:{OWN_ID}::/nonexistent:/usr/sbin/nologin"),
            ("group", f"queuegate:x:{OWN_ID}:"),
        ):
            text = Path("/etc", name).read_text().rstrip("\n") + "\n"
            (data.parent / name).write_text(text + line + "\n")
            self._mounts.append(f"mount --bind {data.parent / name} /etc/{name}")
        super().__init__("--data", str(data), *arguments)

    def command(self) -> list[str]:
        # Only this process and its children see these files in the place of the system's.
        script = " && ".join([*self._mounts, 'exec "$@"'])
        return ["unshare", "--mount", "sh", "-c", script, "sh", *super().command()]


def can_unshare() -> bool:
    try:
        done = subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True)
    except FileNotFoundError:
        return False
    return done.returncode == 0


@pytest.mark.skipif(
    sys.platform != "linux" or not can_unshare(), reason="needs a view of /etc/passwd of its own"
)
def test_root_becomes_queuegate_with_its_data(used_data: Path) -> None:
    """Four starts of a gateway with its PostgreSQL."""
    with Gateway("--data", str(used_data)) as gateway, Sqs("json", gateway.url, ACCOUNT) as sqs:
        url = sqs.create()
        sqs.send(url, "from before")
    for workers in "12":
        with OwnAccount(used_data, "--workers", workers) as gateway:
            lines = Path(f"/proc/{gateway.process.pid}/status").read_text().splitlines()
            for name in ("Uid", "Gid"):
                assert f"{name}:" + f"\t{OWN_ID}" * 4 in lines
            assert [path for path in used_data.rglob("*") if path.lstat().st_uid != OWN_ID] == []
            assert gateway.get("/readyz")[0] == 200
            assert "process_open_fds" in gateway.get("/metrics")[1]
    with OwnAccount(used_data) as gateway, Sqs("json", gateway.url, ACCOUNT) as sqs:
        assert sqs.bodies(url) == ["from before"]
