"""The driver's reader: what it promises at each step, without Spark around it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from spark_connectors.errors import DataLost, Refused
from spark_connectors.options import BadOption
from spark_connectors.source.deleter import SegmentDelete, safe_from
from spark_connectors.source.driver_reader import DriverStreamReader
from spark_connectors.source.slot_tasks import SlotTask
from spark_connectors.spool.spool import SegmentPlace, Spool, SpoolMismatch, SpoolTaken
from spark_connectors.spool.stores import open_store
from tests.spark.clocks import Clock
from tests.spark.queues import bodies_of, client_of, counts, fill, queue_with
from tests.spark.readers import Run, batches, reader_of
from tests.spark.waiting import wait_for

Maker = Callable[..., str]


def wait_until_deleted(run: Run, endpoint: str, url: str) -> None:
    """Plan until what was read is deleted; nothing else may come."""
    wait_for(lambda: run.plan() == run.offset and counts(endpoint, url) == (0, 0))


@pytest.mark.elsewhere
def test_every_message_once_and_then_deleted(
    endpoint: str, make_queue: Maker, tmp_path: Path
) -> None:
    url = queue_with(120, endpoint, make_queue)
    run = Run(reader_of(endpoint, url, tmp_path, maxOffsetsPerTrigger=50))
    rows = run.all_rows(120)
    assert sorted(row["body"] for row in rows) == sorted(bodies_of(120))
    assert run.plan() == run.offset
    wait_for(lambda: counts(endpoint, url) == (0, 0))


def test_nothing_is_deleted_before_the_commit(
    gateway: str, make_queue: Maker, tmp_path: Path
) -> None:
    url = queue_with(30, gateway, make_queue)
    run = Run(reader_of(gateway, url, tmp_path))
    end = run.plan_some()
    run.rows(run.offset, end)
    assert sum(counts(gateway, url)) == 30
    run.reader.commit(end)
    wait_for(lambda: sum(counts(gateway, url)) < 30)


def test_a_batch_of_no_more_than_asked_for(gateway: str, make_queue: Maker, tmp_path: Path) -> None:
    url = queue_with(60, gateway, make_queue)
    run = Run(reader_of(gateway, url, tmp_path, maxOffsetsPerTrigger=7))
    sizes: list[int] = []
    while sum(sizes) < 60:
        sizes.append(sum(len(rows) for rows in run.next_batch()))
    assert max(sizes) <= 7


def test_a_batch_of_no_more_bytes_than_asked_for(
    gateway: str, make_queue: Maker, tmp_path: Path
) -> None:
    url = make_queue(gateway)
    fill(gateway, url, ["x" * 400 for _ in range(19)] + ["y" * 2_000])
    run = Run(reader_of(gateway, url, tmp_path, maxBytesPerTrigger="1k"))
    sizes: list[list[int]] = []
    while sum(len(one) for one in sizes) < 20:
        sizes.append([len(row["body"]) for rows in run.next_batch() for row in rows])
    assert all(sum(one) <= 1024 or len(one) == 1 for one in sizes)


def test_a_batch_can_be_read_again(gateway: str, make_queue: Maker, tmp_path: Path) -> None:
    url = queue_with(20, gateway, make_queue)
    run = Run(reader_of(gateway, url, tmp_path))
    start, end = run.offset, run.plan_some()
    assert run.rows(start, end) == run.rows(start, end) != []


def test_a_new_driver_gets_the_planned_batch_again_and_then_the_rest(
    gateway: str, make_queue: Maker, clock: Clock, tmp_path: Path
) -> None:
    url = queue_with(40, gateway, make_queue)
    how = {"visibilityTimeout": 60, "waitTimeSeconds": 1}
    first = Run(reader_of(gateway, url, tmp_path, **how))
    end = first.plan_some()
    before = first.rows(first.offset, end)
    first.reader.stop()
    # Longer than the visibility timeout: all come a second time.
    clock.advance(61)
    wait_for(lambda: counts(gateway, url) == (40, 0))
    second = Run(reader_of(gateway, url, tmp_path), first.offset)
    assert second.rows(first.offset, end) == before
    second.offset = end
    done = sum(len(rows) for rows in before)
    rest = second.all_rows(40 - done)
    seen = [row["body"] for rows in before for row in rows] + [row["body"] for row in rest]
    assert sorted(seen) == sorted(bodies_of(40))
    wait_until_deleted(second, gateway, url)


def test_a_segment_that_no_offset_knows_is_the_next_batch(
    gateway: str, make_queue: Maker, tmp_path: Path
) -> None:
    """The driver died between the spool and Spark's offset log."""
    url = queue_with(10, gateway, make_queue)
    first = Run(reader_of(gateway, url, tmp_path))
    planned = first.plan_some()
    first.reader.stop()
    second = Run(reader_of(gateway, url, tmp_path))
    assert second.plan() == planned
    assert sorted(r["body"] for r in second.all_rows(10)) == sorted(bodies_of(10))


