"""Executor mode: tasks that receive, run again, run twice, or die."""

from __future__ import annotations

import itertools
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_connectors.errors import NotNow, Refused
from spark_connectors.source.executor_reader import ExecutorStreamReader, FillTask, TooLate
from spark_connectors.spool import Segment, SegmentPlace, SpoolTaken, encode
from spark_connectors.stores import Missing
from spark_connectors.transport import Message, Transport, shared_transport
from tests.spark.clocks import Clock
from tests.spark.queues import bodies_of, counts, fill, queue_with
from tests.spark.readers import Place, Run, batches, reader_of
from tests.spark.waiting import wait_for

Maker = Callable[..., str]


def executor_run(endpoint: str, url: str, spool: Path, **options: object) -> Run:
    return Run(reader_of(endpoint, url, spool, receiveMode="executor", **options))


class Tampered:
    """A transport of which some calls go another way."""

    def __init__(self, transport: Transport, **calls: Callable[..., Any]) -> None:
        self._transport = transport
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        return self._calls.get(name) or getattr(self._transport, name)


def tampered_reader(
    run: Run, make_calls: Callable[[Transport], dict[str, Callable[..., Any]]]
) -> ExecutorStreamReader:
    """The reader of an executor with such a transport."""
    transport = shared_transport(run.reader.options.connection)
    tampered: Any = Tampered(transport, **make_calls(transport))

    class Reader(ExecutorStreamReader):
        def open_transport(self) -> Transport:
            found: Transport = tampered
            return found

    return Reader(run.reader.options)


def reader_and_task(
    place: Place, trouble: Callable[[], None], *, always: bool = False, **options: object
) -> tuple[ExecutorStreamReader, FillTask]:
    """The reader of an executor and its only task. Something happens before it receives for the
    second time, or every time."""
    options |= {"receiveMode": "executor", "minPartitions": 1, "receiveThreads": 1}
    run = place.run(**options)
    [task] = run.reader.partitions(run.offset, run.plan())
    assert isinstance(task, FillTask)
    numbers = itertools.count(1)

    def calls(transport: Transport) -> dict[str, Callable[..., Any]]:
        def receive(*given: Any, **named: Any) -> list[Message]:
            if next(numbers) == 2 or always:
                trouble()
            return transport.receive(*given, **named)

        return {"receive": receive}

    return tampered_reader(run, calls), task


@pytest.mark.elsewhere
def test_every_message_once(endpoint: str, make_queue: Maker, tmp_path: Path) -> None:
    url = queue_with(100, endpoint, make_queue)
    run = executor_run(endpoint, url, tmp_path, maxOffsetsPerTrigger=40)
    rows = run.all_rows(100)
    assert sorted(row["body"] for row in rows) == sorted(bodies_of(100))
    wait_for(lambda: run.plan() == run.offset)
    assert counts(endpoint, url) == (0, 0)


def test_messages_go_when_the_spool_has_them(place: Place) -> None:
    place.fill(bodies_of(30))
    run = place.run(receiveMode="executor")
    run.rows(run.offset, run.plan())
    assert place.counts() == (0, 0)


def test_messages_go_when_spark_has_committed(place: Place) -> None:
    place.fill(bodies_of(30))
    run = place.run(receiveMode="executor", deleteMode="commit")
    end = run.plan()
    run.rows(run.offset, end)
    assert sum(place.counts()) == 30
    run.reader.commit(end)
    wait_for(lambda: place.counts() == (0, 0))


def test_a_task_takes_no_more_than_its_share(
    endpoint: str, make_queue: Maker, tmp_path: Path
) -> None:
    url = queue_with(150, endpoint, make_queue)
    options = {"maxOffsetsPerTrigger": 90, "receiveThreads": 8, "maxReceiveSeconds": 30}
    run = executor_run(endpoint, url, tmp_path, **options)
    assert [len(rows) for rows in run.rows(run.offset, run.plan())] == [45, 45]


