"""An archive as a Delta table, by the commands, where there is a Delta Lake for this PySpark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spark.clocks import Clock
from tests.spark.crash.points import kill_session
from tests.spark.queues import counts, fill
from tests.spark.waiting import wait_for

pytestmark = pytest.mark.delta


@pytest.mark.timeout(1800)
def test_killed_and_run_again_compacted_and_replayed_every_message_is_there_once(
    gateway: str,
    make_queue: Callable[..., str],
    tmp_path: Path,
    clock: Clock,
    quick_spark: None,
) -> None:
    url, again = make_queue(gateway), make_queue(gateway)
    fill(gateway, url, [f"body {number}" for number in range(60)])
    archive = tmp_path / "archive"
    log = archive / "data" / "_delta_log"
    job = [sys.executable, "-m", "tests.spark.delta_job", str(archive)]
    at = f"--endpoint-url {gateway} --region us-east-1"
    write = f"archive --queue {url} {at} --option maxOffsetsPerTrigger=20"
    told = tmp_path / "told"
    with told.open("w") as file:
        killed = subprocess.Popen(
            [*job, write], start_new_session=True, stdout=subprocess.DEVNULL, stderr=file
        )
    try:
        # In the middle: something is committed, not all is.
        wait_for(lambda: len(list(log.glob("*.json"))) > 1 or killed.poll() is not None, 900)
    finally:
        kill_session(killed.pid)
        killed.wait(30)
    assert killed.returncode < 0, told.read_text()[-2_000:]
    # Later than what was received is hidden, so that it comes again.
    clock.advance(4 * 3600)
    done = subprocess.run(
        [
            *job,
            write,
            "OPTIMIZE TABLE",
            "VACUUM TABLE",
            f"replay --to {again} {at}",
        ],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    # The JVM tells things there, too.
    results = [line for line in done.stdout.splitlines() if line.startswith(("{", "["))]
    archived, compacted, _, replayed, found = map(json.loads, results)
    messages, rows, rows_at_first = found
    assert (messages, rows) == (60, 60)
    assert rows_at_first < 60
    assert 0 < archived["rows"] <= 60
    assert compacted["metrics"]["numFilesRemoved"] > compacted["metrics"]["numFilesAdded"]
    assert (replayed["selected"], replayed["sent"]) == (60, 60)
    assert sum(counts(gateway, url)) == 0
    assert sum(counts(gateway, again)) == 60