def test_a_message_that_is_delivered_again_is_dropped_and_deleted(
    gateway: str, make_queue: Maker, clock: Clock, tmp_path: Path
) -> None:
    url = queue_with(5, gateway, make_queue)
    run = Run(reader_of(gateway, url, tmp_path, visibilityTimeout=60))
    end = run.plan_some()
    clock.advance(61)
    wait_for(lambda: counts(gateway, url) == (0, 0))
    assert len([row for rows in run.rows(run.offset, end) for row in rows]) == 5
    run.offset = end
    assert run.next_batch(polls=5) == []


def test_rows_of_a_group_stay_in_order(endpoint: str, make_queue: Maker, tmp_path: Path) -> None:
    url = make_queue(endpoint, fifo=True)
    bodies = [f"{number:04}" for number in range(100)]
    fill(endpoint, url, bodies, group=lambda body: f"g{int(body) % 7}")
    # moto does not wake a receive that waits when a delete frees a group.
    run = Run(reader_of(endpoint, url, tmp_path, minPartitions=3, waitTimeSeconds=1))
    seen: dict[str, list[str]] = {}
    for row in run.all_rows(100):
        seen.setdefault(row["message_group_id"], []).append(row["body"])
    assert {group: sorted(found) for group, found in seen.items()} == seen
    assert sum(map(len, seen.values())) == 100
    wait_for(lambda: counts(endpoint, url) == (0, 0))


def test_a_group_is_in_one_task_of_a_batch(gateway: str, make_queue: Maker, tmp_path: Path) -> None:
    url = make_queue(gateway, fifo=True)
    bodies = [f"{number:04}" for number in range(60)]
    fill(gateway, url, bodies, group=lambda body: f"g{int(body) % 5}")
    run = Run(reader_of(gateway, url, tmp_path, minPartitions=4))
    seen = 0
    while seen < 60:
        batch = run.next_batch()
        groups = [{row["message_group_id"] for row in rows} for rows in batch]
        seen += sum(len(rows) for rows in batch)
        assert sum(len(one) for one in groups) == len(set().union(*groups))


def test_rows_with_the_tasks_where_executors_do_not_see_the_spool(
    gateway: str, make_queue: Maker, tmp_path: Path
) -> None:
    url = queue_with(30, gateway, make_queue)
    run = Run(reader_of(gateway, url, tmp_path, spoolPayload="inline"))
    start, end = run.offset, run.plan_some()
    tasks = run.reader.partitions(start, end)
    assert all(isinstance(one, SlotTask) and one.inline for one in tasks)
    elsewhere = reader_of(gateway, url, tmp_path / "not-there", spoolPayload="inline")
    read = [batch.num_rows for task in tasks for batch in batches(elsewhere, task)]
    assert sum(read) == sum(len(rows) for rows in run.rows(start, end)) > 0


def test_at_least_once_without_a_spool(gateway: str, make_queue: Maker) -> None:
    url = queue_with(25, gateway, make_queue)
    first = Run(reader_of(gateway, url, None, deliveryGuarantee="at_least_once"))
    start, end = first.offset, first.plan_some()
    assert sum(len(rows) for rows in first.rows(start, end)) > 0
    # A driver that dies loses the rows, but not the messages: a planned batch is empty now.
    second = Run(reader_of(gateway, url, None, deliveryGuarantee="at_least_once"), start)
    assert second.rows(start, end) == []
    assert sum(counts(gateway, url)) == 25
    first.offset = end
    first.all_rows(25 - sum(len(rows) for rows in first.rows(start, end)))
    wait_until_deleted(first, gateway, url)


