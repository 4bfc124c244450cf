"""The account of the bundled PostgreSQL: this user, or an unprivileged one for root.

PostgreSQL refuses to run as root. Nothing is created on the system for it. Root becomes the account
`queuegate` if it exists, and the whole gateway runs as it (gateway/command/supervisor.py).
Otherwise PostgreSQL alone runs as an existing account. Other processes may use that account, too,
so root neither writes to nor trusts places where the account can write.
"""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class CannotStart(Exception):
    """The bundled PostgreSQL cannot start; the text is one line with the reason and the remedy."""


@dataclass(frozen=True)
class Account:
    """An account of this system. `switch` is True if processes must change to it."""

    uid: int
    gid: int
    name: str
    switch: bool
    home: str = "/"

    def popen_options(self) -> dict[str, Any]:
        """Return arguments for subprocess to run a program as this account."""
        if not self.switch:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


OWN_ACCOUNT = "queuegate"
# "nobody" first: it exists on every Linux and macOS, and owns nothing.
_SHARED = ("nobody", "postgres", "daemon", "www-data")
_CANDIDATES = (OWN_ACCOUNT, *_SHARED)


def choose_account(data: Path | None) -> Account:
    """Return this user; for root the owner of existing data, else the first candidate."""
    if os.geteuid() != 0:
        entry = _entry_of_uid(os.geteuid())
        if entry is None:
            raise CannotStart(
                f"PostgreSQL needs a name for user id {os.geteuid()}, which /etc/passwd does not "
                "have: add the user, run as another, or set DATABASE_URL"
            )
        return Account(entry.pw_uid, os.getegid(), entry.pw_name, switch=False)
    owner = None if data is None else _owner(data)
    entries = [_entry_of_uid(owner)] if owner else []
    entries += [_entry_of_name(name) for name in _CANDIDATES]
    for entry in entries:
        if entry is not None and entry.pw_uid != 0:
            return Account(entry.pw_uid, entry.pw_gid, entry.pw_name, True, entry.pw_dir)
    raise CannotStart(
        "PostgreSQL does not run as root, and this system has no unprivileged account "
        f"({', '.join(_CANDIDATES)}): run Queuegate as an ordinary user, or set DATABASE_URL"
    )


def account_to_become(data: Path | None) -> Account | None:
    """Return the account that root becomes: the owner of the data, else `queuegate`; None: neither.

    Data of a shared account has no single user: it goes to `queuegate`.
    """
    owner = None if data is None else _owner(data / "pgdata")
    entries = [_entry_of_uid(owner)] if owner else []
    for entry in [*entries, _entry_of_name(OWN_ACCOUNT)]:
        if entry is not None and entry.pw_uid != 0 and entry.pw_name not in _SHARED:
            return Account(entry.pw_uid, entry.pw_gid, entry.pw_name, True, entry.pw_dir)
    return None


def can_enter(account: Account, directory: Path) -> bool:
    """Return True if the account can enter this directory through all its parents."""
    if not account.switch or _bits_let_in(account, directory):
        return True
    # Mode bits do not show access lists, so a negative answer is tested.
    return _test_as(account, "-x", directory)


def can_read(account: Account, file: Path) -> bool:
    """Return True if the account can read and execute this file."""
    if not account.switch:
        return os.access(file, os.R_OK | os.X_OK)
    mode = file.stat().st_mode
    if mode & stat.S_IROTH and mode & stat.S_IXOTH and _bits_let_in(account, file.parent):
        return True
    return _test_as(account, "-x", file)


def may_read(account: Account, file: Path) -> bool:
    """Return True if root can still read the file after becoming this account."""
    return _test_as(account, "-r", file)


def can_change(account: Account, directory: Path) -> bool:
    """Return True if the account could replace files of others in this directory."""
    facts = directory.stat()
    if facts.st_uid == account.uid:
        return True
    return not facts.st_mode & stat.S_ISVTX and _test_as(account, "-w", directory)


def closed_parent(account: Account, directory: Path) -> Path:
    """Return the uppermost directory on the path that the account cannot enter."""
    for step in [*reversed(directory.parents), directory]:
        if not can_enter(account, step):
            return step
    return directory


def _bits_let_in(account: Account, directory: Path) -> bool:
    return all(_enterable(account, step) for step in [directory, *directory.parents])


def _enterable(account: Account, directory: Path) -> bool:
    facts = directory.stat()
    if facts.st_uid == account.uid:
        return bool(facts.st_mode & stat.S_IXUSR)
    if facts.st_gid == account.gid:
        return bool(facts.st_mode & stat.S_IXGRP)
    return bool(facts.st_mode & stat.S_IXOTH)


def _test_as(account: Account, flag: str, path: Path) -> bool:
    try:
        done = subprocess.run(
            ["test", flag, str(path)], cwd="/", check=False, **account.popen_options()
        )
    except OSError:
        return False
    return done.returncode == 0


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:
        return None


def _entry_of_uid(uid: int) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        return None


def _entry_of_name(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None
