"""Templates of ephemeral clusters: initialised and migrated once, then copied at each start.

A template is a folder of the user's cache, named after the programs of PostgreSQL and our SQL:

    pgdata      a cluster that was shut down, with the database `postgres` alone
    password    the superuser's, if root runs PostgreSQL as another account; only root can read it
    manifest    files and bytes of pgdata, to detect a damaged template

A template is renamed into place when it is complete. A start without a usable one, or with a cache
that cannot be read or written, initialises its own cluster.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
import threading
import time
from importlib import resources
from pathlib import Path

from queuegate.storage.embedded.cache_directory import is_own
from queuegate.storage.embedded.data_directory import sync_file_system
from queuegate.storage.embedded.postgres_account import Account, fingerprint

_PREFIX = "cluster-"
_FORM = "1"
"""Raise this number when clusters are made differently."""
_UNUSED_SECONDS = 14 * 86_400


class ClusterTemplate:
    """The template for one version of PostgreSQL and one set of migrations."""

    def __init__(self, cache: Path, binaries: Path) -> None:
        key = hashlib.sha256(f"{_FORM}:{fingerprint(binaries)}".encode())
        for folder in ("migrations", "functions"):
            place = resources.files("queuegate.storage").joinpath(folder)
            for file in sorted(place.iterdir(), key=lambda one: one.name):
                if file.name.endswith(".sql"):
                    key.update(f"\0{file.name}\0".encode() + file.read_bytes())
        self.path = cache / f"{_PREFIX}{key.hexdigest()[:20]}"

    def copy_to(self, pgdata: Path, account: Account) -> bytes | None:
        """Copy the cluster, and return the password (empty: it has none). None: there is no usable
        template, and nothing was copied."""
        scratch = pgdata.with_name(pgdata.name + ".new")
        try:
            if not (self.path.is_dir() and is_own(self.path.parent) and is_own(self.path)):
                return None
            found = _copy(self.path / "pgdata", scratch, account)
            if found != (self.path / "manifest").read_text("utf-8"):
                raise OSError(f"{self.path} is damaged")
            password = (self.path / "password").read_bytes()
            scratch.rename(pgdata)
        except (OSError, UnicodeError):
            shutil.rmtree(scratch, ignore_errors=True)
            # A damaged template is made again.
            self.discard()
            return None
        with contextlib.suppress(OSError):
            os.utime(self.path)
        return password

    def keep(self, pgdata: Path, password: bytes) -> threading.Thread | None:
        """Make the template from a cluster that was shut down. The thread ends when the template is
        on disk and in place. None: the cache cannot be written."""
        try:
            self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            if not is_own(self.path.parent):
                return None
            scratch = Path(tempfile.mkdtemp(prefix=".cluster-", dir=self.path.parent))
        except OSError:
            return None
        try:
            manifest = _copy(pgdata, scratch / "pgdata", None)
            (scratch / "password").write_bytes(password)
            (scratch / "manifest").write_text(manifest, "utf-8")
        except OSError:
            shutil.rmtree(scratch, ignore_errors=True)
            return None
        keeper = threading.Thread(target=self._publish, args=(scratch,))
        keeper.start()
        return keeper

    def _publish(self, scratch: Path) -> None:
        try:
            sync_file_system(scratch)
            scratch.rename(self.path)
        except OSError:
            # Another gateway has made it.
            shutil.rmtree(scratch, ignore_errors=True)
        _discard_unused(self.path.parent)

    def discard(self) -> None:
        """Delete the template, if it is there and ours."""
        with contextlib.suppress(OSError):
            # Renamed first: others find it whole or not at all.
            scratch = tempfile.mkdtemp(prefix=".cluster-", dir=self.path.parent)
            with contextlib.suppress(OSError):
                self.path.rename(Path(scratch) / "old")
            shutil.rmtree(scratch, ignore_errors=True)


def _discard_unused(cache: Path) -> None:
    oldest = time.time() - _UNUSED_SECONDS
    for path in (*cache.glob(_PREFIX + "*"), *cache.glob("." + _PREFIX + "*")):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < oldest:
                shutil.rmtree(path, ignore_errors=True)


def _copy(source: Path, target: Path, account: Account | None) -> str:
    """Copy a cluster for an account, and return the manifest. Follows no link and copies no file
    with a second name: another user may have placed it there."""
    uid, gid = (account.uid, account.gid) if account is not None and account.switch else (-1, -1)
    count = size = 0
    for place, _, names, folder in os.fwalk(source):
        copied = f"{target}{place.removeprefix(str(source))}"
        os.mkdir(copied, 0o700)
        into = os.open(copied, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in names:
                size += _copy_file(name, (folder, into), (uid, gid))
            count += len(names)
            os.fchown(into, uid, gid)
        finally:
            os.close(into)
    return f"{count} files, {size} bytes\n"


def _copy_file(name: str, folders: tuple[int, int], owner: tuple[int, int]) -> int:
    """Copy a file between two open folders, and return its size."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    source = os.open(name, flags, dir_fd=folders[0])
    try:
        facts = os.fstat(source)
        if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1:
            raise OSError(f"{name} is no file of a cluster")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        target = os.open(name, flags, 0o600, dir_fd=folders[1])
        try:
            os.fchown(target, *owner)
            return _copy_bytes(source, target, facts.st_size)
        finally:
            os.close(target)
    finally:
        os.close(source)


def _copy_bytes(source: int, target: int, size: int) -> int:
    """Copy a file, sharing blocks where the file system can; return the number of bytes."""
    done = 0
    with contextlib.suppress(AttributeError, OSError):
        while done < size and (copied := os.copy_file_range(source, target, size - done)):
            done += copied
    # macOS has no such call, and some file systems refuse it.
    os.lseek(source, done, os.SEEK_SET)
    os.lseek(target, done, os.SEEK_SET)
    while done < size and (chunk := os.read(source, 1 << 20)):
        done += os.write(target, chunk)
    return done
