"""A queue into an archive, from the queue to the rows."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

import spark_connectors
from spark_connectors.pipelines.pipeline_commands import format_of, main
from spark_connectors.pipelines.queue_archive import (
    SPARK_OF_PACKAGE,
    ArchiveDescription,
    ArchivePlace,
    ArchivePlan,
    BadArchive,
    archive,
    begin,
    check_delta,
    instant,
    read_archive,
)
from tests.spark.archived_rows import append, ids, row
from tests.spark.crash.points import kill_session
from tests.spark.queues import client_of
from tests.spark.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def send(endpoint: str, url: str, bodies: list[str]) -> None:
    client = client_of("sqs", endpoint)
    fifo = url.endswith(".fifo")
    for start in range(0, len(bodies), 10):
        entries: list[dict[str, str]] = []
        for body in bodies[start : start + 10]:
            entry = {"Id": str(len(entries)), "MessageBody": body}
            if fifo:
                entry |= {"MessageGroupId": f"g{int(body) % 3}", "MessageDeduplicationId": body}
            entries.append(entry)
        client.send_message_batch(QueueUrl=url, Entries=entries)


def bodies_of(spark: SparkSession, root: Path) -> list[str]:
    rows = read_archive(spark, str(root)).select("body").collect()
    return sorted((str(one[0]) for one in rows), key=int)


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


@pytest.mark.parametrize("fifo", [False, True])
def test_a_queue_is_archived_and_what_comes_later_too(
    spark: SparkSession,
    gateway: str,
    make_queue: Callable[..., str],
    tmp_path: Path,
    fifo: bool,
) -> None:
    spark_connectors.register(spark)
    url = make_queue(gateway, fifo=fifo)
    options = {"queueUrl": url, "endpointUrl": gateway, "waitTimeSeconds": "1"}
    send(gateway, url, numbers(30))
    first = archive(spark, str(tmp_path), ArchivePlan(options, "parquet"))
    assert first.rows == 30
    assert (instant(first.first_sent) or "") >= "2026"
    assert first.first_sent is not None
    assert first.last_sent is not None
    assert first.first_sent <= first.last_sent
    send(gateway, url, numbers(40)[30:])
    assert archive(spark, str(tmp_path), ArchivePlan(options, "parquet")).rows == 10
    assert bodies_of(spark, tmp_path) == numbers(40)
    rows = read_archive(spark, str(tmp_path))
    assert rows.where("sent_date <> cast(sent_timestamp as date)").isEmpty()


@pytest.mark.soak
def test_killed_while_it_archives_every_message_is_there_once(
    spark: SparkSession, gateway: str, make_queue: Callable[..., str], tmp_path: Path
) -> None:
    spark_connectors.register(spark)
    url = make_queue(gateway)
    send(gateway, url, numbers(300))
    options = {
        "endpointUrl": gateway,
        "maxOffsetsPerTrigger": "20",
        "visibilityTimeout": "5",
        "waitTimeSeconds": "1",
    }
    command = [sys.executable, "-m", "spark_connectors.pipelines", "archive", "--queue", url]
    command += ["--archive", str(tmp_path), "--format", "parquet", "--master", "local[1]"]
    command += ["--conf", "spark.ui.enabled=false"]
    for name, value in options.items():
        command += ["--option", f"{name}={value}"]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        wait_for(lambda: (tmp_path / "checkpoint/offsets/2").exists(), 200)
    finally:
        kill_session(process.pid)
        process.wait(30)
    assert len(bodies_of(spark, tmp_path)) < 300
    plan = ArchivePlan({**options, "queueUrl": url}, "parquet")

    def is_complete() -> bool:
        archive(spark, str(tmp_path), plan)
        return len(bodies_of(spark, tmp_path)) >= 300

    wait_for(is_complete, 200)
    assert bodies_of(spark, tmp_path) == numbers(300)


def test_a_session_without_delta_is_told_what_to_do(spark: SparkSession) -> None:
    with pytest.raises(BadArchive, match=r"io\.delta:delta-spark_2\.13:4\.4\.0"):
        check_delta(spark)


@pytest.mark.skipif(pyspark.__version__.startswith(SPARK_OF_PACKAGE), reason="it has one")
def test_where_delta_has_no_release_it_is_said_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["archive", "--queue", "q", "--archive", str(tmp_path), "--quiet"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"archive: Delta Lake has no release for Spark {pyspark.__version__}")
    assert line.endswith("or --format parquet")
    assert list(tmp_path.iterdir()) == []


def test_an_archive_of_no_message_is_empty(
    spark: SparkSession, gateway: str, make_queue: Callable[..., str], tmp_path: Path
) -> None:
    spark_connectors.register(spark)
    options = {"queueUrl": make_queue(gateway), "endpointUrl": gateway, "waitTimeSeconds": "1"}
    assert archive(spark, str(tmp_path), ArchivePlan(options, "parquet")).rows == 0
    assert bodies_of(spark, tmp_path) == []


def test_what_an_older_version_compacted_is_told_and_not_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    append(spark, tmp_path, [row(1)], tmp_path)
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "00000001.json").write_text("{}")
    for use in (
        lambda: read_archive(spark, str(tmp_path)),
        lambda: archive(spark, str(tmp_path), ArchivePlan({"queueName": "q"}, "parquet")),
    ):
        with pytest.raises(
            BadArchive, match=r"compacted by an older version.* write its rows anew"
        ):
            use()


def test_parquet_that_was_moved_is_told_and_not_read_elsewhere(
    spark: SparkSession, tmp_path: Path
) -> None:
    append(spark, tmp_path / "here", [row(1)], tmp_path)
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    assert ids(read_archive(spark, str(tmp_path / "here"))) == [row(1)["message_id"]]
    with pytest.raises(BadArchive, match="moved or copied"):
        read_archive(spark, str(tmp_path / "there"))


def test_an_archive_stays_of_its_kind(spark: SparkSession, tmp_path: Path) -> None:
    append(spark, tmp_path, [row(1)], tmp_path)
    with pytest.raises(BadArchive, match="in format parquet, not delta"):
        begin(ArchivePlace(str(tmp_path)), ArchiveDescription("delta", {"fields": []}))
    assert format_of(str(tmp_path)) == "parquet"
    assert format_of(str(tmp_path / "none")) is None
