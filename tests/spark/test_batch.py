"""A queue as a batch: browse, peek, drain, without Spark and with it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThanOrEqual,
    In,
    LessThan,
)

import spark_connectors
from spark_connectors.errors import ConnectorError, Refused
from spark_connectors.options import BadOption
from spark_connectors.source.queue_batch_reader import (
    FilteredBrowseReader,
    NotOffered,
    batch_reader,
)
from tests.spark.queues import bodies_of, client_of, counts, fill, queue_with
from tests.spark.scripted_endpoint import ScriptedEndpoint, answer, refusal
from tests.spark.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Maker = Callable[..., str]


def reader_of(endpoint: str, url: str, **options: object) -> DataSourceReader:
    given = {"endpointUrl": endpoint, "queueUrl": url, "region": "us-east-1", "minPartitions": "3"}
    return batch_reader(given | {name: str(value) for name, value in options.items()})


def rows_of(reader: DataSourceReader) -> list[dict[str, Any]]:
    return list(_rows(reader))


def _rows(reader: DataSourceReader) -> Iterator[dict[str, Any]]:
    for task in reader.partitions():
        for batch in reader.read(task):
            assert hasattr(batch, "to_pylist")
            yield from batch.to_pylist()


def test_browse_sees_all_and_changes_nothing(gateway: str, make_queue: Maker) -> None:
    url = queue_with(50, gateway, make_queue)
    held = client_of("sqs", gateway).receive_message(QueueUrl=url, MaxNumberOfMessages=10)
    before = counts(gateway, url)
    first = rows_of(reader_of(gateway, url, mode="browse"))
    assert sorted(row["body"] for row in first) == sorted(bodies_of(50))
    assert [
        {name: value for name, value in row.items() if name != "receive_timestamp"}
        for row in rows_of(reader_of(gateway, url, mode="browse"))
    ] == [
        {name: value for name, value in row.items() if name != "receive_timestamp"} for row in first
    ]
    assert counts(gateway, url) == before == (40, 10)
    assert sum(row["approximate_receive_count"] for row in first) == len(held["Messages"])


def test_browse_sees_all_of_a_fifo_queue(gateway: str, make_queue: Maker) -> None:
    url = make_queue(gateway, fifo=True)
    fill(gateway, url, bodies_of(100), group=lambda body: f"g{len(body)}")
    client_of("sqs", gateway).receive_message(QueueUrl=url)
    rows = rows_of(reader_of(gateway, url))
    assert sorted(row["body"] for row in rows) == sorted(bodies_of(100))


def test_browse_goes_over_pages_and_ranges(gateway: str, make_queue: Maker) -> None:
    url = queue_with(2_500, gateway, make_queue)
    reader = reader_of(gateway, url, minPartitions=2)
    assert len(reader.partitions()) == 2
    assert sorted(row["body"] for row in rows_of(reader)) == sorted(bodies_of(2_500))


def test_a_row_is_what_a_receive_gives(gateway: str, make_queue: Maker) -> None:
    url = make_queue(gateway)
    client_of("sqs", gateway).send_message(
        QueueUrl=url,
        MessageBody="täglich",
        MessageAttributes={
            "text": {"DataType": "String", "StringValue": "ä"},
            "bytes": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
        },
        MessageSystemAttributes={
            "AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5e-3"}
        },
    )
    [browsed] = rows_of(reader_of(gateway, url, mode="browse"))
    [peeked] = rows_of(reader_of(gateway, url, mode="peek"))
    differs = {"receive_timestamp", "first_receive_timestamp", "approximate_receive_count"}
    assert {n: v for n, v in browsed.items() if n not in differs} == {
        n: v for n, v in peeked.items() if n not in differs
    }
    assert browsed["approximate_receive_count"] == 0
    assert peeked["approximate_receive_count"] == 1


def test_peek_sees_the_queue_and_gives_it_back(endpoint: str, make_queue: Maker) -> None:
    url = queue_with(60, endpoint, make_queue)
    for _ in range(2):
        rows = rows_of(reader_of(endpoint, url, mode="peek"))
        assert sorted(row["body"] for row in rows) == sorted(bodies_of(60))
        wait_for(lambda: counts(endpoint, url) == (60, 0))


def test_peek_gives_back_what_nobody_reads_on(gateway: str, make_queue: Maker) -> None:
    url = queue_with(30, gateway, make_queue)
    reader = reader_of(gateway, url, mode="peek", limit=5)
    assert len(rows_of(reader)) == 5
    assert counts(gateway, url) == (30, 0)


def test_peek_says_when_it_takes_too_long(gateway: str, make_queue: Maker) -> None:
    url = queue_with(1, gateway, make_queue)
    # The last look at the queue waits for a second, which is all that there is.
    with pytest.raises(ConnectorError, match="peekVisibilitySeconds=1"):
        rows_of(reader_of(gateway, url, mode="peek", peekVisibilitySeconds=1))


def held(count: int) -> bytes:
    """An answer to a receive."""
    body = {"Body": "one", "MD5OfBody": hashlib.md5(b"one").hexdigest(), "Attributes": {}}
    named = [body | {"MessageId": f"{number}", "ReceiptHandle": "r"} for number in range(count)]
    return answer({"Messages": named})


def figures(visible: int, in_flight: int) -> bytes:
    """An answer to GetQueueAttributes."""
    texts = {"": visible, "NotVisible": in_flight, "Delayed": 0}
    named = {f"ApproximateNumberOfMessages{name}": str(count) for name, count in texts.items()}
    return answer({"Attributes": named})


OVER_LIMIT = refusal("com.amazonaws.sqs#OverLimit", "Too many", "403 Forbidden")


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([held(10), answer({}), answer({}), figures(500, 119_400)], id="waiting"),
        pytest.param([held(10), OVER_LIMIT], id="at once"),
    ],
)
def test_peek_says_when_no_more_can_be_held(answers: list[bytes]) -> None:
    """Part of a queue must not look like all of it."""
    with ScriptedEndpoint(figures(120_500, 0), *answers, answer({})) as endpoint:
        reader = reader_of(endpoint.url, f"{endpoint.url}/0/q", mode="peek")
        with pytest.raises(ConnectorError, match=r"10 messages are held .*limit.*mode=browse"):
            rows_of(reader)
        # What was held is given back.
        assert endpoint.requests[-1].headers["x-amz-target"].endswith("VisibilityBatch")


@pytest.mark.parametrize("counted", [(0, 120_000), (500, 10)])
def test_peek_ends_when_there_is_no_more(counted: tuple[int, int]) -> None:
    """Counts lag behind; and a queue of exactly as many as can be held was read."""
    given = [figures(10, 0), held(10), answer({}), answer({}), figures(*counted), answer({})]
    with ScriptedEndpoint(*given) as endpoint:
        reader = reader_of(endpoint.url, f"{endpoint.url}/0/q", mode="peek")
        assert len(rows_of(reader)) == 10


def test_peek_up_to_a_limit_asks_nothing_more() -> None:
    with ScriptedEndpoint(figures(120_500, 0), held(10), answer({})) as endpoint:
        reader = reader_of(endpoint.url, f"{endpoint.url}/0/q", mode="peek", limit=10)
        assert len(rows_of(reader)) == 10


@pytest.mark.elsewhere
def test_auto_peeks_where_nobody_browses(moto: str, make_queue: Maker) -> None:
    url = queue_with(10, moto, make_queue)
    assert len(rows_of(reader_of(moto, url))) == 10
    with pytest.raises(NotOffered, match="mode=peek"):
        rows_of(reader_of(moto, url, mode="browse"))


@pytest.mark.parametrize("mode", ["browse", "peek", "drain", "auto"])
def test_a_queue_that_does_not_exist(
    gateway: str, make_queue: Maker, tmp_path: Path, mode: str
) -> None:
    url = make_queue(gateway)
    client_of("sqs", gateway).delete_queue(QueueUrl=url)
    with pytest.raises(Refused, match="QueueDoesNotExist"):
        rows_of(reader_of(gateway, url, mode=mode, spoolPath=str(tmp_path)))


def test_drain_moves_everything_into_the_spool_once(
    endpoint: str, make_queue: Maker, tmp_path: Path
) -> None:
    url = queue_with(80, endpoint, make_queue)
    options = {"mode": "drain", "spoolPath": tmp_path, "waitTimeSeconds": 1}
    reader = reader_of(endpoint, url, **options)
    first = rows_of(reader)
    assert sorted(row["body"] for row in first) == sorted(bodies_of(80))
    assert counts(endpoint, url) == (0, 0)
    fill(endpoint, url, ["later"])
    assert rows_of(reader_of(endpoint, url, **options)) == first
    assert sum(counts(endpoint, url)) == 1


def test_drain_stops_at_its_limit(gateway: str, make_queue: Maker, tmp_path: Path) -> None:
    url = queue_with(40, gateway, make_queue)
    rows = rows_of(reader_of(gateway, url, mode="drain", spoolPath=tmp_path, limit=15))
    assert len(rows) == 15
    assert sum(counts(gateway, url)) == 25


def filtered(gateway: str, url: str, *filters: Filter) -> list[dict[str, Any]]:
    reader = reader_of(gateway, url, mode="browse", pushFilters="true")
    assert isinstance(reader, FilteredBrowseReader)
    assert list(reader.pushFilters(list(filters))) == list(filters)
    return rows_of(reader)


def test_the_endpoint_filters(gateway: str, make_queue: Maker) -> None:
    url = make_queue(gateway, fifo=True)
    fill(gateway, url, bodies_of(30), group=lambda body: f"g{int(body[5:]) % 3}")
    rows = rows_of(reader_of(gateway, url))
    group = filtered(gateway, url, EqualTo(("message_group_id",), "g1"))
    assert {row["body"] for row in group} == {
        row["body"] for row in rows if row["message_group_id"] == "g1"
    }
    ids = tuple(row["message_id"] for row in rows[:4])
    assert {row["message_id"] for row in filtered(gateway, url, In(("message_id",), ids))} == {*ids}
    instants = sorted(row["sent_timestamp"] for row in rows)
    later = filtered(gateway, url, GreaterThanOrEqual(("sent_timestamp",), instants[15]))
    assert len(later) == sum(one >= instants[15] for one in instants)
    earlier = filtered(gateway, url, LessThan(("sent_timestamp",), instants[15]))
    # To the millisecond and not less: Spark drops what is too much.
    assert len(earlier) >= sum(one < instants[15] for one in instants)
    assert filtered(gateway, url, GreaterThanOrEqual(("approximate_receive_count",), 1)) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mode": "drain"}, "needs spoolPath"),
        ({"mode": "peek", "pushFilters": "true"}, "goes with mode=browse"),
        ({"mode": "look"}, "auto or browse or peek or drain"),
        ({"limits": 1}, "did you mean 'limit'"),
    ],
)
def test_options_that_cannot_be(options: dict[str, object], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        reader_of("http://localhost:1", "http://localhost:1/0/q", **options)


@pytest.mark.every_version
def test_spark_reads_and_filters(spark: SparkSession, gateway: str, make_queue: Maker) -> None:
    url = make_queue(gateway, fifo=True)
    fill(gateway, url, bodies_of(40), group=lambda body: f"g{int(body[5:]) % 4}")
    spark_connectors.register(spark)
    reader = spark.read.format("queuegate-sqs").options(
        endpointUrl=gateway, queueUrl=url, region="us-east-1", minPartitions="2"
    )
    plain = reader.load().where("message_group_id = 'g3'").orderBy("body").collect()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        pushed = reader.option("pushFilters", "true").load()
        found = pushed.where("message_group_id = 'g3'").orderBy("body").collect()
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert [row.message_id for row in found] == [row.message_id for row in plain]
    assert len(found) == 10
