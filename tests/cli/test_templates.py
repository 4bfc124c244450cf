"""Templates of ephemeral clusters: copied if they are whole, and never needed."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncpg
import pytest

from queuegate.storage.embedded.cluster_templates import ClusterTemplate
from queuegate.storage.embedded.embedded_server import EmbeddedPostgres
from queuegate.storage.embedded.postgres_account import find_binaries
from tests.cli.processes import Gateway
from tests.faces.connections import fetch


def start(cache: Path) -> bool:
    """Start a cluster, create a table, and stop it; True: it was a copy."""
    server = EmbeddedPostgres(ephemeral=True, cache=cache)
    try:
        server.start()
        server.wait_ready()
        server.keep_template()
        asyncio.run(_run(server.dsn, "CREATE TABLE public.mine (id int)"))
    finally:
        server.stop()
    assert not server.data_dir.exists()
    return server.is_migrated


async def _run(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(statement)
    await connection.close()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cache = tmp_path_factory.mktemp("cache")
    assert not start(cache)
    return cache


@pytest.fixture
def template(kept: Path, tmp_path: Path) -> Path:
    """A template that a test may damage, alone in its cache."""
    subprocess.run(["cp", "-a", str(kept), str(tmp_path / "cache")], check=True)
    [template] = (tmp_path / "cache").iterdir()
    return template


def test_a_copy_has_nothing_of_another_start(kept: Path) -> None:
    assert start(kept)
    assert start(kept)


def test_starts_at_once_copy_one_template(kept: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(start, [kept] * 4))


def _truncate(template: Path) -> None:
    (template / "pgdata" / "global" / "pg_control").write_bytes(b"")


def _lose_a_file(template: Path) -> None:
    next((template / "pgdata" / "base").glob("*/1249")).unlink()


def _lose_the_manifest(template: Path) -> None:
    (template / "manifest").unlink()


def _lose_contents(template: Path) -> None:
    """PostgreSQL does not start on the copy."""
    control = template / "pgdata" / "global" / "pg_control"
    control.write_bytes(bytes(control.stat().st_size))


def _place_a_link(template: Path) -> None:
    (template / "pgdata" / "base" / "link").symlink_to("/etc/passwd")


@pytest.mark.parametrize(
    "damage", [_truncate, _lose_a_file, _lose_the_manifest, _lose_contents, _place_a_link]
)
def test_a_damaged_template_is_replaced(template: Path, damage: Callable[[Path], None]) -> None:
    damage(template)
    assert not start(template.parent)
    assert start(template.parent)


@pytest.mark.parametrize("is_cache", [False, True])
def test_a_template_that_others_can_change_is_not_used(template: Path, is_cache: bool) -> None:
    """Another user who can change the cache can place a directory of this user there."""
    (template.parent if is_cache else template).chmod(0o777)
    assert not start(template.parent)


def test_a_cache_that_cannot_be_written_is_not_needed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert not start(tmp_path / "file" / "cache")


def test_another_postgresql_has_another_template(kept: Path, tmp_path: Path) -> None:
    binaries = tmp_path / "bin"
    binaries.mkdir()
    (binaries / "postgres").write_bytes(b"another version")
    ours, other = ClusterTemplate(kept, find_binaries()), ClusterTemplate(kept, binaries)
    assert (ours.path == other.path, other.path.parent) == (False, kept)


def test_files_that_others_placed_are_not_copied(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of root")
    for link in (Path.hardlink_to, Path.symlink_to):
        pgdata = tmp_path / link.__name__
        pgdata.mkdir()
        link(pgdata / "pg_control", secret)
        template = ClusterTemplate(tmp_path / "cache", find_binaries())
        assert template.keep(pgdata, b"") is None
        assert list((tmp_path / "cache").iterdir()) == []


def test_a_gateway_starts_from_a_template_and_keeps_its_bytecode_there(tmp_path: Path) -> None:
    more = {"XDG_CACHE_HOME": str(tmp_path), "QUEUEGATE_LOG_LEVEL": "error"}
    for _ in range(2):
        with Gateway("--ephemeral", PYTHONDONTWRITEBYTECODE="1", **more) as gateway:
            listed = fetch(gateway.url, "/", "POST", b"Action=ListQueues", Authorization="any")
            assert (listed.status, b"QueueUrl" in listed.body) == (200, False)
            made = b"Action=CreateQueue&QueueName=q"
            assert fetch(gateway.url, "/", "POST", made, Authorization="any").status == 200
    names = sorted(path.name.partition("-")[0] for path in (tmp_path / "queuegate").iterdir())
    assert names == ["bytecode", "cluster"]
    assert [*(tmp_path / "queuegate" / "bytecode").rglob("gateway_process*.pyc")]
