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
from spark_connectors.source.slot_tasks import SlotTask
from spark_connectors.spool import SegmentPlace, Spool, SpoolMismatch, SpoolTaken
from spark_connectors.stores import open_store
from tests.spark.clocks import Clock
from tests.spark.faulty_endpoint import Faults, faulty
from tests.spark.queues import bodies_of, client_of, counts, fill, queue_with
from tests.spark.readers import Place, Run, batches, reader_of
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


def test_nothing_is_deleted_before_the_commit(place: Place) -> None:
    place.fill(bodies_of(30))
    run = place.run()
    end = run.plan_some()
    run.rows(run.offset, end)
    assert sum(place.counts()) == 30
    run.reader.commit(end)
    wait_for(lambda: sum(place.counts()) < 30)


def test_a_batch_of_no_more_than_asked_for(place: Place) -> None:
    place.fill(bodies_of(60))
    run = place.run(maxOffsetsPerTrigger=7)
    sizes: list[int] = []
    while sum(sizes) < 60:
        sizes.append(sum(len(rows) for rows in run.next_batch()))
    assert max(sizes) <= 7


def test_a_batch_of_no_more_bytes_than_asked_for(place: Place) -> None:
    place.fill(["x" * 400 for _ in range(19)] + ["y" * 2_000])
    run = place.run(maxBytesPerTrigger="1k")
    sizes: list[list[int]] = []
    while sum(len(one) for one in sizes) < 20:
        sizes.append([len(row["body"]) for rows in run.next_batch() for row in rows])
    assert all(sum(one) <= 1024 or len(one) == 1 for one in sizes)


def test_a_batch_can_be_read_again(place: Place) -> None:
    place.fill(bodies_of(20))
    run = place.run()
    start, end = run.offset, run.plan_some()
    assert run.rows(start, end) == run.rows(start, end) != []


def test_a_new_driver_gets_the_planned_batch_again_and_then_the_rest(
    place: Place, clock: Clock
) -> None:
    place.fill(bodies_of(40))
    how = {"visibilityTimeout": 60, "waitTimeSeconds": 1}
    first = place.run(**how)
    end = first.plan_some()
    before = first.rows(first.offset, end)
    first.reader.stop()
    # Longer than the visibility timeout: all come a second time.
    clock.advance(61)
    wait_for(lambda: place.counts() == (40, 0))
    second = place.run(first.offset)
    assert second.rows(first.offset, end) == before
    second.offset = end
    done = sum(len(rows) for rows in before)
    rest = second.all_rows(40 - done)
    seen = [row["body"] for rows in before for row in rows] + [row["body"] for row in rest]
    assert sorted(seen) == sorted(bodies_of(40))
    wait_until_deleted(second, place.endpoint, place.url)


def test_a_segment_that_no_offset_knows_is_the_next_batch(place: Place) -> None:
    """The driver died between the spool and Spark's offset log."""
    place.fill(bodies_of(10))
    first = place.run()
    planned = first.plan_some()
    first.reader.stop()
    second = place.run()
    assert second.plan() == planned
    assert sorted(r["body"] for r in second.all_rows(10)) == sorted(bodies_of(10))


def test_a_message_that_is_delivered_again_is_dropped_and_deleted(
    place: Place, clock: Clock
) -> None:
    place.fill(bodies_of(5))
    run = place.run(visibilityTimeout=60)
    end = run.plan_some()
    clock.advance(61)
    wait_for(lambda: place.counts() == (0, 0))
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


def test_rows_with_the_tasks_where_executors_do_not_see_the_spool(place: Place) -> None:
    place.fill(bodies_of(30))
    run = place.run(spoolPayload="inline")
    start, end = run.offset, run.plan_some()
    tasks = run.reader.partitions(start, end)
    assert all(isinstance(one, SlotTask) and one.inline for one in tasks)
    elsewhere = place.at(place.spool / "not-there").reader(spoolPayload="inline")
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


