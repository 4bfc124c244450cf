"""PgBouncer with the configuration of docs/how-to/pgbouncer.md in front of a real PostgreSQL."""

from __future__ import annotations

import asyncio
import configparser
import contextlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from functools import cache
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import psutil  # type: ignore[import-untyped]
import pytest

from queuegate.storage import preflight
from queuegate.storage.embedded.postgres_account import choose_account
from tests.cli.processes import Gateway, run
from tests.faces.clients import Sqs, new_account
from tests.ports import reserved_port
from tests.waiting import until

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/pgbouncer.md"
PROGRAM = shutil.which("pgbouncer", path="/usr/sbin:/usr/local/bin:/usr/bin")
TRACKS_STATEMENTS = (1, 21)


@cache
def _version() -> tuple[int, ...]:
    if PROGRAM is None:
        return (0,)
    printed = subprocess.run([PROGRAM, "--version"], check=True, capture_output=True, text=True)
    found = re.search(r"PgBouncer (\d+)\.(\d+)", printed.stdout)
    assert found is not None
    return int(found[1]), int(found[2])


pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="there is no pgbouncer (Debian: apt-get install pgbouncer)"
)


class PgBouncer:
    """A process with the configurations of the page: the first, and perhaps the second on top."""

    def __init__(self, dsn: str, port: int, folder: Path, *, by_transaction: bool) -> None:
        first, *more = re.findall(r"^```ini\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.M)
        server = urlsplit(dsn)
        user, password, name = server.username, server.password, server.path[1:]
        assert user is not None
        [host] = parse_qs(server.query)["host"]
        settings = configparser.ConfigParser()
        settings.read_string(first)
        if by_transaction:
            settings.read_string(more[0])
        (folder / "userlist.txt").write_text(f'"{user}" "{password}"\n')
        settings["databases"]["queuegate"] = f"host={host} port=5432 dbname={name}"
        own = settings["pgbouncer"]
        own["listen_port"], own["auth_file"] = str(port), str(folder / "userlist.txt")
        own["unix_socket_dir"] = ""
        if _version() < TRACKS_STATEMENTS:
            own.pop("max_prepared_statements", None)
        self._file = folder / "pgbouncer.ini"
        with self._file.open("w") as file:
            settings.write(file)
        self._port = port
        self.dsn = f"postgresql://{user}:{password}@127.0.0.1:{port}/queuegate"
        self.start()

    def start(self) -> None:
        assert PROGRAM is not None
        self._process = subprocess.Popen(
            [PROGRAM, "--quiet", self._file],
            stderr=subprocess.DEVNULL,
            **choose_account(None).popen_options(),
        )
        until(self._listens)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)

    def clients(self) -> int:
        """Return the number of its clients."""
        found = psutil.Process(self._process.pid).net_connections()
        return sum(one.raddr != () and one.laddr.port == self._port for one in found)

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port)):
            return True
        return False


@contextlib.contextmanager
def _pgbouncer(dsn: str, *, by_transaction: bool = False) -> Iterator[PgBouncer]:
    with tempfile.TemporaryDirectory() as name, reserved_port() as port:
        Path(name).chmod(0o755)
        pgbouncer = PgBouncer(dsn, port, Path(name), by_transaction=by_transaction)
        try:
            yield pgbouncer
        finally:
            pgbouncer.stop()


@pytest.fixture
async def pgbouncer(own_database_dsn: str) -> AsyncIterator[PgBouncer]:
    """In session mode."""
    with _pgbouncer(own_database_dsn) as pgbouncer:
        yield pgbouncer


def _cycle(*gateways: Gateway) -> None:
    """A message from the first gateway to a receive that waits at the last one, and its delete."""
    with Sqs("json", gateways[0].url) as sender, Sqs("json", gateways[-1].url) as receiver:
        name = f"q{new_account()}"
        for url in (sender.create(name), sender.create_fifo(f"{name}.fifo")):
            sender.send(url, MessageGroupId="g")
            [message] = receiver.receive(url, WaitTimeSeconds=20)
            receiver.delete(url, message)
            assert gateways[0].get("/readyz")[0] == 200


async def test_session_mode_serves_two_gateways(pgbouncer: PgBouncer) -> None:
    """It carries every connection, notifications between the gateways included."""

    def serve() -> None:
        with Gateway(DATABASE_URL=pgbouncer.dsn) as one, Gateway(DATABASE_URL=pgbouncer.dsn) as two:
            _cycle(one, two)

    done = await asyncio.to_thread(run, "doctor", "--port", "0", DATABASE_URL=pgbouncer.dsn)
    assert done.returncode == 0, done.stdout
    await asyncio.to_thread(serve)


