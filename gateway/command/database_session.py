"""Access of commands to the database, with or without a running gateway."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import sys
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterator,
)
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

from queuegate.gateway import audit_lines
from queuegate.gateway.command.privileges import give_up_root
from queuegate.gateway.command.terminal import CommandRefused, fail
from queuegate.gateway.configuration.settings import BadSetting, Settings
from queuegate.storage import preflight
from queuegate.storage import stored_clocks as stored_settings
from queuegate.storage.database import Database
from queuegate.storage.embedded.data_directory import holder_of
from queuegate.storage.embedded.embedded_server import EmbeddedPostgres, running_dsn
from queuegate.storage.embedded.postgres_account import CannotStart
from queuegate.storage.migrate import pending
from queuegate.storage.storage_errors import Rejected, Unavailable


def with_database(
    settings: Settings, act: Callable[[str], Coroutine[Any, Any, int]], *, tells: bool = False
) -> int:
    """Return the exit code of ``act``, or 1 when the database refuses or is unreachable.

    ``tells``: print on stderr which database was used.
    """
    try:
        audit_lines.configure(settings)
        with _dsn(settings) as dsn:
            code = asyncio.run(act(dsn))
        if tells and code == 0:
            print(f"Database: {_place_of(settings)}", file=sys.stderr)
        return code
    except (
        BadSetting,
        CommandRefused,
        Rejected,
        CannotStart,
        preflight.DatabaseRefused,
        Unavailable,
    ) as refusal:
        return fail(str(refusal))


def _place_of(settings: Settings) -> str:
    if settings.database_url is None:
        return str(settings.data_dir)
    parts = urlsplit(settings.database_url)
    host = parts.netloc.rpartition("@")[2] or parse_qs(parts.query).get("host", [""])[0]
    return host + parts.path


def note_change(operation: str, account_id: str | None, resource: str) -> None:
    """Audit a change that a command made in the database without a gateway."""
    who = {"account": account_id or "", "user": _user_name(), "address": "local"}
    audit_lines.write_change({**who, "operation": f"command:{operation}", "resource": resource})


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


@contextlib.contextmanager
def _dsn(settings: Settings) -> Iterator[str]:
    """Yield the configured database, that of a running gateway, or one started for this command."""
    if settings.database_url is not None:
        yield settings.database_url
        return
    data = settings.data_dir
    running = running_dsn(data)
    if running is not None:
        yield running
        return
    holder = holder_of(data)
    if holder:
        raise CommandRefused(
            f"process {holder} is using {data}: run this as the same user, or later"
        )
    if not (data / "pgdata").is_dir():
        raise CommandRefused(
            f"there is no data in {data}: name its directory with --data, or its DATABASE_URL; for "
            "`keys` and `quotas` of a gateway with --ephemeral, its --url"
        )
    give_up_root(settings)
    server = EmbeddedPostgres(data)
    try:
        server.start()
        server.wait_ready()
        yield server.dsn
    finally:
        server.stop()


@contextlib.asynccontextmanager
async def opened(
    dsn: str, command: str, account_id: str | None = None
) -> AsyncIterator[tuple[Database, datetime | None]]:
    """Yield the database, and the time of the account if its clock was moved."""
    connection = await preflight.connect(dsn)
    try:
        missing = await pending(connection)
    finally:
        await connection.close()
    if missing:
        raise CommandRefused("the tables are not of this version: see `queuegate migrate`")
    database = Database(dsn, max_connections=1, application=f"queuegate {command}")
    await database.open()
    try:
        async with database.transaction() as tx:
            instant = (await stored_settings.read_clock(tx)).instant_of(
                account_id, datetime.now(UTC).timestamp()
            )
        yield database, None if instant is None else datetime.fromtimestamp(instant, UTC)
    finally:
        await database.close()
