"""Spools of versions before, whose tasks received: each into a segment of its own, a slot."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import pytest

from spark_connectors.errors import DataLost
from spark_connectors.message_rows import FetchedMessage, received_of, stored_batch
from spark_connectors.source.deleter import SAFE_UNTIL, safe_from
from spark_connectors.source.queue_stream_reader import QueueStreamReader
from spark_connectors.spool import DRIVERS, ORDER, DeletedSegment, SegmentPlace, Spool, encode
from spark_connectors.stores import LocalStore, Store
from spark_connectors.transport import Transport, shared_transport
from tests.spark.queues import bodies_of
from tests.spark.readers import Place, Run
from tests.spark.waiting import wait_for

VISIBILITY_SECONDS = 120


class Slots:
    """A spool, and the calls that a driver and its tasks made in that mode."""

    def __init__(self, place: Place) -> None:
        self.place = place
        # As the driver did it; nothing of the queue is received.
        run = place.run()
        self.start: dict[str, Any] = run.offset
        self._transport: Transport = run.reader.open_transport()
        self._url = place.url
        run.reader.stop()
        self.spool = Spool(LocalStore(str(place.spool)), self.start["spool"])
        self.spool.store.put_if_absent(f"{DRIVERS}{1:012}", b"")
        self._options = run.reader.options
        self._transport = shared_transport(self._options.connection)

    def end(self, slots: int, seq: int = 1) -> dict[str, Any]:
        """The offset of a planned batch."""
        return {**self.start, "seq": seq, "slots": slots, "rows": 100}

    def received(self, count: int) -> list[FetchedMessage]:
        """So many messages, in flight."""
        found: list[FetchedMessage] = []
        while len(found) < count:
            now = time.time()
            answer = self._transport.receive(
                self._url, most=min(10, count - len(found)), visibility_seconds=VISIBILITY_SECONDS
            )
            found += [received_of(message, now, now) for message in answer]
        return found

    def write(
        self, messages: list[FetchedMessage], slot: int, seq: int = 1, *, deletes: bool = False
    ) -> bool:
        """Write a slot, take its number, and delete its messages if wanted."""
        place = SegmentPlace(seq, slot)
        since = time.time()
        note = {SAFE_UNTIL: str(safe_from(since, VISIBILITY_SECONDS)), **self.spool.note_of(place)}
        rows = stored_batch(self.place.url.rpartition("/")[2], messages)
        if not self.spool.put(place, encode([rows], "zstd", note)):
            return False
        self.spool.store.put_if_absent(f"{ORDER}{SegmentPlace(seq, slot)}", str(slot).encode())
        if deletes:
            assert not any(self._transport.delete(self._url, [one.receipt for one in messages]))
            self.spool.mark_done(DeletedSegment(place, int(since), len(messages)))
        return True


@pytest.fixture
def slots(place: Place) -> Slots:
    return Slots(place)


def bodies(tasks: list[list[dict[str, Any]]]) -> list[str]:
    return sorted(row["body"] for task in tasks for row in task)


@pytest.mark.parametrize(("deletes", "has_fence"), [(True, False), (False, False), (True, True)])
def test_a_planned_batch_is_finished(
    place: Place, slots: Slots, deletes: bool, has_fence: bool
) -> None:
    if has_fence:
        # Before that, the driver received: what it was shut out with has the batch's number.
        slots.spool.fence(0, "")
    place.fill(bodies_of(30))
    messages = slots.received(30)
    # The queue gave one message to two tasks; a third task has not begun.
    slots.write(messages[:16], 1, deletes=deletes)
    slots.write(messages[15:], 0, deletes=deletes)
    end = slots.end(3)
    tasks = place.run(slots.start).rows(slots.start, end)
    assert bodies(tasks) == sorted(bodies_of(30))
    # The driver of before is to end, and its third task finds the slot written.
    assert slots.spool.store.names(DRIVERS) == [f"{DRIVERS}{2:012}"]
    place.fill(["late"])
    assert not slots.write(slots.received(1), 2)
    # It dies, and another one gives each task the same rows.
    again = place.run(slots.start)
    assert again.rows(slots.start, end) == tasks
    again.offset = end
    assert again.plan() == end
    wait_for(lambda: place.counts() == (0, 1))
    assert again.reader._deleter.flush(30)
    place.fill(["new"])
    assert [row["body"] for row in again.all_rows(1)] == ["new"]
    assert again.offset == {"spool": slots.start["spool"], "seq": 2}


def test_the_first_batch_is_finished(place: Place, slots: Slots) -> None:
    """Spark asks for the offset before it, and only then for its tasks: one may write between."""
    place.fill(bodies_of(20))
    messages = slots.received(20)
    slots.write(messages[:10], 0)
    run = place.run()
    assert run.offset == slots.start
    slots.write(messages[10:], 1, deletes=True)
    end = slots.end(2)
    assert bodies(run.rows(run.offset, end)) == sorted(bodies_of(20))
    run.offset = end
    run.plan()
    wait_for(lambda: place.counts() == (0, 0))
    assert run.reader._deleter.flush(30)
    run.reader.stop()
    assert set(slots.spool.contents().segments) <= slots.spool.contents().done.keys()


def test_what_the_driver_had_received_is_the_next_batch(place: Place, slots: Slots) -> None:
    """It wrote slot 0, and died before Spark's log had the batch."""
    place.fill(bodies_of(5))
    slots.write(slots.received(5), 0)
    run = place.run(slots.start)
    assert bodies(run.next_batch()) == sorted(bodies_of(5))
    run.plan()
    wait_for(lambda: place.counts() == (0, 0))


