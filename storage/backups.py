"""Backups: a file with all rows of one instant, which another database restores.

The file is a zip archive:

    <table>.copy     the rows of a table, as text of PostgreSQL's COPY
    manifest.json    version, migrations, sequences; columns, rows and checksum of each table, of
                     which one stands behind those that it refers to

It has no schema: a restore applies the migrations of the file, loads the rows, and applies the
migrations that this version has besides. So it needs no superuser, and no program that fits the
version of the server.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from graphlib import TopologicalSorter
from importlib.metadata import version
from typing import IO, TYPE_CHECKING, Any
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

from queuegate.storage import migrate, preflight
from queuegate.storage.database import SCHEMA
from queuegate.storage.database_hosts import FAILURES
from queuegate.storage.preflight import DatabaseRefused
from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Connection

_SQL = load("backups")
_FORMAT = 1
"""Raise this number when older versions cannot read the file."""
_MANIFEST = "manifest.json"
_CHUNK_BYTES = 1 << 18
_UNREADABLE = (BadZipFile, zlib.error, EOFError, KeyError, TypeError, ValueError, RuntimeError)
"""Exceptions of zipfile and json about damaged contents."""

Progress = Callable[[int], None]
"""Called with the number of further rows."""


class BackupRefused(DatabaseRefused):
    """A backup cannot be made or restored; the text is one line with the reason and the remedy."""


async def back_up(dsn: str, file: IO[bytes], progress: Progress) -> dict[str, int]:
    """Write all rows that are committed now; return their numbers by table. Writers are not
    blocked; migrations wait. Raises DatabaseRefused."""
    async with _transaction(dsn, isolation="repeatable_read", readonly=True) as connection:
        found = await _SQL["tables"].rows(connection, SCHEMA)
        if not found:
            raise BackupRefused(f"there is no data of Queuegate in {preflight.shown(dsn)}")
        rows = {row["table_name"]: row for row in found}
        order = TopologicalSorter({name: row["parents"] for name, row in rows.items()})
        # Level 1: the default level takes twice as long for a tenth less.
        with ZipFile(file, "w", ZIP_DEFLATED, compresslevel=1) as archive:
            tables = {
                name: await _copy_out(connection, archive, name, rows[name]["columns"], progress)
                for name in order.static_order()
            }
            manifest = {
                "format": _FORMAT,
                "made_by": f"queuegate {version('queuegate')}",
                "taken_at": found[0]["taken_at"].isoformat(" ", "seconds"),
                "migrations": await migrate.applied_checksums(connection),
                "sequences": dict(map(tuple, await _SQL["sequences"].rows(connection, SCHEMA))),
                "tables": tables,
            }
            archive.writestr(_MANIFEST, json.dumps(manifest, indent=1))
        return _counts_of(tables)


class Backup:
    """A backup to restore. Raises BackupRefused if the file is none, or of a newer version."""

    def __init__(self, file: IO[bytes]) -> None:
        with _readable():
            self._archive = ZipFile(file)
            self._manifest = facts = json.loads(self._archive.read(_MANIFEST))
            known = {step.name: step for step in migrate.known_migrations()}
            self._steps = [step for name, step in known.items() if name in facts["migrations"]]
            foreign = [
                name
                for name, checksum in facts["migrations"].items()
                if name not in known or not known[name].is_same(checksum)
            ]
            if facts["format"] != _FORMAT or foreign:
                raise BackupRefused(
                    f"another version made the backup, {facts['made_by']} (format "
                    f"{facts['format']}, migrations {', '.join(foreign) or 'known'}): restore it "
                    "with that version or a later one"
                )
            self.taken_at: str = facts["taken_at"]
            self.counts = _counts_of(facts["tables"])

    async def restore(self, dsn: str, progress: Progress, *, is_replacing: bool = False) -> None:
        """Load the backup into a database without data, in one transaction.

        ``is_replacing``: delete the data that the database has. Raises DatabaseRefused; then the
        database is as before.
        """
        async with _transaction(dsn) as connection:
            place = preflight.shown(dsn)
            if await _SQL["sessions"].value(connection):
                raise BackupRefused(f"gateways or commands are connected to {place}: stop them")
            if not is_replacing and await has_data(connection):
                raise BackupRefused(
                    f"{place} has data of Queuegate: restore into another database, or delete "
                    "that data with --replace"
                )
            await _SQL["drop_schema"].run(connection)
            for step in self._steps:
                await migrate.apply(connection, step)
            for name, table in self._manifest["tables"].items():
                await self._copy_in(connection, name, table, progress)
            sequences = self._manifest["sequences"]
            await _SQL["set_sequences"].run(connection, SCHEMA, [*sequences], [*sequences.values()])
            for later in await migrate.pending(connection):
                await migrate.apply(connection, later)

    async def _copy_in(
        self, connection: Connection, name: str, table: dict[str, Any], progress: Progress
    ) -> None:
        digest = hashlib.sha256()

        async def chunks() -> AsyncIterator[bytes]:
            with _readable(), self._archive.open(f"{name}.copy") as member:
                while data := member.read(_CHUNK_BYTES):
                    digest.update(data)
                    progress(data.count(b"\n"))
                    yield data

        status = await connection.copy_to_table(
            name, schema_name=SCHEMA, columns=table["columns"], source=chunks()
        )
        rows = int(status.rpartition(" ")[2])
        if (rows, digest.hexdigest()) != (table["rows"], table["sha256"]):
            raise BackupRefused(f"the backup is damaged: {name}.copy was changed")


async def has_data(connection: Connection) -> bool:
    """Return True if users' tables have rows, or had some."""
    return any(row["has_data"] for row in await _SQL["tables"].rows(connection, SCHEMA))


@contextlib.asynccontextmanager
async def _transaction(dsn: str, **options: Any) -> AsyncIterator[Connection]:
    """Yield a connection in a transaction, without migrations of others beside it."""
    connection = await preflight.connect(dsn)
    try:
        async with migrate.alone(connection), connection.transaction(**options):
            await _SQL["prepare_session"].run(connection)
            yield connection
    except FAILURES as error:
        # A rollback on a lost connection fails, too: the context is the first failure.
        raise BackupRefused(f"it did not finish: {error.__context__ or error}") from None
    finally:
        await connection.close()


async def _copy_out(
    connection: Connection, archive: ZipFile, name: str, columns: list[str], progress: Progress
) -> dict[str, Any]:
    digest, rows = hashlib.sha256(), 0
    with archive.open(f"{name}.copy", "w", force_zip64=True) as member:

        async def write(data: bytes) -> None:
            nonlocal rows
            digest.update(data)
            member.write(data)
            # Text of COPY has no other line feeds: those of values are escaped.
            rows += data.count(b"\n")
            progress(data.count(b"\n"))

        await connection.copy_from_table(name, schema_name=SCHEMA, columns=columns, output=write)
    return {"columns": columns, "rows": rows, "sha256": digest.hexdigest()}


def _counts_of(tables: dict[str, dict[str, Any]]) -> dict[str, int]:
    return {name: table["rows"] for name, table in tables.items()}


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except _UNREADABLE as error:
        raise BackupRefused(f"the file is no complete backup ({error})") from None
