"""Manifests: each says that some compacted files stand for some files that were there before.

A manifest is one small file, put only where there is none of its number, and never changed. Writing
it is the one step that makes a compaction real: before it nobody reads the compacted files, after
it nobody reads those that they replace.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from spark_connectors.pipelines.archiving.metadata_log import DataFile, logged_files
from spark_connectors.pipelines.archiving.places import MANIFESTS, ArchivePlace, BadArchive

_NAME = re.compile(r"(\d{8})\.json$")
_READERS = 8


class Manifest(NamedTuple):
    """One compaction of one day. Paths are relative to the archive."""

    sent_date: str
    files: tuple[DataFile, ...]
    replaces: tuple[str, ...]
    rows: int
    written_at: float  # epoch seconds


class Snapshot(NamedTuple):
    """What an archive consists of at one moment."""

    manifests: dict[int, Manifest]
    logged: list[DataFile]

    @property
    def live(self) -> list[DataFile]:
        """The files that hold every archived row once."""
        replaced = {path for manifest in self.manifests.values() for path in manifest.replaces}
        compacted = [file for manifest in self.manifests.values() for file in manifest.files]
        return [file for file in (*self.logged, *compacted) if file.path not in replaced]


def snapshot(place: ArchivePlace) -> Snapshot:
    """The archive as it is now.

    Manifests are read before the log: one names only files that the log already had.
    """
    manifests = read_manifests(place)
    return Snapshot(manifests, logged_files(place))


def read_manifests(place: ArchivePlace) -> dict[int, Manifest]:
    """All of them, by number."""
    store = place.store(MANIFESTS)
    names = {name: int(match[1]) for name in store.names("") if (match := _NAME.fullmatch(name))}
    with ThreadPoolExecutor(_READERS) as pool:
        texts = pool.map(store.get, names)
        return {names[name]: _decode(text, name) for name, text in zip(names, texts, strict=True)}


def write_manifest(place: ArchivePlace, manifest: Manifest) -> bool:
    """Make the compaction real. False: another compaction replaced one of these files first, and
    what this one wrote stands for nothing."""
    store = place.store(MANIFESTS)
    text = _encode(manifest)
    while True:
        there = read_manifests(place)
        if _overlap(manifest.replaces, there.values()):
            return False
        if store.put_if_absent(f"{max(there, default=0) + 1:08}.json", text):
            return True


def _overlap(replaces: Sequence[str], there: Iterable[Manifest]) -> bool:
    wanted = set(replaces)
    return any(not wanted.isdisjoint(manifest.replaces) for manifest in there)


def _encode(manifest: Manifest) -> bytes:
    found = {
        "version": 1,
        "sent_date": manifest.sent_date,
        "rows": manifest.rows,
        "written_at": manifest.written_at,
        "files": [{"path": file.path, "bytes": file.size_bytes} for file in manifest.files],
        "replaces": manifest.replaces,
    }
    return json.dumps(found).encode()


def _decode(text: bytes, name: str) -> Manifest:
    try:
        found = json.loads(text)
        if found["version"] != 1:
            raise ValueError
        return Manifest(
            found["sent_date"],
            tuple(DataFile(one["path"], one["bytes"]) for one in found["files"]),
            tuple(found["replaces"]),
            found["rows"],
            found["written_at"],
        )
    except (ValueError, KeyError, TypeError):
        raise BadArchive(f"{MANIFESTS}{name} is damaged, or newer than this program") from None
