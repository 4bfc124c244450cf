"""The guide to trouble is true: what each row says is said, and what it says to do helps."""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import pkgutil
import re
import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyspark
import pytest

import spark_connectors
import tests.spark.log_plays  # noqa: F401
from spark_connectors.data_sources import SnsDataSource
from spark_connectors.errors import ConnectorError
from spark_connectors.examples.dead_letter_report import Classifier
from spark_connectors.formats import check_python, check_spark
from spark_connectors.options import QUEUE, QueuePlace, read_options
from spark_connectors.pipelines.archive_replay import (
    BucketLedger,
    ReplayPlan,
    begin_replay,
    replay,
)
from spark_connectors.pipelines.pipeline_commands import run_replay
from spark_connectors.pipelines.queue_archive import (
    SILENT,
    ArchiveDescription,
    ArchivePlace,
    about,
    begin,
    read_archive,
)
from spark_connectors.sink.sender import SendTotals, TaskSummary, check_groups
from spark_connectors.sink.sink_options import queue_settings
from spark_connectors.source.queue_batch_reader import batch_reader
from spark_connectors.source.queue_options import check_stream
from spark_connectors.spool import SegmentPlace, Spool, segment_name
from spark_connectors.stores import LocalStore
from tests.spark.conftest import ROOT
from tests.spark.faulty_endpoint import Faults, faulty
from tests.spark.queues import bodies_of, client_of, counts, fill
from tests.spark.readers import Run, batches, reader_of
from tests.spark.stage import COUNT, PLAYS, Stage, play
from tests.spark.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


GUIDE = ROOT / "spark_connectors" / "TROUBLE.md"
ROWS = re.findall(r"^\| `(\w+: [^`]*)` \|", GUIDE.read_text(), re.MULTILINE)
# Nobody sees these: what looks for a file says what its absence means, and names are ours.
INSIDE = {"Missing"}
PARQUET = ArchiveDescription("parquet", {"fields": [{"name": "body"}]})
DAMAGED = "DataLost: segment … is damaged (…) at …; "


# Before anything runs


@play("WrongPython: Spark starts '…' for Python code, which …")
def _(stage: Stage) -> None:
    with stage.says():
        check_python(str(stage.here / "python"))
    check_python(sys.executable)


@play("TooOld: these formats need PySpark 4.2 or newer, and this is …: …")
def _(stage: Stage) -> None:
    with pytest.MonkeyPatch.context() as older, stage.says():
        older.setattr(pyspark, "__version__", "3.5.8")
        check_spark()
    check_spark()


@play("BadOption: unknown option '…': did you mean '…'?")
def _(stage: Stage) -> None:
    with stage.says():
        check_stream({**stage.given, "spoolPaths": "/spool"})
    check_stream({**stage.given, "spoolPath": "/spool"})


@play("BadOption: deliveryGuarantee=exactly_once needs spoolPath: …")
def _(stage: Stage) -> None:
    with stage.says():
        check_stream(stage.given)
    check_stream({**stage.given, "spoolPath": "/spool"})


@play("Refused: QueueDoesNotExist: … (asking for …)")
def _(stage: Stage) -> None:
    given = {"endpointUrl": stage.gateway, "queueName": stage.here.name, "spoolPath": "/spool"}
    with stage.says():
        check_stream(given)
    client_of("sqs", stage.gateway).create_queue(QueueName=stage.here.name)
    check_stream(given)


@play("Refused: …")
def _(stage: Stage) -> None:
    with stage.says():
        stage.write({"body": ["one"]}, queueUrl=f"{stage.gateway}/000000000000/nobody-made-it")
    assert stage.write({"body": ["one"]}).rows == 1


@play("NotNow: … failed …; the last cause: …")
def _(stage: Stage) -> None:
    given = {**stage.given, "spoolPath": "/spool", "maxRetries": "1"}
    with stage.says():
        check_stream({**given, "endpointUrl": "http://127.0.0.1:1"})
    check_stream(given)


