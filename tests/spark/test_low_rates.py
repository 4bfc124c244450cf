"""Executor mode where little comes, and where for a while nothing answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from spark_connectors.errors import NotNow, Refused
from spark_connectors.source.executor_reader import ExecutorStreamReader, FillTask
from spark_connectors.source.queue_options import stream_options
from spark_connectors.spool import SegmentPlace, SpoolTaken
from spark_connectors.transport import QueueFigures, Transport, shared_transport
from tests.spark.clocks import Clock
from tests.spark.faulty_endpoint import Faults, faulty
from tests.spark.queues import bodies_of, client_of, counts, fill, queue_with
from tests.spark.readers import Place, Run, batches
from tests.spark.test_stream import stream
from tests.spark.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Maker = Callable[..., str]


class Counting:
    """A transport that counts its calls; ``trouble`` is called before each, with its name, and
    ``answers`` has what some of them get instead of an answer of the queue."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.calls: Counter[str] = Counter()
        self.waits: list[int] = []
        self.trouble: Callable[[str], None] = lambda name: None
        self.answers: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if not callable(found := getattr(self._transport, name)):
            return self.answers.get(name, found)

        def call(*given: Any, **named: Any) -> Any:
            self.calls[name] += 1
            self.waits += [named["wait_seconds"]] if name == "receive" else []
            self.trouble(name)
            return self.answers.get(name) or getattr(self._transport, name)(*given, **named)

        return call


class Reader(ExecutorStreamReader):
    """A reader whose calls are counted, together with those of its tasks."""

    counting: Counting

    def open_transport(self) -> Transport:
        return cast("Transport", self.counting)


MakeRun = Callable[..., tuple[Run, Counting]]


@pytest.fixture
def make_run(gateway: str, tmp_path: Path) -> Iterator[MakeRun]:
    """A driver in executor mode, and its calls: ``make_run(url, **options)``."""
    made: list[ExecutorStreamReader] = []

    def make(url: str, **more: object) -> tuple[Run, Counting]:
        given = {
            "endpointUrl": gateway,
            "region": "us-east-1",
            "queueUrl": url,
            "spoolPath": tmp_path / "spool",
            "receiveMode": "executor",
            **more,
        }
        options = stream_options({name: str(value) for name, value in given.items()})
        counting = Counting(shared_transport(options.connection))
        kind = type("Counted", (Reader,), {"counting": counting})
        made.append(kind(options))
        return Run(made[-1]), counting

    yield make
    for one in made:
        one.stop()


def test_an_idle_stream_waits_in_one_receive(
    gateway: str, make_queue: Maker, make_run: MakeRun
) -> None:
    url = make_queue(gateway)
    run, counting = make_run(url)
    for _ in range(15):
        assert run.plan() == run.offset
    assert (counting.calls["figures"], counting.calls["receive"]) == (1, 1)
    assert counting.waits == [20]
    fill(gateway, url, ["one", "two", "three"])
    end = run.plan_some()
    assert (end["slots"], end["taken"]) == (1, 3)
    # The task only reads it.
    receives = counting.calls["receive"]
    assert sorted(row["body"] for [*rows] in run.rows(run.offset, end) for row in rows) == sorted(
        ["one", "two", "three"]
    )
    assert counting.calls["receive"] == receives
    wait_for(lambda: counts(gateway, url) == (0, 0))


def test_what_comes_beside_it_is_for_tasks(
    gateway: str, make_queue: Maker, make_run: MakeRun
) -> None:
    url = make_queue(gateway)
    run, _ = make_run(url, minPartitions=8)
    assert run.plan() == run.offset
    fill(gateway, url, bodies_of(10))
    wait_for(lambda: counts(gateway, url) == (0, 10))
    fill(gateway, url, [f"more {number}" for number in range(25)])
    end = run.plan_some()
    assert (end["slots"], end["taken"]) == (4, 10)
    found = [row["body"] for rows in run.rows(run.offset, end) for row in rows]
    assert sorted(found) == sorted(bodies_of(10) + [f"more {number}" for number in range(25)])


