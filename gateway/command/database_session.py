"""Access of commands to the database, and the keys that a gateway prepares at its start.

Functions import the database code, which takes longer than the rest of a command's start.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pwd
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from queuegate.gateway.command.command_line import CommandRefused, fail
from queuegate.gateway.command.gateway_client import GatewayClient, default_url
from queuegate.gateway.configuration.settings import BadSetting, Settings
from queuegate.storage.storage_errors import Rejected, Unavailable

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.key_cache import KeySecrets
    from queuegate.storage.database import Database
    from queuegate.storage.model import Key


_NAME = "administrator"


def with_keeper(
    settings: Settings,
    options: argparse.Namespace,
    at_gateway: Callable[[GatewayClient], Coroutine[Any, Any, int]],
    in_database: Callable[[str], Coroutine[Any, Any, int]],
) -> int:
    """Return the exit code of the action at a running gateway, with --url or ephemeral data, or
    else in the database. Print on stderr where a change was made. Raises CommandRefused."""
    import asyncio

    if not (options.url or settings.ephemeral):
        code, place = with_database(settings, in_database), f"Database: {place_of(settings)}"
    elif options.url and (options.data_dir or options.database_url):
        raise CommandRefused("--url names a gateway: leave --data and --database-url out")
    else:
        code = asyncio.run(at_gateway(GatewayClient(settings, options, "keys")))
        place = f"Gateway: {options.url or default_url(settings)}"
    if options.action != "list" and code == 0:
        print(place, file=sys.stderr)
    return code


def with_database(
    settings: Settings,
    act: Callable[[str], Coroutine[Any, Any, int]],
    *,
    may_create: bool = False,
) -> int:
    """Return the exit code of ``act``, or 1 when the database refuses or is unreachable.

    ``may_create``: create a data directory that is absent.
    """
    import asyncio

    from queuegate.gateway import audit_lines
    from queuegate.storage.embedded.postgres_account import CannotStart
    from queuegate.storage.preflight import DatabaseRefused

    try:
        audit_lines.configure(settings)
        with _dsn(settings, may_create=may_create) as dsn:
            return asyncio.run(act(dsn))
    except (BadSetting, Rejected, CannotStart, DatabaseRefused, Unavailable) as refusal:
        return fail(str(refusal))


def place_of(settings: Settings) -> str:
    """Return the configured database, without user and password."""
    if settings.database_url is None:
        return str(settings.data_dir)
    parts = urlsplit(settings.database_url)
    host = parts.netloc.rpartition("@")[2] or parse_qs(parts.query).get("host", [""])[0]
    return host + parts.path


def note_change(operation: str, account_id: str | None, resource: str) -> None:
    """Audit a change that a command made in the database without a gateway."""
    from queuegate.gateway import audit_lines

    who = {"account": account_id or "", "user": _user_name(), "address": "local"}
    audit_lines.write_change({**who, "operation": f"command:{operation}", "resource": resource})


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


@contextlib.contextmanager
def _dsn(settings: Settings, *, may_create: bool) -> Iterator[str]:
    """Yield the configured database, that of a running gateway, or one started for this command."""
    if settings.session_url is not None:
        yield settings.session_url
        return
    from queuegate.gateway.command.supervisor import give_up_root
    from queuegate.storage.embedded.data_directory import holder_of
    from queuegate.storage.embedded.embedded_server import EmbeddedPostgres, running_dsn

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
    if not (may_create or (data / "pgdata").is_dir()):
        raise CommandRefused(
            f"there is no data in {data}: name its directory with --data, or its DATABASE_URL; for "
            "`keys` and `quotas` of a gateway with --ephemeral, its --url"
        )
    give_up_root(settings)
    server = EmbeddedPostgres(data)
    try:
        server.start()
        server.wait_ready()
        server.wait_durable()
        yield server.dsn
    finally:
        server.stop()


@contextlib.asynccontextmanager
async def opened(
    dsn: str, command: str, account_id: str | None = None
) -> AsyncIterator[tuple[Database, datetime | None]]:
    """Yield the database, and the time of the account if its clock was moved."""
    from queuegate.storage import preflight, stored_clocks
    from queuegate.storage.database import Database
    from queuegate.storage.migrate import pending

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
            instant = (await stored_clocks.read_clock(tx)).instant_of(
                account_id, datetime.now(UTC).timestamp()
            )
        yield database, None if instant is None else datetime.fromtimestamp(instant, UTC)
    finally:
        await database.close()


def as_variables(key: Key, secret: str) -> str:
    """Format an access key as the environment variables of the AWS tools."""
    return f"AWS_ACCESS_KEY_ID={key.access_key}\nAWS_SECRET_ACCESS_KEY={secret}\n"


async def prepare_keys(
    settings: Settings, dsn: str, master_keys: tuple[bytes, ...], directory: Path
) -> None:
    """Check the master key against the database, and in sigv4 mode create the first
    administrator's key. ``directory``: the default place of its file. Raises BadSetting."""
    from queuegate.gateway.operations.access.key_cache import KeySecrets, opens_all
    from queuegate.storage.database import Database

    key_secrets = KeySecrets(*master_keys)
    database = Database(dsn, max_connections=1, application="queuegate keys")
    await database.open()
    try:
        async with database.transaction() as tx:
            if not await opens_all(tx, key_secrets):
                raise BadSetting(
                    "QUEUEGATE_MASTER_KEY_FILE, or QUEUEGATE_MASTER_KEY: this is not the key that "
                    "encrypts the access keys in the database. Nothing was started"
                )
        if settings.auth == "sigv4":
            await _make_first(settings, database, key_secrets, directory)
    finally:
        await database.close()