@play("ConnectorError: no AWS credentials were found: …")
def _(stage: Stage) -> None:
    given = {**stage.given, "spoolPath": "/spool"}
    with pytest.MonkeyPatch.context() as environment:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            environment.delenv(name)
        environment.setenv("AWS_SHARED_CREDENTIALS_FILE", str(stage.here / "none"))
        environment.setenv("AWS_CONFIG_FILE", str(stage.here / "none"))
        with stage.says():
            check_stream(given)
    check_stream(given)


@play("ConnectorError: no region is known for AWS: …")
def _(stage: Stage) -> None:
    place = QueuePlace(read_options(QUEUE, {"queueUrl": stage.url}))
    connection = queue_settings({"queueUrl": stage.url}).connection
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("AWS_DEFAULT_REGION")
        environment.setenv("AWS_CONFIG_FILE", str(stage.here / "none"))
        with stage.says():
            place.check(connection)
        place.check(connection._replace(endpoint_url=stage.gateway))


@play("NotOffered: … has no browsing: …")
def _(stage: Stage) -> None:
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("AWS_ENDPOINT_URL", raising=False)
        with stage.says():
            batch_reader({"queueUrl": stage.url, "mode": "browse"}).partitions()
    reader = batch_reader({**stage.given, "mode": "peek"})
    [task] = reader.partitions()
    assert sum(batch.num_rows for batch in reader.read(task)) == COUNT  # type: ignore[union-attr]


@play("OnlyWritable: format 'sns' can only be written; …")
def _(stage: Stage) -> None:
    with stage.says():
        SnsDataSource({}).schema()


# The spool


@play("SpoolMismatch: the spool at … was used by a query with another checkpoint. …")
def _(stage: Stage) -> None:
    stage.ran()
    with stage.says():
        stage.run()
    for way in ("adopt", "discard"):
        stage.goes_on(run := stage.run(onSpoolMismatch=way))
        run.plan()
        wait_for(lambda: counts(stage.gateway, stage.url) == (0, 0))
        run.reader.stop()


@play("SpoolMismatch: the checkpoint belongs to spool …, but at … is …")
def _(stage: Stage) -> None:
    offset = stage.ran()
    stage.spool.rename(stage.here / "elsewhere")
    with stage.says():
        stage.run(offset).plan()
    stage.goes_on(stage.run(offset, onSpoolMismatch="adopt"))


@play("SpoolMismatch: the spool at … has … segments of another query that were not committed: …")
def _(stage: Stage) -> None:
    offset = stage.ran()
    stage.spool.rename(stage.here / "elsewhere")
    stage.more(*bodies_of(COUNT))
    stage.planned()
    with stage.says():
        stage.run(offset, onSpoolMismatch="adopt").plan()
    stage.later()
    stage.goes_on(stage.run(offset, onSpoolMismatch="discard"), *bodies_of(COUNT))


@play("SpoolMismatch: the spool is of queue '…', not '…': …")
def _(stage: Stage) -> None:
    stage.ran()
    stage.url = stage.make_queue(stage.gateway)
    with stage.says():
        stage.run()
    stage.spool = stage.here / "another"
    stage.goes_on(stage.run())


@play("SpoolMismatch: the spool is of mode '…', not '…': …")
def _(stage: Stage) -> None:
    stage.ran()
    stage.more("one")
    with stage.says():
        drain(stage)
    stage.spool = stage.here / "another"
    assert drain(stage) == 1


def drain(stage: Stage, **options: str) -> int:
    """Drain into the spool and return the number of rows."""
    given = {**stage.given, "mode": "drain", "spoolPath": str(stage.spool), **options}
    reader = batch_reader(given)
    tasks = reader.partitions()
    return sum(batch.num_rows for task in tasks for batch in reader.read(task))  # type: ignore[union-attr]


