"""A PostgreSQL that takes TLS only: what sslmode and its files in DATABASE_URL do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import asyncpg
import pytest

from queuegate.storage.database import Database
from queuegate.storage.embedded.data_directory import hand_over, open_ephemeral_directory
from queuegate.storage.embedded.postgres_account import choose_account
from tests.cli.processes import Gateway, run
from tests.faces.clients import Sqs
from tests.ports import reserved_port
from tests.protocol.certificates import write_pair

BY_CERTIFICATE = "sns.test"
"""A user whose certificate says who it is: the name in those of ``write_pair``."""


def binaries() -> Path | None:
    """Those of a PostgreSQL that can speak TLS, which the bundled one cannot."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), reverse=True)
    on_path = shutil.which("postgres")
    for program in (*found, *([Path(on_path)] if on_path else [])):
        linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
        if "libssl" in linked.stdout:
            return program.parent
    return None


pytestmark = pytest.mark.skipif(binaries() is None, reason="no PostgreSQL with TLS is installed")


class Cluster:
    """A PostgreSQL on a port, run by whoever runs the bundled one."""

    def __init__(self, folder: Path, *, speaks_tls: bool = True) -> None:
        found = binaries()
        assert found is not None
        self._binaries, self._folder = found, folder
        self._account = choose_account(None)
        self._reserved = contextlib.ExitStack()
        self.port = self._reserved.enter_context(reserved_port())
        self.ca, self.key = write_pair(folder)
        self.key.chmod(0o600)
        for path in (self.ca, self.key):
            hand_over(path, self._account)
        self._run("initdb", "-D", "data", "-U", "queuegate", "--auth=trust", "--no-sync")
        kind = "hostssl" if speaks_tls else "host"
        lines = f"{kind} all queuegate 127.0.0.1/32 trust\n"
        settings = f"port={self.port}\nfsync=off\nunix_socket_directories=''\n"
        if speaks_tls:
            lines += f"hostssl all {BY_CERTIFICATE} 127.0.0.1/32 cert\n"
            settings += f"ssl=on\nssl_ca_file='{self.ca}'\n"
            settings += f"ssl_cert_file='{self.ca}'\nssl_key_file='{self.key}'\n"
        (folder / "data" / "pg_hba.conf").write_text(lines)
        with (folder / "data" / "postgresql.conf").open("a") as file:
            file.write(settings)
        self._run("pg_ctl", "-D", "data", "-w", "-l", "log", "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", "data", "-w", "-m", "immediate", "stop")
        self._reserved.close()

    def url(self, user: str = "queuegate", host: str = "127.0.0.1", **query: object) -> str:
        return f"postgresql://{user}@{host}:{self.port}/postgres?{urlencode(query)}"

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self._binaries / program, *arguments],
            cwd=self._folder,
            env={**os.environ, "LC_ALL": "C"},
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=60,
            **self._account.popen_options(),
        )


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[Cluster, Cluster]]:
    """One that takes TLS only, and one that speaks none."""
    directory = open_ephemeral_directory(choose_account(None))
    started: list[Cluster] = []
    try:
        for name in ("tls", "plain"):
            started.append(Cluster(directory.make(name), speaks_tls=name == "tls"))
        yield started[0], started[1]
    finally:
        for cluster in started:
            cluster.stop()
        directory.close()


@pytest.fixture(scope="module")
def cluster(clusters: tuple[Cluster, Cluster]) -> Cluster:
    return clusters[0]


async def ask(dsn: str, statement: str) -> Any:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


OUTSIDE_OF_TLS = """
SELECT count(*) FROM pg_stat_activity JOIN pg_stat_ssl USING (pid)
WHERE application_name LIKE 'queuegate%' AND NOT ssl
"""
WITHIN = OUTSIDE_OF_TLS.replace("NOT ssl", "ssl")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_each_connection_of_a_gateway_is_tls(cluster: Cluster, workers: str) -> None:
    dsn = cluster.url(sslmode="verify-full", sslrootcert=cluster.ca)
    with Gateway("--workers", workers, DATABASE_URL=dsn) as gateway:
        with Sqs("json", gateway.url) as sqs:
            url = sqs.create()
            sqs.send(url, "x")
            assert sqs.bodies(url, 1) == ["x"]
        assert asyncio.run(ask(dsn, OUTSIDE_OF_TLS)) == 0
        # Pool, listener and lanes.
        assert asyncio.run(ask(dsn, WITHIN)) >= 4
        for command in (("keys", "list"), ("deliveries", "summary"), ("migrate",), ("doctor",)):
            done = run(*command, DATABASE_URL=dsn, QUEUEGATE_PORT="0")
            assert done.returncode == 0, done.stderr + done.stdout