def test_no_slot_is_planned_or_waits_for_nothing(
    gateway: str, make_queue: Maker, make_run: MakeRun
) -> None:
    url = queue_with(25, gateway, make_queue)
    run, counting = make_run(url, minPartitions=8)
    end = run.plan()
    tasks = run.reader.partitions(run.offset, end)
    assert len(tasks) == 3
    # Somebody else was faster.
    client_of("sqs", gateway).purge_queue(QueueUrl=url)
    assert [batch.num_rows for task in tasks for batch in batches(run.reader, task)] == [0, 0, 0]
    assert set(counting.waits) == {0}


@pytest.mark.parametrize(("limit", "slots"), [(3, 8), (25, 4), (40, 3)])
def test_a_batch_has_no_more_than_it_may(
    gateway: str, make_queue: Maker, make_run: MakeRun, limit: int, slots: int
) -> None:
    url = queue_with(90, gateway, make_queue)
    run, _ = make_run(url, maxOffsetsPerTrigger=limit, minPartitions=slots, maxReceiveSeconds=30)
    seen: list[str] = []
    sizes: list[int] = []
    while len(seen) < 90:
        batch = [row["body"] for rows in run.next_batch() for row in rows]
        seen += batch
        sizes.append(len(batch))
    assert sorted(seen) == sorted(bodies_of(90))
    assert sizes[0] == limit == max(sizes)


def test_slots_are_as_many_as_there_is_work(
    gateway: str, make_queue: Maker, make_run: MakeRun
) -> None:
    """By default a task is for 1,000 messages, whatever cores the driver has."""
    url = queue_with(60, gateway, make_queue)
    run, counting = make_run(url)
    assert run.plan()["slots"] == 1
    counting.answers["figures"] = QueueFigures(4_001, 0, 0)
    assert run.plan()["slots"] == 5


def test_a_task_that_nobody_answers_hands_over_what_it_has(
    gateway: str, make_queue: Maker, make_run: MakeRun
) -> None:
    url = queue_with(30, gateway, make_queue)
    run, counting = make_run(url, minPartitions=1, receiveThreads=1)
    # As SQS has it: ten messages a call.
    counting.answers["most_per_call"] = 10
    end = run.plan()

    def trouble(name: str) -> None:
        if name == "receive" and counting.calls["receive"] == 3:
            raise NotNow("nobody answers")

    counting.trouble = trouble
    [rows] = [
        [row for batch in batches(run.reader, task) for row in batch.to_pylist()]
        for task in run.reader.partitions(run.offset, end)
    ]
    assert len(rows) == 20
    run.offset = end
    rest = run.all_rows(10)
    assert sorted(row["body"] for row in [*rows, *rest]) == sorted(bodies_of(30))
    wait_for(lambda: counts(gateway, url) == (0, 0))


def test_a_driver_that_nobody_answers_asks_again(
    gateway: str, make_queue: Maker, make_run: MakeRun
) -> None:
    url = make_queue(gateway)
    run, counting = make_run(url, waitTimeSeconds=1)

    def trouble(name: str) -> None:
        if name in ("figures", "receive"):
            raise NotNow("nobody answers")

    counting.trouble = trouble
    wait_for(lambda: run.plan() == run.offset and counting.calls["receive"] > 1)
    assert (run.reader.reportLatestOffset() or {})["lastError"] == "nobody answers"
    fill(gateway, url, ["one"])
    counting.trouble = lambda name: None
    assert [row["body"] for row in run.all_rows(1)] == ["one"]
    run.plan()
    assert (run.reader.reportLatestOffset() or {})["lastError"] is None


def test_what_ends_the_looking_ends_the_stream(
    gateway: str, make_queue: Maker, make_run: MakeRun
) -> None:
    run, counting = make_run(make_queue(gateway), waitTimeSeconds=1)

    def trouble(name: str) -> None:
        if name == "receive":
            raise Refused("AccessDenied", "not any more")

    counting.trouble = trouble
    with pytest.raises(Refused, match="not any more"):
        wait_for(lambda: run.plan() != run.offset)


