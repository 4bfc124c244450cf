"""A log as stream and batch: what Kafka's source does, this does, under the same names."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from spark_connectors.data_sources import LogDataSource
from spark_connectors.errors import DataLost, Refused
from spark_connectors.log.log_api import lag_of
from spark_connectors.log.log_readers import FilteredLogReader, plain_start
from spark_connectors.options import BadOption
from tests.spark.logs import (
    LogRun,
    ask,
    batch_of,
    batch_rows,
    log_with,
    new_name,
    publish,
    rows_of,
    values_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def milliseconds(of: datetime) -> int:
    return int(of.timestamp() * 1000)


# A batch


def test_a_batch_has_kafkas_columns(gateway: str) -> None:
    log = new_name()
    publish(gateway, log, [("shop", '{"order": 1}')], metadata={"b": "2", "a": "é"})
    publish(gateway, log, [("shop", "/wA=")], encoding="base64")
    publish(gateway, log, [("", "no key")])
    before = datetime.now(UTC)
    rows = batch_rows(gateway, subscribe=log, includeHeaders="true")
    for row in rows:
        assert abs((row.pop("timestamp") - before).total_seconds()) < 60
    assert rows == [
        {
            "key": b"shop",
            "value": b'{"order": 1}',
            "topic": log,
            "partition": 0,
            "offset": 0,
            "timestampType": 1,
            "headers": [
                {"key": "a", "value": "é".encode()},
                {"key": "b", "value": b"2"},
            ],
        },
        {
            "key": b"shop",
            "value": b"\xff\x00",
            "topic": log,
            "partition": 0,
            "offset": 1,
            "timestampType": 1,
            "headers": None,
        },
        {
            "key": None,
            "value": b"no key",
            "topic": log,
            "partition": 1,
            "offset": 0,
            "timestampType": 1,
            "headers": None,
        },
    ]
    assert "headers" not in batch_rows(gateway, subscribe=log)[0]


def test_a_log_whose_keys_share_partitions(gateway: str) -> None:
    log = new_name()
    ask(gateway, "POST", "", {"log": log, "partitions": 2})
    publish(gateway, log, [(f"k{one % 5}", f"value {one}") for one in range(50)])
    rows = batch_rows(gateway, subscribe=log)
    assert {row["partition"] for row in rows} == {0, 1}
    assert {(row["key"], row["value"]) for row in rows} == {
        (f"k{one % 5}".encode(), f"value {one}".encode()) for one in range(50)
    }


def test_a_batch_ends_where_it_is_told(gateway: str) -> None:
    log = log_with(20, gateway, keys=2)
    starts, ends = {log: {"0": 4, "1": -2}}, {log: {"0": 6, "1": -1}}
    rows = batch_rows(
        gateway, subscribe=log, startingOffsets=json.dumps(starts), endingOffsets=json.dumps(ends)
    )
    found = [(row["partition"], row["offset"]) for row in rows]
    assert found == [(0, 4), (0, 5), *((1, at) for at in range(10))]
    only = batch_rows(gateway, assign=json.dumps({log: [1]}))
    assert {row["partition"] for row in only} == {1}


def test_a_batch_by_times(gateway: str) -> None:
    log = log_with(6, gateway)
    [*_, last] = rows = batch_rows(gateway, subscribe=log)
    publish(gateway, log, [("k0", "later")])
    between = milliseconds(last["timestamp"]) + 1
    assert values_of(batch_rows(gateway, subscribe=log, startingTimestamp=between)) == ["later"]
    by_partition = json.dumps({log: {"0": between}})
    assert values_of(
        batch_rows(gateway, subscribe=log, startingOffsetsByTimestamp=by_partition)
    ) == ["later"]
    for ending in ({"endingTimestamp": between}, {"endingOffsetsByTimestamp": by_partition}):
        assert values_of(batch_rows(gateway, subscribe=log, **ending)) == values_of(rows)
    late = milliseconds(datetime.now(UTC)) + 3_600_000
    with pytest.raises(BadOption, match="Strategy=latest"):
        batch_rows(gateway, subscribe=log, startingTimestamp=late)
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    assert batch_rows(gateway, subscribe=log, startingTimestamp=late, **strategy) == []


def test_tasks_are_as_many_as_wanted(gateway: str) -> None:
    log = log_with(40, gateway, keys=4)
    assert len(batch_of(gateway, subscribe=log, minPartitions=10).partitions()) == 10
    assert len(batch_of(gateway, subscribe=log, minPartitions=2).partitions()) == 2
    rows = batch_rows(gateway, subscribe=log, minPartitions=7)
    assert sorted(values_of(rows)) == sorted(f"value {one}" for one in range(40))


def test_filters_are_read_no_further_than_they_go(gateway: str) -> None:
    log, other = log_with(40, gateway, keys=2), log_with(3, gateway)
    reader = batch_of(gateway, subscribe=f"{log},{other}", pushFilters="true")
    assert isinstance(reader, FilteredLogReader)
    left = reader.pushFilters(
        [
            EqualTo(("topic",), log),
            In(("partition",), (1, 7)),
            GreaterThanOrEqual(("offset",), 3),
            LessThan(("offset",), 9),
            GreaterThan(("offset",), 3),
            LessThanOrEqual(("offset",), 6),
            EqualTo(("key",), b"k1"),
        ]
    )
    assert list(left) == [EqualTo(("key",), b"k1")]
    rows = rows_of(reader, reader.partitions())
    assert [(row["topic"], row["partition"], row["offset"]) for row in rows] == [
        (log, 1, at) for at in (4, 5, 6)
    ]


def test_more_than_an_answer_holds(gateway: str) -> None:
    """A record has at most a mebibyte, an answer four."""
    log = new_name()
    large = "x" * (1 << 20)
    for number in range(6):
        publish(gateway, log, [(f"k{number % 2}", large[: -(number + 1)])])
    rows = batch_rows(gateway, subscribe=log, minPartitions=1)
    assert sorted(len(row["value"]) for row in rows) == [
        len(large) - one for one in range(6, 0, -1)
    ]


# What is gone


def test_what_was_purged_is_a_loss_for_who_was_promised_it(gateway: str) -> None:
    log = log_with(10, gateway)
    run = LogRun(gateway, subscribe=log, startingOffsets="earliest")
    run.begin()
    assert len(run.next_rows()) == 10
    publish(gateway, log, [("k0", "lost")])
    ask(gateway, "POST", f"/{log}/purge")
    publish(gateway, log, [("k0", "kept")])
    with pytest.raises(DataLost, match=f"offsets 10 to 10 of partition 0 of log '{log}' are gone"):
        LogRun(gateway, run.offset, subscribe=log).plan()
    goes_on = LogRun(gateway, run.offset, subscribe=log, failOnDataLoss="false")
    assert values_of(goes_on.some_rows()) == ["kept"]
    # Nobody was promised what was gone before a query began.
    assert values_of(batch_rows(gateway, subscribe=log)) == ["kept"]
    with pytest.raises(DataLost):
        batch_rows(gateway, subscribe=log, startingOffsets=json.dumps({log: {"0": 3}}))


def test_a_batch_that_runs_again_says_what_went_meanwhile(gateway: str) -> None:
    """Spark planned it, and died; the plan is in its log."""
    log = log_with(10, gateway)
    run = LogRun(gateway, subscribe=log, startingOffsets="earliest")
    run.begin()
    start, end = run.offset, run.plan()
    tasks = run.reader.partitions(start, end)
    ask(gateway, "POST", f"/{log}/purge")
    again = LogRun(gateway, start, subscribe=log)
    with pytest.raises(DataLost):
        again.reader.partitions(start, end)
    with pytest.raises(DataLost, match="collected or purged"):
        rows_of(run.reader, tasks)
    careless = LogRun(gateway, start, subscribe=log, failOnDataLoss="false")
    assert careless.rows(end) == []


def test_a_log_that_was_made_anew_is_read_from_its_begin(gateway: str) -> None:
    log = log_with(10, gateway)
    run = LogRun(gateway, subscribe=log, startingOffsets="earliest", failOnDataLoss="false")
    run.begin()
    run.next_rows()
    ask(gateway, "DELETE", f"/{log}")
    with pytest.raises(Refused, match="LogDoesNotExist"):
        LogRun(gateway, run.offset, subscribe=log).plan()
    by_pattern = LogRun(gateway, run.offset, subscribePattern=log)
    with pytest.raises(DataLost, match="is gone, with what was not read of it"):
        by_pattern.plan()
    publish(gateway, log, [("k0", "anew")])
    with pytest.raises(DataLost, match="deleted and made anew"):
        LogRun(gateway, run.offset, subscribe=log).plan()
    assert values_of(run.some_rows()) == ["anew"]


def made_anew(endpoint: str, log: str, count: int) -> None:
    ask(endpoint, "DELETE", f"/{log}")
    publish(endpoint, log, [("k0", f"anew {one}") for one in range(count)])


def test_a_log_made_anew_is_known_though_it_is_as_long(gateway: str) -> None:
    log = log_with(10, gateway)
    run = LogRun(gateway, subscribe=log, startingOffsets="earliest")
    run.begin()
    run.next_rows()
    made_anew(gateway, log, 12)
    for reader in (run, LogRun(gateway, run.offset, subscribe=log)):
        with pytest.raises(DataLost, match=r"made anew at .*failOnDataLoss=false"):
            reader.plan()
    bearing = LogRun(gateway, run.offset, subscribe=log, failOnDataLoss="false")
    assert values_of(bearing.some_rows()) == [f"anew {one}" for one in range(12)]
    assert LogRun(gateway, bearing.offset, subscribe=log).plan() == bearing.offset


def test_a_batch_of_a_log_made_anew_is_not_read_from_the_new_one(gateway: str) -> None:
    log = log_with(10, gateway)
    run = LogRun(gateway, subscribe=log, startingOffsets="earliest")
    run.begin()
    end = run.plan()
    made_anew(gateway, log, 12)
    with pytest.raises(DataLost, match="made anew at"):
        LogRun(gateway, run.offset, subscribe=log).rows(end)
    bearing = LogRun(gateway, run.offset, subscribe=log, failOnDataLoss="false")
    assert bearing.rows(end) == []
    bearing.offset = end
    assert len(bearing.some_rows()) == 12


def test_a_checkpoint_of_an_earlier_version_learns_when_its_logs_were_made(gateway: str) -> None:
    log = log_with(10, gateway)
    earlier: dict[str, object] = {log: {"0": 4}}
    run = LogRun(gateway, earlier, subscribe=log)
    assert len(run.some_rows()) == 6
    idle = LogRun(gateway, {log: {"0": 10}}, subscribe=log)
    assert idle.next_rows() == []
    assert idle.offset == run.offset != {log: {"0": 10}}
    pasted = json.dumps(run.offset)
    assert batch_rows(gateway, subscribe=log, startingOffsets=pasted) == []


def test_a_single_record_that_was_deleted_is_no_loss(gateway: str) -> None:
    log = log_with(5, gateway)
    ask(gateway, "DELETE", f"/{log}/records/0/2")
    assert [row["offset"] for row in batch_rows(gateway, subscribe=log)] == [0, 1, 3, 4]


def test_a_log_that_is_not_there_is_refused(gateway: str) -> None:
    log = new_name()
    with pytest.raises(Refused, match=f"asking for log '{log}'"):
        LogRun(gateway, subscribe=log).plan()
    with pytest.raises(Refused, match="LogDoesNotExist"):
        batch_rows(gateway, subscribe=log)


# A stream


@pytest.mark.parametrize(
    ("start", "seen"),
    [
        ({"startingOffsets": "earliest"}, [*range(6), 99]),
        ({"startingOffsets": "latest"}, [99]),
        ({}, [99]),
        ({"startingOffsets": '{"%s": {"0": 4}}'}, [4, 5, 99]),
        ({"startingTimestamp": "0"}, [*range(6), 99]),
    ],
)
def test_a_stream_begins_where_it_is_told(
    gateway: str, start: dict[str, str], seen: list[int]
) -> None:
    log = log_with(6, gateway)
    given = {name: value.replace("%s", log) for name, value in start.items()}
    run = LogRun(gateway, subscribe=log, **given)
    run.begin()
    publish(gateway, log, [("k0", "value 99")])
    assert values_of(run.some_rows()) == [f"value {one}" for one in seen]


def test_new_partitions_and_new_logs_begin_at_their_first_record(gateway: str) -> None:
    prefix = new_name()
    publish(gateway, f"{prefix}-a", [("old", "old")])
    run = LogRun(gateway, subscribePattern=f"{prefix}-(a|b)")
    run.begin()
    publish(gateway, f"{prefix}-a", [("new", "new key")])
    assert values_of(run.some_rows()) == ["new key"]
    publish(gateway, f"{prefix}-b", [("new", "new log")])
    publish(gateway, f"{prefix}-c", [("new", "another")])
    assert values_of(run.some_rows()) == ["new log"]


def test_a_pattern_that_nothing_matches_yet(gateway: str) -> None:
    prefix = new_name()
    run = LogRun(gateway, subscribePattern=f"{prefix}.*", startingOffsets="latest")
    assert run.plan() == {}
    publish(gateway, f"{prefix}-x", [("k", "first")])
    run.begin()
    assert values_of(run.some_rows()) == ["first"]


def test_what_a_pattern_begins_with() -> None:
    assert [plain_start(one) for one in ("shop-.*", "shops?", "a|b", "a{2}", "x", ".x")] == [
        *("shop-", "shop", "", "", "x", "")
    ]


def test_a_batch_takes_of_each_partition_in_proportion(gateway: str) -> None:
    log = new_name()
    publish(gateway, log, [("large", f"{one}") for one in range(90)])
    publish(gateway, log, [("small", f"{one}") for one in range(10)])
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 20}
    run = LogRun(gateway, subscribe=log, **options)
    run.begin()
    run.reader.prepareForTriggerAvailableNow()
    sizes = []
    while (rows := run.next_rows()) != []:
        keys = [row["key"] for row in rows]
        sizes.append((keys.count(b"large"), keys.count(b"small")))
    assert sizes == [(18, 2)] * 5


def test_a_run_that_ends_reads_what_was_there_when_it_began(gateway: str) -> None:
    log = log_with(30, gateway)
    run = LogRun(gateway, subscribe=log, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    run.reader.prepareForTriggerAvailableNow()
    run.begin()
    assert len(run.next_rows()) == 20
    publish(gateway, log, [("k0", "later"), ("k1", "new key")])
    assert len(run.next_rows()) == 10
    assert run.next_rows() == []


def test_a_batch_may_wait_for_more(gateway: str) -> None:
    log = log_with(3, gateway)
    options = {"startingOffsets": "earliest", "minOffsetsPerTrigger": 5, "maxTriggerDelay": "1h"}
    run = LogRun(gateway, subscribe=log, **options)
    run.begin()
    assert len(run.next_rows()) == 3, "the first is not delayed"
    publish(gateway, log, [("k0", "one")])
    assert run.next_rows() == []
    publish(gateway, log, [("k0", "more")] * 4)
    assert len(run.some_rows()) == 5


def test_its_group_shows_the_lag_and_keeps_what_is_not_committed(gateway: str) -> None:
    log = log_with(30, gateway)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 20, "groupId": "lake"}
    run = LogRun(gateway, subscribe=log, **options)
    run.begin()
    end = run.plan()
    assert ask(gateway, "GET", f"/{log}/groups/lake")["lag"] == 30
    run.offset = end
    run.reader.commit(end)
    assert ask(gateway, "GET", f"/{log}/groups/lake")["lag"] == 10
    latest = run.reader.reportLatestOffset()
    assert latest == {log: {"0": 30, "created_at": end[log]["created_at"]}}
    progress = {"sources": [{"latestOffset": json.dumps(latest), "endOffset": json.dumps(end)}]}
    assert lag_of(progress) == {
        "minOffsetsBehindLatest": 10.0,
        "maxOffsetsBehindLatest": 10.0,
        "avgOffsetsBehindLatest": 10.0,
    }


def test_a_group_that_cannot_be_told_stops_nobody(
    gateway: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody else consumes in its name."""
    log = log_with(3, gateway)
    ask(gateway, "PUT", f"/{log}/groups/lake/subscribers/one", {})
    run = LogRun(gateway, subscribe=log, startingOffsets="earliest", groupId="lake")
    run.begin()
    assert len(run.next_rows()) == 3
    assert "group lake is not told of what Spark has committed" in caplog.text


