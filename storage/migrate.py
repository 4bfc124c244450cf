"""Brings the tables up to what this code needs: forward only, one transaction for each file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

import asyncpg

from storage import queries
from storage.database import SCHEMA
from storage.preflight import DatabaseRefused

if TYPE_CHECKING:
    from storage.database import Connection

_SQL = queries.load("migrate")
# "QG" in ASCII, and the first use of it.
_LOCK = (0x5147, 1)


@dataclass(frozen=True)
class Migration:
    """One file. The checksum tells whether it was changed after it was applied."""

    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def known_migrations() -> list[Migration]:
    """Every migration that this code has, in order."""
    directory = resources.files("storage").joinpath("migrations")
    files = sorted(
        (file for file in directory.iterdir() if file.name.endswith(".sql")),
        key=lambda file: file.name,
    )
    return [Migration(file.name.removesuffix(".sql"), file.read_text("utf-8")) for file in files]


async def migrate(
    connection: Connection, migrations: Sequence[Migration] | None = None
) -> list[str]:
    """Apply what is missing and return the names; one query when nothing is.

    Any number of processes may call this at once. DatabaseRefused when the database was migrated by
    a newer version, when a file was changed after it was applied, or when a right is missing.
    """
    known = known_migrations() if migrations is None else list(migrations)
    done = []
    for migration in await pending(connection, known):
        if await _apply(connection, migration, known):
            done.append(migration.name)
    return done


async def pending(
    connection: Connection, migrations: Sequence[Migration] | None = None
) -> list[Migration]:
    """The migrations still to be applied; DatabaseRefused when the database is not ours."""
    known = known_migrations() if migrations is None else list(migrations)
    try:
        rows = await connection.fetch(_SQL["applied_migrations"].text)
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        rows = []
    except asyncpg.InsufficientPrivilegeError as error:
        raise DatabaseRefused(_missing_right(error)) from None
    return _missing(known, rows)


def _missing(known: Sequence[Migration], rows: Sequence[asyncpg.Record]) -> list[Migration]:
    checksums = {migration.name: migration.checksum for migration in known}
    for row in rows:
        name = row["migration_name"]
        if name not in checksums:
            raise DatabaseRefused(
                f"the database was migrated by a newer Queuegate (it has {name}): run that version "
                "or a later one, or give this one a database of its own"
            )
        if row["checksum"] != checksums[name]:
            raise DatabaseRefused(
                f"migration {name} is not the one that was applied to this database: run the "
                "version that applied it, or start with an empty database"
            )
    applied = {row["migration_name"] for row in rows}
    return [migration for migration in known if migration.name not in applied]


async def _apply(connection: Connection, migration: Migration, known: Sequence[Migration]) -> bool:
    try:
        async with connection.transaction():
            await connection.fetchval(_SQL["lock_migrations"].text, *_LOCK)
            rows: Sequence[asyncpg.Record] = []
            if await connection.fetchval(_SQL["has_bookkeeping"].text):
                rows = await connection.fetch(_SQL["applied_migrations"].text)
            # Another process may have been here while we waited for the lock.
            if migration.name not in {one.name for one in _missing(known, rows)}:
                return False
            await connection.fetchval(_SQL["use_schema"].text, SCHEMA)
            await connection.execute(migration.text)
            await connection.execute(
                _SQL["record_migration"].text, migration.name, migration.checksum
            )
    except asyncpg.InsufficientPrivilegeError as error:
        raise DatabaseRefused(_missing_right(error)) from None
    except asyncpg.ReadOnlySQLTransactionError:
        raise DatabaseRefused(
            "the database takes no writes (a standby, or default_transaction_read_only): name "
            "the primary in DATABASE_URL"
        ) from None
    return True


def _missing_right(error: asyncpg.PostgresError) -> str:
    return (
        f"the database user lacks a right ({error}): Queuegate keeps everything in the schema "
        f"{SCHEMA}; let the user create it (GRANT CREATE ON DATABASE ... TO ...) or own it"
    )
