"""A store in a directory: of this machine, or of a network file system that all machines see."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import secrets
import threading
import uuid
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path

from spark_connectors.spool.stores import (
    HIDDEN,
    Missing,
    StoreFailed,
    checked_name,
    checked_prefix,
)

_ABSENT = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


def _no_probe(point: str) -> None:
    """What runs at the named points of a write, but in tests of crashes."""


class LocalStore:
    """Files below one directory, which is created at the first write.

    A file is written under a hidden name and gets its own by a hard link: the one operation that is
    atomic, refuses to replace, and works over NFS. ``probe`` is called with ``written`` and
    ``linked`` on the way.
    """

    def __init__(self, root: str, probe: Callable[[str], None] = _no_probe) -> None:
        self._root = Path(root)
        self._probe = probe
        self._durable: set[Path] = set()
        self._lock = threading.Lock()
        self._remove_leftovers()

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        target = self._root / checked_name(name)
        with self._failing(name):
            self._make_directory(target.parent)
            temporary = self._root / f"{_own_prefix()}{os.getpid()}-{secrets.token_hex(8)}"
            try:
                _write(temporary, data)
                self._probe("written")
                is_ours = _linked(temporary, target)
                self._probe("linked")
            finally:
                temporary.unlink(missing_ok=True)
            # Also when another was first: we rely on its file, and it may not have come this far.
            _sync_directory(target.parent)
            return is_ours

    def get(self, name: str) -> bytes:
        return self.part(name, 0)

    def part(self, name: str, start: int, stop: int | None = None) -> bytes:
        path = self._root / checked_name(name)
        with self._failing(name):
            try:
                with open(path, "rb", buffering=0) as file:
                    if start < 0:
                        start = max(0, file.seek(0, os.SEEK_END) + start)
                    file.seek(start)
                    return file.readall() if stop is None else _read(file, stop - start)
            except _ABSENT:
                raise Missing(str(self._root), name) from None

    def names(self, prefix: str) -> list[str]:
        directory = self._root / checked_prefix(prefix).rpartition("/")[0]
        with self._failing(prefix):
            return sorted(name for name in self._below(directory) if name.startswith(prefix))

    def sizes(self, prefix: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for name in self.names(prefix):
            with self._failing(name), contextlib.suppress(*_ABSENT):
                found[name] = (self._root / name).stat().st_size
        return found

    def remove(self, name: str) -> None:
        path = self._root / checked_name(name)
        with self._failing(name), contextlib.suppress(*_ABSENT):
            path.unlink()

    def _below(self, directory: Path) -> Iterator[str]:
        for where, _, files in os.walk(directory, onerror=_raise_unless_gone):
            for file in files:
                if not file.startswith(HIDDEN):
                    yield (Path(where) / file).relative_to(self._root).as_posix()

    def _make_directory(self, directory: Path) -> None:
        """Create it with its parents, durably: the entry of each is on disk in its own parent."""
        with self._lock:
            if directory in self._durable:
                return
            highest = next(d for d in (self._root, *self._root.parents) if d.is_dir())
            directory.mkdir(parents=True, exist_ok=True)
            # Not only those that were not there: another process may have created them just now.
            parent = directory
            while parent != highest:
                parent = parent.parent
                _sync_directory(parent)
            # The user made sure of what is above, and may not let us open it.
            with contextlib.suppress(OSError):
                _sync_directory(highest.parent)
            self._durable.add(directory)

    def _remove_leftovers(self) -> None:
        """Remove temporary files of dead processes of this machine. Files of other machines stay:
        their age by our clock says nothing, and their processes cannot be seen from here."""
        prefix = _own_prefix()
        # Whoever only reads may not be allowed to, and another may be at it as well.
        with contextlib.suppress(OSError), os.scandir(self._root) as entries:
            for entry in entries:
                writer = entry.name.removeprefix(prefix).partition("-")[0]
                if entry.name.startswith(prefix) and not _is_alive(int(writer)):
                    os.unlink(entry.path)

    @contextlib.contextmanager
    def _failing(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why = error.strerror or str(error)
            raise StoreFailed(f"{self._root / name}: {why}") from error


@functools.lru_cache(maxsize=1)
def _own_prefix() -> str:
    """Beginning of the names of temporary files of processes that this one can see: the same boot
    of the same machine, and the same container."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{HIDDEN}{boot}.{os.stat('/proc/self/ns/pid').st_ino}-"
    except OSError:
        # No leftover is found then, not even of this process.
        return f"{HIDDEN}{uuid.uuid4()}-"


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _read(file: FileIO, count: int) -> bytes:
    """So many bytes, or as many as there are."""
    content = b""
    while len(content) < count and (more := file.read(count - len(content))):
        content += more
    return content


def _write(path: Path, data: bytes | memoryview) -> None:
    # Not through tempfile: its files are the owner's alone, and executors may run as another user.
    with open(path, "xb", buffering=0) as file:
        rest = memoryview(data).cast("B")
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())


def _linked(temporary: Path, target: Path) -> bool:
    try:
        os.link(temporary, target)
    except FileExistsError:
        # Over NFS the answer to a link that was made can get lost, and its repetition says this.
        return os.stat(temporary).st_nlink > 1
    except OSError as error:
        if error.errno in _NO_HARD_LINKS:
            raise StoreFailed(
                f"spoolPath: the file system of {target.parent} refuses hard links "
                f"({error.strerror}), without which a spool is not safe; use a local disk, NFS "
                "or s3://"
            ) from error
        raise
    return True


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _raise_unless_gone(error: OSError) -> None:
    """For os.walk, which otherwise lists nothing when it may not read."""
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise error
