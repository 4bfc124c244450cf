"""The store that a path means."""

from __future__ import annotations

import re

from spark_connectors.errors import ConnectorError
from spark_connectors.spool.local_store import LocalStore
from spark_connectors.spool.memory_store import MemoryStore
from spark_connectors.spool.s3_store import S3Store
from spark_connectors.spool.stores import Store, StoreAccess

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)


def open_store(path: str, *, access: StoreAccess | None = None, name: str = "spoolPath") -> Store:
    """The store at a path: ``/dir``, ``file:/dir``, ``file:///dir``, ``s3://bucket/prefix`` (also
    ``s3a:``) or ``memory:NAME``, which ends with the process.

    Nothing is created before the first ``put_if_absent``. Raises ConnectorError for any other path;
    ``name``: what the path is called there.
    """
    scheme, place = checked_path(path, name)
    if scheme == "file":
        return LocalStore(place)
    if scheme == "s3":
        bucket, _, prefix = place.partition("/")
        return S3Store(bucket, prefix, access or StoreAccess())
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
