"""The directory of a bundled PostgreSQL: created, locked against a second gateway, cleaned up.

    gateway.lock    held (flock) by the gateway that uses the directory; its text is the process id
    pgdata/         PostgreSQL's own
    postgres.log    PostgreSQL's messages
    ballast         space released when the disk is nearly full (disk.py)
    reserve         space released when the disk is full
    queuegate.conf  settings; pg_hba.conf and password restrict access if root runs it
    socket/         the Unix socket

If PostgreSQL runs as another account than the gateway, pgdata and socket belong to that account and
everything else to root, the directory included: no other user can place a link there, or replace a
file. In older versions the account owned the directory, so root first takes ownership.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from queuegate.storage.embedded.account import (
    Account,
    CannotStart,
    can_change,
    can_enter,
    closed_parent,
)
from queuegate.storage.embedded.orphans import serves, stop_orphan

_LOCK = "gateway.lock"
_PGDATA = "pgdata"
_EPHEMERAL_PREFIX = "queuegate-ephemeral-"
# Ignored names in a new directory: the root of a fresh file system has this.
_IGNORED = {"lost+found"}
# An ephemeral directory without a lock is being created, or remains from a crash at that moment.
_HALF_MADE_SECONDS = 600


class DataDirectory:
    """One locked data directory. `close` releases the lock, and deletes an ephemeral one."""

    def __init__(self, path: Path, account: Account, lock: int, *, ephemeral: bool) -> None:
        self.path = path
        self.account = account
        self.ephemeral = ephemeral
        self._lock = lock

    @property
    def pgdata(self) -> Path:
        return self.path / _PGDATA

    @property
    def log(self) -> Path:
        return self.path / "postgres.log"

    def make(self, name: str) -> Path:
        """Create a private subdirectory owned by PostgreSQL's account; replace an old one."""
        directory = self.path / name
        if directory.is_dir():
            shutil.rmtree(directory)
        directory.mkdir(mode=0o700)
        hand_over(directory, self.account)
        return directory

    def write(self, name: str, text: str, *, private: bool = False) -> Path:
        """Write a file atomically, readable for PostgreSQL unless it is private.

        CannotStart if the disk is full.
        """
        scratch = self.path / (name + ".new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            scratch.unlink(missing_ok=True)
            with open(os.open(scratch, flags, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
                if self.account.switch and not private:
                    os.fchown(file.fileno(), -1, self.account.gid)
                    os.fchmod(file.fileno(), 0o640)
            return scratch.rename(self.path / name)
        except OSError as error:
            raise CannotStart(f"{scratch} cannot be written ({error.strerror})") from None

    def close(self) -> None:
        """Release the lock; delete the directory if it is ephemeral."""
        if self.ephemeral:
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def open_data_directory(path: Path, account: Account) -> DataDirectory:
    """Create the directory if needed and lock it; CannotStart if it is in use or unfit."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_foreign(path)
        if account.switch:
            _refuse_changeable(path, account)
            _keep_from(path, account)
            _discard_foreign(path, [_LOCK])
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        lock = os.open(path / _LOCK, flags, 0o600)
    except OSError as error:
        raise CannotStart(
            f"the data directory {path} cannot be used ({error.strerror}): make it writable, or "
            "choose another with --data"
        ) from None
    _take(lock, path)
    if account.switch:
        _discard_foreign(path, sorted({entry.name for entry in path.iterdir()} - {_PGDATA}))
    elif path.stat().st_uid == os.geteuid():
        path.chmod(0o700)
    _refuse_closed(path, account)
    return DataDirectory(path, account, lock, ephemeral=False)


def hand_over_data(path: Path, account: Account) -> None:
    """Transfer a data directory with its contents to the account that root is about to become.

    Creates it if needed. CannotStart if it is in use, unfit, or mixed with others' files.
    """
    if path.exists() and path.stat().st_uid == account.uid:
        return
    directory = open_data_directory(path, account)
    try:
        stop_orphan(directory.pgdata)
        _give_all(path, account)
    finally:
        directory.close()


def _give_all(path: Path, account: Account) -> None:
    # Top-down: once the account owns a folder, its previous owner cannot rename files in it, so the
    # file examined is the file transferred. A second name of a file may belong to another user.
    for place, _, names, folder in os.fwalk(path):
        if Path(place) != path:
            os.fchown(folder, account.uid, account.gid)
            os.fchmod(folder, 0o700)
        for name in names:
            facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(facts.st_mode) and facts.st_nlink > 1:
                raise CannotStart(
                    f"{place}/{name} has another name elsewhere, so it is not given to "
                    f"{account.name}: make it a file of its own (copy it and rename the copy)"
                )
            os.chown(name, account.uid, account.gid, dir_fd=folder, follow_symlinks=False)
    # Last, because it marks the transfer as complete.
    path.chmod(0o700)
    os.chown(path, account.uid, account.gid)


def open_ephemeral_directory(account: Account) -> DataDirectory:
    """Create a directory for temporary files, deleted at `close` or, after a crash, at the next
    call."""
    parent = Path(tempfile.gettempdir())
    if not can_enter(account, parent):
        parent = Path("/tmp")
    _sweep(parent)
    path = Path(tempfile.mkdtemp(prefix=_EPHEMERAL_PREFIX, dir=parent))
    # Locked before it gets its name: a sweep that finds the name finds it locked.
    scratch = path / (_LOCK + ".new")
    lock = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    _take(lock, path)
    scratch.rename(path / _LOCK)
    if account.switch:
        _keep_from(path, account)
    return DataDirectory(path, account, lock, ephemeral=True)


def hand_over(path: Path, account: Account) -> None:
    """Transfer a file or directory of ours to PostgreSQL's account."""
    if account.switch:
        try:
            os.chown(path, account.uid, account.gid)
        except OSError as error:
            raise CannotStart(
                f"{path} cannot be given to {account.name}, as whom PostgreSQL runs "
                f"({error.strerror}): run Queuegate as an ordinary user, or set DATABASE_URL"
            ) from None


def holder_of(path: Path) -> str:
    """Return the process that has this directory locked, or an empty text; changes nothing."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        lock = os.open(path / _LOCK, flags)
    except OSError:
        return ""
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _holder(lock)
    finally:
        os.close(lock)
    return ""


def _holder(lock: int) -> str:
    return os.pread(lock, 32, 0).decode("ascii", "replace").strip()


def _take(lock: int, path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = _holder(lock)
        os.close(lock)
        who = f" (process {holder})" if holder else ""
        raise CannotStart(
            f"another Queuegate{who} is using the data in {path}: stop it, choose another "
            "directory with --data, or start with --ephemeral"
        ) from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, b"%d\n" % os.getpid(), 0)


def _refuse_foreign(path: Path) -> None:
    names = {entry.name for entry in path.iterdir()} - _IGNORED
    if names and _LOCK not in names:
        raise CannotStart(
            f"{path} holds files that are not Queuegate's: choose an empty or new directory"
        )


def _refuse_changeable(path: Path, account: Account) -> None:
    for step in [*path.absolute().parents, *path.resolve().parents]:
        if can_change(account, step):
            raise CannotStart(
                f"PostgreSQL runs as {account.name}, who could put another directory in the place "
                f"of {path} because {step} lets it: choose one outside of {step} with --data"
            )


def _keep_from(path: Path, account: Account) -> None:
    """Let the account pass through the directory to its own files, and no more."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fchown(directory, os.geteuid(), account.gid)
        os.fchmod(directory, 0o710)
    finally:
        os.close(directory)


def _discard_foreign(path: Path, names: Iterable[str]) -> None:
    """Remove from these names in a protected directory anything placed by other users: their files
    and directories, links, and second names of our files."""
    for name in names:
        try:
            facts = (path / name).lstat()
        except FileNotFoundError:
            continue
        is_file = stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1
        if facts.st_uid == os.geteuid() and (is_file or stat.S_ISDIR(facts.st_mode)):
            continue
        if stat.S_ISDIR(facts.st_mode):
            shutil.rmtree(path / name)
        else:
            (path / name).unlink()


def _refuse_closed(path: Path, account: Account) -> None:
    if can_enter(account, path):
        return
    closed = closed_parent(account, path)
    raise CannotStart(
        f"PostgreSQL runs as {account.name}, who cannot enter {closed}: choose a data directory "
        f"outside of it with --data, or `chmod o+x {closed}`"
    )


def _sweep(parent: Path) -> None:
    """Delete the ephemeral directories in here that no gateway and no PostgreSQL uses.

    Other versions may lock a file of another name, or keep PostgreSQL's data elsewhere inside. They
    respect a held ``gateway.lock``, so its name must not change.
    """
    for path in parent.glob(_EPHEMERAL_PREFIX + "*"):
        try:
            facts = path.lstat()
            if facts.st_uid != os.geteuid() or not stat.S_ISDIR(facts.st_mode):
                continue
            if not any(serves(place) for place in (path, *path.iterdir())):
                _delete_if_abandoned(path, facts.st_mtime)
        except (OSError, CannotStart):
            continue


def _delete_if_abandoned(path: Path, changed_at: float) -> None:
    try:
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        if time.time() - changed_at > _HALF_MADE_SECONDS:
            shutil.rmtree(path, ignore_errors=True)
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(lock)
