"""The bundled PostgreSQL by itself."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncpg
import pytest

from queuegate.storage import preflight
from queuegate.storage.embedded import data_directory, postgres_account
from queuegate.storage.embedded.data_directory import DiskSpace
from queuegate.storage.embedded.embedded_server import EmbeddedPostgres, configuration, running_dsn
from queuegate.storage.embedded.postgres_account import Account, CannotStart, choose_account
from tests.waiting import until

Start = Callable[..., EmbeddedPostgres]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root changes to another account")


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts servers, and stops them at the end."""
    servers: list[EmbeddedPostgres] = []

    def start(data: Path | None = None, *, ephemeral: bool = False) -> EmbeddedPostgres:
        server = EmbeddedPostgres(data, ephemeral=ephemeral)
        servers.append(server)
        server.start()
        server.wait_ready()
        return server

    yield start
    for server in servers:
        server.stop()


async def _ask(server: EmbeddedPostgres, setting: str) -> str:
    connection = await asyncpg.connect(server.dsn)
    try:
        value: str = await connection.fetchval("SELECT current_setting($1)", setting)
    finally:
        await connection.close()
    return value


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def test_it_listens_on_a_private_socket_only(data: Path, start: Start) -> None:
    server = start(data)
    assert await _ask(server, "listen_addresses") == ""
    assert _mode(server.socket_path.parent) == 0o700
    # As root: a way through for PostgreSQL, whose own directories lie in here.
    assert _mode(data) == (0o710 if os.geteuid() == 0 else 0o700)
    assert await _ask(server, "fsync") == "on"
    assert await _ask(server, "synchronous_commit") == "on"


async def test_it_notices_what_a_disk_garbles(data: Path, start: Start) -> None:
    assert await _ask(start(data), "data_checksums") == "on"


@pytest.mark.parametrize(
    ("free_mib", "wal_mib"), [(10, 64), (700, 175), (4096, 1024), (1 << 20, 2048)]
)
def test_its_log_fits_the_disk(free_mib: int, wal_mib: int) -> None:
    room = DiskSpace(1 << 42, free_mib << 20)
    text = configuration(60, room.wal_bytes, ephemeral=False)
    assert f"\nmax_wal_size = {wal_mib}MB\n" in text


async def test_an_ephemeral_one_needs_no_directory_and_leaves_none(start: Start) -> None:
    server = start(ephemeral=True)
    assert await _ask(server, "fsync") == "off"
    server.stop()
    assert not server.data_dir.exists()


async def test_a_forgotten_session_ends(used_data: Path, start: Start) -> None:
    """Until then it keeps dead rows: here for a tenth of a second."""
    server = start(used_data)
    assert await _ask(server, "idle_in_transaction_session_timeout") == "5min"
    connection = await asyncpg.connect(server.dsn)
    ended = asyncio.Event()
    connection.add_termination_listener(lambda _: ended.set())
    await connection.execute("BEGIN; SET idle_in_transaction_session_timeout = '0.1s'")
    async with asyncio.timeout(20):
        await ended.wait()


async def test_settings_by_alter_system_win(used_data: Path, start: Start) -> None:
    server = start(used_data)
    connection = await asyncpg.connect(server.dsn)
    await connection.execute("ALTER SYSTEM SET max_wal_size = '3GB'")
    await connection.close()
    server.stop()
    assert await _ask(start(used_data), "max_wal_size") == "3GB"


async def test_a_server_that_dies_is_started_again(start: Start) -> None:
    server = start(ephemeral=True)
    again = threading.Event()
    server.on_restart = again.set
    first = server.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert again.wait(30)
    assert server.restart_count == 1
    assert server.pid != first
    assert await _ask(server, "listen_addresses") == ""


def test_a_stop_may_be_repeated(used_data: Path, start: Start) -> None:
    server = start(used_data)
    server.stop()
    server.stop()
    assert not server.socket_path.parent.exists()


async def test_a_long_path_gets_its_socket_elsewhere(data: Path, start: Start) -> None:
    server = start(data / ("long" * 20))
    assert len(os.fsencode(server.socket_path)) < 104
    assert await _ask(server, "listen_addresses") == ""
    server.stop()
    assert not server.socket_path.parent.exists()


async def test_a_stale_process_id_of_somebody_else_is_no_obstacle(
    used_data: Path, start: Start
) -> None:
    server = start(used_data)
    file = used_data / "pgdata" / "postmaster.pid"
    lines = file.read_text().splitlines(keepends=True)
    server.stop()
    # What a killed container leaves: the number now belongs to another process, here to this one.
    file.write_text("".join([f"{os.getpid()}\n", *lines[1:]]))
    if os.geteuid() == 0:
        os.chown(file, (used_data / "pgdata").stat().st_uid, -1)
    assert await _ask(start(used_data), "listen_addresses") == ""


