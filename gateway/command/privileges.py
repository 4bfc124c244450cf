"""Privileges of a gateway that root starts: it becomes another account before it touches data.

The bundled PostgreSQL does not run as root, and its account has to read and write the data. With
the account `queuegate`, the whole gateway runs unprivileged. Otherwise PostgreSQL runs as a shared
account, such as `nobody`, and is only as safe as that account.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from queuegate.gateway.configuration.settings import use_home
from queuegate.storage.embedded.data_directory import hand_over_data
from queuegate.storage.embedded.postgres_account import (
    OWN_ACCOUNT,
    Account,
    account_to_become,
    can_enter,
    choose_account,
    may_read,
)

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings

_HOW = f"useradd --system --user-group --shell /usr/sbin/nologin {OWN_ACCOUNT}"


def give_up_root(settings: Settings) -> None:
    """As root, hand the data over to its owner or to `queuegate`, and become that account.

    Raises CannotStart if the data cannot be handed over.
    """
    account = _account_to_become(settings)
    if account is None or _closed_to(account, settings) is not None:
        return
    if not settings.ephemeral:
        hand_over_data(settings.data_dir, account)
    os.initgroups(account.name, account.gid)
    os.setgid(account.gid)
    os.setuid(account.uid)
    use_home(account.home)


def remaining_risk(settings: Settings) -> str:
    """Return the risk of running as root, and its remedy; empty if there is none."""
    if os.geteuid() != 0 or settings.database_url is not None:
        return ""
    account = _account_to_become(settings)
    closed = None if account is None else _closed_to(account, settings)
    if account is not None and closed is None:
        return ""
    data = None if settings.ephemeral else settings.data_dir / "pgdata"
    runs_as = choose_account(data).name
    risk = f"started by root, PostgreSQL runs as {runs_as}: other programs of {runs_as} can " + (
        "read, change and delete all messages"
    )
    if account is None:
        return f"{risk}. Create an account for the next start: {_HOW}"
    return f"{risk}. The gateway itself stays root: {account.name} cannot read {closed}"


def _account_to_become(settings: Settings) -> Account | None:
    if os.geteuid() != 0 or settings.database_url is not None:
        return None
    return account_to_become(None if settings.ephemeral else settings.data_dir)


def _closed_to(account: Account, settings: Settings) -> Path | None:
    """Return the first path of the gateway that the account cannot read."""
    for folder in _program():
        if not can_enter(account, folder):
            return folder
    named = (settings.signing_key_file, settings.signing_certificate_file, settings.webhook_ca_file)
    for file in (Path(__file__), *named):
        if file is not None and not may_read(account, file):
            return file
    return None


def _program() -> Iterator[Path]:
    yield Path(sys.executable).resolve().parent
    for entry in sys.path:
        if entry and Path(entry).is_dir():
            yield Path(entry)
