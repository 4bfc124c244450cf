"""Files of earlier versions stay readable: spools, offsets, ledgers, descriptions of archives.

Commit a119b7ea wrote ``released/``: six messages of a queue in two batches, of which one is
committed, in each receive mode; a drained queue; a ledger of two messages, and an archive.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from spark_connectors.log.log_api import created_of, of_json, to_json
from spark_connectors.pipelines.archive_replay import (
    BucketLedger,
    begin_replay,
    sent_count,
)
from spark_connectors.pipelines.queue_archive import ArchivePlace, about
from spark_connectors.source.queue_batch_reader import batch_reader
from spark_connectors.stores import open_store
from tests.spark.queues import client_of, fill
from tests.spark.readers import Run, reader_of

RELEASED = Path(__file__).with_name("released")
OFFSETS = json.loads((RELEASED / "offsets.json").read_text())


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return shutil.copytree(RELEASED, tmp_path / "released")


@pytest.mark.parametrize("mode", ["driver", "executor"])
def test_a_stream_continues_from_a_released_spool(gateway: str, copied: Path, mode: str) -> None:
    url = client_of("sqs", gateway).create_queue(QueueName=f"released-{mode}")["QueueUrl"]
    _, middle, end = OFFSETS[mode]
    run = Run(reader_of(gateway, url, copied / mode), middle)
    bodies = [row["body"] for task in run.rows(middle, end) for row in task]
    assert sorted(bodies) == [f"{mode} {number} ä" for number in (3, 4, 5)]
    run.offset = end
    fill(gateway, url, ["new"])
    assert [row["body"] for row in run.all_rows(1)] == ["new"]


def test_a_released_drain_is_read_again(copied: Path) -> None:
    url = "http://127.0.0.1:9/000000000000/released-drain"
    reader = batch_reader({"queueUrl": url, "mode": "drain", "spoolPath": str(copied / "drain")})
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    bodies = pa.Table.from_batches(batches).column("body").to_pylist()
    assert bodies == ["drained 0", "drained 1", "drained 2"]


def test_released_offsets_of_logs_are_positions() -> None:
    given = OFFSETS["log"]
    assert of_json(given) == {"events": {0: 7}, "orders": {0: 3, 1: 5}}
    assert to_json(of_json(given), created_of(given)) == given


def test_a_released_ledger_knows_the_sent_messages(copied: Path) -> None:
    path = str(copied / "ledger")
    assert begin_replay(path, "released-to", 9) == 4
    assert sent_count(path) == 2
    ids = ["m-1", "m-2", "m-3"]
    rows = pa.RecordBatch.from_pydict({"queue": ["orders"] * 3, "message_id": ids})
    left = BucketLedger(open_store(path, name="ledger"), 3).unsent(rows)
    assert left.column("message_id").to_pylist() == ["m-3"]


def test_a_released_archive_is_known() -> None:
    found = about(ArchivePlace(str(RELEASED / "archive")))
    assert found is not None
    assert (found.format, found.schema["fields"][0]["name"]) == ("parquet", "body")
