"""Rare states of a spool and its checkpoint: none of them may lose or repeat a message."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, cast

import pytest

from spark_connectors.errors import DataLost
from spark_connectors.source.collector import Collector
from spark_connectors.source.queue_options import stream_options
from spark_connectors.source.queue_stream_reader import QueueStreamReader
from spark_connectors.spool import DeletedSegment, Spool, SpoolMismatch
from spark_connectors.stores import LocalStore, Store
from spark_connectors.transport import Transport
from tests.spark.clocks import Clock
from tests.spark.queues import counts, fill
from tests.spark.waiting import wait_for

Offset = dict[str, Any]
Make = Callable[..., QueueStreamReader]


class SlowStore(LocalStore):
    """Segments take their time to become durable."""

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        if name.startswith("segments/"):
            threading.Event().wait(0.4)
        return super().put_if_absent(name, data)


class SlowReader(QueueStreamReader):
    def open_store(self) -> Store:
        return SlowStore(self.options.spool_path)


class SlowAnswer:
    """A transport whose first full answer is looked at when its receipts have expired, and written
    before the messages come again: then there is no better receipt for them."""

    def __init__(self, transport: Transport, reader: SleepyReader) -> None:
        self._transport = transport
        self._reader = reader
        self._has_slept = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def receive(self, url: str, **named: Any) -> Any:
        if self._has_slept:
            wait_for(lambda: self._reader._collector.spooled_bytes)
        found = self._transport.receive(url, **named)
        if len(found) == 10 and not self._has_slept:
            self._has_slept = True
            endpoint = self._reader.options.connection.endpoint_url or ""
            Clock.here(endpoint).advance(self._reader.options.visibility_seconds + 1)
            wait_for(lambda: counts(endpoint, url) == (10, 0))
        return found


class FarAnswers:
    """A transport whose messages are on the way until the reader has looked for them in vain."""

    def __init__(self, transport: Transport, reader: FarReader) -> None:
        self._transport = transport
        self._reader = reader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def receive(self, url: str, **named: Any) -> Any:
        found = self._transport.receive(url, **named)
        if found:
            looks = self._reader.looks + 2
            wait_for(lambda: self._reader.looks >= looks)
        return found


class FarReader(QueueStreamReader):
    looks = 0

    def _is_exhausted(self) -> bool:
        self.looks += 1
        return super()._is_exhausted()

    def open_transport(self) -> Transport:
        return cast("Transport", FarAnswers(super().open_transport(), self))


class SleepyReader(QueueStreamReader):
    def open_transport(self) -> Transport:
        return cast("Transport", SlowAnswer(super().open_transport(), self))


@pytest.fixture
def queue(gateway: str, make_queue: Callable[..., str]) -> str:
    return make_queue(gateway)


@pytest.fixture
def make(gateway: str, queue: str, tmp_path: Path) -> Iterator[Make]:
    """Readers of one queue and spool, each as a process of its own would make it."""
    made: list[QueueStreamReader] = []

    def reader(kind: type[QueueStreamReader] = QueueStreamReader, **more: object) -> Any:
        options = {
            "endpointUrl": gateway,
            "region": "us-east-1",
            "queueUrl": queue,
            "spoolPath": tmp_path / "spool",
            "waitTimeSeconds": 1,
            "minPartitions": 2,
            **more,
        }
        options = {name: value for name, value in options.items() if value is not None}
        found = kind(stream_options({name: str(value) for name, value in options.items()}))
        made.append(found)
        return found

    yield reader
    for one in made:
        one.stop()


def latest(reader: QueueStreamReader, start: Offset) -> Offset:
    """As Spark asks, with the reader's own limit."""
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def next_batch(reader: QueueStreamReader, start: Offset) -> Offset:
    """The end of the next batch; waits until there is one."""
    found: list[Offset] = []

    def is_there() -> bool:
        end = latest(reader, start)
        found.append(end)
        return end != start

    wait_for(is_there)
    return found[-1]


def rows(reader: QueueStreamReader, start: Offset, end: Offset) -> list[str]:
    """The bodies of a batch, read as tasks read: by other instances."""
    executed = pickle.dumps(type(reader)(reader.options))
    bodies: list[str] = []
    for task in cast("Sequence[Any]", reader.partitions(start, end)):
        for batch in cast("Any", pickle.loads(executed)).read(task):
            bodies += batch.column("body").to_pylist()
    return bodies