def test_a_spool_in_use_is_not_taken_by_a_new_checkpoint(place: Place) -> None:
    place.fill(bodies_of(10))
    run = place.run()
    run.all_rows(10)
    wait_until_deleted(run, place.endpoint, place.url)
    wait_for(
        lambda: (
            Spool.open(
                open_store(str(place.spool)), queue=place.url.rpartition("/")[2], mode="driver"
            )
            .contents()
            .acknowledged
        )
    )
    run.reader.stop()
    with pytest.raises(SpoolMismatch, match="another checkpoint"):
        place.reader().initialOffset()
    adopted = place.run(onSpoolMismatch="adopt")
    assert adopted.offset == run.offset
    place.fill(["new"])
    assert [row["body"] for row in adopted.all_rows(1)] == ["new"]
    adopted.reader.stop()
    discarded = place.run(onSpoolMismatch="discard")
    place.fill(["newer"])
    assert [row["body"] for row in discarded.all_rows(1)] == ["newer"]


def test_a_checkpoint_does_not_take_another_spool(place: Place) -> None:
    place.fill(bodies_of(10))
    run = place.at(place.spool / "one").run()
    run.all_rows(10)
    run.reader.stop()
    other = place.at(place.spool / "two").reader()
    with pytest.raises(SpoolMismatch, match="belongs to spool"):
        other.latestOffset(run.offset, other.getDefaultReadLimit())
    place.fill(["new"])
    adopted = place.at(place.spool / "two").run(run.offset, onSpoolMismatch="adopt")
    assert [row["body"] for row in adopted.all_rows(1)] == ["new"]


def test_a_spool_is_of_one_queue(gateway: str, make_queue: Maker, tmp_path: Path) -> None:
    reader_of(gateway, make_queue(gateway), tmp_path).initialOffset()
    with pytest.raises(SpoolMismatch, match="of queue"):
        reader_of(gateway, make_queue(gateway), tmp_path).initialOffset()


def test_two_drivers_on_one_spool(place: Place) -> None:
    one = place.run()
    two = place.run()
    assert one.next_batch(polls=1) == two.next_batch(polls=1) == []

    def both() -> None:
        # Again and again: one of them may be fast enough to get all that is there.
        for _ in range(100):
            place.fill(bodies_of(20))
            for run in (one, two):
                run.next_batch(polls=1)

    with pytest.raises(SpoolTaken, match="another query"):
        both()


def test_a_missing_segment(place: Place) -> None:
    place.fill(bodies_of(10))
    run = place.run()
    start, end = run.offset, run.plan_some()
    run.reader.stop()
    for segment in (place.spool / "segments").iterdir():
        segment.unlink()
    with pytest.raises(DataLost, match="failOnDataLoss=false"):
        place.run(start).rows(start, end)
    bearing = place.reader(failOnDataLoss="false")
    assert Run(bearing, start).rows(start, end) == []


def test_segments_go_when_they_are_old(place: Place) -> None:
    run = place.run(spoolRetentionBatches=2)
    for number in range(6):
        place.fill([f"{number}"])
        run.all_rows(1)
    wait_until_deleted(run, place.endpoint, place.url)

    def left(kind: str) -> int:
        return len(list((place.spool / kind).iterdir()))

    wait_for(lambda: left("segments") == left("done") == 2)


def test_ids_outlive_their_segment_when_the_receipts_had_expired(
    place: Place, clock: Clock
) -> None:
    run = place.run(visibilityTimeout=60, spoolRetentionBatches=0, deleteMode="commit")
    place.fill(["slow"])
    end = run.plan_some()
    # The timeout passes before Spark commits: the delete may do nothing.
    clock.advance(61)
    wait_for(lambda: place.counts() == (0, 0))
    run.offset = end
    wait_for(lambda: run.plan() == run.offset and (place.spool / "ids").is_dir())
    wait_for(lambda: not list((place.spool / "segments").iterdir()))
    [kept] = (place.spool / "ids").iterdir()
    assert kept.stat().st_size == 16
    again = place.reader()
    again.latestOffset(run.offset, again.getDefaultReadLimit())
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


