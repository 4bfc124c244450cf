"""Compaction: the many small files of a day become few, and no reader ever sees a row twice or
misses one, whenever this is killed."""

from __future__ import annotations

import datetime
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from spark_connectors.pipelines.archiving.manifests import (
    Manifest,
    read_manifests,
    snapshot,
    write_manifest,
)
from spark_connectors.pipelines.archiving.metadata_log import DataFile
from spark_connectors.pipelines.archiving.places import (
    COMPACTED,
    DATA,
    About,
    ArchivePlace,
    BadArchive,
    about,
)
from spark_connectors.pipelines.archiving.reading import SENT_DATE, read_files
from spark_connectors.pipelines.telling import SILENT, Teller, size, span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_UNFINISHED_SECONDS = 86_400
_ORDER = ("sent_timestamp", "sequence_number", "message_id")


class CompactPlan(NamedTuple):
    """Which days, and how. ``before``: only days earlier than this one; None: than today (UTC)."""

    before: datetime.date | None = None
    target_bytes: int = 128 << 20
    least_files: int = 2
    # Called with the name of each step that was done. Tests stop here.
    probe: Callable[[str], None] = lambda _: None


class CompactSummary(NamedTuple):
    """What a compaction did."""

    days: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    rows: int
    lost_races: int
    seconds: float

    def lines(self) -> list[str]:
        """For people."""
        if not self.files_before:
            return [f"nothing to compact ({span(self.seconds)})"]
        found = [
            f"days compacted: {self.days}, in {span(self.seconds)}, {self.rows:,} rows",
            f"files {self.files_before:,} -> {self.files_after:,}, "
            f"{size(self.bytes_before)} -> {size(self.bytes_after)}",
        ]
        if self.lost_races:
            found.append(f"days that another compacted meanwhile: {self.lost_races}")
        return found

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return self._asdict()


def compact(
    spark: SparkSession, root: str, plan: CompactPlan | None = None, teller: Teller = SILENT
) -> CompactSummary:
    """Rewrite the small files of closed days, a day at a time.

    Each day becomes real in one step, its manifest. Killed before it, the day is as it was and what
    was written is never read (vacuum removes it). The replaced files stay, and readers that hold
    them go on; only vacuum removes them. Messages that arrive later for such a day are files of
    their own until the next compaction. Raises BadArchive.
    """
    plan = plan or CompactPlan()
    place = ArchivePlace(root)
    what = _parquet(place)
    began = time.monotonic()
    days = _small_files(snapshot(place).live, plan)
    teller.say(f"days to compact in {place}: {len(days)}")
    done = []
    lost = 0
    for number, (day, files) in enumerate(sorted(days.items()), 1):
        manifest = _rewrite_day(spark, place, what, files, plan)
        plan.probe("written")
        teller.step(
            f"day {number} of {len(days)}: {day}, {len(files)} files -> {len(manifest.files)}, "
            f"{manifest.rows:,} rows"
        )
        if write_manifest(place, manifest):
            done.append((files, manifest))
        else:
            lost += 1
        plan.probe("committed")
    return CompactSummary(
        days=len(done),
        files_before=sum(len(files) for files, _ in done),
        files_after=sum(len(manifest.files) for _, manifest in done),
        bytes_before=sum(file.size_bytes for files, _ in done for file in files),
        bytes_after=sum(file.size_bytes for _, manifest in done for file in manifest.files),
        rows=sum(manifest.rows for _, manifest in done),
        lost_races=lost,
        seconds=time.monotonic() - began,
    )


def _parquet(place: ArchivePlace) -> About:
    what = about(place)
    if what is None:
        raise BadArchive(f"{place} is no archive: it has no archive.json")
    if what.format != "parquet":
        raise BadArchive(f"{place} is in format {what.format}, which compacts by OPTIMIZE")
    return what


def _small_files(live: list[DataFile], plan: CompactPlan) -> dict[str, list[DataFile]]:
    """Per closed day the files that are worth rewriting."""
    before = (plan.before or datetime.datetime.now(datetime.UTC).date()).isoformat()
    days: dict[str, list[DataFile]] = defaultdict(list)
    for file in live:
        # Above half of the target a file is no burden; names of days sort as the days do.
        if file.sent_date < before and file.size_bytes < plan.target_bytes // 2:
            days[file.sent_date].append(file)
    return {day: files for day, files in days.items() if len(files) >= plan.least_files}