def test_a_task_that_cannot_receive_on_gives_back_what_it_has(place: Place) -> None:
    place.fill(bodies_of(40))

    def refuse() -> None:
        raise Refused("AccessDenied", "not any more")

    reader, task = reader_and_task(place, refuse)
    with pytest.raises(Refused, match="not any more"):
        list(batches(reader, task))
    assert place.counts() == (40, 0)
    assert not list(place.spool.rglob("*.arrow"))


def test_a_task_that_was_held_up_receives_anew(place: Place, clock: Clock) -> None:
    place.fill(bodies_of(20))

    def be_held_up() -> None:
        # Until what was received is visible again: another task may have it by now.
        clock.advance(61)
        wait_for(lambda: place.counts() == (20, 0))

    reader, task = reader_and_task(place, be_held_up, visibilityTimeout=60, maxReceiveSeconds=4)
    rows = [row for batch in batches(reader, task) for row in batch.to_pylist()]
    assert sorted(row["body"] for row in rows) == sorted(bodies_of(20))
    # Before the wait, behind it, and anew; once more where anew took too long as well.
    assert max(row["approximate_receive_count"] for row in rows) >= 3
    assert place.counts() == (0, 0)


def test_a_task_that_is_held_up_again_and_again_says_so(place: Place, clock: Clock) -> None:
    place.fill(bodies_of(20))
    reader, task = reader_and_task(
        place, lambda: clock.advance(33), always=True, visibilityTimeout=60
    )
    with pytest.raises(TooLate, match="visibilityTimeout=60"):
        list(batches(reader, task))
    assert not list(place.spool.rglob("*.arrow"))


def test_a_message_that_came_twice_is_deleted_by_both_receipts(
    gateway: str, make_queue: Maker, tmp_path: Path
) -> None:
    """Of two threads, the one with the older receipt may take it last."""
    url = queue_with(11, gateway, make_queue)
    options = {"minPartitions": 1, "receiveThreads": 1, "maxReceiveSeconds": 30}
    run = executor_run(gateway, url, tmp_path, **options)
    [task] = run.reader.partitions(run.offset, run.plan())
    deleted: list[str] = []

    def calls(transport: Transport) -> dict[str, Callable[..., Any]]:
        answers = []
        for _ in range(2):
            answers.append(transport.receive(url, most=10, visibility_seconds=60, wait_seconds=1))
            receipts = [one["ReceiptHandle"] for one in answers[-1]]
            transport.change_visibility(url, receipts, 0)
        first, second = answers
        assert len(first) == len(second) == 10
        given = iter([second, first])

        def delete(url: str, receipts: list[str]) -> Any:
            deleted.extend(receipts)
            return transport.delete(url, receipts)

        return {"receive": lambda *_, **__: next(given, []), "delete": delete}

    reader = tampered_reader(run, calls)
    assert sum(batch.num_rows for batch in batches(reader, task)) == 10
    assert len(set(deleted)) == 20
    assert counts(gateway, url) == (1, 0)


def test_a_dead_endpoint_is_not_asked_for_each_delete(
    gateway: str, make_queue: Maker, tmp_path: Path
) -> None:
    url = queue_with(300, gateway, make_queue)
    options = {"minPartitions": 1, "receiveThreads": 2, "maxReceiveSeconds": 30}
    run = executor_run(gateway, url, tmp_path, **options)
    [task] = run.reader.partitions(run.offset, run.plan())
    asked: list[int] = []

    def delete(url: str, receipts: list[str]) -> None:
        asked.append(len(receipts))
        raise NotNow("nobody answers")

    reader = tampered_reader(run, lambda _: {"delete": delete})
    assert sum(batch.num_rows for batch in batches(reader, task)) == 300
    assert len(asked) <= 2


def test_bytes_of_a_batch_have_a_limit(place: Place) -> None:
    place.fill(["ü" * 50_000] * 40)
    options = {"maxBytesPerTrigger": "1m", "minPartitions": 1, "receiveThreads": 16}
    run = place.run(receiveMode="executor", **options)
    [rows] = run.rows(run.offset, run.plan())
    # What comes first is not known to be large, and the last one may lie across the limit.
    assert 10 <= len(rows) <= 11