def test_what_was_found_long_ago_is_given_back(
    gateway: str, make_queue: Maker, make_run: MakeRun, clock: Clock
) -> None:
    """Another source of the query took its time: somebody else may have them soon."""
    url = make_queue(gateway)
    run, _ = make_run(url, visibilityTimeout=60)
    assert run.plan() == run.offset
    fill(gateway, url, ["one"])
    wait_for(lambda: counts(gateway, url) == (0, 1))
    clock.advance(31)
    assert run.plan() == run.offset
    [row] = run.all_rows(1)
    assert row["approximate_receive_count"] == 2
    wait_for(lambda: counts(gateway, url) == (0, 0))


def test_a_driver_that_stops_gives_back_what_it_found(
    gateway: str, make_queue: Maker, make_run: MakeRun
) -> None:
    url = make_queue(gateway)
    run, _ = make_run(url)
    assert run.plan() == run.offset
    fill(gateway, url, ["one"])
    wait_for(lambda: counts(gateway, url) == (0, 1))
    run.reader.stop()
    assert counts(gateway, url) == (1, 0)


def test_a_driver_that_has_to_go_gives_back_what_it_found(
    gateway: str, make_queue: Maker, make_run: MakeRun
) -> None:
    url = make_queue(gateway)
    first, _ = make_run(url)
    assert first.plan() == first.offset
    make_run(url)
    fill(gateway, url, ["one"])
    wait_for(lambda: counts(gateway, url) == (0, 1))
    with pytest.raises(SpoolTaken):
        wait_for(lambda: first.plan() != first.offset)
    assert counts(gateway, url) == (1, 0)


def test_messages_of_the_driver_go_when_spark_has_committed(
    gateway: str, make_queue: Maker, make_run: MakeRun
) -> None:
    url = queue_with(5, gateway, make_queue)
    run, _ = make_run(url, deleteMode="commit")
    end = run.plan()
    assert sum(len(rows) for rows in run.rows(run.offset, end)) == 5
    assert counts(gateway, url) == (0, 5)
    run.reader.commit(end)
    wait_for(lambda: counts(gateway, url) == (0, 0))


def test_a_slot_of_the_driver_that_is_there_counts(place: Place, make_run: MakeRun) -> None:
    """A task of a driver that died filled it, and nobody has its offset."""
    place.fill(bodies_of(20))
    first, _ = make_run(place.url, minPartitions=1, maxOffsetsPerTrigger=12)
    [task] = first.reader.partitions(first.offset, first.plan())
    after, _ = make_run(place.url, minPartitions=1)
    assert isinstance(task, FillTask)
    assert sum(batch.num_rows for batch in batches(first.reader, task)) == 12
    end = after.plan()
    assert (end["slots"], end["taken"]) == (1, 12)
    assert task.places == (SegmentPlace(1, 0),)
    rows = [row["body"] for rows in after.rows(after.offset, end) for row in rows]
    after.offset = end
    rows += [row["body"] for row in after.all_rows(8)]
    assert sorted(rows) == sorted(bodies_of(20))


@contextmanager
def running(spark: SparkSession, endpoint: str, url: str, where: Path) -> Iterator[Any]:
    """A stream in executor mode, until the end of the context."""
    options = {"receiveMode": "executor", "maxRetries": 1, "waitTimeSeconds": 1}
    query = (
        stream(spark, endpoint, url, where / "spool", **options)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(where / "checkpoint"))
        .option("path", str(where / "table"))
        .start()
    )
    try:
        yield query
    finally:
        query.stop()


@pytest.mark.timeout(600)
def test_a_gateway_that_was_away_ends_no_stream(place: Place, spark: SparkSession) -> None:
    faults = Faults()
    with (
        faulty(place.endpoint, faults) as endpoint,
        running(spark, endpoint, place.url, place.spool) as query,
    ):
        place.fill(bodies_of(40))
        wait_for(lambda: place.counts() == (0, 0), 240)
        faults.is_away.set()
        refused = faults.refused_count
        wait_for(lambda: faults.refused_count > refused + 8)
        place.fill([f"later {number}" for number in range(40)])
        faults.is_away.clear()
        wait_for(lambda: place.counts() == (0, 0) or not query.isActive, 240)
        assert query.exception() is None
        query.processAllAvailable()
    found = sorted(row.body for row in spark.read.parquet(str(place.spool / "table")).collect())
    assert found == sorted(bodies_of(40) + [f"later {number}" for number in range(40)])
