"""Stores of a spool: named, immutable files in a directory, below an S3 prefix, or in memory.

The safety of the spool against a crash and against a second driver rests on one call,
``put_if_absent``: a file is there completely and durably or not at all, and has one writer.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import random
import re
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from spark_connectors.errors import ConnectorError

# Prefix of files that are being written, or only test something: never listed.
HIDDEN = ".tmp-"


class Missing(ConnectorError):
    """No file has that name."""

    def __init__(self, place: str, name: str) -> None:
        super().__init__(f"there is no {name} in {place}")
        self.name = name


class StoreFailed(ConnectorError):
    """The storage failed: full, unreachable, no permission."""


class Store(Protocol):
    """Files by name; ``/`` in a name is a directory. Thread-safe. Every method raises StoreFailed
    when the storage fails. Names are ours: relative, without empty, ``.`` or ``..`` parts."""

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        """Write a new file: whole and durable when this returns True. False: the file existed, and
        is unchanged and as durable."""
        ...

    def get(self, name: str) -> bytes:
        """Return the content. Raises Missing."""
        return self.part(name, 0)

    def part(self, name: str, start: int, stop: int | None = None) -> bytes:
        """Return a slice of the content: empty where the content ends before it; a negative
        ``start``, without ``stop``, counts from the end. Reads no more than that. Raises Missing.
        """
        ...

    def names(self, prefix: str) -> list[str]:
        """Return the names with this prefix, which need not end at a ``/``; sorted, whole."""
        return list(self.sizes(prefix))

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the same names, and the bytes of each."""
        ...

    def remove(self, name: str) -> None:
        """Remove the file if it exists. A power failure may restore it."""
        ...


class StoreAccess(NamedTuple):
    """Access to S3. None: taken from the environment and the profile, as in boto3: the endpoint
    from AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or the profile's services, then AWS."""

    endpoint_url: str | None = None  # option spoolEndpointUrl
    region: str | None = None
    profile: str | None = None


_ABSENT = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


