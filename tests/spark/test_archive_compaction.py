"""Compaction of an archive: every row once, for every reader, whenever it is killed."""

from __future__ import annotations

import datetime
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_connectors.pipelines.archiving.compact import CompactPlan, compact, vacuum
from spark_connectors.pipelines.archiving.manifests import snapshot
from spark_connectors.pipelines.archiving.places import About, ArchivePlace, BadArchive, begin
from spark_connectors.pipelines.archiving.reading import read_archive
from tests.spark.archived_rows import append, ids, row
from tests.spark.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = datetime.timedelta(days=1)
FIRST = datetime.datetime(2026, 11, 1, 12, tzinfo=datetime.UTC)


class Killed(BaseException):
    """What a kill is to the code under test: nothing of it runs afterwards."""


def kill_at(step: str, times: int = 1) -> CompactPlan:
    """A plan that ends at that step, when it comes there for the given time."""
    left = [times]

    def probe(reached: str) -> None:
        left[0] -= reached == step
        if reached == step and left[0] == 0:
            raise Killed

    return CompactPlan(probe=probe)


@pytest.fixture(scope="module")
def template(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of 3 batches, 40 rows, 2 days."""
    root = tmp_path_factory.mktemp("archives") / "template"
    work = tmp_path_factory.mktemp("work")
    for batch in range(3):
        rows = [row(20 * batch + n, sent=FIRST + (n % 2) * DAY) for n in range(20)]
        append(spark, root, rows, work)
    return root


@pytest.fixture
def archive(template: Path, tmp_path: Path) -> Path:
    """A copy of it elsewhere: paths in Spark's log are those of the template."""
    return Path(shutil.copytree(template, tmp_path / "moved"))


def expected(rows: int = 60) -> list[str]:
    return [row(number)["message_id"] for number in range(rows)]


def test_a_compacted_archive_has_the_same_rows_in_fewer_files(
    spark: SparkSession, archive: Path
) -> None:
    before = read_archive(spark, str(archive))
    assert ids(before) == expected()
    summary = compact(spark, str(archive))
    assert (summary.days, summary.rows, summary.files_after) == (2, 60, 2)
    assert summary.files_before == len(snapshot(ArchivePlace(str(archive))).logged)
    after = read_archive(spark, str(archive))
    assert ids(after) == expected()
    assert after.schema == before.schema
    plain = [name for name in after.columns if name != "message_attributes"]
    assert after.select(plain).exceptAll(before.select(plain)).isEmpty()
    assert ids(before) == expected(), "a reader from before goes on"
    assert {str(day[0]) for day in after.select("sent_date").distinct().collect()} == {
        "2026-11-01",
        "2026-11-02",
    }
    assert compact(spark, str(archive)).files_before == 0


def test_only_days_before_the_given_one_are_compacted(spark: SparkSession, archive: Path) -> None:
    summary = compact(spark, str(archive), CompactPlan(before=datetime.date(2026, 11, 2)))
    assert (summary.days, summary.rows) == (1, 30)
    assert ids(read_archive(spark, str(archive))) == expected()


@pytest.mark.parametrize(
    ("step", "times"), [("chosen", 1), ("written", 1), ("written", 2), ("committed", 1)]
)
def test_killed_at_any_step_every_row_is_there_once(
    spark: SparkSession, archive: Path, step: str, times: int
) -> None:
    with pytest.raises(Killed):
        compact(spark, str(archive), kill_at(step, times))
    assert ids(read_archive(spark, str(archive))) == expected()
    compact(spark, str(archive))
    assert ids(read_archive(spark, str(archive))) == expected()
    assert len(snapshot(ArchivePlace(str(archive))).live) == 2


@pytest.mark.soak
def test_killed_in_the_middle_of_writing(archive: Path, spark: SparkSession) -> None:
    """A process of its own, killed with SIGKILL while Spark writes."""
    code = (
        "import sys\n"
        "from pyspark.sql import SparkSession\n"
        "from spark_connectors.pipelines.archiving.compact import compact\n"
        "spark = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false')\n"
        "compact(spark.getOrCreate(), sys.argv[1])\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(archive)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_for(lambda: [*archive.glob("compacted/**/*.parquet")], 120)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
    assert ids(read_archive(spark, str(archive))) == expected()
    compact(spark, str(archive))
    assert ids(read_archive(spark, str(archive))) == expected()


def test_what_arrives_later_is_compacted_with_what_was(
    spark: SparkSession, template: Path, tmp_path: Path
) -> None:
    root, work = tmp_path / "archive", tmp_path / "work"
    append(spark, root, [row(n, sent=FIRST) for n in range(20)], work)
    compact(spark, str(root))
    append(spark, root, [row(n, sent=FIRST) for n in range(20, 40)], work)
    assert ids(read_archive(spark, str(root))) == expected(40)
    compact(spark, str(root))
    assert ids(read_archive(spark, str(root))) == expected(40)
    assert len(snapshot(ArchivePlace(str(root))).live) == 1


def test_of_two_compactions_of_a_day_one_counts(spark: SparkSession, archive: Path) -> None:
    def meanwhile(step: str) -> None:
        if step == "chosen" and not done:
            done.append(compact(spark, str(archive)))

    done: list[object] = []
    loser = compact(spark, str(archive), CompactPlan(probe=meanwhile))
    assert (loser.days, loser.lost_races) == (0, 2)
    assert ids(read_archive(spark, str(archive))) == expected()


def test_a_vacuum_removes_what_nobody_reads(spark: SparkSession, archive: Path) -> None:
    with pytest.raises(Killed):
        compact(spark, str(archive), kill_at("written"))
    (abandoned,) = archive.glob("compacted/*/*")
    compact(spark, str(archive))
    assert vacuum(str(archive), 3600).replaced_files == 0
    with pytest.raises(Killed):
        vacuum(str(archive), 0, kill_at("removed", 3))
    assert ids(read_archive(spark, str(archive))) == expected()
    assert vacuum(str(archive), 0).replaced_files > 0
    assert not [*archive.glob("data/sent_date=*/*.parquet")]
    assert [*abandoned.iterdir()], "it may be at work still"
    old = abandoned.with_name(f"{int(time.time()) - 90_000}-" + abandoned.name.partition("-")[2])
    abandoned.rename(old)
    assert vacuum(str(archive), 0).abandoned_files > 0
    assert not [*old.iterdir()]
    assert ids(read_archive(spark, str(archive))) == expected()


def test_files_of_failed_attempts_are_not_read(spark: SparkSession, archive: Path) -> None:
    (directory, *_) = archive.glob("data/sent_date=*")
    (file, *_) = directory.glob("*.parquet")
    shutil.copy(file, directory / "part-99999-orphan.c000.snappy.parquet")
    (directory / "part-99998-empty.c000.snappy.parquet").touch()
    assert ids(read_archive(spark, str(archive))) == expected()
    compact(spark, str(archive))
    assert ids(read_archive(spark, str(archive))) == expected()


def test_a_directory_that_is_no_archive(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(BadArchive, match=r"no archive\.json"):
        read_archive(spark, str(tmp_path))
    with pytest.raises(BadArchive, match=r"no archive\.json"):
        compact(spark, str(tmp_path))


def test_an_archive_stays_what_it_was_begun_as(tmp_path: Path) -> None:
    place = ArchivePlace(str(tmp_path))
    narrow = {"fields": [{"name": "body"}]}
    begin(place, About("parquet", narrow))
    begin(place, About("parquet", narrow))
    with pytest.raises(BadArchive, match="format parquet, not delta"):
        begin(place, About("delta", narrow))
    with pytest.raises(BadArchive, match="other columns"):
        begin(place, About("parquet", {"fields": [{"name": "topic_arn"}]}))


def test_a_damaged_log_is_no_empty_archive(spark: SparkSession, archive: Path) -> None:
    log = archive / "data/_spark_metadata/1"
    log.write_text("v1\n{}")
    with pytest.raises(BadArchive, match="a line that is no file"):
        read_archive(spark, str(archive))