async def test_sessions_are_direct_and_the_rest_is_pooled(
    pgbouncer: PgBouncer, own_database_dsn: str
) -> None:
    """Without its pooler a gateway answers 503, and serves again when that is back."""
    both = {"DATABASE_URL": pgbouncer.dsn, "QUEUEGATE_DIRECT_DATABASE_URL": own_database_dsn}
    done = await asyncio.to_thread(run, "doctor", "--port", "0", **both)
    assert "session mode" in done.stdout
    assert done.returncode == 0, done.stdout

    def serve() -> None:
        with Gateway("--workers", "2", **both) as gateway:
            _cycle(gateway)
            assert 0 < pgbouncer.clients() <= 20, "pools have ten connections a process"
            pgbouncer.stop()
            until(lambda: gateway.get("/readyz")[0], lambda status: status == 503)
            pgbouncer.start()
            until(lambda: gateway.get("/readyz")[0], lambda status: status == 200)
            _cycle(gateway)

    await asyncio.to_thread(serve)


async def test_another_database_behind_the_pooler_is_refused(
    pgbouncer: PgBouncer, database_dsn: str
) -> None:
    both = {"DATABASE_URL": pgbouncer.dsn, "QUEUEGATE_DIRECT_DATABASE_URL": database_dsn}
    done = await asyncio.to_thread(run, "serve", "--port", "0", **both)
    assert done.returncode == 1
    assert "is not the database of QUEUEGATE_DIRECT_DATABASE_URL" in done.stderr
    assert done.stderr.count("\n") == 1


async def test_transaction_mode_needs_statements_that_follow_their_client(
    own_database_dsn: str,
) -> None:
    if _version() >= TRACKS_STATEMENTS:
        pytest.skip(f"PgBouncer {_version()} follows them")
    with _pgbouncer(own_database_dsn, by_transaction=True) as pgbouncer:
        both = {"DATABASE_URL": pgbouncer.dsn, "QUEUEGATE_DIRECT_DATABASE_URL": own_database_dsn}
        for command in ("serve", "worker", "doctor"):
            place = () if command == "worker" else ("--port", "0")
            done = await asyncio.to_thread(run, command, *place, **both)
            assert done.returncode == 1, done.stdout
            assert "needs PgBouncer 1.21 or newer" in done.stdout + done.stderr
            assert "Traceback" not in done.stderr


async def test_a_check_leaves_no_relaxed_commits_in_a_pool_of_transactions(
    own_database_dsn: str,
) -> None:
    with _pgbouncer(own_database_dsn, by_transaction=True) as pgbouncer:
        with pytest.raises(preflight.DatabaseRefused, match="keeps no session"):
            await preflight.connect(pgbouncer.dsn)
        clients = [await asyncpg.connect(pgbouncer.dsn, statement_cache_size=0) for _ in range(3)]
        begun = [client.transaction() for client in clients]
        for client, transaction in zip(clients, begun, strict=True):
            await transaction.start()
            # As synchronous_commit, which the servers of tests have off.
            assert await client.fetchval("SHOW enable_seqscan") == "on"
        for client, transaction in zip(clients, begun, strict=True):
            await transaction.rollback()
            await client.close()


@pytest.mark.skipif(
    (0,) < _version() < TRACKS_STATEMENTS,
    reason=f"PgBouncer {_version()} has no max_prepared_statements: 1.21 has",
)
async def test_transaction_mode_serves_once_its_sessions_begin_right(own_database_dsn: str) -> None:
    with _pgbouncer(own_database_dsn, by_transaction=True) as pgbouncer:
        both = {"DATABASE_URL": pgbouncer.dsn, "QUEUEGATE_DIRECT_DATABASE_URL": own_database_dsn}
        done = await asyncio.to_thread(run, "serve", "--port", "0", **both)
        assert "run ALTER ROLE" in done.stderr
        connection = await asyncpg.connect(own_database_dsn)
        database = await connection.fetchval("SELECT quote_ident(current_database())")
        # The role is that of other tests, too.
        await connection.execute(f"ALTER DATABASE {database} SET search_path = queuegate")
        await connection.close()
        pgbouncer.stop()
        pgbouncer.start()

        def serve() -> None:
            with Gateway(**both) as one, Gateway(**both) as two:
                _cycle(one, two)

        await asyncio.to_thread(serve)