def test_a_batch_whose_tasks_had_not_begun_is_empty(place: Place, slots: Slots) -> None:
    place.fill(bodies_of(5))
    run = place.run(slots.start)
    assert run.rows(slots.start, slots.end(2)) == []
    run.offset = slots.end(2)
    assert bodies([run.all_rows(5)]) == sorted(bodies_of(5))


def test_a_slot_that_is_gone_is_missed(place: Place, slots: Slots) -> None:
    place.fill(bodies_of(20))
    messages = slots.received(20)
    for slot in range(2):
        slots.write(messages[10 * slot : 10 * slot + 10], slot)
    slots.spool.store.remove("segments/000000000001-0001.arrow")
    for _ in range(2):
        with pytest.raises(DataLost, match=r"000000000001-0001\.arrow is not in the spool"):
            place.run(slots.start).rows(slots.start, slots.end(2))
    bearing = place.run(slots.start, failOnDataLoss="false")
    kept = bearing.rows(slots.start, slots.end(2))
    assert bodies(kept) == sorted(one.content["Body"] for one in messages[:10])


def test_a_committed_batch_that_is_gone_is_not_taken_for_an_empty_one(
    place: Place, slots: Slots
) -> None:
    """Its sink knows the batch, and would drop what came instead."""
    slots.spool.acknowledge(1)
    slots.spool.mark_dropped(1)
    with pytest.raises(DataLost, match=r"000000000001\.arrow is not in the spool"):
        place.run(slots.start).rows(slots.start, slots.end(2))


class Dead(Exception):
    pass


class DyingStore(LocalStore):
    """Ends the process, so to speak, before so many changes more."""

    left = 0

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        if not DyingStore.left:
            raise Dead
        DyingStore.left -= 1
        return super().put_if_absent(name, data)


class DyingReader(QueueStreamReader):
    def open_store(self) -> Store:
        return DyingStore(self.options.spool_path)


def test_wherever_it_dies_each_message_is_there_once(place: Place, slots: Slots) -> None:
    place.fill(bodies_of(20))
    messages = slots.received(20)
    slots.write(messages[:11], 2, deletes=True)
    slots.write(messages[9:], 0)
    end, steps = slots.end(4), 0
    options = place.reader().options
    found: list[list[dict[str, Any]]] = []
    while not found:
        DyingStore.left = steps
        with contextlib.suppress(Dead):
            run = Run(DyingReader(options), slots.start)
            run.reader.partitions(slots.start, end)
            DyingStore.left = 1_000
            found = run.rows(slots.start, end)
        steps += 1
    assert steps > 4
    assert bodies(found) == sorted(bodies_of(20))
    run.offset = end
    run.plan()
    wait_for(lambda: place.counts() == (0, 0))
    run.reader.stop()


def test_a_spool_of_slots_is_returned(place: Place, slots: Slots, tmp_path: Path) -> None:
    from spark_connectors.source.spool_return import list_spool, return_spool

    place.fill(bodies_of(20))
    messages = slots.received(20)
    slots.write(messages[:12], 0, deletes=True)
    slots.write(messages[10:], 1)
    place.run(slots.start).rows(slots.start, slots.end(2))
    given = {"endpointUrl": place.endpoint, "queueUrl": place.url, "spoolPath": str(place.spool)}
    assert len([*list_spool(given)]) == 4
    assert len([*return_spool(given)]) == 1
    again = place.at(tmp_path / "fresh").run()
    assert bodies([again.all_rows(20)]) == sorted(bodies_of(20))
    assert again.plan() == again.offset