@play("SpoolMismatch: at …, as … sees it, …: the batch was planned with …")
def _(stage: Stage) -> None:
    start, end = stage.planned()
    for payload in ("shared", "inline"):
        run = stage.run(start, spoolPayload=payload)
        tasks = run.reader.partitions(start, end)
        other = type(run.reader)(run.reader.options._replace(spool_path=str(stage.here / "there")))
        if payload == "shared":
            with stage.says():
                list(batches(other, tasks[0]))
        else:
            assert sum(part.num_rows for task in tasks for part in batches(other, task)) == COUNT
        run.reader.stop()


@play("SpoolMismatch: spool.json in the spool cannot be read: …")
def _(stage: Stage) -> None:
    offset = stage.ran()
    (stage.spool / "spool.json").write_text("{")
    with stage.says() as said:
        stage.run(offset).plan()
    line = said[0][said[0].index("{") :]
    (stage.spool / "spool.json").write_text(re.sub("<.*>", str(offset["spool"]), line))
    stage.goes_on(stage.run(offset))


@play("SpoolMismatch: the spool has version …")
def _(stage: Stage) -> None:
    offset = stage.ran()
    file = stage.spool / "spool.json"
    ours = file.read_text()
    file.write_text(json.dumps({**json.loads(ours), "version": 99}))
    with stage.says():
        stage.run(offset).plan()
    file.write_text(ours)
    stage.goes_on(stage.run(offset))


@play("SpoolMismatch: the checkpoint has an offset that is not of this source: …")
def _(stage: Stage) -> None:
    with stage.says():
        stage.run({"orders": {"0": 12}}).plan()
    stage.goes_on(stage.run(), *bodies_of(COUNT))


@play("SpoolTaken: segment … of the spool at … was written by another query: …")
def _(stage: Stage) -> None:
    one, two = stage.run(), stage.run()
    with stage.says():
        # Again and again: one of them may be fast enough to get all that is there.
        for _ in range(100):
            stage.more(*bodies_of(10))
            for run in (one, two):
                run.next_batch(polls=1)
    for run in (one, two):
        run.reader.stop()
    stage.later()
    again = stage.run(max(one.offset, two.offset, key=lambda offset: offset["seq"]))
    assert again.next_batch()


@play("SpoolTaken: batch … was committed long ago …")
def _(stage: Stage) -> None:
    offset = stage.ran()
    spool = Spool(LocalStore(str(stage.spool)), offset["spool"])
    spool.mark_dropped(7)
    with stage.says():
        spool.put(SegmentPlace(6), b"of a process that was held up")
    assert not (stage.spool / segment_name(SegmentPlace(6))).exists()


@play("StoreFailed: …")
def _(stage: Stage) -> None:
    stage.spool.write_text("where a directory should be")
    with stage.says():
        stage.run()
    stage.spool.unlink()
    stage.goes_on(stage.run(), *bodies_of(COUNT))


# Messages at stake


@play("DataLost: … messages) not in the spool at …: what was in there is deleted from the queue, …")
def _(stage: Stage) -> None:
    start, _ = stage.planned(deleteMode="spool")
    file = stage.spool / segment_name(SegmentPlace(1))
    file.rename(stage.here / "copy")
    with stage.says():
        stage.run(start).plan()
    stage.put_back()
    stage.goes_on(run := stage.run(start), *bodies_of(COUNT))
    run.reader.stop()
    file.unlink()
    stage.goes_on(stage.run(start, failOnDataLoss="false"))


@play(f"{DAMAGED}its … messages are deleted from the queue. …")
def _(stage: Stage) -> None:
    start, _ = stage.planned(deleteMode="spool")
    stage.damage()
    with stage.says():
        stage.run(start).plan()
    stage.put_back()
    stage.goes_on(run := stage.run(start), *bodies_of(COUNT))
    run.reader.stop()
    stage.damage()
    stage.goes_on(run := stage.run(start, failOnDataLoss="false"))
    run.reader.stop()
    # It is said once; what was left out stays so.
    stage.goes_on(stage.run(start), "one more")