def test_a_spool_in_use_is_not_taken_by_a_new_checkpoint(
    gateway: str, make_queue: Maker, tmp_path: Path
) -> None:
    url = queue_with(10, gateway, make_queue)
    run = Run(reader_of(gateway, url, tmp_path))
    run.all_rows(10)
    wait_until_deleted(run, gateway, url)
    wait_for(
        lambda: (
            Spool.open(open_store(str(tmp_path)), queue=url.rpartition("/")[2], mode="driver")
            .contents()
            .acknowledged
        )
    )
    run.reader.stop()
    with pytest.raises(SpoolMismatch, match="another checkpoint"):
        reader_of(gateway, url, tmp_path).initialOffset()
    adopted = Run(reader_of(gateway, url, tmp_path, onSpoolMismatch="adopt"))
    assert adopted.offset == run.offset
    fill(gateway, url, ["new"])
    assert [row["body"] for row in adopted.all_rows(1)] == ["new"]
    adopted.reader.stop()
    discarded = Run(reader_of(gateway, url, tmp_path, onSpoolMismatch="discard"))
    fill(gateway, url, ["newer"])
    assert [row["body"] for row in discarded.all_rows(1)] == ["newer"]


def test_a_checkpoint_does_not_take_another_spool(
    gateway: str, make_queue: Maker, tmp_path: Path
) -> None:
    url = queue_with(10, gateway, make_queue)
    run = Run(reader_of(gateway, url, tmp_path / "one"))
    run.all_rows(10)
    run.reader.stop()
    other = reader_of(gateway, url, tmp_path / "two")
    with pytest.raises(SpoolMismatch, match="belongs to spool"):
        other.latestOffset(run.offset, other.getDefaultReadLimit())
    fill(gateway, url, ["new"])
    adopted = Run(reader_of(gateway, url, tmp_path / "two", onSpoolMismatch="adopt"), run.offset)
    assert [row["body"] for row in adopted.all_rows(1)] == ["new"]


def test_a_spool_is_of_one_queue(gateway: str, make_queue: Maker, tmp_path: Path) -> None:
    reader_of(gateway, make_queue(gateway), tmp_path).initialOffset()
    with pytest.raises(SpoolMismatch, match="of queue"):
        reader_of(gateway, make_queue(gateway), tmp_path).initialOffset()


def test_two_drivers_on_one_spool(gateway: str, make_queue: Maker, tmp_path: Path) -> None:
    url = make_queue(gateway)
    one = Run(reader_of(gateway, url, tmp_path))
    two = Run(reader_of(gateway, url, tmp_path))
    assert one.next_batch(polls=1) == two.next_batch(polls=1) == []

    def both() -> None:
        # Again and again: one of them may be fast enough to get all that is there.
        for _ in range(100):
            fill(gateway, url, bodies_of(20))
            for run in (one, two):
                run.next_batch(polls=1)

    with pytest.raises(SpoolTaken, match="another query"):
        both()


def test_a_missing_segment(gateway: str, make_queue: Maker, tmp_path: Path) -> None:
    url = queue_with(10, gateway, make_queue)
    run = Run(reader_of(gateway, url, tmp_path))
    start, end = run.offset, run.plan_some()
    run.reader.stop()
    for segment in (tmp_path / "segments").iterdir():
        segment.unlink()
    with pytest.raises(DataLost, match="failOnDataLoss=false"):
        Run(reader_of(gateway, url, tmp_path), start).rows(start, end)
    bearing = reader_of(gateway, url, tmp_path, failOnDataLoss="false")
    assert Run(bearing, start).rows(start, end) == []


def test_segments_go_when_they_are_old(gateway: str, make_queue: Maker, tmp_path: Path) -> None:
    url = make_queue(gateway)
    run = Run(reader_of(gateway, url, tmp_path, spoolRetentionBatches=2))
    for number in range(6):
        fill(gateway, url, [f"{number}"])
        run.all_rows(1)
    wait_until_deleted(run, gateway, url)

    def left(kind: str) -> int:
        return len(list((tmp_path / kind).iterdir()))

    wait_for(lambda: left("segments") == left("done") == 2)


