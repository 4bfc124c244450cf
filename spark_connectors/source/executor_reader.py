"""Executor mode: tasks receive, each into a segment of its own in the shared spool.

The offset is a batch number. A task that runs again, or twice at once, finds the segment of its
slot or loses the race to write it; either way all attempts yield the same rows. A queue may give a
message to two tasks at the same time: the slot that was written first has it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from spark_connectors.errors import DataLost, NotNow
from spark_connectors.rows.shapes import shaped
from spark_connectors.source.offsets import Offset
from spark_connectors.source.queue_reader import QueueStreamReader
from spark_connectors.source.scouting import Scout
from spark_connectors.source.slot_filling import Filling, Slot, TooLate, filled_slot
from spark_connectors.source.tasks import SlotTask, complete, spool_of, without
from spark_connectors.spool.places import Place
from spark_connectors.spool.segments import Segment
from spark_connectors.spool.spool import Contents, Spool, SpoolTaken
from spark_connectors.spool.stores import Missing
from spark_connectors.transport.aws.wire import MOST_PER_CALL

_log = logging.getLogger(__name__)
# How long an idle stream's question waits. Other sources of the same query wait as long.
_IDLE_SECONDS = 0.1
_CALM_SECONDS = 1.0
_CALM_LOOKS = 2


class FillTask(SlotTask):
    """A slot that is filled by whoever comes first."""

    def __init__(self, spool: str, place: Place, slot: Slot) -> None:
        super().__init__(spool, 0, (place,))
        self.filled_from = slot


class ExecutorStreamReader(QueueStreamReader):
    """Exactly once into an idempotent sink; for rates beyond what one process receives."""

    def _enter(self) -> None:
        # Tasks write segments for whoever planned them: nothing else tells two drivers apart.
        self._number = self._spool.enter()

    def _start_work(self, contents: Contents) -> None:
        self._highest = max(contents.highest, self._base)
        self._found = contents
        self._seq = self._base
        self._read_rows = 0
        self._counted: set[Place] = set()
        self._begun: Offset | None = None
        self._pause = threading.Event()
        self._last_error: str | None = None
        # Messages that the tasks of the batch are to receive.
        self._for_tasks = 0
        self._is_whole = False
        self._look_at = 0.0
        wait = self.options.longest_wait_seconds
        self._scout = Scout(lambda: self._filling(self.options.most_rows), wait)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """One batch further when the queue has something, or tasks have begun on that batch.

        ``start`` is committed when Spark asks this. Raises SpoolTaken when another query began to
        use the spool.
        """
        begun = Offset.of(start)
        self._open(begun)
        if begun != self._begun:
            self._stay()
            self._begun = begun
        self._acknowledge(begun)
        self._seq = self._reached(begun)
        self._is_whole = self._is_for_all(limit)
        planned = self._planned(self._limit_rows(limit))
        if planned is None:
            return start if self._target is None else self._finished(begun)
        self._stay()
        self._seq = planned.seq
        self._batch_at = time.monotonic()
        self._for_tasks = (planned.rows or 0) - (planned.taken or 0)
        return planned.to_json()

    def _planned(self, limit: int) -> Offset | None:
        """The next batch; None: the queue gives nothing, or this run has read what it came for."""
        spool, seq = self._spool.identity, self._seq + 1
        if seq <= self._highest:
            # Whoever began on it may have planned as many.
            return Offset(spool, seq, self._slots_for(limit), limit)
        if self._target is not None:
            limit = self._left() if self._is_whole else min(limit, self._left())
        found = self._more(limit) if limit > 0 else None
        if found is None:
            return None
        filling, visible = found
        if filling is None:
            return Offset(spool, seq, self._slots_for(min(visible, limit)), limit)
        taken = self._taken(filling, Place(seq, 0))
        if taken is None:
            return None
        rest = self._slots_for(min(visible, limit - taken))
        return Offset(spool, seq, min(1 + rest, self._slots_for(limit)), limit, taken)

    def _slots_for(self, rows: int) -> int:
        """How many slots so many rows are worth; those of more than a batch as many more."""
        options = self.options
        batches = 1 if options.place.is_fifo else -(-rows // options.most_rows)
        usual = min(rows, options.most_rows)
        return batches * min(options.slots, -(-usual // options.rows_per_slot))

    def _more(self, limit: int) -> tuple[Filling | None, int] | None:
        """What the driver has received itself, and how many messages are visible beside these;
        None: the queue has nothing."""
        if self._scout.is_out:
            return self._scouted()
        for _ in range(_CALM_LOOKS):
            if time.monotonic() < self._look_at:
                self._pause.wait(_IDLE_SECONDS)
                return None
            visible = self._visible()
            if not self._is_enough(visible):
                self._look_at = time.monotonic() + _CALM_SECONDS
                return None
            if visible > MOST_PER_CALL:
                return None, visible
            if visible and (filling := self._received(limit)) is not None:
                return filling, self._visible()
            if self._target is None:
                return self._scouted()
            self._pause.wait(_CALM_SECONDS)
        return None

    def _scouted(self) -> tuple[Filling, int] | None:
        filling = self._scout.found(_IDLE_SECONDS)
        self._last_error = self._scout.last_error
        return None if filling is None else (filling, self._visible())

    def _received(self, limit: int) -> Filling | None:
        """What one receive brings; None: nothing."""
        filling = self._filling(limit)
        try:
            return filling if filling.look(1 if self._rule.is_aws else 0) else None
        except NotNow as passing:
            self._bear_for_now(passing)
            return None

    def _filling(self, limit: int) -> Filling:
        options = self.options
        rows = min(MOST_PER_CALL, limit)
        slot = Slot(self._url, rows, options.most_bytes, self._rule)
        return Filling(options, self._spool, self._transport, slot)

    def _taken(self, filling: Filling, place: Place) -> int | None:
        """Make what the driver received the slot at that place, and say how many rows it has; None:
        they are given back."""
        try:
            self._stay()
        except SpoolTaken:
            filling.give_back()
            raise
        try:
            segment = filling.write(place)
        except TooLate:
            return None
        if segment is None:
            # A task of a driver that died wrote it.
            return self._spool.read(place).row_count
        # Before anything is deleted, as a task does it.
        self._spool.slots_before(place)
        self._deleter.sealed(
            place, filling.to_delete(), at_once=self.options.delete_mode == "spool"
        )
        return segment.row_count

    def _visible(self) -> int:
        """How many messages the queue has to give; none when it does not answer. Raises NotNow in
        an AvailableNow run, which has an end, and fails."""
        try:
            return self._gauge.figures().visible
        except NotNow as passing:
            self._bear_for_now(passing)
            return 0

    def _bear_for_now(self, passing: NotNow) -> None:
        if self._target is not None:
            raise passing
        # A gateway that restarts must not end a stream.
        self._last_error = str(passing)
        _log.warning("looking at %s: %s", self.options.place.name, passing)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """A task for each slot. Raises DataLost when the batch was planned with another spool, or
        was committed once and is no longer in this one; SpoolTaken as above."""
        first, last = Offset.of(start), Offset.of(end)
        self._open(first, last)
        self._stay()
        if last.spool != self._spool.identity:
            # To fill it would give messages to a sink that may know the batch and drops them.
            return self._of_another_spool(last)
        return [
            FillTask(self._spool.identity, Place(seq, slot), self._share(last, slot))
            for seq in range(self._reached(first) + 1, last.seq + 1)
            for slot in self._slots(seq, last.slots or 1)
        ]

    def stop(self) -> None:
        """Give back what the driver has received and not spooled."""
        if self._opened:
            self._scout.stop()
        super().stop()

    def _stay(self) -> None:
        if self._spool.is_entered_after(self._number):
            raise SpoolTaken(
                f"another query, or a second stream of this one, began to use the spool at "
                f"{self.options.spool_path}: each needs a spoolPath of its own"
            )

    def _slots(self, seq: int, planned: int) -> list[int]:
        """Slots of a batch: those that were planned, and those that were filled."""
        filled = {place.slot for place in self._found.segments if place.seq == seq} - {None}
        if seq > self._found.acknowledged:
            filled.update(range(planned))
        elif not filled and self.options.fail_on_data_loss:
            # To fill it again would give messages to a sink that knows the batch and drops them.
            raise DataLost(
                f"batch {seq} was committed before and is no longer in the spool at "
                f"{self.options.spool_path}: the checkpoint was set back by more than "
                "spoolRetentionBatches and spoolRetentionBytes keep. With failOnDataLoss=false the "
                "query goes on without it"
            )
        return sorted(slot for slot in filled if slot is not None)

    def _share(self, batch: Offset, slot: int) -> Slot:
        """What a slot may take: all together no more than the batch has rows."""
        rows = batch.rows or self.options.most_rows
        first = 1 if batch.taken else 0
        slots = max(1, (batch.slots or 1) - first)
        share, more = divmod(rows - (batch.taken or 0), slots)
        share += slot - first < more
        most_bytes = -(-rows // self.options.most_rows) * self.options.most_bytes // slots
        return Slot(self._url, max(1, share), max(1, most_bytes), self._rule)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a slot: those that its segment has, or that are received now.

        Raises SpoolMismatch when the spool is not the driver's, before anything is received, and
        DataLost when the segment has been there and is gone.
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
        """How many messages this run still has to read of those that there were when it began."""
        if self._target == -1:
            figures = self._gauge.figures()
            self._target = figures.visible + figures.in_flight
            self._counted.update(self._spool.contents().segments)
        contents = self._spool.contents()
        for place in contents.segments:
            if place not in self._counted:
                self._counted.add(place)
                kept = contents.done.get(place)
                # One that is dropped meanwhile was done; then the queue says when it is empty.
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


def _repeats(spool: Spool, before: Sequence[Place], segment: Segment) -> set[str]:
    """Ids of messages of this slot that a slot written before it has as well."""
    ours = set(segment.message_ids()) if before else set()
    found: set[str] = set()
    for other in before:
        found.update(ours.intersection(spool.read(other).message_ids()))
    return found