def read_all(reader: QueueStreamReader, start: Offset) -> tuple[list[str], Offset]:
    """Every batch of an AvailableNow run, and the last offset."""
    bodies: list[str] = []
    while (end := latest(reader, start)) != start:
        bodies += rows(reader, start, end)
        start = end
    return bodies, start


def available(reader: QueueStreamReader) -> Offset:
    """Begin an AvailableNow run with a new checkpoint, as Spark does."""
    reader.prepareForTriggerAvailableNow()
    return reader.initialOffset()


def spool_at(path: Path) -> Spool:
    store = LocalStore(str(path / "spool"))
    return Spool(store, Spool.identity_at(store) or "")


def wait_acknowledged(reader: QueueStreamReader, end: Offset) -> None:
    """Until the spool knows how far Spark has committed: another thread writes it."""
    spool = spool_at(Path(reader.options.spool_path).parent)
    wait_for(lambda: spool.contents().acknowledged == end["seq"])


def test_a_run_of_what_is_available_ends_when_all_of_it_is_read(
    gateway: str, queue: str, make: Make
) -> None:
    """Also while the last segment is being written: it belongs to this run."""
    sent = [f"{number}" for number in range(45)]
    fill(gateway, queue, sent)
    reader = make(SlowReader)
    found, _ = read_all(reader, available(reader))
    assert sorted(found) == sorted(sent)
    assert counts(gateway, queue) == (0, 0)


@pytest.mark.parametrize("kind", [QueueStreamReader, FarReader])
def test_a_run_goes_on_until_groups_that_wait_for_deletes_are_read(
    gateway: str, make_queue: Callable[..., str], make: Make, kind: type[QueueStreamReader]
) -> None:
    """With deleteMode=commit a FIFO group comes again only after its batch is committed."""
    url = make_queue(gateway, fifo=True)
    sent = [f"{number:02}" for number in range(35)]
    fill(gateway, url, sent, group=lambda body: "one")
    reader = make(kind, queueUrl=url, deleteMode="commit", visibilityTimeout=120)
    start = available(reader)

    def collector() -> Collector:
        return reader._collector

    found: list[str] = []
    while (end := latest(reader, start)) != start:
        found += rows(reader, start, end)
        start = end
        # The sink takes longer than the empty polls that end a run.
        wait_for(lambda: collector().is_spent or collector().empty_polls > 2)
    assert found == sent


def test_what_was_acknowledged_and_not_deleted_is_deleted_after_a_restart(
    gateway: str, queue: str, make: Make, tmp_path: Path
) -> None:
    fill(gateway, queue, ["one"])
    first = make(visibilityTimeout=3)
    start = first.initialOffset()
    end = next_batch(first, start)
    assert rows(first, start, end) == ["one"]
    # It died when only the mark of the acknowledgement was durable.
    first.stop()
    spool_at(tmp_path).acknowledge(end["seq"])
    second = make(visibilityTimeout=3)
    latest(second, end)
    wait_for(lambda: spool_at(tmp_path).contents().done)
    assert latest(second, end) == end


def test_without_a_spool_a_restart_loses_nothing(
    gateway: str, queue: str, make: Make, clock: Clock
) -> None:
    """A batch that was planned before, and only in memory, comes again as another one."""
    fill(gateway, queue, ["one"])
    how = {"deliveryGuarantee": "at_least_once", "spoolPath": None, "visibilityTimeout": 60}
    first = make(**how)
    start = first.initialOffset()
    planned = next_batch(first, start)
    first.stop()
    second = make(**how)
    assert rows(second, start, planned) == []
    clock.advance(61)
    end = next_batch(second, planned)
    assert rows(second, planned, end) == ["one"]
    latest(second, end)
    wait_for(lambda: counts(gateway, queue) == (0, 0))


def used_spool(gateway: str, queue: str, make: Make) -> None:
    """Leave a spool with two committed batches, which are kept."""
    reader = make()
    start = reader.initialOffset()
    for body in ("one", "two"):
        fill(gateway, queue, [body])
        end = next_batch(reader, start)
        assert rows(reader, start, end) == [body]
        start = end
    latest(reader, start)
    wait_for(lambda: counts(gateway, queue) == (0, 0))
    wait_acknowledged(reader, start)
    reader.stop()


