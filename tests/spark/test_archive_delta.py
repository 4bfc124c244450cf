"""Archives in Delta Lake's format, by the command, where there is a Delta Lake for this PySpark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_connectors.pipelines.archiving.delta import PACKAGE
from tests.spark.conftest import ROOT
from tests.spark.crash.points import kill_session
from tests.spark.queues import counts, fill
from tests.spark.waiting import wait_for

pytestmark = pytest.mark.delta


def command(archive: Path, *arguments: str) -> list[str]:
    settings = {
        "spark.jars.packages": PACKAGE,
        "spark.jars.ivy": ROOT / ".venvs/ivy",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": 1,
        "spark.databricks.delta.snapshotPartitions": 1,
    }
    plain = [text for name, value in settings.items() for text in ("--conf", f"{name}={value}")]
    return [
        *(sys.executable, "-m", "spark_connectors.pipelines", *arguments),
        *("--archive", str(archive), "--quiet", "--json", "-", *plain),
    ]


def run(archive: Path, *arguments: str) -> dict[str, object]:
    done = subprocess.run(
        command(archive, *arguments), capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    found: dict[str, object] = json.loads(done.stdout)
    return found


def distinct_and_all(archive: Path) -> tuple[int, int]:
    """Messages in the table as Delta's log has it: its live files, read without Spark."""
    import pyarrow.parquet as pq

    live: dict[str, bool] = {}
    for commit in sorted((archive / "data" / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            for kind in ("add", "remove"):
                if kind in action:
                    live[action[kind]["path"]] = kind == "add"
    ids: list[str] = []
    for path, is_live in live.items():
        if is_live:
            table = pq.read_table(
                archive / "data" / path, columns=["message_id"], partitioning=None
            )
            ids += table.column("message_id").to_pylist()
    return len(set(ids)), len(ids)


@pytest.mark.timeout(1800)
def test_killed_and_run_again_every_message_is_there_once(
    gateway: str, make_queue: Callable[..., str], tmp_path: Path
) -> None:
    url = make_queue(gateway)
    fill(gateway, url, [f"body {number}" for number in range(60)])
    archive = tmp_path / "archive"
    source = ("--queue", url, "--endpoint-url", gateway, "--region", "us-east-1")
    small = ("--option", "maxOffsetsPerTrigger=20", "--option", "visibilityTimeout=5")
    job = subprocess.Popen(
        command(archive, "archive", *source, *small, "--format", "delta"),
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        # In the middle: something is committed, not all is.
        wait_for(lambda: len(list((archive / "data" / "_delta_log").glob("*.json"))) > 1, 250)
    finally:
        kill_session(job.pid)
        job.wait(30)
    # Later than the visibility timeout, so that what was received comes again.
    wait_for(lambda: counts(gateway, url)[1] == 0)
    run(archive, "archive", *source, *small, "--format", "delta")
    assert distinct_and_all(archive) == (60, 60)
    assert sum(counts(gateway, url)) == 0
    compacted = run(archive, "compact")
    assert compacted["action"] == "OPTIMIZE"
    assert distinct_and_all(archive) == (60, 60)
