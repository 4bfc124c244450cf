"""The log of Spark's file sink: which files in data/ are the archive, and which are left over from
attempts that failed.

As FileStreamSinkLog writes it: one file a batch, named by its number; every tenth by default is
``N.compact`` and holds all before it as well.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from spark_connectors.pipelines.archiving.places import ArchivePlace, BadArchive
from spark_connectors.spool.stores import Missing, Store

_NAME = re.compile(r"(\d+)(\.compact)?$")
_RELATIVE = re.compile(r".*/data/(sent_date=[^/]+/[^/]+)$")
# Spark drops small log files once a compact one has them: listing and reading then starts again.
_ATTEMPTS = 5


class DataFile(NamedTuple):
    """A file of the archive, by its path within the archive."""

    path: str
    size_bytes: int

    @property
    def sent_date(self) -> str:
        """The day it belongs to, as the directory's name says it."""
        return self.path.partition("sent_date=")[2].partition("/")[0]


def logged_files(place: ArchivePlace) -> list[DataFile]:
    """Every file that a committed batch wrote into data/, in the order of the batches.

    Paths in the log are absolute, and those of the place where it was written: what counts is the
    part below data/, so an archive can be moved. Raises BadArchive when the log is damaged.
    """
    store = place.store("data/_spark_metadata")
    for _ in range(_ATTEMPTS):
        try:
            return _read(store, _current(store.names("")))
        except Missing:
            continue
    raise BadArchive(f"{place}: the log of its files changes faster than it can be read")


def _current(names: list[str]) -> list[str]:
    """The newest compact file and the batches after it."""
    numbered = {match[0]: int(match[1]) for name in names if (match := _NAME.fullmatch(name))}
    compact = [name for name in numbered if name.endswith(".compact")]
    newest = max(compact, key=lambda name: numbered[name], default=None)
    least = -1 if newest is None else numbered[newest]
    later = [name for name in numbered if numbered[name] > least and name not in compact]
    later.sort(key=lambda name: numbered[name])
    return ([newest] if newest is not None else []) + later


def _read(store: Store, names: list[str]) -> list[DataFile]:
    files: dict[str, DataFile] = {}
    for name in names:
        version, *lines = store.get(name).decode().splitlines()
        if version != "v1":
            raise BadArchive(f"_spark_metadata/{name} has version '{version}', not v1")
        for line in lines:
            found = _file(line, name)
            files[found.path] = found
    return list(files.values())


def _file(line: str, name: str) -> DataFile:
    try:
        entry = json.loads(line)
        match = _RELATIVE.match(entry["path"])
        if match is None or entry["action"] != "add":
            raise ValueError
        return DataFile(f"data/{match[1]}", int(entry["size"]))
    except (ValueError, KeyError, TypeError):
        raise BadArchive(f"_spark_metadata/{name} has a line that is no file: {line:.80}") from None
