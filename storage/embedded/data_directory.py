"""The directory of a bundled PostgreSQL: created, locked against a second gateway, cleaned up.

    gateway.lock    held (flock) by the gateway that uses the directory; its text is the process id
    pgdata/         PostgreSQL's own
    postgres.log    PostgreSQL's messages
    ballast         space released when the disk is nearly full
    reserve         space released when the disk is full, or a queue is purged
    queuegate.conf  settings; pg_hba.conf and password restrict access if root runs it
    socket/         the Unix socket

If PostgreSQL runs as another account than the gateway, pgdata and socket belong to that account and
everything else to root, the directory included: no other user can place a link there, or replace a
file. In older versions the account owned the directory, so root first takes ownership.

PostgreSQL cannot delete without writing, so a full disk could never be freed: ballast and reserve
keep space, the WAL is kept small, and below a low-water mark the gateway refuses sends
(``gateway.process.disk_watch``).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import logging
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from queuegate.storage.embedded.postgres_account import (
    Account,
    CannotStart,
    can_change,
    can_enter,
    closed_parent,
)

# PostgreSQL's lock file identifies processes that outlived their parent. After a power loss or on a
# full disk it may contain anything, and when root reads it, PostgreSQL's account may have written
# anything: its contents are verified against the process itself.

# Above every process id of Linux or macOS.
_NOBODYS_PROCESS_ID = 4_194_305
_MOST_LOCK_FILE_BYTES = 8192


def read_regular(path: Path, most_bytes: int) -> tuple[bytes, os.stat_result] | None:
    """Return the start of a file and its facts; None if there is no regular file. Follows no link,
    and does not block on special files."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        file = os.open(path, flags)
    except OSError:
        return None
    try:
        facts = os.fstat(file)
        return (os.read(file, most_bytes), facts) if stat.S_ISREG(facts.st_mode) else None
    finally:
        os.close(file)


def lock_file_of(pgdata: Path) -> bytes | None:
    """Return the contents of PostgreSQL's lock file; None if there is none.

    Its lines: process id, directory, start, port, socket directory, address, shared memory, state.
    """
    found = read_regular(pgdata / "postmaster.pid", _MOST_LOCK_FILE_BYTES)
    return None if found is None else found[0]


def stop_orphan(pgdata: Path, deadline_seconds: float = 30.0) -> None:
    """Stop a PostgreSQL that outlived its gateway.

    Only the holder of the directory's lock may call this: no gateway uses such a server.
    """
    process_id = running_process_id(pgdata)
    if process_id is None:
        return
    stages = ((signal.SIGINT, deadline_seconds), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))
    for stage, patience in stages:
        try:
            os.kill(process_id, stage)
        except ProcessLookupError:
            return
        limit = time.monotonic() + patience
        while time.monotonic() < limit:
            if running_process_id(pgdata) != process_id:
                return
            time.sleep(0.005)
    raise CannotStart(
        f"an earlier PostgreSQL (process {process_id}) on {pgdata} does not stop: end it yourself"
    )


def running_process_id(pgdata: Path) -> int | None:
    """Return the process of the PostgreSQL that serves this directory, or None.

    A process id alone is no proof: after a restart of a container another process often has it. The
    command line must be PostgreSQL's on this directory, and the process must belong to the owner of
    the directory, who could otherwise make root end any process.
    """
    try:
        process_id = int((lock_file_of(pgdata) or b"").partition(b"\n")[0])
        owner = pgdata.stat().st_uid
    except (OSError, ValueError):
        return None
    found = _facts_of(process_id)
    return process_id if found[0] == owner and f" -D {pgdata} " in found[1] + " " else None


def serves(pgdata: Path) -> bool:
    """Return True if a live PostgreSQL uses this directory, by whatever path it was started."""
    if running_process_id(pgdata) is not None:
        return True
    try:
        process_id = int((lock_file_of(pgdata) or b"").partition(b"\n")[0])
        # PostgreSQL's working directory is its data directory.
        return process_id > 0 and Path(f"/proc/{process_id}/cwd").samefile(pgdata)
    except (OSError, ValueError):
        return False


def disown(pgdata: Path, account: Account) -> None:
    """Remove the process id of a stopped server from its lock file, because it may be reused.

    The rest of the file must stay: with it PostgreSQL detects processes of that server that are
    still attached to its shared memory, and waits for them. The account writes the file, not root:
    a link in the account's directory cannot lead to root's files.
    """
    lock_file = lock_file_of(pgdata)
    if lock_file is None:
        return
    rest = lock_file.partition(b"\n")[2]
    subprocess.run(
        ["tee", str(pgdata / "postmaster.pid")],
        input=b"%d\n" % _NOBODYS_PROCESS_ID + rest,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        check=False,
        **account.popen_options(),
    )


def reap(server_process_id: int | None) -> None:
    """Reap dead PostgreSQL processes adopted by process 1 of a container.

    They are the children of a killed server. The server itself is left to its own parent.
    """
    if os.getpid() != 1 or sys.platform != "linux":
        return
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == server_process_id:
            continue
        try:
            name, _, rest = (
                (entry / "stat").read_text(errors="replace").partition("(")[2].rpartition(")")
            )
            if name.startswith("postgres") and rest.split()[:2] == ["Z", "1"]:
                os.waitpid(int(entry.name), os.WNOHANG)
        except (OSError, ChildProcessError):
            continue