@play(f"{DAMAGED}its messages are still in the queue, but Spark has planned a batch with them, …")
def _(stage: Stage) -> None:
    start, end = stage.planned()
    stage.damage()
    with stage.says():
        stage.run(start).reader.partitions(start, end)
    run = stage.run(start, failOnDataLoss="false")
    assert not any(run.rows(start, end))
    run.offset = end
    stage.later()
    stage.goes_on(run, *bodies_of(COUNT))


@play(f"{DAMAGED}it is unknown how many of its messages were deleted from the queue. …")
def _(stage: Stage) -> None:
    start, _ = stage.planned(deleteMode="spool")
    for mark in (stage.spool / "done").iterdir():
        mark.unlink()
    stage.damage()
    with stage.says():
        stage.run(start, deleteMode="spool").plan()
    stage.goes_on(stage.run(start, deleteMode="spool", failOnDataLoss="false"))


@play(f"{DAMAGED}its messages are committed and not yet deleted from the queue. …")
def _(stage: Stage) -> None:
    _, end = stage.planned()
    stage.damage()
    with stage.says():
        stage.run(end).plan()
    stage.later()
    stage.goes_on(stage.run(end, failOnDataLoss="false"), *bodies_of(COUNT))


@play(
    f"{DAMAGED}its … messages are committed, but one that the queue gives once more would be "
    "taken for new until …"
)
def _(stage: Stage) -> None:
    offset = stage.ran(dedupeWindow=900)
    stage.damage()
    with stage.says():
        stage.run(offset).plan()
    stage.later()
    stage.goes_on(stage.run(offset))


@play("Damaged: segment … of the spool is damaged (…)")
def _(stage: Stage) -> None:
    run = stage.run()
    start, end = run.offset, run.plan_some()
    task = run.reader.partitions(start, end)[0]
    stage.damage()
    with stage.says():
        list(batches(type(run.reader)(run.reader.options), task))
    run.reader.stop()
    stage.later()
    # Spark had not written that offset.
    stage.goes_on(stage.run(start), *bodies_of(COUNT))
    assert [file.name for file in (stage.spool / "damaged/segments").iterdir()]


def misplace(stage: Stage) -> None:
    """Put a segment of another spool in the place of the first one."""
    other = Run(reader_of(stage.gateway, stage.make_queue(stage.gateway), stage.here / "other"))
    fill(stage.gateway, other.reader.options.place.url(other.reader._transport), ["other"])
    other.plan_some()
    other.reader.stop()
    file = stage.spool / segment_name(SegmentPlace(1))
    shutil.copy(file, stage.here / "copy")
    shutil.copy(stage.here / "other" / segment_name(SegmentPlace(1)), file)


@play(f"{DAMAGED}its messages are still in the queue. …")
def _(stage: Stage) -> None:
    run = stage.run()
    start = run.offset
    run.plan_some()
    run.reader.stop()
    misplace(stage)
    with stage.says():
        stage.run(start).plan()
    stage.put_back()
    stage.goes_on(stage.run(start), *bodies_of(COUNT))


@play("Misplaced: segment … of the spool is damaged (it is segment … of spool …)")
def _(stage: Stage) -> None:
    run = stage.run()
    task = run.reader.partitions(run.offset, run.plan_some())[0]
    misplace(stage)
    with stage.says():
        list(batches(type(run.reader)(run.reader.options), task))
    stage.put_back()
    assert list(batches(type(run.reader)(run.reader.options), task))


