"""A queue into an archive, from the queue to the rows."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import spark_connectors
from spark_connectors.pipelines.archiving.archive import ArchivePlan, archive
from spark_connectors.pipelines.archiving.delta import check_delta
from spark_connectors.pipelines.archiving.places import BadArchive
from spark_connectors.pipelines.archiving.reading import read_archive
from spark_connectors.pipelines.telling import instant
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
    first = archive(spark, str(tmp_path), ArchivePlan(options))
    assert first.rows == 30
    assert (instant(first.first_sent) or "") >= "2026"
    assert first.first_sent is not None
    assert first.last_sent is not None
    assert first.first_sent <= first.last_sent
    send(gateway, url, numbers(40)[30:])
    assert archive(spark, str(tmp_path), ArchivePlan(options)).rows == 10
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
    command += ["--archive", str(tmp_path), "--master", "local[1]"]
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
    plan = ArchivePlan({**options, "queueUrl": url})

    def is_complete() -> bool:
        archive(spark, str(tmp_path), plan)
        return len(bodies_of(spark, tmp_path)) >= 300

    wait_for(is_complete, 200)
    assert bodies_of(spark, tmp_path) == numbers(300)


def test_a_session_without_delta_is_told_what_to_do(spark: SparkSession) -> None:
    with pytest.raises(BadArchive, match=r"io\.delta:delta-spark_2\.13:4\.4\.0"):
        check_delta(spark)