@pytest.mark.parametrize("seq", [1, 50])
def test_an_adopted_spool_gives_only_what_comes_next(
    gateway: str, queue: str, make: Make, seq: int
) -> None:
    used_spool(gateway, queue, make)
    start = {"spool": "of a spool that is gone", "seq": seq}
    with pytest.raises(SpoolMismatch):
        latest(make(), start)
    reader = make(onSpoolMismatch="adopt")
    assert latest(reader, start) == start
    fill(gateway, queue, ["three"])
    end = next_batch(reader, start)
    assert rows(reader, start, end) == ["three"]
    # It dies after planning that batch, and finds it again.
    reader.stop()
    again = make(onSpoolMismatch="adopt")
    assert rows(again, start, end) == ["three"]
    assert latest(again, end) == end
    wait_for(lambda: counts(gateway, queue) == (0, 0))


@pytest.mark.parametrize("retention", [0, 100])
def test_a_discarded_spool_still_deletes(
    gateway: str, queue: str, make: Make, retention: int, tmp_path: Path
) -> None:
    used_spool(gateway, queue, make)
    if not retention:
        spool = spool_at(tmp_path)
        spool.clear(spool.contents())
    reader = make(onSpoolMismatch="discard", spoolRetentionBatches=retention)
    start = reader.initialOffset()
    fill(gateway, queue, ["three"])
    end = next_batch(reader, start)
    assert rows(reader, start, end) == ["three"]
    latest(reader, end)
    wait_for(lambda: counts(gateway, queue) == (0, 0))


def test_a_spool_that_was_dropped_from_before_the_mark_goes_on(
    gateway: str, queue: str, make: Make, tmp_path: Path
) -> None:
    """It died when segments were dropped and it was not yet written how far Spark had committed."""
    fill(gateway, queue, ["one"])
    first = make(spoolRetentionBatches=0)
    start = first.initialOffset()
    end = next_batch(first, start)
    assert rows(first, start, end) == ["one"]
    latest(first, end)
    wait_for(lambda: not spool_at(tmp_path).contents().segments)
    first.stop()
    marks = tmp_path / "spool" / "acknowledged"
    # Not before it is there: another thread writes it, and may do so last.
    wait_for(lambda: list(marks.iterdir()))
    for mark in marks.iterdir():
        mark.unlink()
    second = make(onSpoolMismatch="adopt")
    start = second.initialOffset()
    fill(gateway, queue, ["two"])
    end = next_batch(second, start)
    assert rows(second, start, end) == ["two"]


@pytest.mark.parametrize("policy", ["adopt", "discard"])
def test_a_spool_that_was_taken_over_is_not_taken_over_twice(
    gateway: str, queue: str, make: Make, policy: str
) -> None:
    """It dies when the spool has a message and nothing else has: neither queue nor checkpoint."""
    used_spool(gateway, queue, make)
    start = {"spool": "of a spool that is gone", "seq": 50}
    how = {"onSpoolMismatch": policy, "deleteMode": "spool"}
    first = make(**how)
    assert latest(first, start) == start
    fill(gateway, queue, ["three"])
    next_batch(first, start)
    wait_for(lambda: counts(gateway, queue) == (0, 0))
    first.stop()
    second = make(**how)
    end = next_batch(second, start)
    assert rows(second, start, end) == ["three"]
    # Now it is in use, and another foreign checkpoint takes it over anew.
    assert latest(second, end) == end
    wait_for(lambda: spool_at(Path(second.options.spool_path).parent).contents().acknowledged > 50)
    third = make(**how)
    assert latest(third, start) == start


def test_a_segment_that_is_dropped_while_ids_are_read_is_remembered(
    gateway: str, queue: str, make: Make, tmp_path: Path
) -> None:
    """The driver drops it, an executor has seen its name and now wants to read it."""
    used_spool(gateway, queue, make)
    spool = spool_at(tmp_path)
    contents = spool.contents()
    place = contents.segments[0]
    keys = spool.keys(place)
    later = time.time() + 1000
    spool.drop(DeletedSegment(place, int(later), 1), None, time.time())
    found = dict(spool.remembered(contents._replace(done={}), time.time()))
    assert found[place] == keys


