"""Segments that are gone, and spools that are not the one they should be: each must be said."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_connectors.errors import DataLost
from spark_connectors.source.queue_batch_reader import batch_reader
from spark_connectors.source.queue_stream_reader import QueueStreamReader
from spark_connectors.source.slot_tasks import Offset
from spark_connectors.spool import (
    ORDER,
    DeletedSegment,
    SegmentPlace,
    Spool,
    SpoolMismatch,
    encode,
    segment_name,
)
from spark_connectors.stores import MemoryStore
from tests.spark.queues import bodies_of, counts, fill, queue_with
from tests.spark.readers import Place, Run, batches, reader_of
from tests.spark.waiting import wait_for

Maker = Callable[..., str]
LATER = 1 << 40


def remove(spool: Path, place: SegmentPlace) -> None:
    (spool / segment_name(place)).unlink()


def bodies(reader: QueueStreamReader, *tasks: Any) -> list[str]:
    return sorted(
        row["body"]
        for task in tasks
        for batch in batches(reader, task)
        for row in batch.to_pylist()
    )


# A spool that is not shared


@pytest.mark.parametrize("other", ["nothing", "another spool"])
def test_a_task_that_sees_another_spool_does_nothing(
    gateway: str, make_queue: Maker, tmp_path: Path, other: str
) -> None:
    """As when spoolPath is a local directory of each of two machines."""
    url = queue_with(20, gateway, make_queue)
    here, there = tmp_path / "here", tmp_path / "there"
    run = Run(reader_of(gateway, url, here, deleteMode="commit"))
    tasks = run.reader.partitions(run.offset, run.plan_some())
    on_the_other = reader_of(gateway, url, there)
    if other == "another spool":
        # Of an earlier query: its segments have the same names.
        on_the_other.initialOffset()
        before = make_queue(gateway)
        fill(gateway, before, ["of another query"])
        earlier = Run(reader_of(gateway, before, tmp_path / "earlier"))
        earlier.all_rows(1)
        for segment in (tmp_path / "earlier/segments").iterdir():
            (there / "segments").mkdir(exist_ok=True)
            segment.rename(there / "segments" / segment.name)
    run.reader.stop()
    before_reading = counts(gateway, url)
    with pytest.raises(SpoolMismatch, match=r"driver and all executors share: a network file"):
        bodies(type(run.reader)(on_the_other.options), *tasks)
    assert counts(gateway, url) == before_reading
    assert not (there / "order").exists()


# A segment that is marked done and gone


@pytest.mark.parametrize("is_planned", [False, True])
def test_the_newest_segment_of_a_fifo_queue_is_missed(
    gateway: str, make_queue: Maker, tmp_path: Path, is_planned: bool
) -> None:
    """Its messages were deleted when the spool had them."""
    url = make_queue(gateway, fifo=True)
    fill(gateway, url, bodies_of(10), group=lambda body: "one")
    how = {"maxReceiveSeconds": 5, "visibilityTimeout": 120}
    run = Run(reader_of(gateway, url, tmp_path, **how))
    start, end = run.offset, run.plan_some()
    wait_for(lambda: counts(gateway, url) == (0, 0) and list((tmp_path / "done").glob("*")))
    run.reader.stop()
    remove(tmp_path, SegmentPlace(1))
    said = r"segments/000000000001\.arrow \(10 messages\) not in the spool at .*failOnDataLoss"
    for _ in range(2):
        # Also the second time: the mark must not be tidied away.
        again = Run(reader_of(gateway, url, tmp_path, **how), start)
        again.reader.prepareForTriggerAvailableNow()
        with pytest.raises(DataLost, match=said):
            again.rows(start, end) if is_planned else again.plan()
    bearing = Run(reader_of(gateway, url, tmp_path, failOnDataLoss="false", **how), start)
    assert bearing.plan() == start
    fill(gateway, url, ["new"], group=lambda body: "one")
    assert [row["body"] for row in bearing.all_rows(1)] == ["new"]
    # A number is not used twice: a sink may know it.
    assert Offset.of(bearing.offset).seq == 2


# A spool that is older than its checkpoint


def test_a_spool_from_an_older_copy_is_missed(place: Place) -> None:
    place.fill(bodies_of(10))
    here, copy = place.spool / "here", place.spool / "copy"
    how = {"deleteMode": "spool", "maxOffsetsPerTrigger": 10}
    run = place.at(here).run(**how)
    run.all_rows(10)
    run.plan()
    assert run.reader._deleter.flush(30)
    run.reader.stop()
    shutil.copytree(here, copy)
    run = place.at(here).run(run.offset, **how)
    for _ in range(2):
        place.fill(bodies_of(10))
        run.all_rows(10)
    assert run.reader._deleter.flush(30)
    run.reader.stop()
    shutil.rmtree(here)
    copy.rename(here)
    said = r"committed batch \d+, but the spool at .* ends at batch \d+: .*failOnDataLoss=false"
    for _ in range(2):
        with pytest.raises(DataLost, match=said):
            place.at(here).run(run.offset, **how).plan()
    bearing = place.at(here).run(run.offset, failOnDataLoss="false", **how)
    place.fill(["new"])
    assert "new" in [row["body"] for row in bearing.all_rows(1)]
    assert Offset.of(bearing.offset).seq > Offset.of(run.offset).seq


# A segment under the name of another


def segments_of(run: Run, spool: Path, count: int) -> list[Path]:
    """That many segments, planned one by one and not read."""
    start = run.offset
    for _ in range(count):
        run.offset = run.plan_some()
    run.offset = start
    return sorted((spool / "segments").iterdir())[:count]


@pytest.mark.parametrize("what", ["swapped", "overwritten", "another spool"])
@pytest.mark.parametrize("delete_mode", ["commit", "spool"])
def test_a_segment_under_the_name_of_another_is_missed(
    gateway: str, make_queue: Maker, tmp_path: Path, what: str, delete_mode: str
) -> None:
    url = queue_with(20, gateway, make_queue)
    how = {"maxOffsetsPerTrigger": 10, "deleteMode": delete_mode, "minPartitions": 1}
    run = Run(reader_of(gateway, url, tmp_path / "spool", **how))
    one, two = segments_of(run, tmp_path / "spool", 2)
    ends = [run.plan_some()]
    [task] = run.reader.partitions(run.offset, ends[0])
    run.reader.stop()
    kept = one.read_bytes(), two.read_bytes()
    if what == "another spool":
        other = Run(reader_of(gateway, queue_with(10, gateway, make_queue), tmp_path / "other"))
        [found] = segments_of(other, tmp_path / "other", 1)
        one.write_bytes(found.read_bytes())
    else:
        one.write_bytes(kept[1])
        two.write_bytes(kept[0] if what == "swapped" else kept[1])
    said = r"segment segments/0+1\.arrow of the spool .*files were mixed up"
    with pytest.raises(DataLost, match=rf"{said}.*from a copy.*failOnDataLoss=false"):
        Run(reader_of(gateway, url, tmp_path / "spool", **how), run.offset).plan()
    with pytest.raises(DataLost, match=said):
        bodies(reader_of(gateway, url, tmp_path / "spool", **how), task)
    one.write_bytes(kept[0])
    two.write_bytes(kept[1])
    again = Run(reader_of(gateway, url, tmp_path / "spool", **how), run.offset)
    assert len(again.all_rows(20)) == 20


def test_a_segment_of_an_earlier_version_is_read(request: pytest.FixtureRequest) -> None:
    spool = Spool(MemoryStore(request.node.name), "this")
    spool.put(SegmentPlace(1), encode([], "none"))
    assert not spool.read(SegmentPlace(1)).row_count


class Dead(Exception):
    pass


class DyingStore(MemoryStore):
    """Ends the process, so to speak, before so many changes more."""

    left = LATER

    def _change(self) -> None:
        if not self.left:
            raise Dead
        self.left -= 1

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        self._change()
        return super().put_if_absent(name, data)

    def remove(self, name: str) -> None:
        self._change()
        super().remove(name)


def two_batches(
    name: str, slots: list[int | None]
) -> tuple[DyingStore, Spool, list[DeletedSegment]]:
    """A spool whose messages were all deleted."""
    store = DyingStore(name)
    spool = Spool(store, "")
    done = [DeletedSegment(SegmentPlace(seq, slot), LATER, 1) for seq in (1, 2) for slot in slots]
    for kept in done:
        store.put_if_absent(segment_name(kept.place), b"segment")
        if kept.place.slot is not None:
            store.put_if_absent(f"{ORDER}{kept.place}", str(kept.place.slot).encode())
        spool.mark_done(kept)
    return store, spool, done


@pytest.mark.parametrize("slots", [[None], [0, 1]], ids=["whole", "slots"])
@pytest.mark.parametrize("what", ["drop", "discard"])
def test_whatever_dies_nothing_is_missed_that_was_removed_on_purpose(
    request: pytest.FixtureRequest, slots: list[int | None], what: str
) -> None:
    for steps in range(40):
        store, spool, done = two_batches(f"{request.node.name}-{steps}", slots)
        store.left = steps
        try:
            if what == "drop":
                spool.mark_dropped(2)
                for kept in done:
                    spool.drop(kept, [b"k" * 16], 0)
            else:
                spool.clear(spool.contents())
        except Dead:
            store.left = LATER
            assert spool.lost(spool.contents(), 0) == []
            continue
        assert steps > 4
        return
    pytest.fail("it never ends")


def test_what_is_missed(request: pytest.FixtureRequest) -> None:
    store, spool, done = two_batches(request.node.name, [0, 1])
    assert spool.lost(spool.contents(), 0) == []
    store.remove(segment_name(SegmentPlace(1, 1)))
    store.remove(segment_name(SegmentPlace(2, 0)))
    assert spool.lost(spool.contents(), 0) == [done[1], done[2]]
    # Spark has committed the first batch.
    assert spool.lost(spool.contents(), 1) == [done[2]]
    spool.mark_dropped(1)
    assert spool.lost(spool.contents(), 0) == [done[2]]


def test_what_was_written_while_it_was_listed_is_not_missed(request: pytest.FixtureRequest) -> None:
    """By a task of a driver that died: its mark comes behind its segment, and so does our look."""
    _, spool, done = two_batches(request.node.name, [0, 1])
    between = spool.contents()._replace(segments=[done[0].place])
    assert spool.lost(between, 0) == []


def test_a_batch_of_a_spool_that_is_gone_is_not_filled(place: Place) -> None:
    place.fill(bodies_of(10))
    how = {"onSpoolMismatch": "adopt"}
    start, end = ({"spool": "that is gone", "seq": seq, "slots": 2} for seq in (4, 5))
    with pytest.raises(DataLost, match="that is gone"):
        place.reader(**how).partitions(start, end)
    bearing = place.run(start, failOnDataLoss="false", **how)
    assert bearing.rows(start, end) == []
    bearing.offset = end
    assert sorted(row["body"] for row in bearing.all_rows(10)) == sorted(bodies_of(10))


# Drains


def drain(gateway: str, url: str, spool: Path, **options: object) -> list[str]:
    given = {"endpointUrl": gateway, "queueUrl": url, "region": "us-east-1", "mode": "drain"}
    given |= {"spoolPath": str(spool), "waitTimeSeconds": "1"}
    reader = batch_reader(given | {name: str(value) for name, value in options.items()})
    return sorted(
        row["body"]
        for task in reader.partitions()
        for batch in reader.read(task)
        for row in batch.to_pylist()  # type: ignore[union-attr]
    )


@pytest.mark.parametrize("left", ["list", "marks"])
def test_a_drain_misses_its_segments(place: Place, left: str) -> None:
    """By its list; and by the marks of what was deleted, where a version of before wrote none."""
    place.fill(bodies_of(30))
    assert drain(place.endpoint, place.url, place.spool) == sorted(bodies_of(30))
    noted = place.spool / "drained.json"
    assert sum(json.loads(noted.read_text())["segments"].values()) == 30
    if left == "marks":
        noted.write_text("{}")
    else:
        for mark in (place.spool / "done").iterdir():
            mark.unlink()
    assert drain(place.endpoint, place.url, place.spool) == sorted(bodies_of(30))
    gone = place.spool / segment_name(SegmentPlace(1))
    gone.rename(place.spool / "kept")
    with pytest.raises(DataLost, match=r"segments/000000000001\.arrow \(\d+ messages\) is gone"):
        drain(place.endpoint, place.url, place.spool)
    rest = drain(place.endpoint, place.url, place.spool, failOnDataLoss="false")
    assert len(rest) < 30
    assert {*rest} < {*bodies_of(30)}
    (place.spool / "kept").rename(gone)
    assert drain(place.endpoint, place.url, place.spool) == sorted(bodies_of(30))


def test_a_drain_that_was_killed_misses_its_segments(place: Place) -> None:
    place.fill(bodies_of(30))
    drain(place.endpoint, place.url, place.spool)
    (place.spool / "drained.json").unlink()
    remove(place.spool, SegmentPlace(1))
    with pytest.raises(DataLost, match=r"000000000001\.arrow"):
        drain(place.endpoint, place.url, place.spool)
    assert not (place.spool / "drained.json").exists()


def test_a_drain_knows_a_segment_that_is_another(
    gateway: str, make_queue: Maker, tmp_path: Path
) -> None:
    urls = [queue_with(count, gateway, make_queue) for count in (30, 5)]
    for number, url in enumerate(urls):
        drain(gateway, url, tmp_path / str(number))
    name = segment_name(SegmentPlace(1))
    (tmp_path / "1" / name).replace(tmp_path / "0" / name)
    with pytest.raises(DataLost, match="files were mixed up"):
        drain(gateway, urls[0], tmp_path / "0")
    # As an earlier version wrote it.
    (tmp_path / "0" / name).write_bytes(encode([], "none"))
    with pytest.raises(DataLost, match=r"arrow has \d+ messages instead of \d+"):
        drain(gateway, urls[0], tmp_path / "0")
