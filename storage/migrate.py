"""Forward-only changes of the database: tables by migrations, each applied once, and functions by
files, reapplied whenever their revision rises.

Gateways of two versions may use one database during a rolling upgrade:

- ``NNNN_name.sql`` runs in a transaction at the start of the first gateway that has it, beside
  older gateways: it only adds. A migration that older gateways cannot work with has a line
  ``-- breaks older gateways: <why>``; they then refuse the database at their next start.
- ``NNNN_name.concurrently.sql`` runs at a start, too, one statement at a time outside of a
  transaction, for indexes built during writes. It first drops its objects, because an aborted
  attempt leaves an invalid index.
- ``NNNN_name.after.sql`` removes objects that only older gateways need: ``queuegate
  migrate --finish`` runs it after the last one is stopped.
- ``functions/name.sql`` begins with ``-- revision N`` and serves every version that may still run:
  arguments and results of a function never change, a new form gets a new name. The gateway with the
  highest revision applies it; older gateways leave it.
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
# "QG" in ASCII, first use.
_LOCK = (0x5147, 1)
_PAUSE_SECONDS = 0.05
_BREAKS = re.compile(r"^-- breaks older gateways: ", re.MULTILINE)
_REVISION = re.compile(r"-- revision (\d+)\n")
_END_OF_STATEMENT = re.compile(r";[ \t]*$", re.MULTILINE)
# Earlier texts of these, with functions that are now in files of their own, are equivalent.
_AS_GOOD = {
    "0002_fifo_functions": "7e1b99b3b19698cd2ee735001d4f84830ec88449182beab7569772cde438edaf",
    "0003_topics": "d3d86f546980d98abe4db57f57d6720091078728a43b381eaa00f1aeb3c71383",
}


@dataclass(frozen=True)
class Migration:
    """One file. The checksum detects a change after it was applied."""

    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    def is_same(self, checksum: str) -> bool:
        """Return True if the file with this checksum makes the same tables."""
        return checksum in (self.checksum, _AS_GOOD.get(self.name))

    @property
    def is_breaking(self) -> bool:
        """Return True if gateways without it cannot continue."""
        return _BREAKS.search(self.text) is not None

    @property
    def is_last(self) -> bool:
        """Return True if it waits until all gateways have it."""
        return self.name.endswith(".after")

    @property
    def is_concurrent(self) -> bool:
        """Return True if its statements run one by one, outside of a transaction."""
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
    """Return every migration of this version, in order."""
    return [Migration(name, text) for name, text in _files("migrations")]


def known_functions() -> list[Functions]:
    """Return every file of functions of this version."""
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
    """Apply missing steps and return their names; two queries if none is missing.

    Any number of processes may call this at once. ``finish``: also steps that older gateways cannot
    work with. DatabaseRefused if a newer version has left incompatible tables, if a file was
    changed after it was applied, or if a permission is missing.
    """
    known = _known() if steps is None else list(steps)
    if not await pending(connection, known, finish=finish):
        return []
    done = []
    async with alone(connection):
        # Another process may have applied them meanwhile.
        for step in await pending(connection, known, finish=finish):
            await apply(connection, step)
            done.append(step.name if isinstance(step, Migration) else f"functions/{step.name}")
    return done


async def pending(
    connection: Connection, steps: Sequence[Step] | None = None, *, finish: bool = False
) -> list[Step]:
    """Return the steps to apply, in order; DatabaseRefused if the database does not fit.

    Without ``finish``, steps that wait for the last older gateway are excluded.
    """
    known = _known() if steps is None else list(steps)
    applied = await _rows_if_any(connection, _SQL["applied_migrations"].text)
    functions = await _rows_if_any(connection, _SQL["applied_functions"].text)
    return [step for step in _missing(known, applied, functions) if finish or not step.is_last]


async def applied_checksums(connection: Connection) -> dict[str, str]:
    """Return the checksums of the applied migrations by name."""
    rows = await _rows_if_any(connection, _SQL["applied_migrations"].text)
    return {row["migration_name"]: row["checksum"] for row in rows}


async def _rows_if_any(connection: Connection, statement: str) -> list[asyncpg.Record]:
    """Return the rows; none if there is no such table yet."""
    try:
        return await connection.fetch(statement)
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        return []
    except asyncpg.InsufficientPrivilegeError as error:
        raise DatabaseRefused(_missing_right(error)) from None


def _missing(
    known: Sequence[Step], applied: Sequence[asyncpg.Record], functions: Sequence[asyncpg.Record]
) -> list[Step]:
    migrations = {step.name: step for step in known if isinstance(step, Migration)}
    for row in applied:
        name = row["migration_name"]
        if name not in migrations:
            if row["is_breaking"]:
                raise DatabaseRefused(
                    f"the database was migrated by a newer Queuegate (it has {name}): run that "
                    "version or a later one, or give this one a database of its own"
                )
        elif not migrations[name].is_same(row["checksum"]):
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


async def apply(connection: Connection, step: Step) -> None:
    """Apply and record one step. Within a transaction, indexes are not built concurrently."""
    try:
        if isinstance(step, Migration) and step.is_concurrent:
            text = step.text
            if connection.is_in_transaction():
                text = text.replace(" CONCURRENTLY", "")
            for statement in filter(str.strip, _END_OF_STATEMENT.split(text)):
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
async def alone(connection: Connection) -> AsyncIterator[None]:
    """Exclude other processes from migrations, and use our schema by default.

    Waiters poll: a waiting statement would have a snapshot, and an index build waits for its end.
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