def _rewrite_day(
    spark: SparkSession, place: ArchivePlace, what: About, files: list[DataFile], plan: CompactPlan
) -> Manifest:
    day = files[0].sent_date
    paths = [file.path for file in files]
    rows = read_files(spark, place, what, paths).drop(SENT_DATE)
    # The time in the name tells a vacuum how old a directory is that no manifest knows.
    generation = f"{COMPACTED}sent_date={day}/{int(time.time())}-{uuid.uuid4()}/"
    plan.probe("chosen")
    wanted = max(1, round(sum(file.size_bytes for file in files) / plan.target_bytes))
    _ordered(rows, wanted).write.parquet(place.below(generation))
    written = _written(spark, place, generation)
    expected = read_files(spark, place, what, paths).count()
    found = read_files(spark, place, what, [file.path for file in written]).count()
    if expected != found:
        raise BadArchive(f"{day}: {expected} rows became {found}; nothing was changed")
    return Manifest(day, tuple(written), tuple(paths), found, time.time())


def _ordered(rows: DataFrame, files: int) -> DataFrame:
    """By time: statistics of row groups then let a reader skip most of a day."""
    columns = [name for name in _ORDER if name in rows.columns]
    if files == 1:
        return rows.coalesce(1).sortWithinPartitions(*columns)
    return rows.repartitionByRange(files, *columns).sortWithinPartitions(*columns)


def _written(spark: SparkSession, place: ArchivePlace, generation: str) -> list[DataFile]:
    """What the job wrote, with sizes: binaryFile looks at no content that is not selected."""
    files = spark.read.format("binaryFile").option("pathGlobFilter", "*.parquet")
    found = files.load(place.below(generation)).select("path", "length").collect()
    named = ((str(row[0]).rpartition("/")[2], int(row[1])) for row in found)
    return [DataFile(generation + name, length) for name, length in sorted(named)]


class VacuumSummary(NamedTuple):
    """What a vacuum removed."""

    replaced_files: int
    abandoned_files: int
    seconds: float

    def lines(self) -> list[str]:
        """For people."""
        return [
            f"removed {self.replaced_files:,} replaced files and {self.abandoned_files:,} of "
            f"compactions that never ended ({span(self.seconds)})"
        ]

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return self._asdict()


def vacuum(root: str, older_than_seconds: float, plan: CompactPlan | None = None) -> VacuumSummary:
    """Remove what compactions of at least this age replaced, and what killed ones left behind.

    Readers that began before a compaction may still read what it replaced: the age must exceed the
    longest of them. From then on data/ is read through read_archive only: Spark's own log names the
    removed files still. What a compaction left unfinished is kept for a day at least, for it may be
    at work. Raises BadArchive.
    """
    plan = plan or CompactPlan()
    place = ArchivePlace(root)
    _parquet(place)
    began = time.monotonic()
    store = place.store()
    latest = time.time() - older_than_seconds
    manifests = read_manifests(place).values()
    replaced = {
        path
        for manifest in manifests
        if manifest.written_at <= latest
        for path in manifest.replaces
    }
    named = {file.path for manifest in manifests for file in manifest.files}
    kept = {_directory(path) for path in named - replaced}
    oldest = min(latest, time.time() - _UNFINISHED_SECONDS)
    gone = [path for path in (*store.names(DATA), *store.names(COMPACTED)) if path in replaced]
    abandoned = [
        path
        for path in store.names(COMPACTED)
        if path not in named and _directory(path) not in kept and _generation_time(path) <= oldest
    ]
    for path in (*gone, *abandoned):
        store.remove(path)
        # Hadoop's checksum of a local file.
        store.remove(f"{_directory(path)}/.{path.rpartition('/')[2]}.crc")
        plan.probe("removed")
    return VacuumSummary(len(gone), len(abandoned), time.monotonic() - began)


def _directory(path: str) -> str:
    return path.rpartition("/")[0]


def _generation_time(path: str) -> float:
    """When the compaction of this path began; for others never."""
    parts = path.removeprefix(COMPACTED).split("/")
    began = parts[1].partition("-")[0] if len(parts) > 2 else ""
    return int(began) if began.isdigit() else float("inf")