def test_a_checkpoint_that_is_set_back_gets_the_same_rows(
    gateway: str, queue: str, make: Make
) -> None:
    first = make()
    offsets = [first.initialOffset()]
    found: list[list[str]] = []
    for body in ("one", "two", "three"):
        fill(gateway, queue, [body])
        end = next_batch(first, offsets[-1])
        found.append(rows(first, offsets[-1], end))
        offsets.append(end)
    latest(first, offsets[-1])
    wait_for(lambda: counts(gateway, queue) == (0, 0))
    first.stop()
    second = make(maxOffsetsPerTrigger=2)
    again: list[list[str]] = [rows(second, offsets[0], offsets[1])]
    start = offsets[1]
    while sum(map(len, again)) < 3:
        end = next_batch(second, start)
        again.append(rows(second, start, end))
        start = end
    assert list(chain(*again)) == list(chain(*found)) == ["one", "two", "three"]
    fill(gateway, queue, ["four"])
    end = next_batch(second, start)
    assert rows(second, start, end) == ["four"]


def test_a_checkpoint_that_is_set_back_too_far_says_so(
    gateway: str, queue: str, make: Make
) -> None:
    """Its sink knows the numbers of the batches that are gone, and would drop what came instead."""
    used = {"spoolRetentionBatches": 0}
    first = make(**used)
    start = first.initialOffset()
    fill(gateway, queue, ["one"])
    end = next_batch(first, start)
    assert rows(first, start, end) == ["one"]
    latest(first, end)
    wait_for(lambda: not spool_at(Path(first.options.spool_path).parent).contents().segments)
    first.stop()
    fill(gateway, queue, ["two"])
    second = make(**used)
    with pytest.raises(DataLost):
        rows(second, start, next_batch(second, start))
    second.stop()
    third = make(**used, failOnDataLoss=False)
    end = next_batch(third, start)
    assert rows(third, start, end) == ["two"]
    latest(third, end)
    wait_for(lambda: counts(gateway, queue) == (0, 0))


def test_ids_of_what_was_deleted_in_time_are_not_kept(gateway: str, queue: str, make: Make) -> None:
    """The process that deletes is another one than the process that received."""
    fill(gateway, queue, ["one"])
    how = {"spoolRetentionBatches": 0, "deleteMode": "commit", "visibilityTimeout": 600}
    first = make(**how)
    start = first.initialOffset()
    end = next_batch(first, start)
    assert rows(first, start, end) == ["one"]
    first.stop()
    second = make(**how)
    latest(second, end)
    wait_for(lambda: counts(gateway, queue) == (0, 0))
    spool = spool_at(Path(second.options.spool_path).parent)
    wait_for(lambda: not spool.contents().segments)
    assert not spool.contents().ids


@pytest.mark.usefixtures("clock")
def test_an_answer_that_was_looked_at_late_does_not_end_in_a_repetition(
    gateway: str, queue: str, make: Make
) -> None:
    """The process sleeps behind the queue's answer until the receipts have expired."""
    bodies = [f"body {number}" for number in range(10)]
    fill(gateway, queue, bodies)

    reader = make(
        SleepyReader,
        visibilityTimeout=60,
        spoolRetentionBatches=0,
        receiveThreads=1,
        deleteMode="commit",
    )
    start = reader.initialOffset()
    end = next_batch(reader, start)
    assert sorted(rows(reader, start, end)) == sorted(bodies)
    # Whether such a delete works is up to the queue: what comes again must be known.
    wait_for(lambda: latest(reader, end) == end and counts(gateway, queue) == (0, 0))
    spool = spool_at(Path(reader.options.spool_path).parent)
    wait_for(lambda: not spool.contents().segments)
    assert len(spool.contents().ids) == 1


def test_an_expired_receipt_does_not_end_in_a_repetition(
    gateway: str, queue: str, make: Make, clock: Clock
) -> None:
    """The delete is answered well and does nothing; the message comes again to the next process."""
    fill(gateway, queue, ["one"])
    first = make(visibilityTimeout=60, spoolRetentionBatches=0)
    start = first.initialOffset()
    end = next_batch(first, start)
    # A slow batch, and nobody receives meanwhile.
    first.stop()
    clock.advance(61)
    wait_for(lambda: counts(gateway, queue) == (1, 0))
    assert rows(first, start, end) == ["one"]
    second = make(visibilityTimeout=60, spoolRetentionBatches=0)
    assert latest(second, end) == end
    wait_for(lambda: latest(second, end) == end and counts(gateway, queue) == (0, 0))