def test_what_another_slot_misses_fills_no_slot(place: Place) -> None:
    """A second attempt looks for repetitions while the batch is being dropped."""
    place.fill(bodies_of(30))
    run = place.run(receiveMode="executor")
    tasks = run.reader.partitions(run.offset, run.plan())
    executor = ExecutorStreamReader(run.reader.options)
    for task in tasks:
        list(batches(executor, task))
    for slot in range(2):
        (place.spool / "segments" / f"{SegmentPlace(1, slot)}.arrow").rename(
            place.spool / f"{slot}.arrow"
        )
    (place.spool / "1.arrow").rename(place.spool / "segments" / f"{SegmentPlace(1, 1)}.arrow")
    place.fill(["new"])
    with pytest.raises(Missing):
        list(batches(executor, tasks[1]))
    assert place.counts() == (1, 0)


@pytest.mark.parametrize("mode", ["spool", "commit"])
def test_an_attempt_that_is_late_by_batches_takes_nothing(place: Place, mode: str) -> None:
    place.fill(bodies_of(20))
    options = {"spoolRetentionBatches": 0, "deleteMode": mode}
    run = place.run(receiveMode="executor", **options)
    end = run.plan()
    tasks = run.reader.partitions(run.offset, end)
    seen = sum(len(rows) for rows in run.rows(run.offset, end))
    run.reader.commit(end)
    wait_for(lambda: not list(place.spool.rglob("*.arrow")))
    place.fill(["new"])
    with pytest.raises(SpoolTaken, match="held up"):
        list(batches(ExecutorStreamReader(run.reader.options), tasks[0]))
    assert not list(place.spool.rglob("*.arrow"))
    assert place.counts() == (21 - seen, 0)


def test_a_late_attempt_that_died_counts_for_nothing(place: Place, clock: Clock) -> None:
    """It wrote its segment, and was killed before it could take it back."""
    spool, elsewhere = place.spool / "spool", place.spool / "elsewhere"
    place.fill(bodies_of(20))
    options = {"spoolRetentionBatches": 0, "minPartitions": 1}
    # All that was sent is of this batch, however long it takes.
    long = {"visibilityTimeout": 60, "maxReceiveSeconds": 30, **options}
    run = place.at(spool).run(receiveMode="executor", **long)
    end = run.plan()
    [task] = run.reader.partitions(run.offset, end)
    run.rows(run.offset, end)
    run.reader.commit(end)
    wait_for(lambda: not list(spool.rglob("*.arrow")))
    place.fill(["new"])
    # Where nothing was dropped it takes the message, and nobody deletes it.
    elsewhere.mkdir()
    shutil.copy(spool / "spool.json", elsewhere)
    short = {"visibilityTimeout": 60, "maxReceiveSeconds": 1, **options}
    late = place.at(elsewhere).run(receiveMode="executor", deleteMode="commit", **short).reader
    assert [row["body"] for batch in batches(late, task) for row in batch.to_pylist()] == ["new"]
    [ghost] = elsewhere.rglob("*.arrow")
    shutil.copy(ghost, spool / "segments" / ghost.name)
    clock.advance(61)
    after = place.at(spool).run(end, receiveMode="executor", **long)
    assert [row["body"] for row in after.all_rows(1)] == ["new"]
    wait_for(lambda: place.counts() == (0, 0))


def test_a_batch_keeps_the_slots_that_were_planned(place: Place) -> None:
    """A task of a driver that died may fill one of them at any time."""
    place.fill(bodies_of(40))
    run = place.run(receiveMode="executor", minPartitions=4)
    start, end = run.offset, run.plan()
    after = place.run(receiveMode="executor", minPartitions=1)
    assert len(after.reader.partitions(start, end)) == 4


def test_a_task_that_runs_again_yields_the_same(place: Place) -> None:
    place.fill(bodies_of(40))
    run = place.run(receiveMode="executor")
    start, end = run.offset, run.plan()
    first = run.rows(start, end)
    place.fill(["later"])
    assert run.rows(start, end) == first != [[], []]