def _facts_of(process_id: int) -> tuple[int, str]:
    """Return (owner, command line) of a process; an impossible owner if there is none."""
    nobody = -1, ""
    if process_id <= 0:
        return nobody
    if sys.platform == "linux":
        try:
            entry = Path(f"/proc/{process_id}")
            words = (entry / "cmdline").read_bytes().split(b"\0")
            return entry.stat().st_uid, os.fsdecode(b" ".join(words))
        except OSError:
            return nobody
    listed = subprocess.run(
        ["ps", "-ww", "-p", str(process_id), "-o", "uid=,command="],
        capture_output=True,
        check=False,
    )
    owner, _, command = os.fsdecode(listed.stdout).strip().partition(" ")
    return (int(owner), command.strip()) if owner.isdigit() else nobody


_log = logging.getLogger("queuegate.disk")

_MIB = 1 << 20
_BALLAST = "ballast"
_RESERVE = "reserve"
# PostgreSQL needs at least two segments of 16 MB; four leave time for a checkpoint.
_LEAST_WAL_BYTES = 64 * _MIB
_MOST_WAL_BYTES = 2048 * _MIB


@dataclass(frozen=True)
class DiskSpace:
    """The size of a file system, and the space left for PostgreSQL."""

    total_bytes: int
    free_bytes: int

    @property
    def low_water_bytes(self) -> int:
        """Return the space reserved for receives and deletes."""
        return min(max(self.total_bytes // 32, 64 * _MIB), 512 * _MIB)

    @property
    def recovered_bytes(self) -> int:
        """Return the space at which sends resume, above the low-water mark to avoid flapping."""
        return self.low_water_bytes * 5 // 4

    @property
    def ballast_bytes(self) -> int:
        """Return the ballast size: some segments of WAL, enough for deletes."""
        return self.low_water_bytes // 2

    @property
    def wal_bytes(self) -> int:
        """Return the limit of the WAL: a quarter of the free space, within bounds."""
        if self.free_bytes < self.recovered_bytes:
            return _LEAST_WAL_BYTES
        return min(max(self.free_bytes // 4, _LEAST_WAL_BYTES), _MOST_WAL_BYTES)

    def is_low(self, *, was_low: bool) -> bool:
        """Return True if sends should be refused, with hysteresis."""
        mark = self.recovered_bytes if was_low else self.low_water_bytes
        return self.free_bytes < mark


def disk_space_at(path: Path) -> DiskSpace:
    """Return the space on the file system of this directory."""
    facts = os.statvfs(path)
    # PostgreSQL cannot use space reserved for root.
    return DiskSpace(facts.f_blocks * facts.f_frsize, facts.f_bavail * facts.f_frsize)


def sync_file_system(path: Path) -> None:
    """Flush this directory's file system to disk."""
    syncfs = getattr(ctypes.CDLL(None), "syncfs", None)
    if syncfs is None:
        os.sync()
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        syncfs(descriptor)
    finally:
        os.close(descriptor)


def release_ballast(path: Path, room: DiskSpace) -> None:
    """Release the ballast of this data directory when its disk is nearly full."""
    ballast = path / _BALLAST
    if room.free_bytes < room.low_water_bytes // 2 and ballast.exists():
        ballast.unlink()
        _log.warning("the disk of %s is nearly full: the ballast is given up", path)


def release_reserve(path: Path) -> None:
    """Release the reserve: enough for the WAL between two checkpoints, and for table pages."""
    with contextlib.suppress(FileNotFoundError):
        (path / _RESERVE).unlink()
        _log.warning("the disk of %s is full: the reserve is given up", path)


def take_ballast(path: Path, room: DiskSpace) -> None:
    """Create the reserve or the ballast of this data directory, one per call, if there is space for
    it besides that for sends."""
    for name, size in ((_RESERVE, _LEAST_WAL_BYTES), (_BALLAST, room.ballast_bytes)):
        if not (path / name).exists():
            if room.free_bytes >= room.recovered_bytes + size:
                _allocate(path / name, size)
            return


def _allocate(ballast: Path, size: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(ballast, flags, 0o600), "wb") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                for _ in range(size // _MIB):
                    file.write(bytes(_MIB))
    except OSError:
        with contextlib.suppress(OSError):
            ballast.unlink()


_LOCK = "gateway.lock"
_PGDATA = "pgdata"
_EPHEMERAL_PREFIX = "queuegate-ephemeral-"
_USUAL = Path("/tmp")
_MEMORY = Path("/dev/shm")
"""A file system in memory, where a copy of a cluster takes a fifth of the time."""
_LEAST_MEMORY_BYTES = 2 << 30
"""Free bytes to use it: containers usually have 64 MiB."""
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
    """Create a temporary directory, deleted at `close` or, after a crash, at the next call: in
    memory, unless there is too little or TMPDIR names another place."""
    parent = Path(tempfile.gettempdir())
    if not can_enter(account, parent):
        parent = _USUAL
    is_free = parent == _USUAL and os.access(_MEMORY, os.W_OK) and can_enter(account, _MEMORY)
    if is_free and disk_space_at(_MEMORY).free_bytes >= _LEAST_MEMORY_BYTES:
        parent = _MEMORY
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
