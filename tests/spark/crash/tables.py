"""The rows of a table as a reader that knows its log sees them, without a JVM.

A partition of a batch is a file, with its rows in their order. So the rows of a message group are
in the order in which the query saw them, because a group is in one partition of a batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq

from tests.spark.crash.engine import Row


def parquet_rows(table: Path) -> list[Row]:
    """The rows of Spark's file sink in the order of batches."""
    log = table / "_spark_metadata"
    if not log.exists():
        return []
    numbered = {int(entry.name.partition(".")[0]): entry for entry in _visible(log)}
    seen: set[str] = set()
    rows: list[Row] = []
    for number in sorted(numbered):
        lines = numbered[number].read_text().splitlines()[1:]
        entries = [json.loads(line) for line in lines]
        # A compact file has those of the batches before it as well.
        paths = [one["path"] for one in entries if one["path"] not in seen]
        seen.update(paths)
        rows += _rows(Path(unquote(urlsplit(path).path)) for path in paths)
    return rows


def delta_rows(table: Path) -> list[Row]:
    """The same of a Delta table; every commit is a batch."""
    rows: list[Row] = []
    log = table / "_delta_log"
    for entry in sorted(_visible(log) if log.exists() else ()):
        if entry.suffix != ".json":
            continue
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        assert not any("remove" in action for action in actions)
        added = [action["add"]["path"] for action in actions if "add" in action]
        rows += _rows(table / unquote(path) for path in added)
    return rows


def _visible(directory: Path) -> list[Path]:
    """Files; not those being written, nor checksums."""
    return [one for one in directory.iterdir() if one.is_file() and one.name[0] not in "._"]


def _rows(paths: Iterable[Path]) -> list[Row]:
    found = [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]
    return [(row["body"], row["message_group_id"], row["sequence_number"]) for row in found]
