"""Where a spool lives: named, immutable files in a directory, below an S3 prefix, or in memory.

The whole of the spool's safety against a crash and against a second driver rests on one call,
``put_if_absent``: a name is there completely and durably or not at all, and has one writer.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol

from spark_connectors.transport.wire import ConnectorError

# Names of files that are being written, or only try something: never listed.
HIDDEN = ".tmp-"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)


class Missing(ConnectorError):
    """There is no file of that name."""

    def __init__(self, place: str, name: str) -> None:
        super().__init__(f"there is no {name} in {place}")
        self.name = name


class StoreFailed(ConnectorError):
    """The storage did not do what it was asked: full, unreachable, no permission."""


class BadName(ConnectorError):
    """The name would leave the store, or hide in it."""


class Store(Protocol):
    """Files by name; ``/`` in a name is a directory. Safe to use from several threads.

    Every method raises StoreFailed when the storage fails, and BadName.
    """

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        """Write a file that is not there yet: whole and durable when this returns True.

        False: there was one, which is untouched and as durable.
        """
        ...

    def get(self, name: str) -> bytes:
        """The content. Raises Missing."""
        ...

    def names(self, prefix: str) -> list[str]:
        """The names that begin with this text, which need not end at a ``/``; sorted, whole."""
        ...

    def remove(self, name: str) -> None:
        """Remove the file if it is there. It may be back after a power failure."""
        ...


class StoreAccess(NamedTuple):
    """How to reach S3. What is None comes from the environment and the profile, as in boto3:
    the endpoint from AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or the profile's services, then AWS."""

    endpoint_url: str | None = None  # option spoolEndpointUrl
    region: str | None = None
    profile: str | None = None


def checked_name(name: str) -> str:
    """The name, if it can be one: relative, without empty, ``.``, ``..`` or hidden parts."""
    parts = name.split("/")
    if "\0" in name or any(p in ("", ".", "..") or p.startswith(HIDDEN) for p in parts):
        raise BadName(f"{name!r} cannot be the name of a file in a spool")
    return name


def checked_prefix(prefix: str) -> str:
    """The prefix, if names can begin with it."""
    directory, slash, _ = prefix.rpartition("/")
    if slash:
        checked_name(directory)
    return prefix


def open_store(path: str, *, access: StoreAccess | None = None, name: str = "spoolPath") -> Store:
    """The store at a path: ``/dir``, ``file:/dir``, ``file:///dir``, ``s3://bucket/prefix`` (also
    ``s3a:``) or ``memory:NAME``, which ends with the process.

    Nothing is created before the first ``put_if_absent``. Raises ConnectorError for any other path;
    ``name``: what the path is called there.
    """
    scheme, place = checked_path(path, name)
    if scheme == "file":
        from spark_connectors.spool.local_store import LocalStore

        return LocalStore(place)
    if scheme == "s3":
        from spark_connectors.spool.s3_store import S3Store

        bucket, _, prefix = place.partition("/")
        return S3Store(bucket, prefix, access or StoreAccess())
    from spark_connectors.spool.memory_store import MemoryStore

    return MemoryStore(place)


def checked_path(path: str, name: str = "spoolPath") -> tuple[str, str]:
    """Scheme (file, s3 or memory) and what is behind it: a directory, bucket/prefix, a name.

    Raises ConnectorError as open_store does.
    """
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
        "for tests in one process"
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
