"""Rows to a log: each once, however often a task sends them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from spark_connectors.data_sources import LogDataSource
from spark_connectors.errors import Refused
from spark_connectors.log.log_api import lag_of
from spark_connectors.log.record_sink import planned
from spark_connectors.message_rows import HEADERS
from spark_connectors.options import BadOption
from spark_connectors.sink.message_columns import BadColumns, Identity
from spark_connectors.sink.message_sink import RowRefused
from spark_connectors.sink.sender import SendTotals, send
from tests.spark.logs import ask, batch_rows, calls_of, log_with, new_name, values_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST = Identity("query|7", 0)


def write(
    endpoint: str,
    columns: Mapping[str, object] | pa.Table,
    identity: Identity = FIRST,
    /,
    **options: object,
) -> SendTotals:
    """Send one partition of these columns."""
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    given = {"endpointUrl": endpoint, "region": "us-east-1"}
    given |= {name: str(value) for name, value in options.items()}
    plan = planned(given, from_arrow_schema(table.schema))
    return send(plan.open(identity), plan.sending, table.to_batches())


def records_of(endpoint: str, log: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for partition in calls_of(endpoint).bounds(log)[0]:
        found += ask(endpoint, "GET", f"/{log}/records?partition={partition}&max=1000")["records"]
    return found


def test_rows_become_records(gateway: str) -> None:
    log = new_name()
    headers = pa.array([[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None], HEADERS)
    table = pa.table({"key": [b"shop", None], "value": [b"\xff", b"text"], "headers": headers})
    assert write(gateway, table, topic=log).rows == 2
    binary, text = batch_rows(gateway, subscribe=log, includeHeaders="true")
    assert (binary["key"], binary["value"]) == (b"shop", b"\xff")
    assert binary["headers"] == [{"key": "a", "value": b"1"}]
    assert (text["key"], text["value"], text["headers"]) == (None, b"text", None)


def test_what_the_source_gives_can_be_written(gateway: str) -> None:
    """Without the option to the log of the same name; the rest is the log's to say."""
    log = log_with(30, gateway, keys=3)
    frame = pa.Table.from_pylist(batch_rows(gateway, subscribe=log, includeHeaders="true"))
    frame = frame.set_column(
        frame.schema.get_field_index("headers"), "headers", pa.nulls(30, HEADERS)
    )
    copy = new_name()
    write(gateway, frame, topic=copy)
    write(gateway, frame)
    assert sorted(values_of(batch_rows(gateway, subscribe=copy))) == sorted(
        f"value {one}" for one in range(30)
    )
    assert len(batch_rows(gateway, subscribe=log)) == 60


def test_rows_say_where_they_go(gateway: str) -> None:
    one, other = new_name(), new_name()
    write(gateway, {"topic": [one, other, one], "value": ["a", "b", "c"]})
    assert values_of(batch_rows(gateway, subscribe=one)) == ["a", "c"]
    assert values_of(batch_rows(gateway, subscribe=other)) == ["b"]
    with pytest.raises(RowRefused, match="column topic is null"):
        write(gateway, {"topic": pa.array([None], pa.string()), "value": ["a"]})


def test_a_task_that_runs_again_adds_nothing(gateway: str) -> None:
    """Rows that are alike are counted, and their order may be another."""
    log = new_name()
    rows = {"key": ["a", "b", "a", "a"], "value": ["same", "same", "same", "other"]}
    assert write(gateway, rows, topic=log).rows == 4
    turned = {name: column[::-1] for name, column in rows.items()}
    write(gateway, turned, topic=log)
    assert sorted(values_of(batch_rows(gateway, subscribe=log))) == [
        *("other", "same", "same", "same")
    ]
    for identity in (Identity("query|8", 0), Identity("query|7", 1)):
        write(gateway, rows, identity, topic=log)
    assert len(batch_rows(gateway, subscribe=log)) == 12


@pytest.mark.parametrize(
    ("options", "count"),
    [({}, 2), ({"deduplicationColumns": "order"}, 1), ({"deduplication": "none"}, 4)],
)
def test_where_ids_come_from(gateway: str, options: dict[str, str], count: int) -> None:
    log = new_name()
    for batch in ("query|1", "query|2"):
        rows = {"id": ["x", "y"], "order": [1, 1], "value": ["a", "b"], "key": ["k", "k"]}
        write(gateway, rows, Identity(batch, 0), topic=log, **options)
    assert len(batch_rows(gateway, subscribe=log)) == count
    ids = {one.get("id") for one in records_of(gateway, log)}
    assert ids == ({"x", "y"} if not options else ids)


def test_the_order_of_a_key_is_kept(gateway: str) -> None:
    """Also with several requests under way at once."""
    log = new_name()
    rows = {
        "key": [f"k{one % 7}" for one in range(2_000)],
        "value": [f"{one:05}" for one in range(2_000)],
    }
    write(gateway, rows, topic=log, concurrency=4, batchSize=50)
    found = batch_rows(gateway, subscribe=log)
    assert len(found) == 2_000
    for key in {row["key"] for row in found}:
        order = [row["value"] for row in found if row["key"] == key]
        assert order == sorted(order)


