"""Keys at the start of a gateway: the master key, and the first administrator's key."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from queuegate.gateway.command.database_session import note_change
from queuegate.gateway.configuration.settings import BadSetting
from queuegate.gateway.operations.access.api_keys import NewApiKey, insert
from queuegate.gateway.operations.access.key_secrets import KeySecrets, opens_all
from queuegate.storage import stored_keys
from queuegate.storage.database import Database
from queuegate.storage.model import ACCESS
from queuegate.storage.storage_errors import KeyExists

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings
    from queuegate.storage.model import Key

_NAME = "administrator"


def as_variables(key: Key, secret: str) -> str:
    """Format an access key as the environment variables of the AWS tools."""
    return f"AWS_ACCESS_KEY_ID={key.access_key}\nAWS_SECRET_ACCESS_KEY={secret}\n"


async def prepare_keys(
    settings: Settings, dsn: str, master_keys: tuple[bytes, ...], directory: Path
) -> None:
    """Check the master key against the database, and in sigv4 mode create the first
    administrator's key. ``directory``: the default place of its file. Raises BadSetting."""
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
    # One of several gateways that start at once creates the key; the name may be taken.
    for name in (_NAME, f"{_NAME}-{token_hex(4)}"):
        wanted = NewApiKey(name, kind=ACCESS, is_administrator=True)
        with contextlib.suppress(KeyExists):
            made: Key | None = None
            async with database.transaction() as tx:
                if not await stored_keys.has_administrator(tx):
                    made, secret = await insert(tx, None, settings.account_id, wanted, key_secrets)
                    default = directory / f"{_NAME}-{made.access_key}"
                    _show(made, secret, settings.administrator_key_file or default)
            if made is not None:
                note_change("serve", made.account_id, f"key {made.key_id} {made.name}")
            return


def _show(key: Key, secret: str, file: Path) -> None:
    """Print the key on a terminal, or else write it to a file. Raises BadSetting."""
    text = as_variables(key, secret)
    if sys.stdout.isatty():
        print(f"The first administrator's key. It is shown only once:\n{text}", flush=True)
        return
    try:
        _write_private(file, text)
    except OSError as error:
        raise BadSetting(
            f"the first administrator's key cannot be written to {file}: {error.strerror}. Set "
            "QUEUEGATE_ADMINISTRATOR_KEY_FILE, or create a key with `queuegate keys create "
            "--administrator`"
        ) from None
    print(f"The first administrator's key is in {file}: move it to a safe place.", flush=True)


def _write_private(file: Path, text: str) -> None:
    """Write a file atomically, readable by its owner only."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _beside(file) as place:
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="ascii") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(descriptor)
        place.replace(file)


@contextlib.contextmanager
def _beside(file: Path) -> Iterator[Path]:
    place = file.with_name(f".{file.name}.{token_hex(8)}")
    try:
        yield place
    finally:
        place.unlink(missing_ok=True)