def test_attempts_at_the_same_time_yield_the_same_and_lose_nothing(place: Place) -> None:
    place.fill(bodies_of(60))
    run = place.run(receiveMode="executor", minPartitions=1)
    start, end = run.offset, run.plan()
    [task] = run.reader.partitions(start, end)
    found: list[list[str]] = []

    def attempt() -> None:
        executor = ExecutorStreamReader(run.reader.options)
        found.append(
            [row["body"] for batch in batches(executor, task) for row in batch.to_pylist()]
        )

    threads = [threading.Thread(target=attempt) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(one == found[0] for one in found)
    run.offset = end
    rest = [] if len(found[0]) == 60 else run.all_rows(60 - len(found[0]))
    assert sorted(found[0] + [row["body"] for row in rest]) == sorted(bodies_of(60))


def test_a_message_in_two_slots_is_of_the_slot_that_was_written_first(place: Place) -> None:
    """As when a queue gives one message to two receives: the same segment as two slots."""
    place.fill(bodies_of(20))
    run = place.run(receiveMode="executor")
    start, end = run.offset, run.plan()
    one, other = run.reader.partitions(start, end)
    executor = ExecutorStreamReader(run.reader.options)
    first = [row["body"] for batch in batches(executor, other) for row in batch.to_pylist()]
    assert first
    segment = place.spool / "segments" / f"{SegmentPlace(1, 1)}.arrow"
    written = Segment(segment.read_bytes())
    note = {**written.metadata, "place": str(SegmentPlace(1, 0))}
    copy = encode([written.slot(0)], "none", note)
    segment.with_name(f"{SegmentPlace(1, 0)}.arrow").write_bytes(copy)
    assert [batch.num_rows for batch in batches(executor, one)] == [0]
    again = [row["body"] for batch in batches(executor, other) for row in batch.to_pylist()]
    assert again == first


def test_a_driver_deletes_what_a_dead_executor_left(place: Place) -> None:
    place.fill(bodies_of(20))
    run = place.run(receiveMode="executor", deleteMode="commit")
    end = run.plan()
    run.rows(run.offset, end)
    run.reader.stop()
    # The next driver runs with the other mode, and nobody but it deletes.
    after = place.run(end, receiveMode="executor")
    wait_for(lambda: after.plan() and place.counts() == (0, 0))
    wait_for(lambda: len(list((place.spool / "done").iterdir())) == 2)


def test_a_redelivery_is_known(place: Place, clock: Clock) -> None:
    place.fill(bodies_of(20))
    options = {"deleteMode": "commit", "visibilityTimeout": 60, "maxReceiveSeconds": 5}
    run = place.run(receiveMode="executor", **options)
    end = run.plan()
    seen = Counter(row["body"] for rows in run.rows(run.offset, end) for row in rows)
    clock.advance(61)
    wait_for(lambda: place.counts() == (20, 0))
    # Spark has not committed, so nothing was deleted; the next batch receives them all again.
    following = {**end, "seq": end["seq"] + 1}
    again = [row["body"] for rows in run.rows(end, following) for row in rows]
    assert sorted(seen) == sorted(bodies_of(20))
    assert again == []
    assert place.counts() == (0, 0)


def test_fifo_has_one_slot_and_keeps_its_order(
    gateway: str, make_queue: Maker, tmp_path: Path
) -> None:
    url = make_queue(gateway, fifo=True)
    bodies = [f"{number:03}" for number in range(60)]
    fill(gateway, url, bodies, group=lambda body: f"g{int(body) % 4}")
    reader = reader_of(gateway, url, tmp_path, receiveMode="executor", minPartitions=1)
    run = Run(reader)
    seen: dict[str, list[str]] = {}
    for row in run.all_rows(60):
        seen.setdefault(row["message_group_id"], []).append(row["body"])
    assert {group: sorted(found) for group, found in seen.items()} == seen


def test_tasks_say_where_they_read(place: Place) -> None:
    place.fill(bodies_of(30))
    run = place.run(receiveMode="executor", minPartitions=3)
    tasks = run.reader.partitions(run.offset, run.plan())
    assert [task.places for task in tasks if isinstance(task, FillTask)] == [
        (SegmentPlace(1, slot),) for slot in range(3)
    ]