def test_ids_outlive_their_segment_when_the_receipts_had_expired(
    gateway: str, make_queue: Maker, clock: Clock, tmp_path: Path
) -> None:
    url = make_queue(gateway)
    run = Run(
        reader_of(
            gateway,
            url,
            tmp_path,
            visibilityTimeout=60,
            spoolRetentionBatches=0,
            deleteMode="commit",
        )
    )
    fill(gateway, url, ["slow"])
    end = run.plan_some()
    # The timeout passes before Spark commits: the delete may do nothing.
    clock.advance(61)
    wait_for(lambda: counts(gateway, url) == (0, 0))
    run.offset = end
    wait_for(lambda: run.plan() == run.offset and (tmp_path / "ids").is_dir())
    wait_for(lambda: not list((tmp_path / "segments").iterdir()))
    [kept] = (tmp_path / "ids").iterdir()
    assert kept.stat().st_size == 16
    again = reader_of(gateway, url, tmp_path)
    again.latestOffset(run.offset, again.getDefaultReadLimit())
    assert isinstance(again, DriverStreamReader)
    assert len(again._known) == 1


def remembered(run: Run) -> int:
    """Return how many ids the driver knows, by its own figures."""
    figures = run.reader.reportLatestOffset() or {}
    found: int = figures["rememberedIds"]
    return found


def is_hidden_longer(run: Run) -> bool:
    """Return True if no message that waits for Spark's commit is due to be hidden again."""
    waiting = list(run.reader._deleter._waiting.values())
    return all(one.since and not one.hides_for(time.time()) for one in waiting)


def test_what_waits_for_spark_is_hidden_longer(
    gateway: str, make_queue: Maker, clock: Clock, tmp_path: Path
) -> None:
    """So that its delete is certain, and no id must be remembered for the days of a retention."""
    url = queue_with(5, gateway, make_queue)
    how = {"visibilityTimeout": 60, "maxReceiveSeconds": 5, "spoolRetentionBatches": 0}
    run = Run(reader_of(gateway, url, tmp_path, deleteMode="commit", **how))
    end = run.plan_some()
    assert remembered(run) == sum(counts(gateway, url)) == 5
    # A batch of two and a half times the visibility timeout.
    for seconds in (40, 40, 70):
        wait_for(lambda: counts(gateway, url) == (0, 5))
        clock.advance(seconds)
        wait_for(lambda: is_hidden_longer(run))
    assert counts(gateway, url) == (0, 5)
    run.offset = end
    wait_until_deleted(run, gateway, url)
    wait_for(lambda: not list((tmp_path / "segments").iterdir()))
    assert remembered(run) == 0
    assert not (tmp_path / "ids").exists()


def test_what_waits_in_memory_for_room_is_spooled_in_time(
    gateway: str, make_queue: Maker, tmp_path: Path
) -> None:
    """Otherwise a whole segment is certain only for as long as the oldest message in it."""
    url = queue_with(60, gateway, make_queue)
    how = {"visibilityTimeout": 4, "maxReceiveSeconds": 0.5, "maxOffsetsPerTrigger": 15}
    run = Run(reader_of(gateway, url, tmp_path, receiveThreads=1, **how))
    run.plan_some()
    # Spark works on that batch, and asks for no other one meanwhile.
    assert isinstance(run.reader, DriverStreamReader)
    collector = run.reader._collector
    wait_for(lambda: collector.ahead_rows >= 15 and not collector._buffer, 20)


