"""Where the parts of an archive lie, and what it says of itself."""

from __future__ import annotations

import json
import os
import re
from typing import Any, NamedTuple

from spark_connectors.errors import ConnectorError
from spark_connectors.spool.opening import open_store
from spark_connectors.spool.stores import Missing, Store

DATA = "data/"
REPLAYS = "replays/"
_ABOUT = "archive.json"
# Earlier versions wrote it when they compacted: the files that it names are not in Spark's log.
_COMPACTED = "manifests/"
# What open_store reaches; Spark reaches more.
_STORED = re.compile(r"^(file:|s3:|s3a:)")
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:")


class BadArchive(ConnectorError):
    """A directory that is no archive, or not one that this can be done with."""


class ArchivePlace:
    """An archive's directory. A path without a scheme is local, relative to the present directory.

    data/ checkpoint/ spool/ belong to the stream that archives, replays/ to replays.
    """

    def __init__(self, root: str) -> None:
        if not root:
            raise BadArchive("an archive needs a directory")
        is_local = not _SCHEME.match(root)
        self.root = ("file://" + os.path.abspath(root)) if is_local else root.rstrip("/")

    def __str__(self) -> str:
        return self.root

    def below(self, name: str) -> str:
        """The path of something in the archive."""
        return f"{self.root}/{name}".rstrip("/")

    @property
    def is_stored(self) -> bool:
        """Whether its small files can be read and written: local directories and S3."""
        return bool(_STORED.match(self.root))

    def store(self, name: str = "") -> Store:
        """The archive's files, or those below ``name``. Raises BadArchive where none can be."""
        if not self.is_stored:
            raise BadArchive(
                f"{self.root}: this works in local (or mounted) directories and in S3 only"
            )
        return open_store(self.below(name))


class About(NamedTuple):
    """What an archive says of itself, in ``archive.json``: written once, when it begins."""

    format: str  # parquet or delta
    schema: dict[str, Any]  # Spark's, as JSON, with sent_date


def about(place: ArchivePlace) -> About | None:
    """None: nothing was archived here. Raises BadArchive when its description is damaged, or when
    it is one that only an older version can read."""
    if not place.is_stored:
        return None
    try:
        found = json.loads(place.store().get(_ABOUT))
        what = About(found["format"], found["schema"])
    except Missing:
        return None
    except (ValueError, KeyError, TypeError):
        raise BadArchive(f"{place.below(_ABOUT)} is damaged") from None
    if what.format == "parquet" and place.store().names(_COMPACTED):
        raise BadArchive(
            f"{place} was compacted by an older version, whose files Spark's log does not name: "
            "write its rows anew with that version, "
            f"read_archive(spark, '{place}').write.parquet(...), and archive into another directory"
        )
    return what


def begin(place: ArchivePlace, wanted: About) -> None:
    """Make ``place`` an archive of this kind.

    Raises BadArchive when it is one of another kind already.
    """
    if not place.is_stored:
        return
    there = about(place)
    text = json.dumps({"version": 1, "format": wanted.format, "schema": wanted.schema})
    if there is None and place.store().put_if_absent(_ABOUT, text.encode()):
        return
    there = there or about(place)
    if there is None or there.format != wanted.format:
        kind = there.format if there else "unknown"
        raise BadArchive(f"{place} is an archive in format {kind}, not {wanted.format}")
    if _columns(there) != _columns(wanted):
        raise BadArchive(
            f"{place} was begun with other columns ({', '.join(_columns(there))}): "
            "what is archived must stay as it was, and so must unwrapSns, valueFormat, "
            "includeReceiptHandle and includeHeaders"
        )


def _columns(of: About) -> list[str]:
    return [str(field["name"]) for field in of.schema["fields"]]