async def _make_first(
    settings: Settings, database: Database, key_secrets: KeySecrets, directory: Path
) -> None:
    from queuegate.gateway.operations.access.api_keys import NewApiKey, insert
    from queuegate.storage import stored_keys
    from queuegate.storage.model import ACCESS
    from queuegate.storage.storage_errors import KeyExists

    # One of several gateways that start at once creates the key; the name may be taken.
    for name in (_NAME, f"{_NAME}-{token_hex(4)}"):
        wanted = NewApiKey(name, kind=ACCESS, is_administrator=True)
        with contextlib.suppress(KeyExists):
            made: Key | None = None
            async with database.transaction() as tx:
                if not await stored_keys.has_administrator(tx):
                    made, secret = await insert(tx, None, settings.account_id, wanted, key_secrets)
                    default = directory / f"{_NAME}-{made.access_key}"
                    _show_first_key(made, secret, settings.administrator_key_file or default)
            if made is not None:
                note_change("serve", made.account_id, f"key {made.key_id} {made.name}")
            return


def _show_first_key(key: Key, secret: str, file: Path) -> None:
    """Print the key on a terminal, or else write it to a file. Raises BadSetting."""
    text = as_variables(key, secret)
    if sys.stdout.isatty():
        print(f"The first administrator's key. It is shown only once:\n{text}", flush=True)
        return
    try:
        write_private(file, text)
    except OSError as error:
        raise BadSetting(
            f"the first administrator's key cannot be written to {file}: {error.strerror}. Set "
            "QUEUEGATE_ADMINISTRATOR_KEY_FILE, or create a key with `queuegate keys create "
            "--administrator`"
        ) from None
    print(f"The first administrator's key is in {file}: move it to a safe place.", flush=True)


def write_private(file: Path, text: str) -> None:
    """Write a file atomically, readable by its owner only."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with complete_file(file) as opened:
        opened.write(text.encode("ascii"))


@contextlib.contextmanager
def complete_file(file: Path) -> Iterator[IO[bytes]]:
    """Yield a file for its owner only. It takes its name when it is complete and on disk; else
    nothing is left."""
    place = file.with_name(f".{file.name}.{token_hex(8)}")
    descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w+b") as opened:
            yield opened
            opened.flush()
            os.fsync(descriptor)
        place.replace(file)
        folder = os.open(file.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
    finally:
        place.unlink(missing_ok=True)
