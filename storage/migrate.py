"""Brings the database up to what this code needs, forward only: tables by migrations, each applied
once, and functions by files that are applied again whenever their revision rises.

Gateways of two versions may work on one database while they are exchanged one by one:

- ``NNNN_name.sql`` runs in a transaction at the start of the first gateway that has it, beside
  others that do not: it adds. One after which they could not go on says so in a line
  ``-- breaks older gateways: <why>``, and then they refuse the database at their next start.
- ``NNNN_name.concurrently.sql`` runs at a start, too, a statement at a time and outside of a
  transaction, for indexes that are built while others write. What it makes it drops first, if it is
  there: an attempt that was broken off leaves an index that is not valid.
- ``NNNN_name.after.sql`` takes away what only older gateways need: ``queuegate migrate --finish``
  runs it, once none is left.
- ``functions/name.sql`` begins with ``-- revision N`` and is for every version that may still run:
  arguments and results of a function stay as they are, another form gets another name. Whoever has
  a higher revision applies it; older gateways leave it alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

import asyncpg

from queuegate.storage import queries
from queuegate.storage.database import SCHEMA
from queuegate.storage.preflight import DatabaseRefused

if TYPE_CHECKING:
    from queuegate.storage.database import Connection

_SQL = queries.load("migrate")
# "QG" in ASCII, and the first use of it.
_LOCK = (0x5147, 1)
_PAUSE_SECONDS = 0.05
_BREAKS = re.compile(r"^-- breaks older gateways: ", re.MULTILINE)
_REVISION = re.compile(r"-- revision (\d+)\n")
_END_OF_STATEMENT = re.compile(r";[ \t]*$", re.MULTILINE)
# These held functions that are now in files of their own: they are as good as those without.
_AS_GOOD = {
    "0002_fifo_functions": "7e1b99b3b19698cd2ee735001d4f84830ec88449182beab7569772cde438edaf",
    "0003_topics": "d3d86f546980d98abe4db57f57d6720091078728a43b381eaa00f1aeb3c71383",
}


@dataclass(frozen=True)
class Migration:
    """One file. The checksum tells whether it was changed after it was applied."""

    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def is_breaking(self) -> bool:
        """Whether gateways that do not know it cannot go on."""
        return _BREAKS.search(self.text) is not None

    @property
    def is_last(self) -> bool:
        """Whether it waits until no gateway is left that does not know it."""
        return self.name.endswith(".after")

    @property
    def is_concurrent(self) -> bool:
        """Whether its statements run one by one, outside of a transaction."""
        return self.name.endswith(".concurrently")


@dataclass(frozen=True)
class Functions:
    """One file of functions."""

    name: str
    text: str
    is_last = False

    @property
    def revision(self) -> int:
        found = _REVISION.match(self.text)
        assert found is not None, f"functions/{self.name}.sql begins without its revision"
        return int(found[1])


Step = Migration | Functions


def known_migrations() -> list[Migration]:
    """Every migration that this code has, in order."""
    return [Migration(name, text) for name, text in _files("migrations")]


def known_functions() -> list[Functions]:
    """Every file of functions that this code has."""
    return [Functions(name, text) for name, text in _files("functions")]


def _known() -> list[Step]:
    return [*known_migrations(), *known_functions()]


def _files(folder: str) -> list[tuple[str, str]]:
    files = [
        file
        for file in resources.files("queuegate.storage").joinpath(folder).iterdir()
        if file.name.endswith(".sql")
    ]
    return sorted((file.name.removesuffix(".sql"), file.read_text("utf-8")) for file in files)


async def migrate(
    connection: Connection, steps: Sequence[Step] | None = None, *, finish: bool = False
) -> list[str]:
    """Apply what is missing and return the names; two queries when nothing is.

    Any number of processes may call this at once. ``finish``: also what older gateways would miss.
    DatabaseRefused when a newer version has left tables that this one cannot work with, when a file
    was changed after it was applied, or when a right is missing.
    """
    known = _known() if steps is None else list(steps)
    if not await pending(connection, known, finish=finish):
        return []
    done = []
    async with _alone(connection):
        # Another process may have been here while we waited.
        for step in await pending(connection, known, finish=finish):
            await _apply(connection, step)
            done.append(step.name if isinstance(step, Migration) else f"functions/{step.name}")
    return done


async def pending(
    connection: Connection, steps: Sequence[Step] | None = None, *, finish: bool = False
) -> list[Step]:
    """What is still to be applied, in order; DatabaseRefused when the database is not ours.

    Without ``finish`` what has to wait for the last older gateway does not count.
    """
    known = _known() if steps is None else list(steps)
    try:
        applied = await connection.fetch(_SQL["applied_migrations"].text)
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        applied = []
    except asyncpg.InsufficientPrivilegeError as error:
        raise DatabaseRefused(_missing_right(error)) from None
    try:
        functions = await connection.fetch(_SQL["applied_functions"].text)
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        functions = []
    return [step for step in _missing(known, applied, functions) if finish or not step.is_last]


def _missing(
    known: Sequence[Step], applied: Sequence[asyncpg.Record], functions: Sequence[asyncpg.Record]
) -> list[Step]:
    checksums = {step.name: step.checksum for step in known if isinstance(step, Migration)}
    for row in applied:
        name = row["migration_name"]
        if name not in checksums:
            if row["is_breaking"]:
                raise DatabaseRefused(
                    f"the database was migrated by a newer Queuegate (it has {name}): run that "
                    "version or a later one, or give this one a database of its own"
                )
        elif row["checksum"] not in (checksums[name], _AS_GOOD.get(name)):
            raise DatabaseRefused(
                f"migration {name} is not the one that was applied to this database: run the "
                "version that applied it, or start with an empty database"
            )
    names = {row["migration_name"] for row in applied}
    revisions = {row["file_name"]: row["revision"] for row in functions}
    return [
        step
        for step in known
        if (
            step.name not in names
            if isinstance(step, Migration)
            else step.revision > revisions.get(step.name, 0)
        )
    ]


async def _apply(connection: Connection, step: Step) -> None:
    try:
        if isinstance(step, Migration) and step.is_concurrent:
            for statement in filter(str.strip, _END_OF_STATEMENT.split(step.text)):
                await connection.execute(statement)
            await connection.execute(_SQL["record_migration"].text, step.name, step.checksum)
            return
        async with connection.transaction():
            await connection.execute(step.text)
            if isinstance(step, Functions):
                await connection.execute(_SQL["record_functions"].text, step.name, step.revision)
                return
            await connection.execute(_SQL["record_migration"].text, step.name, step.checksum)
            if step.is_breaking:
                await connection.execute(_SQL["record_breaking"].text, step.name)
    except asyncpg.InsufficientPrivilegeError as error:
        raise DatabaseRefused(_missing_right(error)) from None
    except asyncpg.ReadOnlySQLTransactionError:
        raise DatabaseRefused(
            "the database takes no writes (a standby, or default_transaction_read_only): name "
            "the primary in DATABASE_URL"
        ) from None


@asynccontextmanager
async def _alone(connection: Connection) -> AsyncIterator[None]:
    """No other process migrates meanwhile, and names without a schema are ours.

    Whoever waits asks again and again: one that waited in a statement would have a snapshot, for
    whose end the building of an index waits in turn.
    """
    while not await connection.fetchval(_SQL["try_to_be_alone"].text, *_LOCK):  # noqa: ASYNC110
        await asyncio.sleep(_PAUSE_SECONDS)
    try:
        await connection.fetchval(_SQL["use_schema"].text, SCHEMA)
        yield
    finally:
        if not connection.is_closed():
            await connection.fetchval(_SQL["let_others"].text, *_LOCK)


def _missing_right(error: asyncpg.PostgresError) -> str:
    return (
        f"the database user lacks a right ({error}): Queuegate keeps everything in the schema "
        f"{SCHEMA}; let the user create it (GRANT CREATE ON DATABASE ... TO ...) or own it"
    )
