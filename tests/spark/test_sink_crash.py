"""A streaming query into a FIFO queue, killed between its requests and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spark.crash.points import kill_session
from tests.spark.faulty_endpoint import Faults, faulty
from tests.spark.test_sink_faults import bodies_by_group, drained

BATCHES, ROWS, GROUPS = 5, 200, 20
_FIRST_WRITTEN_AT = 1_700_000_000


def run_query(endpoint: str, url: str, directory: str) -> None:
    """Send all files in the directory, one a micro-batch: what the killed process does."""
    from pyspark.sql import SparkSession

    from spark_connectors.data_sources import SqsDataSource

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(SqsDataSource)
    rows = (
        spark.readStream.schema("body string, group_id string, id long")
        .option("maxFilesPerTrigger", 1)
        .json(f"{directory}/in")
    )
    query = (
        rows.repartition("group_id")
        .writeStream.format("sqs")
        .option("endpointUrl", endpoint)
        .option("queueUrl", url)
        .option("deduplicationColumns", "id")
        .option("orderBy", "id")
        .option("checkGroups", "true")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


class Driver:
    """The process that runs the query, as often as it takes."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self.kills = 0

    def kill(self) -> None:
        assert self._process is not None
        self.kills += 1
        kill_session(self._process.pid)

    def run(self) -> int:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.test_sink_crash", *self._arguments],
            start_new_session=True,
        )
        try:
            return self._process.wait(600)
        finally:
            kill_session(self._process.pid)


def make_files(directory: Path) -> None:
    (directory / "in").mkdir()
    for batch in range(BATCHES):
        lines = [
            json.dumps({"body": f"{n:06d}", "group_id": f"g{n % GROUPS}", "id": n})
            for n in range(batch * ROWS, (batch + 1) * ROWS)
        ]
        file = directory / "in" / f"{batch}.json"
        file.write_text("\n".join(lines))
        # Spark takes the older file first; of two within a millisecond, either.
        os.utime(file, (_FIRST_WRITTEN_AT + batch, _FIRST_WRITTEN_AT + batch))


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_killed_query_loses_duplicates_and_reorders_nothing(
    gateway: str, make_queue: Callable[..., str], tmp_path: Path
) -> None:
    url = make_queue(gateway, fifo=True)
    make_files(tmp_path)
    # Before the service has the request; after it has, and before the sender knows; at the last.
    before, after = {9, 53}, {30}
    faults = Faults()

    def on_send(number: int) -> None:
        if number in before:
            driver.kill()

    def loses_answer(number: int) -> bool:
        if number in after:
            driver.kill()
        return number in after

    faults.on_send, faults.loses_answer = on_send, loses_answer
    with faulty(gateway, faults) as endpoint:
        driver = Driver(endpoint, url, str(tmp_path))
        ends = [driver.run() for _ in range(3)]
        assert ends == [-signal.SIGKILL] * 3
        assert driver.run() == 0
    assert driver.kills == 3
    assert faults.entry_count > BATCHES * ROWS, "nothing was sent twice: the kills hit nothing"
    found = bodies_by_group(drained(gateway, url))
    everything = range(BATCHES * ROWS)
    assert found == {f"g{g}": [f"{n:06d}" for n in everything[g::GROUPS]] for g in range(GROUPS)}


if __name__ == "__main__":
    run_query(*sys.argv[1:])
