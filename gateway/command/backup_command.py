"""`queuegate backup` and `restore`: all data of a database, to a file and back."""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import IO

from queuegate.gateway.command.command_line import (
    CommandRefused,
    ProgressLine,
    add_database,
    add_options,
    fail,
)
from queuegate.gateway.command.database_session import (
    complete_file,
    note_change,
    place_of,
    with_database,
)
from queuegate.gateway.command.states_command import contents
from queuegate.gateway.configuration.settings import Settings

_BACKUP = """\
Write all data of the database to a file, while gateways serve: everything that was acknowledged
before the command started is in it. The file gets its name when it is complete. It is a zip archive
with the rows of each table as text. Only its owner can read it.

examples:
  queuegate backup monday.backup
  DATABASE_URL=postgresql://user:password@db:5432/queuegate queuegate backup monday.backup
"""
_RESTORE = """\
Load a backup into a database that has no data of Queuegate, in one transaction: afterwards all of
it is there, or nothing. No gateway may run on that database. An absent data directory is created. A
backup of an older version is migrated.

Given the data directory of a stopped gateway in place of a file, the command copies its data: one
step from the bundled PostgreSQL to your own.

examples:
  queuegate restore monday.backup --data /srv/queuegate
  DATABASE_URL=postgresql://user:password@db:5432/queuegate queuegate restore monday.backup
  DATABASE_URL=postgresql://user:password@db:5432/queuegate queuegate restore /srv/queuegate
"""
_NOT_IN_IT = (
    "Not in a backup: the master key, without which access keys cannot be used; certificates, "
    "signing keys in files, and settings."
)


def add_backup_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `queuegate backup`."""
    command.description = _BACKUP
    add_options(command, "file FILE  file to write\n--force  replace the file if it exists")
    add_database(command)
    command.set_defaults(act=_back_up_to_file)


def add_restore_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `queuegate restore`."""
    command.description = _RESTORE
    add_options(
        command,
        """\
file FILE  backup, or data directory of a stopped gateway
--replace  delete the data that the database has
""",
    )
    add_database(command)
    command.set_defaults(act=_restore_from_path)


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Back up or restore; return the exit code. Raises CommandRefused."""
    # SIGTERM cleans up as Ctrl-C does.
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        code: int = options.act(settings, Path(options.file), options)
        return code
    except KeyboardInterrupt:
        return fail("stopped: nothing was kept")
    finally:
        signal.signal(signal.SIGTERM, before)


async def back_up(dsn: str, path: Path, *, force: bool = False) -> int:
    """Write a backup of the database to a file; return 0. Raises CommandRefused and
    DatabaseRefused."""
    try:
        with complete_file(_unused(path, force=force)) as file:
            text = await _write(dsn, file)
            size = file.seek(0, os.SEEK_END)
            # Another command may have written it meanwhile.
            _unused(path, force=force)
    except OSError as error:
        raise CommandRefused(f"{path} cannot be written: {error.strerror}") from None
    print(f"Backed up {text} to {path}: {size / 1000:,.0f} KB.\n{_NOT_IN_IT}")
    return 0


def _unused(path: Path, *, force: bool) -> Path:
    """Return the file that a link names. Raises CommandRefused if it exists, without force."""
    path = path.resolve()
    if path.exists() and not (force and path.is_file()):
        raise CommandRefused(f"{path} exists: name another file, or replace a file with --force")
    return path


async def _write(dsn: str, file: IO[bytes]) -> str:
    from queuegate.storage import backups

    with ProgressLine() as line:
        return contents(await backups.back_up(dsn, file, line.add))


def _back_up_to_file(settings: Settings, path: Path, options: argparse.Namespace) -> int:
    return with_database(settings, lambda dsn: back_up(dsn, path, force=options.force))


def _restore_from_path(settings: Settings, path: Path, options: argparse.Namespace) -> int:
    if path.is_dir():
        return _copy_data(settings, path, options)
    try:
        with path.open("rb") as file:
            return _restore(settings, file, options)
    except OSError as error:
        raise CommandRefused(f"{path} cannot be read: {error.strerror}") from None


def _copy_data(settings: Settings, source: Path, options: argparse.Namespace) -> int:
    """Copy the data of a bundled PostgreSQL into the configured database; return the exit code."""
    from queuegate.storage.embedded.embedded_server import running_dsn

    if running_dsn(source) is not None:
        raise CommandRefused(
            f"a gateway runs on {source}: what it still acknowledges would be "
            "missing in the copy. Stop it first"
        )
    with tempfile.TemporaryFile() as file:

        async def write(dsn: str) -> int:
            await _write(dsn, file)
            return 0

        own = replace(settings, data_dir=source, database_url=None, direct_database_url=None)
        return with_database(own, write) or _restore(settings, file, options)


def _restore(settings: Settings, file: IO[bytes], options: argparse.Namespace) -> int:
    from queuegate.storage import backups

    try:
        backup = backups.Backup(file)
    except backups.BackupRefused as refusal:
        raise CommandRefused(str(refusal)) from None

    async def act(dsn: str) -> int:
        with ProgressLine() as line:
            await backup.restore(dsn, line.add, is_replacing=options.replace)
        note_change("restore", None, f"backup of {backup.taken_at}")
        text = f"{contents(backup.counts)} of {backup.taken_at}"
        print(f"Restored {text} into {place_of(settings)}.\n{_NOT_IN_IT}")
        return 0

    return with_database(settings, act, may_create=True)