@pytest.mark.parametrize("torn", [b"", b"\xff\xfe\x00" * 9, b"12\xff\n\xff\n", b"9" * 99])
async def test_a_torn_lock_file_is_no_obstacle(used_data: Path, start: Start, torn: bytes) -> None:
    file = used_data / "pgdata" / "postmaster.pid"
    file.write_bytes(torn)
    if os.geteuid() == 0:
        os.chown(file, (used_data / "pgdata").stat().st_uid, -1)
    assert running_dsn(used_data) is None
    assert await _ask(start(used_data), "listen_addresses") == ""


def test_an_interrupted_initdb_is_repeated(data: Path, start: Start) -> None:
    server = EmbeddedPostgres(data)
    server.start()
    server.stop()
    assert not (data / "pgdata").exists()
    assert start(data).pid is not None


def test_a_running_orphan_is_stopped(used_data: Path, start: Start) -> None:
    server = start(used_data)
    process_id = server.pid
    server._stopping.set()
    assert data_directory.running_process_id(used_data / "pgdata") == process_id
    data_directory.stop_orphan(used_data / "pgdata")
    assert data_directory.running_process_id(used_data / "pgdata") is None
    server._stopping.clear()


def test_a_directory_in_use_is_refused(used_data: Path, start: Start) -> None:
    start(used_data)
    with pytest.raises(CannotStart, match="another Queuegate"):
        EmbeddedPostgres(used_data)
    assert data_directory.holder_of(used_data) == str(os.getpid())


def test_a_directory_with_other_files_is_refused_and_left_alone(data: Path) -> None:
    data.mkdir(mode=0o755)
    (data / "thesis.txt").write_text("important")
    with pytest.raises(CannotStart, match="not Queuegate's"):
        EmbeddedPostgres(data)
    assert _mode(data) == 0o755
    assert [path.name for path in data.iterdir()] == ["thesis.txt"]


def test_a_file_in_place_of_the_directory_is_refused(data: Path) -> None:
    data.write_text("")
    with pytest.raises(CannotStart, match="cannot be used"):
        EmbeddedPostgres(data)


def test_a_broken_cluster_is_refused_with_the_servers_reason(used_data: Path, start: Start) -> None:
    (used_data / "pgdata" / "PG_VERSION").write_text("9.6\n")
    server = EmbeddedPostgres(used_data)
    try:
        server.start()
        with pytest.raises(CannotStart, match=r"did not start: .*incompatible"):
            server.wait_ready()
    finally:
        server.stop()


@as_root
def test_root_hands_the_data_to_an_unprivileged_account(data: Path, start: Start) -> None:
    server = start(data)
    owner = (data / "pgdata").stat().st_uid
    assert owner != 0
    assert Path(f"/proc/{server.pid}").stat().st_uid == owner


@as_root
def test_a_closed_parent_is_refused_by_name(data: Path) -> None:
    data.parent.chmod(0o700)
    with pytest.raises(CannotStart, match=f"cannot enter {data.parent}"):
        EmbeddedPostgres(data)


@as_root
async def test_binaries_in_a_closed_place_are_copied_once(
    data: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = data.parent / "closed" / "site-packages"
    real = postgres_account.find_binaries().parent.parent
    shutil.copytree(real, site / real.name)
    shutil.copytree(real.with_name(real.name + ".libs"), site / (real.name + ".libs"))
    site.parent.chmod(0o700)
    closed = site / real.name / "pginstall" / "bin"
    monkeypatch.setattr(postgres_account, "find_binaries", lambda: closed)
    monkeypatch.setattr(postgres_account, "_CACHE", data.parent / "cache")
    account = choose_account(None)
    copied = postgres_account.binaries_for(account, data)
    assert copied.is_relative_to(data.parent / "cache")
    assert postgres_account.binaries_for(account, data) == copied
    assert await _ask(start(data), "listen_addresses") == ""


def test_a_missing_wheel_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_account, "_PACKAGE", "no_such_package")
    with pytest.raises(CannotStart, match="set DATABASE_URL"):
        postgres_account.find_binaries()


def test_a_system_without_glibc_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def as_with_musl(_: str) -> str:
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("os.confstr", as_with_musl)
    monkeypatch.setattr(postgres_account, "_PACKAGE", "no_such_package")
    with pytest.raises(CannotStart, match=r"needs glibc.*set DATABASE_URL"):
        postgres_account.find_binaries()