def test_requests_are_no_larger_than_is_taken(gateway: str) -> None:
    """By bytes, by count, and by values where records have many headers."""
    log = new_name()
    large = {"value": [chr(97 + one) * ((1 << 20) - one) for one in range(9)]}
    assert write(gateway, large, topic=log).rows == 9
    headers = pa.array([[(f"h{name}", "v") for name in range(90)]] * 500, MAP)
    table = pa.table({"value": [str(one) for one in range(500)], "headers": headers})
    write(gateway, table, topic=log)
    escapes = {"value": ["\x01" * 1_000_000, '"' * 1_000_000]}
    write(gateway, escapes, topic=log)
    rows = batch_rows(gateway, subscribe=log)
    assert len(rows) == 511
    assert sorted({row["value"][:1] for row in rows if len(row["value"]) == 1_000_000}) == [
        *(b"\x01", b'"')
    ]


MAP = pa.map_(pa.string(), pa.string())


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"value": pa.array([None], pa.string())}, "NoValue"),
        ({"value": ["x" * (1 << 20) + "x"]}, "TooLarge: it has 1048577 bytes"),
        ({"value": ["x"], "key": ["k" * 257]}, "TooLarge: its key"),
        ({"value": ["x"], "key": [b"\xff"]}, "NoText: its key"),
        ({"value": ["x"], "id": ["i" * 129]}, "TooLarge: its id"),
        ({"value": ["x"], "headers": pa.array([[("a", "1"), ("a", "2")]], MAP)}, "DoubleHeader"),
        (
            {"value": ["x"], "headers": pa.array([[(f"{n}", "") for n in range(101)]], MAP)},
            "101 headers",
        ),
    ],
)
def test_a_row_that_is_no_record_fails_its_task(
    gateway: str, columns: dict[str, Any], said: str
) -> None:
    log = new_name()
    with pytest.raises(RowRefused, match=said):
        write(gateway, columns, topic=log)
    with pytest.raises(Refused):
        batch_rows(gateway, subscribe=log)


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ({"body": ["a"]}, {"topic": "l"}, "a column 'value'"),
        ({"value": [1]}, {"topic": "l"}, "expected string or binary"),
        ({"value": ["a"]}, {}, "where to"),
        ({"value": ["a"], "headers": ["a"]}, {"topic": "l"}, "expected array<struct"),
        ({"value": ["a"]}, {"topic": "l", "deduplication": "column"}, "no column id"),
        ({"value": ["a"]}, {"topic": "no/name"}, "is no name"),
        (
            {"value": ["a"]},
            {"topic": "l", "deduplication": "rows", "deduplicationColumns": "value"},
            "choose one",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_sent(
    columns: dict[str, Any], options: dict[str, str], said: str
) -> None:
    with pytest.raises((BadColumns, BadOption), match=said):
        write("http://127.0.0.1:1", columns, **options)


COLLATED = StringType("UTF8_LCASE")


@pytest.mark.parametrize(
    "headers",
    [
        MapType(COLLATED, COLLATED),
        ArrayType(StructType().add("key", COLLATED).add("value", BinaryType())),
    ],
    ids=["map", "array"],
)
def test_headers_of_collated_strings_are_accepted(headers: DataType) -> None:
    schema = StructType().add("value", StringType()).add("headers", headers)
    given = {"topic": "a", "endpointUrl": "http://127.0.0.1:1"}
    assert planned(given, schema).columns.headers == "headers"


def test_nothing_is_overwritten() -> None:
    schema = from_arrow_schema(pa.table({"value": ["a"]}).schema)
    with pytest.raises(BadOption, match="cannot be overwritten"):
        LogDataSource({"topic": "a"}).writer(schema, True)


def test_spark_copies_a_log(spark: SparkSession, gateway: str, tmp_path: Path) -> None:
    """A stream of one into another. Its last batch is sent twice, for Spark did not know that it
    was; and its progress has Kafka's offsets."""
    log, copy = log_with(90, gateway, keys=3), new_name()
    spark.dataSource.register(LogDataSource)
    given = {"bootstrap": gateway.partition("//")[2], "region": "us-east-1"}
    reader = spark.readStream.format("queuegate-log").options(**given, subscribe=log)
    frame = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger="60").load()

    def run() -> list[Any]:
        writer = frame.writeStream.format("queuegate-log").options(**given, topic=copy)
        writer = writer.option("checkpointLocation", str(tmp_path))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(240)
        assert query.exception() is None
        return list(query.recentProgress)

    progress = run()
    assert [one.numInputRows for one in progress if one.numInputRows] == [60, 30]
    [(name, ended)] = json.loads(progress[-1]["sources"][0]["endOffset"]).items()
    assert ended.pop("created_at")
    assert (name, ended) == (log, {"0": 30, "1": 30, "2": 30})
    assert lag_of(progress[-1])["maxOffsetsBehindLatest"] == 0.0
    commits = tmp_path / "commits"
    last = max(int(one.name) for one in commits.iterdir() if one.name.isdigit())
    for name in (f"{last}", f".{last}.crc"):
        (commits / name).unlink(missing_ok=True)
    run()
    rows = batch_rows(gateway, subscribe=copy)
    assert len(rows) == 90
    assert {(row["key"], row["value"]) for row in rows} == {
        (row["key"], row["value"]) for row in batch_rows(gateway, subscribe=log)
    }