@play("DataLost: the checkpoint has committed batch …, but the spool at … ends at batch …: …")
def _(stage: Stage) -> None:
    start = stage.run().offset
    shutil.copytree(stage.spool, stage.here / "older")
    offset = stage.ran()
    stage.spool.rename(stage.here / "newer")
    (stage.here / "older").rename(stage.spool)
    with stage.says():
        stage.run(offset).plan()
    stage.goes_on(stage.run(offset, failOnDataLoss="false"))
    assert start["seq"] < offset["seq"]


@play("DataLost: segments/… is not in the spool at …, but Spark planned a batch with it: …")
def _(stage: Stage) -> None:
    start, end = stage.planned()
    file = stage.spool / segment_name(SegmentPlace(1))
    file.rename(stage.here / "copy")
    with stage.says():
        stage.run(start).reader.partitions(start, end)
    stage.put_back()
    assert sum(len(rows) for rows in stage.run(start).rows(start, end)) == COUNT


@play("DataLost: Spark planned a batch of spool …, but at … is …")
def _(stage: Stage) -> None:
    start, end = ({"spool": "that is gone", "seq": seq} for seq in (4, 5))
    with stage.says():
        stage.run(start, onSpoolMismatch="adopt").reader.partitions(start, end)
    run = stage.run(start, onSpoolMismatch="adopt", failOnDataLoss="false")
    assert run.rows(start, end) == []
    run.offset = end
    stage.goes_on(run, *bodies_of(COUNT))


@play(
    "DataLost: the queue … was drained into the spool at …, but …; the queue no longer has them. …"
)
def _(stage: Stage) -> None:
    assert drain(stage) == COUNT
    stage.damage()
    with stage.says():
        drain(stage)
    assert drain(stage, failOnDataLoss="false") < COUNT
    stage.put_back()
    assert drain(stage) == COUNT
    (stage.spool / segment_name(SegmentPlace(1))).unlink()
    with stage.says():
        drain(stage)


# Writing


@play("BadColumns: …")
def _(stage: Stage) -> None:
    with stage.says():
        stage.write({"text": ["one"]})
    assert stage.write({"body": ["one"]}).rows == 1


@play("RowRefused: …")
def _(stage: Stage) -> None:
    with stage.says():
        stage.write({"body": ["one", ""]})
    letters = stage.make_queue(stage.gateway)
    totals = stage.write({"body": ["one", ""]}, deadLetterQueueUrl=letters)
    assert (totals.rows, totals.dead_letters) == (1, 1)


@play("NotTaken: row … of its partition failed … times, …")
def _(stage: Stage) -> None:
    with faulty(stage.gateway, Faults(entry=lambda number, entry: True)) as endpoint, stage.says():
        stage.write({"body": ["one"]}, endpointUrl=endpoint, maxRetries=1)
    assert stage.write({"body": ["one"]}).rows == 1


@play("SplitGroups: group '…' came from partitions … and …, …")
def _(stage: Stage) -> None:
    sent = SendTotals(groups={(stage.url, "one")})
    with stage.says():
        check_groups([TaskSummary(0, sent), TaskSummary(1, sent)])
    check_groups([TaskSummary(0, sent), TaskSummary(1, SendTotals())])


# Pipelines


@play("BadUsage: --parquet needs --ledger DIR, …")
def _(stage: Stage) -> None:
    given = {"replay_id": None, "archive": None, "ledger": None, "to": "orders"}
    with stage.says():
        run_replay(argparse.Namespace(**given), SILENT)


@play("BadArchive: … is no archive: …")
def _(stage: Stage) -> None:
    place = ArchivePlace(str(stage.spool))
    with stage.says():
        read_archive(cast("SparkSession", None), str(place))
    begin(place, PARQUET)
    assert about(place) == PARQUET


@play("BadArchive: … is damaged")
def _(stage: Stage) -> None:
    place = ArchivePlace(str(stage.spool))
    begin(place, PARQUET)
    file = stage.spool / "archive.json"
    ours = file.read_text()
    file.write_text("{")
    with stage.says():
        about(place)
    file.write_text(ours)
    assert about(place) == PARQUET


