"""Where a spool lives: named, immutable files in a directory, below an S3 prefix, or in memory.

The whole of the spool's safety against a crash and against a second driver rests on one call,
``put_if_absent``: a name is there completely and durably or not at all, and has one writer.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from spark_connectors.errors import ConnectorError

# Names of files that are being written, or only try something: never listed.
HIDDEN = ".tmp-"


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

    def part(self, name: str, start: int, stop: int | None = None) -> bytes:
        """The bytes of the content that a slice of it has: nothing where it has none, a negative
        ``start``, without ``stop``, counts from the end. No more is read. Raises Missing."""
        ...

    def names(self, prefix: str) -> list[str]:
        """The names that begin with this text, which need not end at a ``/``; sorted, whole."""
        ...

    def sizes(self, prefix: str) -> dict[str, int]:
        """The same names, and how many bytes each has."""
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
