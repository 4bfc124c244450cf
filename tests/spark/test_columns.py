"""The option columns: rows have these alone, and everything else works as with all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from spark_connectors.errors import ConnectorError
from spark_connectors.options import BadOption
from spark_connectors.source.queue_batch_reader import DrainReader
from spark_connectors.source.queue_options import drain_options, stream_options
from spark_connectors.spool import Spool
from spark_connectors.stores import LocalStore
from tests.spark.queues import bodies_of, counts, fill
from tests.spark.readers import Place, Run, reader_of
from tests.spark.waiting import wait_for

Maker = Callable[..., str]


def spooled(path: Path) -> list[pa.RecordBatch]:
    identity = Spool.identity_at(LocalStore(str(path)))
    assert identity is not None
    spool = Spool(LocalStore(str(path)), identity)
    segments = [spool.read(place) for place in spool.contents().segments]
    return [one.slot(slot) for one in segments for slot in range(one.slot_count)]


@pytest.mark.parametrize("fifo", [False, True])
def test_rows_and_segments_have_these_alone(
    gateway: str, make_queue: Maker, tmp_path: Path, fifo: bool
) -> None:
    url = make_queue(gateway, fifo=fifo)
    fill(gateway, url, bodies_of(40), group=(lambda body: body[-1]) if fifo else None)
    options = {"columns": "sent_timestamp,body", "minPartitions": 2}
    run = Run(reader_of(gateway, url, tmp_path, **options))
    rows = run.all_rows(40)
    assert sorted(row["body"] for row in rows) == sorted(bodies_of(40))
    assert {tuple(row) for row in rows} == {("sent_timestamp", "body")}
    assert None not in {row["sent_timestamp"] for row in rows}
    for batch in spooled(tmp_path):
        if batch.num_rows:
            full = {n for n in batch.schema.names if batch.column(n).null_count == 0}
            assert full == {"sent_timestamp", "body", "message_id", "receipt_handle"}
    run.plan()
    wait_for(lambda: counts(gateway, url) == (0, 0))


def test_what_was_received_without_a_column_is_not_given_out_as_if_it_had_none(
    place: Place,
) -> None:
    place.fill(bodies_of(20))
    first = place.run(columns="body")
    first.plan_some()
    first.reader.stop()
    with pytest.raises(ConnectorError, match="received without sender_id: run the query with"):
        place.run(first.offset, columns="body,sender_id").plan()
    again = place.run(first.offset, columns="body")
    assert len(again.all_rows(20)) == 20


def test_a_drain_keeps_all_for_who_reads_it_again(place: Place) -> None:
    place.fill(bodies_of(5))
    given = {"endpointUrl": place.endpoint, "queueUrl": place.url, "region": "us-east-1"}
    for columns in ("body", "message_id,sender_id"):
        options = given | {"mode": "drain", "spoolPath": str(place.spool), "columns": columns}
        reader = DrainReader(drain_options(options), None)
        rows = [
            row
            for task in reader.partitions()
            for batch in reader.read(task)
            for row in batch.to_pylist()
        ]
        assert len(rows) == 5
        assert all(tuple(row) == tuple(columns.split(",")) for row in rows)
        assert None not in {value for row in rows for value in row.values()}


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ("body,colour", "there is no 'colour' but queue, message_id, body"),
        ("body,body", "a name is there twice"),
        ("receipt_handle", "there is no 'receipt_handle'"),
    ],
)
def test_names_that_are_no_columns_are_refused(tmp_path: Path, columns: str, told: str) -> None:
    options = {"queueUrl": "http://localhost/0/q", "spoolPath": str(tmp_path), "columns": columns}
    with pytest.raises(BadOption, match=told):
        stream_options(options)