def test_what_waits_for_spark_is_hidden_longer(place: Place, clock: Clock) -> None:
    """So that its delete is certain, and no id must be remembered for the days of a retention."""
    place.fill(bodies_of(5))
    how = {"visibilityTimeout": 60, "maxReceiveSeconds": 5, "spoolRetentionBatches": 0}
    run = place.run(deleteMode="commit", **how)
    end = run.plan_some()
    assert remembered(run) == sum(place.counts()) == 5
    # A batch of two and a half times the visibility timeout.
    for seconds in (40, 40, 70):
        wait_for(lambda: place.counts() == (0, 5))
        clock.advance(seconds)
        wait_for(lambda: is_hidden_longer(run))
    assert place.counts() == (0, 5)
    run.offset = end
    wait_until_deleted(run, place.endpoint, place.url)
    wait_for(lambda: not list((place.spool / "segments").iterdir()))
    assert remembered(run) == 0
    assert not (place.spool / "ids").exists()


def test_what_waits_in_memory_for_room_is_spooled_in_time(place: Place) -> None:
    """Otherwise a whole segment is certain only for as long as the oldest message in it."""
    place.fill(bodies_of(60))
    how = {"visibilityTimeout": 4, "maxReceiveSeconds": 0.5, "maxOffsetsPerTrigger": 15}
    run = place.run(receiveThreads=1, **how)
    run.plan_some()
    # Spark works on that batch, and asks for no other one meanwhile.
    collector = run.reader._collector
    wait_for(lambda: collector.ahead_rows >= 15 and not collector._taken, 20)


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


def test_a_stopped_reader_hides_nothing(place: Place, clock: Clock) -> None:
    place.fill(bodies_of(5))
    how = {"visibilityTimeout": 60, "maxReceiveSeconds": 5, "waitTimeSeconds": 1}
    # Readers of other tests may not have ended.
    others = threading.enumerate()
    run = place.run(**how)
    run.plan_some()
    run.reader.stop()
    threads = [one for one in threading.enumerate() if one.name == "hide" and one not in others]
    wait_for(lambda: not any(one.is_alive() for one in threads))
    clock.advance(40)
    clock.advance(21)
    # What was asked before the end may still take them, and gives them back.
    wait_for(lambda: place.counts() == (5, 0))


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


def test_a_forced_window(place: Place, clock: Clock) -> None:
    options = {"dedupeWindow": 100, "spoolRetentionBatches": 0}
    run = place.run(**options)
    place.fill(["one"])
    run.all_rows(1)
    assert run.plan() == run.offset
    wait_for(lambda: list((place.spool / "ids").glob("*")))
    clock.advance(102)

    def forgotten() -> bool:
        place.fill(["more"])
        run.all_rows(1)
        names = [one.name for one in (place.spool / "ids").iterdir()]
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
        ({"receiveMode": "executor"}, "expected driver.*minOffsetsPerTrigger.*got 'executor'"),
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


def test_a_gateway_that_was_away_ends_no_stream(place: Place) -> None:
    faults = Faults()
    with faulty(place.endpoint, faults) as endpoint:
        run = Run(reader_of(endpoint, place.url, place.spool, maxRetries=1, waitTimeSeconds=1))
        place.fill(["before"])
        assert [row["body"] for row in run.all_rows(1)] == ["before"]
        faults.is_away.set()
        refused = faults.refused_count
        while faults.refused_count < refused + 8:
            assert run.plan() == run.offset
        place.fill(["later"])
        faults.is_away.clear()
        assert [row["body"] for row in run.all_rows(1)] == ["later"]
        run.reader.stop()