@play("BadArchive: … is an archive in format …, not …")
def _(stage: Stage) -> None:
    place = ArchivePlace(str(stage.spool))
    begin(place, PARQUET)
    with stage.says():
        begin(place, PARQUET._replace(format="delta"))
    begin(ArchivePlace(str(stage.here / "another")), PARQUET._replace(format="delta"))
    begin(place, PARQUET)


@play("BadArchive: … was begun with other columns (…): …")
def _(stage: Stage) -> None:
    place = ArchivePlace(str(stage.spool))
    begin(place, PARQUET)
    with stage.says():
        begin(place, PARQUET._replace(schema={"fields": [{"name": "key"}]}))
    begin(place, PARQUET)


@play("BadReplay: '…' is no replay id: …")
def _(stage: Stage) -> None:
    plan = ReplayPlan(to=stage.url, options={}, ledger=str(stage.spool), replay_id="of/monday")
    with stage.says():
        replay(cast("DataFrame", None), plan, SILENT)


@play("ReplayMismatch: this replay id was used to send to …: …")
def _(stage: Stage) -> None:
    begin_replay(str(stage.spool), "one queue", 8)
    with stage.says():
        begin_replay(str(stage.spool), stage.url, 8)
    begin_replay(str(stage.here / "another"), stage.url, 8)


@play("ReplayMismatch: another run sends the same replay: …")
def _(stage: Stage) -> None:
    store = LocalStore(str(stage.spool))
    rows = pa.RecordBatch.from_pydict({"queue": ["q", "q"], "message_id": ["1", "2"]})
    one, two = BucketLedger(store, 0), BucketLedger(store, 0)
    one.add(rows.slice(0, 1))
    with stage.says():
        two.add(rows.slice(0, 1))
    assert BucketLedger(store, 0).unsent(rows).num_rows == 1


@play("BadPath: '…' is no JSON path such as …")
def _(stage: Stage) -> None:
    with stage.says():
        _ = Classifier(json_path="$.error[").spark_path
    assert Classifier(json_path="error.code").spark_path == "$.error.code"


@pytest.mark.parametrize("row", sorted(PLAYS))
def test_what_it_says_to_do_helps(row: str, request: pytest.FixtureRequest) -> None:
    PLAYS[row](Stage(row, request))


def test_each_row_is_played() -> None:
    assert sorted(ROWS) == sorted(PLAYS)


def test_each_kind_of_error_has_a_row() -> None:
    for module in pkgutil.walk_packages(spark_connectors.__path__, "spark_connectors."):
        if not module.name.endswith(("__main__", "submit")) and ".discovery." not in module.name:
            importlib.import_module(module.name)
    kinds = {kind.__name__ for kind in kinds_of(ConnectorError)}
    assert kinds - INSIDE == {row.partition(":")[0] for row in ROWS}


def kinds_of(kind: type[ConnectorError]) -> Iterator[type[ConnectorError]]:
    if kind.__module__.startswith("spark_connectors."):
        yield kind
    for below in kind.__subclasses__():
        yield from kinds_of(below)


def test_adopting_says_what_may_be_there_twice(
    request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody asked for a batch behind the last one, so that the spool knows of no commit."""
    stage = Stage("", request)
    stage.more(*bodies_of(COUNT))
    run = stage.run(maxOffsetsPerTrigger=10)
    first, second = run.next_batch(), run.next_batch()
    assert first
    wait_for(lambda: list((stage.spool / "acknowledged").glob("*")))
    run.reader.stop()
    with caplog.at_level(logging.WARNING):
        again = stage.run(onSpoolMismatch="adopt")
    assert "going on with the 10 messages behind batch 1 of the spool" in caplog.text
    repeated = sorted(row["body"] for row in again.all_rows(10))
    assert repeated == sorted(row["body"] for rows in second for row in rows)
