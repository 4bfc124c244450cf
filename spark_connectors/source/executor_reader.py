"""Executor mode: tasks receive, each into a segment of its own in the shared spool.

The offset is a batch number. A task that runs again, or twice at once, finds the segment of its
slot or loses the race to write it; either way all attempts yield the same rows. A queue may give a
message to two tasks at the same time: the slot that was written first has it.

SQS offers no wait without a receive. So the driver itself waits at an idle queue, with one receive
at a time, and writes the first slot of the batch. If that is all, tasks only read the slot.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from spark_connectors.errors import DataLost, NotNow
from spark_connectors.rows.row_shapes import shaped
from spark_connectors.source.queue_stream_reader import Offset, QueueStreamReader
from spark_connectors.source.slot_filling import SlotFilling, SlotPlan, TooLate, filled_slot
from spark_connectors.source.slot_tasks import SlotTask, complete, spool_of, without
from spark_connectors.spool.segments import Segment
from spark_connectors.spool.spool import Contents, SegmentPlace, Spool, SpoolTaken
from spark_connectors.spool.stores import Missing
from spark_connectors.transport.aws.message_calls import MOST_PER_CALL

_log = logging.getLogger(__name__)
_FIRST_PAUSE_SECONDS = 0.1
_MOST_PAUSE_SECONDS = 5.0


class IdlePoller:
    """Polls a queue until it has a message, beside the query."""

    def __init__(self, begin: Callable[[], SlotFilling], wait_seconds: int) -> None:
        self._begin = begin
        self._wait_seconds = wait_seconds
        self._found: SlotFilling | None = None
        self._failure: Exception | None = None
        self._is_polling = False
        self._is_stopped = False
        self._changed = threading.Condition()
        self.last_error: str | None = None

    def found(self, seconds: float) -> SlotFilling | None:
        """Return the received messages, which are then the caller's; None: none came within that
        time.

        Polling goes on until a message comes. Raises the error that ended it.
        """
        with self._changed:
            if not self.is_polling:
                self._is_polling = True
                threading.Thread(target=self._run, name="scout", daemon=True).start()
            self._changed.wait_for(lambda: not self._is_polling, seconds)
            if self._failure is not None:
                raise self._failure
            found, self._found = self._found, None
        if found is not None and found.is_late:
            # Another source of the same query took its time, and the messages may be visible again.
            found.release()
            return None
        return found

    @property
    def is_polling(self) -> bool:
        """True while it polls, and until its result is fetched."""
        return self._is_polling or self._found is not None or self._failure is not None

    def stop(self) -> None:
        """Release the received messages; later ones are released as well."""
        with self._changed:
            self._is_stopped = True
            found, self._found = self._found, None
            self._changed.notify_all()
        if found is not None:
            found.release()

    def _run(self) -> None:
        found, failure, pause = None, None, _FIRST_PAUSE_SECONDS
        while found is None and failure is None and not self._is_stopped:
            try:
                found = self._polled()
                pause, self.last_error = _FIRST_PAUSE_SECONDS, None
            except NotNow as passing:
                # A restart of the gateway must not end a stream.
                self.last_error = str(passing)
                _log.warning("polling for messages: %s", passing)
                with self._changed:
                    self._changed.wait_for(lambda: self._is_stopped, pause)
                pause = min(2 * pause, _MOST_PAUSE_SECONDS)
            except Exception as broken:  # noqa: BLE001
                failure = broken
        with self._changed:
            self._failure, self._is_polling = failure, False
            if not self._is_stopped:
                self._found, found = found, None
            self._changed.notify_all()
        if found is not None:
            found.release()

    def _polled(self) -> SlotFilling | None:
        filling = self._begin()
        return filling if filling.poll(self._wait_seconds) else None


# Pause between polls of an idle stream. It delays other sources of the same query.
_IDLE_SECONDS = 0.1
_CALM_SECONDS = 1.0
_CALM_POLLS = 2


class FillTask(SlotTask):
    """A slot that the first of its attempts fills."""

    def __init__(self, spool: str, place: SegmentPlace, slot: SlotPlan) -> None:
        super().__init__(spool, 0, (place,))
        self.filled_from = slot


class ExecutorStreamReader(QueueStreamReader):
    """Exactly once into an idempotent sink; for rates beyond those of one process."""

    def _enter(self) -> None:
        # Tasks write segments for the driver that planned them: only this tells two drivers apart.
        self._number = self._spool.enter()

    def _start_work(self, contents: Contents) -> None:
        self._highest = max(contents.highest, self._base)
        self._found = contents
        self._seq = self._base
        self._read_rows = 0
        self._counted: set[SegmentPlace] = set()
        self._begun: Offset | None = None
        self._pause = threading.Event()
        self._last_error: str | None = None
        # Messages that the tasks of the batch are to receive.
        self._for_tasks = 0
        self._is_whole = False
        self._next_poll_at = 0.0
        wait = self.options.longest_wait_seconds
        self._idle_poller = IdlePoller(lambda: self._filling(self.options.most_rows), wait)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the next batch when the queue has messages, or tasks have begun that batch.

        ``start`` is committed when Spark asks this. Raises SpoolTaken when another query began to
        use the spool.
        """
        begun = Offset.of(start)
        self._open(begun)
        if begun != self._begun:
            self._check_entered()
            self._begun = begun
        self._acknowledge(begun)
        self._seq = self._reached(begun)
        self._is_whole = self._is_for_all(limit)
        planned = self._planned(self._limit_rows(limit))
        if planned is None:
            return start if self._target is None else self._finished(begun)
        self._check_entered()
        self._seq = planned.seq
        self._batch_at = time.monotonic()
        self._for_tasks = (planned.rows or 0) - (planned.taken or 0)
        return planned.to_json()

    def _planned(self, limit: int) -> Offset | None:
        """Return the next batch; None: the queue has nothing, or this run has read its target."""
        spool, seq = self._spool.identity, self._seq + 1
        if seq <= self._highest:
            # The driver that began it may have planned as many.
            return Offset(spool, seq, self._slots_for(limit), limit)
        if self._target is not None:
            limit = self._left() if self._is_whole else min(limit, self._left())
        found = self._more(limit) if limit > 0 else None
        if found is None:
            return None
        filling, visible = found
        if filling is None:
            return Offset(spool, seq, self._slots_for(min(visible, limit)), limit)
        taken = self._taken(filling, SegmentPlace(seq, 0))
        if taken is None:
            return None
        rest = self._slots_for(min(visible, limit - taken))
        return Offset(spool, seq, min(1 + rest, self._slots_for(limit)), limit, taken)

    def _slots_for(self, rows: int) -> int:
        """Return the number of slots for that many rows; for more than one batch as many times
        more."""
        options = self.options
        batches = 1 if options.place.is_fifo else -(-rows // options.most_rows)
        usual = min(rows, options.most_rows)
        return batches * min(options.slots, -(-usual // options.rows_per_slot))

    def _more(self, limit: int) -> tuple[SlotFilling | None, int] | None:
        """Return the messages that the driver has received itself, and the count of further visible
        ones; None: the queue has nothing."""
        if self._idle_poller.is_polling:
            return self._polled_idle()
        for _ in range(_CALM_POLLS):
            if time.monotonic() < self._next_poll_at:
                self._pause.wait(_IDLE_SECONDS)
                return None
            visible = self._visible()
            if not self._is_enough(visible):
                self._next_poll_at = time.monotonic() + _CALM_SECONDS
                return None
            if visible > MOST_PER_CALL:
                return None, visible
            if visible and (filling := self._received(limit)) is not None:
                return filling, self._visible()
            if self._target is None:
                return self._polled_idle()
            self._pause.wait(_CALM_SECONDS)
        return None

    def _polled_idle(self) -> tuple[SlotFilling, int] | None:
        filling = self._idle_poller.found(_IDLE_SECONDS)
        self._last_error = self._idle_poller.last_error
        return None if filling is None else (filling, self._visible())

    def _received(self, limit: int) -> SlotFilling | None:
        """Receive once; None: nothing."""
        filling = self._filling(limit)
        try:
            return filling if filling.poll(1 if self._rule.is_aws else 0) else None
        except NotNow as passing:
            self._retry_later(passing)
            return None

    def _filling(self, limit: int) -> SlotFilling:
        options = self.options
        rows = min(MOST_PER_CALL, limit)
        slot = SlotPlan(self._url, rows, options.most_bytes, self._rule)
        return SlotFilling(options, self._spool, self._transport, slot)

    def _taken(self, filling: SlotFilling, place: SegmentPlace) -> int | None:
        """Write the messages that the driver received as the slot at that place, and return their
        count; None: they were released."""
        try:
            self._check_entered()
        except SpoolTaken:
            filling.release()
            raise
        try:
            segment = filling.write(place)
        except TooLate:
            return None
        if segment is None:
            # A task of a dead driver wrote it.
            return self._spool.read(place).row_count
        # Before any delete, as in a task.
        self._spool.slots_before(place)
        self._deleter.sealed(
            place, filling.to_delete(), at_once=self.options.delete_mode == "spool"
        )
        return segment.row_count

    def _visible(self) -> int:
        """Return the count of visible messages; 0 when the queue does not answer. An AvailableNow
        run, which has an end, then raises NotNow."""
        try:
            return self._gauge.figures().visible
        except NotNow as passing:
            self._retry_later(passing)
            return 0

    def _retry_later(self, passing: NotNow) -> None:
        if self._target is not None:
            raise passing
        # A restart of the gateway must not end a stream.
        self._last_error = str(passing)
        _log.warning("polling %s: %s", self.options.place.name, passing)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan a task for each slot. Raises DataLost when the batch was planned with another spool,
        or was committed and is no longer in this one; SpoolTaken as above."""
        first, last = Offset.of(start), Offset.of(end)
        self._open(first, last)
        self._check_entered()
        if last.spool != self._spool.identity:
            # Messages that fill it would go to a sink that may know the batch and drop them.
            return self._of_another_spool(last)
        return [
            FillTask(self._spool.identity, SegmentPlace(seq, slot), self._share(last, slot))
            for seq in range(self._reached(first) + 1, last.seq + 1)
            for slot in self._slots(seq, last.slots or 1)
        ]

    def stop(self) -> None:
        """Release messages that the driver has received and not spooled."""
        if self._opened:
            self._idle_poller.stop()
        super().stop()

    def _check_entered(self) -> None:
        if self._spool.is_entered_after(self._number):
            raise SpoolTaken(
                f"another query, or a second stream of this one, began to use the spool at "
                f"{self.options.spool_path}: each needs a spoolPath of its own"
            )

    def _slots(self, seq: int, planned: int) -> list[int]:
        """Return the slots of a batch: those that were planned, and those that were filled."""
        filled = {place.slot for place in self._found.segments if place.seq == seq} - {None}
        if seq > self._found.acknowledged:
            filled.update(range(planned))
        elif not filled and self.options.fail_on_data_loss:
            # Messages that fill it again would go to a sink that knows the batch and drops them.
            raise DataLost(
                f"batch {seq} was committed before and is no longer in the spool at "
                f"{self.options.spool_path}: the checkpoint was set back by more than "
                "spoolRetentionBatches and spoolRetentionBytes keep. With failOnDataLoss=false the "
                "query goes on without it"
            )
        return sorted(slot for slot in filled if slot is not None)

    def _share(self, batch: Offset, slot: int) -> SlotPlan:
        """Return the limits of a slot: all slots together take no more than the batch has rows."""
        rows = batch.rows or self.options.most_rows
        first = 1 if batch.taken else 0
        slots = max(1, (batch.slots or 1) - first)
        share, more = divmod(rows - (batch.taken or 0), slots)
        share += slot - first < more
        most_bytes = -(-rows // self.options.most_rows) * self.options.most_bytes // slots
        return SlotPlan(self._url, max(1, share), max(1, most_bytes), self._rule)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a slot, from its segment, or received now.

        Raises SpoolMismatch when the spool is not the driver's, before anything is received, and
        DataLost when the segment existed and is missing.
        """
        assert isinstance(partition, FillTask)
        spool = spool_of(partition, self.open_store(), self.options)
        [place] = partition.places
        slot = partition.filled_from
        with filled_slot(self.options, spool, place, self.open_transport, slot) as filled:
            if filled is not None:
                segment, before = filled
                repeats = _repeats(spool, before, segment)
                rows = without(repeats, complete(segment, self.options).slot(0))
                yield shaped(rows, self.options.shape)

    def _left(self) -> int:
        """Return how many messages of its target this run has still to read."""
        if self._target == -1:
            figures = self._gauge.figures()
            self._target = figures.visible + figures.in_flight
            self._counted.update(self._spool.contents().segments)
        contents = self._spool.contents()
        for place in contents.segments:
            if place not in self._counted:
                self._counted.add(place)
                kept = contents.done.get(place)
                # A segment that is dropped meanwhile was done; then the queue's counts end the run.
                with contextlib.suppress(Missing):
                    self._read_rows += kept.rows if kept else self._spool.read(place).row_count
        assert self._target is not None
        return self._target - self._read_rows

    def _progress(self, visible: int | None) -> dict[str, Any]:
        return {
            "seq": max(self._highest, self._seq),
            "behind": None if visible is None else max(0, visible - self._for_tasks),
            "received": None,
            "redeliveriesDropped": None,
            "rememberedIds": None,
            "prefetchedRows": 0,
            "spoolBytes": None,
            "lastError": self._last_error or self._deleter.last_error,
        }


def _repeats(spool: Spool, before: Sequence[SegmentPlace], segment: Segment) -> set[str]:
    """Return ids of messages of this slot that an earlier slot has as well."""
    ours = set(segment.message_ids()) if before else set()
    found: set[str] = set()
    for other in before:
        found.update(ours.intersection(spool.read(other).message_ids()))
    return found
