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

from spark_connectors.errors import NotNow
from spark_connectors.rows.shapes import shaped
from spark_connectors.source.deleting import ForgetRule
from spark_connectors.source.offsets import Offset
from spark_connectors.source.queue_reader import QueueStreamReader
from spark_connectors.source.slot_filling import filled_slot
from spark_connectors.source.tasks import DataLost, SlotTask, spool_of, without
from spark_connectors.spool.places import Place
from spark_connectors.spool.segments import Segment
from spark_connectors.spool.spool import Contents, Spool, SpoolTaken
from spark_connectors.spool.stores import Missing

_log = logging.getLogger(__name__)
_GATE_SECONDS = 0.1
_CALM_SECONDS = 1.0
_CALM_LOOKS = 2


class FillTask(SlotTask):
    """A slot that is filled by whoever comes first. ``rows``: how many it may take."""

    def __init__(self, spool: str, place: Place, url: str, rows: int, rule: ForgetRule) -> None:
        super().__init__(spool, 0, (place,))
        self.url = url
        self.rows = rows
        self.rule = rule


class ExecutorStreamReader(QueueStreamReader):
    """Exactly once into an idempotent sink; for rates beyond what one process receives."""

    def _enter(self) -> None:
        # Tasks write segments for whoever planned them: nothing else tells two drivers apart.
        self._number = self._spool.enter()

    def _start_work(self, contents: Contents) -> None:
        self._highest = max(contents.highest, self._base)
        self._found = contents
        self._seq = self._base
        self._looked_at = 0.0
        self._visible = 0
        self._read_rows = 0
        self._counted: set[Place] = set()
        self._begun: Offset | None = None
        self._pause = threading.Event()

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
        self._rows_per_slot = max(1, self._limit_rows(limit) // self.options.slots)
        self._seq = self._reached(begun)
        if not self._has_more():
            return start if self._target is None else self._finished(begun)
        self._seq += 1
        self._stay()
        return Offset(self._spool.identity, self._seq, self.options.slots).to_json()

    def _has_more(self) -> bool:
        if self._seq < self._highest:
            return True
        if self._target is not None:
            return not self._is_exhausted()
        if not self._has_visible():
            self._pause.wait(_GATE_SECONDS)
        return self._has_visible()

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
            FillTask(self._spool.identity, Place(seq, slot), self._url, self._share(), self._rule)
            for seq in range(self._reached(first) + 1, last.seq + 1)
            for slot in self._slots(seq, last.slots or self.options.slots)
        ]

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
                "spoolRetentionBatches. With failOnDataLoss=false the query goes on without it"
            )
        return sorted(slot for slot in filled if slot is not None)

    def _share(self) -> int:
        return getattr(self, "_rows_per_slot", max(1, self.options.most_rows // self.options.slots))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a slot: those that its segment has, or that are received now.

        Raises SpoolMismatch when the spool is not the driver's, before anything is received, and
        DataLost when the segment has been there and is gone.
        """
        assert isinstance(partition, FillTask)
        spool = spool_of(partition, self.open_store(), self.options)
        [place] = partition.places
        with filled_slot(self.options, spool, place, self.open_transport, partition) as filled:
            if filled is not None:
                segment, before = filled
                repeats = _repeats(spool, before, segment)
                yield shaped(without(repeats, segment.slot(0)), self.options.shape)

    def _has_visible(self) -> bool:
        """Whether the queue has something; asked at most ten times a second."""
        if time.monotonic() - self._looked_at >= _GATE_SECONDS:
            try:
                self._visible = self._transport.figures(self._url).visible
            except NotNow as passing:
                # A gateway that restarts must not end a stream.
                _log.warning("asking for the length of %s: %s", self.options.place.name, passing)
                self._visible = 0
            self._looked_at = time.monotonic()
        return self._visible > 0

    def _is_exhausted(self) -> bool:
        """Whether this run has read as many as there were, or the queue has no more."""
        if self._target == -1:
            figures = self._transport.figures(self._url)
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
        if self._read_rows >= self._target:
            return True
        for _ in range(_CALM_LOOKS):
            if self._transport.figures(self._url).visible:
                return False
            self._pause.wait(_CALM_SECONDS)
        return True

    def _progress(self) -> dict[str, Any]:
        return {"seq": self._seq, "lastError": self._deleter.last_error}


def _repeats(spool: Spool, before: Sequence[Place], segment: Segment) -> set[str]:
    """Ids of messages of this slot that a slot written before it has as well."""
    ours = set(segment.message_ids()) if before else set()
    found: set[str] = set()
    for other in before:
        found.update(ours.intersection(spool.read(other).message_ids()))
    return found