class LocalStore(Store):
    """Files below one directory, of this machine or of a network file system. The first write
    creates it. A file is written under a hidden name and gets its own by a hard link: the one
    operation that is atomic, refuses to replace, and works over NFS. ``probe`` is called with
    ``written`` and ``linked`` on the way, by tests of crashes."""

    def __init__(self, root: str, probe: Callable[[str], object] = lambda _: None) -> None:
        self._root = Path(root)
        self._probe = probe
        self._durable: set[Path] = set()
        self._lock = threading.Lock()
        self._remove_leftovers()

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        target = self._root / name
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
            # Also when another writer was first: its file may not be durable yet.
            _sync_directory(target.parent)
            return is_ours

    def part(self, name: str, start: int, stop: int | None = None) -> bytes:
        path = self._root / name
        with self._failing(name):
            try:
                with open(path, "rb") as file:
                    if start < 0:
                        start = max(0, file.seek(0, os.SEEK_END) + start)
                    file.seek(start)
                    return file.read(None if stop is None else max(0, stop - start))
            except _ABSENT:
                raise Missing(str(self._root), name) from None

    def names(self, prefix: str) -> list[str]:
        directory = self._root / prefix.rpartition("/")[0]
        with self._failing(prefix):
            return sorted(name for name in self._below(directory) if name.startswith(prefix))

    def sizes(self, prefix: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for name in self.names(prefix):
            with self._failing(name), contextlib.suppress(*_ABSENT):
                found[name] = (self._root / name).stat().st_size
        return found

    def remove(self, name: str) -> None:
        path = self._root / name
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
            # Existing ones too: another process may have created them just now.
            parent = directory
            while parent != highest:
                parent = parent.parent
                _sync_directory(parent)
            # The user created the directories above, and may not let us open them.
            with contextlib.suppress(OSError):
                _sync_directory(highest.parent)
            self._durable.add(directory)

    def _remove_leftovers(self) -> None:
        """Remove temporary files of dead processes of this machine. Files of other machines stay:
        their clocks differ, and their processes cannot be seen from here."""
        prefix = _own_prefix()
        # A reader may have no permission, and another process may be removing them as well.
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
    """Return the prefix of temporary files of processes that this one can see: the same boot of the
    same machine, and the same container."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{HIDDEN}{boot}.{os.stat('/proc/self/ns/pid').st_ino}-"
    except OSError:
        # Then no leftover is found, not even of this process.
        return f"{HIDDEN}{uuid.uuid4()}-"


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


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
        # Over NFS the answer to a successful link can get lost, and its repetition fails like this.
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
    """Raise errors of os.walk, which would otherwise list nothing without permission."""
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise error


_stores: dict[str, dict[str, bytes]] = {}
_lock = threading.Lock()


class MemoryStore(Store):
    """Files in this process, for tests. Every instance of one name has the same files."""

    def __init__(self, name: str) -> None:
        self._place = f"memory:{name}"
        with _lock:
            self._files = _stores.setdefault(name, {})

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        content = bytes(data)
        with _lock:
            if name in self._files:
                return False
            self._files[name] = content
            return True

    def part(self, name: str, start: int, stop: int | None = None) -> bytes:
        with _lock:
            content = self._files.get(name)
        if content is None:
            raise Missing(self._place, name)
        return content[start:stop]

    def sizes(self, prefix: str) -> dict[str, int]:
        with _lock:
            files = sorted(self._files.items())
        return {name: len(content) for name, content in files if name.startswith(prefix)}

    def remove(self, name: str) -> None:
        with _lock:
            self._files.pop(name, None)


_TRIES = 8  # of one write that others collide with, and of each call by boto3
_LONGEST_PAUSE_SECONDS = 2.0
_WRITER = "queuegate-writer"
_CONFLICTS = frozenset({"ConditionalRequestConflict", "409"})
_REFUSALS = frozenset({"PreconditionFailed", "412"})
_ABSENCES = frozenset({"NoSuchKey", "404"})
_BEYOND = frozenset({"InvalidRange", "416"})

_proven: set[tuple[str, str]] = set()
_proving = threading.Lock()


class S3Store(Store):
    """Objects below a prefix of a bucket, written with ``If-None-Match: *``. Services that ignore
    it replace the object instead of refusing. So each process tries it with two writes of an object
    of its own before its first write to a bucket. Reading needs no permission to write."""

    def __init__(self, bucket: str, prefix: str, access: StoreAccess) -> None:
        try:
            import boto3
            from botocore.config import Config
        except ImportError as error:
            raise StoreFailed(f"a spool on S3 needs boto3: {error}") from error

        self._bucket = bucket
        self._base = f"{prefix}/" if prefix else ""
        self._place = f"s3://{bucket}/{prefix}"
        with self._failing(""):
            session = boto3.Session(region_name=access.region, profile_name=access.profile)
            config = Config(retries={"mode": "standard", "total_max_attempts": _TRIES})
            self._client: Any = session.client(
                "s3", endpoint_url=access.endpoint_url, config=config
            )

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        key = self._base + name
        content = bytes(data)
        with self._failing(name):
            self._prove_conditional_writes()
            return self._put(key, content)

    def part(self, name: str, start: int, stop: int | None = None) -> bytes:
        from botocore.exceptions import ClientError

        key = self._base + name
        with self._failing(name):
            try:
                return self._read(key, start, stop)
            except ClientError as error:
                if _code(error) in _BEYOND:
                    return b""
                if _code(error) in _ABSENCES:
                    raise Missing(self._place, name) from None
                raise

    def _read(self, key: str, start: int, stop: int | None) -> bytes:
        from botocore.exceptions import HTTPClientError, IncompleteReadError

        end = "" if stop is None else str(stop - 1)
        part = f"bytes={start}" if start < 0 else f"bytes={start}-{end}"
        how = {"Range": part} if start or stop is not None else {}
        for number in range(_TRIES):
            try:
                answer = self._client.get_object(Bucket=self._bucket, Key=key, **how)
                with contextlib.closing(answer["Body"]) as body:
                    content: bytes = body.read()
                break
            except (HTTPClientError, IncompleteReadError):
                # boto3 repeats the request itself, but not after a failure during the content.
                if number + 1 == _TRIES:
                    raise
        # Some services answer with the whole object.
        return content if "ContentRange" in answer else content[start:stop]

    def sizes(self, prefix: str) -> dict[str, int]:
        start = self._base + prefix
        pages = self._client.get_paginator("list_objects_v2")
        with self._failing(prefix):
            found = {
                item["Key"].removeprefix(self._base): item["Size"]
                for page in pages.paginate(Bucket=self._bucket, Prefix=start)
                for item in page.get("Contents", ())
            }
        return {name: found[name] for name in sorted(found) if not name.startswith(HIDDEN)}

    def remove(self, name: str) -> None:
        with self._failing(name):
            self._client.delete_object(Bucket=self._bucket, Key=self._base + name)

    def _put(self, key: str, content: bytes) -> bool:
        from botocore.exceptions import ClientError

        writer = secrets.token_hex(8)
        for number in range(_TRIES):
            try:
                self._client.put_object(
                    Bucket=self._bucket,
                    Key=key,
                    Body=content,
                    IfNoneMatch="*",
                    Metadata={_WRITER: writer},
                )
                return True
            except ClientError as error:
                if _code(error) not in _REFUSALS | _CONFLICTS:
                    raise
                is_refused = _code(error) in _REFUSALS
            if is_refused:
                # If the answer to our own write got lost, boto3 wrote again and was refused by it.
                return self._writer_of(key) == writer
            # Another write of the same name is under way: the winner is not yet decided.
            time.sleep(random.uniform(0, min(0.05 * 2**number, _LONGEST_PAUSE_SECONDS)))
        raise StoreFailed(f"s3://{self._bucket}/{key}: others kept writing it at the same time")

    def _writer_of(self, key: str) -> str | None:
        from botocore.exceptions import ClientError

        try:
            head = self._client.head_object(Bucket=self._bucket, Key=key)
        except ClientError as error:
            if _code(error) in _ABSENCES:  # removed since
                return None
            raise
        found: str | None = head["Metadata"].get(_WRITER)
        return found

    def _prove_conditional_writes(self) -> None:
        where = (self._client.meta.endpoint_url, self._bucket)
        with _proving:
            if where in _proven:
                return
            key = f"{self._base}{HIDDEN}{secrets.token_hex(8)}"
            try:
                is_kept = self._put(key, b"first") and not self._put(key, b"second")
            finally:
                self._client.delete_object(Bucket=self._bucket, Key=key)
            if not is_kept:
                raise StoreFailed(
                    f"{self._place}: this service ignores If-None-Match on writes, without which "
                    "two drivers would replace each other's files; use another service, or a "
                    "directory"
                )
            _proven.add(where)

    @contextlib.contextmanager
    def _failing(self, name: str) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (BotoCoreError, ClientError) as error:
            raise StoreFailed(f"{self._place} {name}: {error}") from error


def _code(error: Any) -> str:
    code: str = error.response.get("Error", {}).get("Code", "")
    return code


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)


def open_store(path: str, *, access: StoreAccess | None = None, name: str = "spoolPath") -> Store:
    """Open the store at a path: ``/dir``, ``file:/dir``, ``file:///dir``, ``s3://bucket/prefix``
    (also ``s3a:``) or ``memory:NAME``, which ends with the process. Nothing is created before the
    first ``put_if_absent``. Raises ConnectorError for any other path; ``name``: the path's name in
    the message."""
    scheme, place = checked_path(path, name)
    if scheme == "file":
        return LocalStore(place)
    if scheme == "s3":
        bucket, _, prefix = place.partition("/")
        return S3Store(bucket, prefix, access or StoreAccess())
    return MemoryStore(place)


def checked_path(path: str, name: str = "spoolPath") -> tuple[str, str]:
    """Return the scheme (file, s3 or memory) and the rest: a directory, bucket/prefix, a name.
    Raises ConnectorError as open_store does."""
    found = _SCHEME.fullmatch(path)
    scheme, rest = (found[1].lower(), found[2]) if found else ("file", path)
    if scheme == "file":
        return scheme, _directory(f"{name} {path}", rest)
    if scheme in ("s3", "s3a"):
        bucket, _, prefix = rest.removeprefix("//").partition("/")
        if not rest.startswith("//") or not bucket:
            raise ConnectorError(f"{name} {path}: it must be s3://bucket/prefix")
        return "s3", f"{bucket}/{prefix.strip('/')}"
    if scheme == "memory":
        return scheme, rest
    raise ConnectorError(
        f"{name} {path}: {scheme}: is not supported. It can be an absolute directory that the "
        "driver and all executors see (/dir or file:///dir), s3://bucket/prefix, or memory:NAME "
        "for tests in one process. On HDFS, GCS or ADLS: a directory on a disk that outlives the "
        "driver, with spoolPayload=inline, while checkpoint and table stay where they are; or NFS"
    )


def _directory(told: str, rest: str) -> str:
    if rest.startswith("//"):
        host, _, directory = rest[2:].partition("/")
        if host not in ("", "localhost"):
            raise ConnectorError(f"{told}: a directory cannot be on host {host}")
        rest = f"/{directory}"
    if not rest.startswith("/"):
        raise ConnectorError(
            f"{told}: the directory must be absolute, for executors may have another working "
            "directory"
        )
    return rest