# Options


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "one of subscribe, subscribePattern and assign"),
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "one of subscribe, subscribePattern"),
        ({"subscribe": "no spaces"}, "is no name"),
        ({"subscribePattern": "("}, "a regular expression"),
        ({"assign": '{"a": []}'}, '{"orders": \\[0, 1\\]}'),
        ({"subscribe": "a", "startingOffsets": "begin"}, "earliest, latest or JSON"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": -3}}'}, "earliest, latest or JSON"),
        ({"subscribe": "a", "minOffsetsPerTrigger": "2", "maxOffsetsPerTrigger": "1"}, "above"),
        ({"subscribe": "a", "groupId": "no/name"}, "is no name"),
        ({"subscribe": "a", "bootstrap": "here:1"}, "bootstrap and endpointUrl"),
        ({"subscribe": "a", "startingOffset": "latest"}, "did you mean 'startingOffsets'"),
    ],
)
def test_what_no_stream_can_mean_is_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        LogRun("http://127.0.0.1:1", **options)


def test_a_partition_that_is_not_read_cannot_be_begun(gateway: str) -> None:
    log = log_with(1, gateway)
    starts = json.dumps({log: {"5": 0}})
    with pytest.raises(BadOption, match="partition 5"):
        batch_rows(gateway, subscribe=log, startingOffsets=starts)


def test_batches_begin_and_end_somewhere() -> None:
    for options in ({"startingOffsets": "latest"}, {"endingOffsets": "earliest"}):
        with pytest.raises(BadOption, match="nothing"):
            batch_of("http://127.0.0.1:1", subscribe="a", **options)


# With Spark


def test_spark_counts_a_batch(spark: SparkSession, gateway: str) -> None:
    log = log_with(30, gateway, keys=3)
    spark.dataSource.register(LogDataSource)
    given = {"endpointUrl": gateway, "region": "us-east-1", "subscribe": log}
    read: Callable[..., DataFrame] = spark.read.format("queuegate-log").options(**given).load
    frame = read()
    kafkas = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert tuple(frame.columns) == kafkas
    assert frame.where("partition = 1 AND offset BETWEEN 2 AND 5").count() == 4