def test_what_cannot_be_hidden_longer_is_remembered(
    gateway: str, make_queue: Maker, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = queue_with(5, gateway, make_queue)
    how = {"visibilityTimeout": 60, "maxReceiveSeconds": 5, "spoolRetentionBatches": 0}
    run = Run(reader_of(gateway, url, tmp_path, deleteMode="commit", **how))
    asked: list[int] = []

    def refuse(url: str, receipts: list[str], seconds: int) -> NoReturn:
        asked.append(seconds)
        raise Refused("AccessDenied", "no")

    monkeypatch.setattr(run.reader._transport, "change_visibility", refuse)
    end = run.plan_some()
    clock.advance(40)
    wait_for(lambda: asked)
    clock.advance(21)
    run.offset = end
    wait_until_deleted(run, gateway, url)
    wait_for(lambda: list((tmp_path / "ids").glob("*")))
    assert remembered(run) == 5
    # Once is enough to know.
    assert len(asked) == 1


def test_a_stopped_reader_hides_nothing(
    gateway: str, make_queue: Maker, clock: Clock, tmp_path: Path
) -> None:
    url = queue_with(5, gateway, make_queue)
    how = {"visibilityTimeout": 60, "maxReceiveSeconds": 5, "waitTimeSeconds": 1}
    # Readers of other tests may not have ended.
    others = threading.enumerate()
    run = Run(reader_of(gateway, url, tmp_path, **how))
    run.plan_some()
    run.reader.stop()
    threads = [one for one in threading.enumerate() if one.name == "hide" and one not in others]
    wait_for(lambda: not any(one.is_alive() for one in threads))
    clock.advance(40)
    clock.advance(21)
    # What was asked before the end may still take them, and gives them back.
    wait_for(lambda: counts(gateway, url) == (5, 0))


@pytest.mark.parametrize(
    ("age", "left", "seconds"),
    [
        (50, 58, 0),
        (55, 53, 165),
        # Too late: it may be somebody else's already.
        (200, 0, 0),
        (200, -1, 0),
        # Twelve hours in all since the receive; and not for little.
        (20_000, 1_000, 23_195),
        (30_000, 10_000, 0),
        (43_000, 80, 195),
        (43_194, 1, 0),
    ],
)
def test_for_how_long_it_is_hidden(age: int, left: int, seconds: int) -> None:
    now = 1_000_000.0
    assert SegmentDelete({}, now + left, now - age).hides_for(now) == seconds


def test_it_is_hidden_rarely() -> None:
    now = 1_000_000.0
    delete, times = SegmentDelete({}, safe_from(now, 120), now), 0
    for second in range(43_000):
        if seconds := delete.hides_for(now + second):
            delete = delete._replace(safe_until=safe_from(now + second, seconds))
            times += 1
    assert (delete.safe_until or 0) > now + 42_000
    assert times < 16


def test_a_forced_window(gateway: str, make_queue: Maker, clock: Clock, tmp_path: Path) -> None:
    url = make_queue(gateway)
    options = {"dedupeWindow": 100, "spoolRetentionBatches": 0}
    run = Run(reader_of(gateway, url, tmp_path, **options))
    fill(gateway, url, ["one"])
    run.all_rows(1)
    assert run.plan() == run.offset
    wait_for(lambda: list((tmp_path / "ids").glob("*")))
    clock.advance(102)

    def forgotten() -> bool:
        fill(gateway, url, ["more"])
        run.all_rows(1)
        names = [one.name for one in (tmp_path / "ids").iterdir()]
        return not any(name.startswith(str(SegmentPlace(1))) for name in names)

    wait_for(forgotten)


def test_a_queue_that_does_not_exist(endpoint: str, make_queue: Maker, tmp_path: Path) -> None:
    url = make_queue(endpoint)
    client_of("sqs", endpoint).delete_queue(QueueUrl=url)
    with pytest.raises(Refused, match="QueueDoesNotExist"):
        reader_of(endpoint, url, tmp_path).initialOffset()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"maxOffsetPerTrigger": 1}, "did you mean 'maxOffsetsPerTrigger'"),
        ({"maxOffsetsPerTrigger": 0}, "a whole number from 1"),
        ({"maxBytesPerTrigger": "1 box"}, "bytes from 1"),
        ({"visibilityTimeout": 1}, "at least twice maxReceiveSeconds"),
        ({"dedupe": "false"}, "needs dedupe=true"),
        ({"dedupeWindow": 0}, "a redelivery is a duplicate"),
        ({"accessKeyId": "AK", "secretAccessKey": "S3CRET"}, "allowStaticCredentials=true"),
        ({"receiveMode": "executor", "spoolPayload": "inline"}, "spoolPayload=shared"),
        ({"deliveryGuarantee": "at_least_once", "deleteMode": "spool"}, "only the spool"),
        ({"queueName": "other"}, "one of queueUrl and queueName"),
        ({"sqsUrl": "http://localhost/1/q"}, "given twice"),
        ({"maxReceiveSeconds": "soon"}, "seconds from"),
        ({"unwrapSns": "perhaps"}, "true or false"),
        ({"spoolPath": "lake/spool"}, "spoolPath lake/spool: the directory must be absolute"),
        ({"spoolPath": "hdfs://lake/spool"}, "hdfs: is not supported.*spoolPayload=inline"),
    ],
)
def test_options_that_cannot_be(options: dict[str, object], said: str) -> None:
    with pytest.raises(BadOption, match=said) as refused:
        reader_of("http://localhost:1", "http://localhost:1/0/q", Path("/spool"), **options)
    assert "S3CRET" not in str(refused.value)


def test_a_spool_is_needed() -> None:
    with pytest.raises(BadOption, match="needs spoolPath"):
        reader_of("http://localhost:1", "http://localhost:1/0/q", None)