def test_root_without_an_unprivileged_account_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(
        "queuegate.storage.embedded.postgres_account._CANDIDATES", ("no-such-user",)
    )
    with pytest.raises(CannotStart, match="ordinary user"):
        choose_account(None)


def test_a_user_without_a_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 4_000_000)
    with pytest.raises(CannotStart, match="/etc/passwd"):
        choose_account(None)


def test_abandoned_ephemeral_directories_are_swept_and_live_ones_are_not(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(data.parent))
    account = Account(os.geteuid(), os.getegid(), "us", switch=False)
    live = data_directory.open_ephemeral_directory(account)
    abandoned = data_directory.open_ephemeral_directory(account)
    os.close(abandoned._lock)
    other = data_directory.open_ephemeral_directory(account)
    assert live.path.exists()
    assert not abandoned.path.exists()
    live.close()
    other.close()


@pytest.mark.parametrize("least_bytes", [0, 1 << 60])
def test_ephemeral_data_is_in_memory_if_there_is_enough(
    data: Path, monkeypatch: pytest.MonkeyPatch, least_bytes: int
) -> None:
    account = Account(os.geteuid(), os.getegid(), "us", switch=False)
    places = {name: data.parent / name for name in ("usual", "memory", "named")}
    for place in places.values():
        place.mkdir()
    monkeypatch.setattr(data_directory, "_USUAL", places["usual"])
    monkeypatch.setattr(data_directory, "_MEMORY", places["memory"])
    monkeypatch.setattr(data_directory, "_LEAST_MEMORY_BYTES", least_bytes)
    for temporary, expected in (("usual", "usual" if least_bytes else "memory"), ("named",) * 2):
        monkeypatch.setattr("tempfile.gettempdir", lambda: str(places[temporary]))  # noqa: B023
        directory = data_directory.open_ephemeral_directory(account)
        assert directory.path.parent == places[expected]
        directory.close()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("lock", ["gateway.lock", "other.lock"])
@pytest.mark.parametrize("folder", ["pgdata", "database"])
def test_a_directory_with_a_live_postgresql_is_not_swept(
    used_data: Path, monkeypatch: pytest.MonkeyPatch, lock: str, folder: str
) -> None:
    """Starts PostgreSQL as another version might: another lock file, another folder, a link on the
    way; and nobody holds the lock."""
    place = used_data.parent / "queuegate-ephemeral-other"
    used_data.rename(place)
    (place / "gateway.lock").rename(place / lock)
    (place / "pgdata").rename(place / folder)
    (used_data.parent / "link").symlink_to(place)
    os.chown(place, os.geteuid(), -1)
    place.chmod(0o711)
    os.utime(place, (0, 0))
    account = choose_account(None)
    postgres = postgres_account.find_binaries() / "postgres"
    server = subprocess.Popen(
        [postgres, "-D", used_data.parent / "link" / folder, "-k", place / folder, "-h", ""],
        stderr=subprocess.DEVNULL,
        **account.popen_options(),
    )
    try:
        until(lambda: b"ready" in (data_directory.lock_file_of(place / folder) or b""))
        data_directory._sweep(used_data.parent)
        assert (place / folder / "PG_VERSION").exists()
        assert server.poll() is None
    finally:
        server.send_signal(signal.SIGQUIT)
        server.wait()
    os.utime(place, (0, 0))
    data_directory._sweep(used_data.parent)
    assert not place.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_that_is_no_server_is_not_taken_for_one(data: Path) -> None:
    data.mkdir()
    (data / "postmaster.pid").write_text(f"{os.getpid()}\n")
    assert data_directory.running_process_id(data) is None
    (data / "postmaster.pid").write_text("what\n")
    assert data_directory.running_process_id(data) is None


async def _connect_until_refused(dsn: str) -> None:
    # The server reads pg_hba.conf when it gets to it; until then it lets everybody in.
    while True:
        await (await preflight.connect(dsn)).close()


async def test_a_wrong_password_is_one_clear_line(used_data: Path, start: Start) -> None:
    server = start(used_data)
    connection = await asyncpg.connect(server.dsn)
    await connection.execute("ALTER ROLE queuegate PASSWORD 'right'")
    (used_data / "pgdata" / "pg_hba.conf").write_text("local all all scram-sha-256\n")
    await connection.execute("SELECT pg_reload_conf()")
    await connection.close()
    wrong = server.dsn.replace("queuegate@", "queuegate:wrong@")
    with pytest.raises(preflight.DatabaseRefused, match="refuses the user or password") as refusal:
        await _connect_until_refused(wrong)
    assert "wrong" not in str(refusal.value)
