"""A gateway of the commit before and one of this tree on one database, while both are used."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import asyncpg
import pytest

from queuegate.storage.migrate import known_migrations
from tests.cli.processes import Gateway
from tests.faults.load import Load, make_queue

ROOT = Path(__file__).resolve().parents[2]
# Another commit than the parent of this one: the version that is to be exchanged.
PREVIOUS = os.environ.get("QUEUEGATE_TEST_PREVIOUS", "HEAD~1")
_FIRST_THAT_GOES_ON = "storage/functions"

pytestmark = pytest.mark.timeout(180)


class Previous(Gateway):
    """A gateway of the sources in a folder."""

    def __init__(self, sources: Path, **more: str) -> None:
        # Before there was `queuegate`, the command was one of the modules.
        self._module = "queuegate" if (sources / "queuegate").exists() else "gateway.cli"
        super().__init__(PYTHONPATH=str(sources), **more)

    def command(self) -> list[str]:
        # -P: not of the current directory.
        return [sys.executable, "-P", "-m", self._module, "serve"]


class Spread(Load):
    """A load whose clients take one gateway after the other."""

    def __init__(self, ports: list[int], queue_url: str) -> None:
        super().__init__(ports[0], queue_url)
        self._ports = itertools.cycle(ports)

    @property
    def port(self) -> int:
        return next(self._ports)

    @port.setter
    def port(self, _: int) -> None:
        """All of them are."""


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the commit before."""
    place = tmp_path_factory.mktemp("previous")
    try:
        archive = _git("archive", "--format=tar", PREVIOUS)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"git has no {PREVIOUS} here: there is no version before to run")
    subprocess.run(["tar", "-x", "-C", str(place)], input=archive, check=True)
    return place


@contextlib.contextmanager
def _both(dsn: str, previous: Path, order: str) -> Iterator[list[Gateway]]:
    """The two gateways; the first of them makes the tables."""
    makers: dict[str, Callable[[], Gateway]] = {
        "previous": lambda: Previous(previous, DATABASE_URL=dsn),
        "this": lambda: Gateway(DATABASE_URL=dsn),
    }
    with contextlib.ExitStack() as held:
        yield [held.enter_context(makers[name]()) for name in order.split(", ")]


@contextlib.asynccontextmanager
async def _loads(ports: list[int]) -> AsyncIterator[list[Load]]:
    loads: list[Load] = [
        Spread(ports, await make_queue(ports[0], name)) for name in ("load", "load.fifo")
    ]
    for load in loads:
        load.start()
    try:
        yield loads
    finally:
        for load in loads:
            load.cancel()


@pytest.mark.parametrize("order", ["previous, this", "this, previous"])
async def test_gateways_are_exchanged_one_by_one(
    own_database_dsn: str, previous: Path, order: str
) -> None:
    """Both orders: an upgrade, and a host of the old version that is started again."""
    if order == "this, previous" and not (previous / _FIRST_THAT_GOES_ON).exists():
        pytest.skip(f"{PREVIOUS} refuses every migration that it does not know")
    connection = await asyncpg.connect(own_database_dsn)
    await connection.execute("DROP SCHEMA queuegate CASCADE")
    with _both(own_database_dsn, previous, order) as gateways:
        async with _loads([int(gateway.port) for gateway in gateways]) as loads:
            await asyncio.gather(*(load.more(200) for load in loads))
            for load in loads:
                await load.end()
            await asyncio.gather(*(load.check() for load in loads))
    applied = await connection.fetch("SELECT migration_name FROM queuegate.schema_migrations")
    assert {row[0] for row in applied} >= {step.name for step in known_migrations()}
    await connection.close()