def test_the_server_gives_up_on_a_client_that_is_gone(clusters: tuple[Cluster, Cluster]) -> None:
    """Half a minute after it: it holds locks until then. Only over TCP does a server show it."""

    async def settings() -> list[int]:
        database = Database(clusters[1].url())
        await database.open()
        connection = await database.connect()
        try:
            query = "SELECT setting::int FROM pg_settings WHERE name = 'tcp_user_timeout'"
            async with database.transaction() as tx:
                return [await connection.fetchval(query), await tx.fetchval(query)]
        finally:
            await connection.close()
            await database.close()

    assert all(0 < seconds <= 30_000 for seconds in asyncio.run(settings()))


@pytest.mark.parametrize("mode", ["", "allow", "prefer", "require"])
def test_modes_that_verify_nothing_are_let_in(cluster: Cluster, mode: str) -> None:
    dsn = cluster.url(sslmode=mode) if mode else cluster.url()
    assert asyncio.run(ask(dsn, "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"))
    assert run("migrate", DATABASE_URL=dsn).returncode == 0


def test_a_client_has_a_certificate(cluster: Cluster) -> None:
    asyncio.run(ask(cluster.url(), f'CREATE ROLE "{BY_CERTIFICATE}" SUPERUSER LOGIN'))
    known: dict[str, Any] = {"sslmode": "verify-full", "sslrootcert": cluster.ca}
    files: dict[str, Any] = {"sslcert": cluster.ca, "sslkey": cluster.key}
    dsn = cluster.url(BY_CERTIFICATE, **known, **files)
    done = run("migrate", DATABASE_URL=dsn)
    assert done.returncode == 0, done.stderr
    done = run("migrate", DATABASE_URL=cluster.url(BY_CERTIFICATE, **known))
    assert done.returncode == 1
    assert "does not let this user in (" in done.stderr


def refusal(dsn: str) -> str:
    """Return the one-line error of a command for this URL; no file content may be in it."""
    done = run("migrate", DATABASE_URL=dsn)
    assert done.returncode == 1
    assert done.stderr.startswith("queuegate: ")
    assert done.stderr.count("\n") == 1
    assert "BEGIN" not in done.stderr
    return done.stderr


def test_who_is_refused_is_told_why(clusters: tuple[Cluster, Cluster], tmp_path: Path) -> None:
    cluster, plain = clusters
    strange, other_key = write_pair(tmp_path)
    place = f"127.0.0.1:{cluster.port}/postgres"
    told = refusal(cluster.url(sslmode="disable"))
    assert place in told
    assert "sslmode=disable" in told
    told = refusal(cluster.url(sslmode="verify-full", sslrootcert=strange))
    assert f"the certificate of {place}" in told
    assert "sslrootcert" in told
    for mode in ("verify-ca", "verify-full"):
        told = refusal(cluster.url(sslmode=mode, sslrootcert="/nowhere/ca.pem"))
        assert "/nowhere/ca.pem" in told
        assert "no PostgreSQL answers" not in told
    # Its certificate names an address.
    told = refusal(cluster.url(host="localhost", sslmode="verify-full", sslrootcert=cluster.ca))
    assert "for another host" in told
    named = cluster.url(host="localhost", sslmode="verify-ca", sslrootcert=cluster.ca)
    assert run("migrate", DATABASE_URL=named).returncode == 0
    told = refusal(plain.url(sslmode="require"))
    assert f"127.0.0.1:{plain.port}/postgres speaks no TLS" in told
    assert run("migrate", DATABASE_URL=plain.url(sslmode="prefer")).returncode == 0
    told = refusal(cluster.url(sslmode="require", sslcert=cluster.ca, sslkey=other_key))
    assert "DATABASE_URL" in told
    assert "sslmode" in refusal(cluster.url(sslmode="please"))


def test_a_gateway_does_not_start_without_what_the_database_wants(cluster: Cluster) -> None:
    done = run("serve", "--port", "0", DATABASE_URL=cluster.url(sslmode="disable"))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    done = run("doctor", "--port", "0", DATABASE_URL=cluster.url(sslmode="disable"))
    assert "FAIL  database: " in done.stdout
