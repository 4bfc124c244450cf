"""The default source: the driver receives into the spool, tasks read the spool.

Order of events for each message, each step only after the one before is durable: received, in a
segment, in Spark's offset log, in the sink, in Spark's commit log, deleted from the queue. After a
crash in between, the message is found in the spool; a redelivery is recognized by its id there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from spark_connectors.source.deleter import release_messages
from spark_connectors.source.queue_collector import Collector, SealedSegment
from spark_connectors.source.queue_stream_reader import Offset, QueueStreamReader
from spark_connectors.source.slot_tasks import SlotTask, inline_of, rows_of, segment_at
from spark_connectors.spool.spool import Contents, SegmentPlace

# Pause between polls of an idle stream. It delays other sources of the same query.
_IDLE_SECONDS = 0.1


class DriverStreamReader(QueueStreamReader):
    """Exactly once into an idempotent sink; with a spool in memory at least once."""

    # A limit below the messages that an AvailableNow run finds in the queue.
    most_target: int | None = None

    def _start_work(self, contents: Contents) -> None:
        options = self.options
        if options.dedupe:
            for place, keys in self._spool.remembered(contents, time.time()):
                self._known.add(place, keys)
        for kept in (*contents.done.values(), *contents.ids.values()):
            self._known.keep(kept)
        # Segments that an earlier process wrote and Spark has not committed come first.
        self._planned = {
            place.seq: found
            for place in contents.segments
            if place.seq > self._base and (found := self._sealed_at(place)) is not None
        }
        # Numbers are never reused: a sink that knows a batch would drop it.
        self._highest = contents.highest
        self._collector = Collector(
            options, self._transport, self._url, self._spool, self._known, self._deleter
        )
        self._is_collecting = False
        self._is_settled = False
        self._seq = self._base

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch; ``start`` itself when there is nothing new.

        ``start`` is committed when Spark asks this, also for batches without a call of ``commit``:
        the last one of an AvailableNow run, and the last one before the stream goes idle.
        """
        begun = Offset.of(start)
        self._open(begun)
        self._acknowledge(begun)
        reached = self._reached(begun)
        for seq in [one for one in self._planned if one <= reached]:
            del self._planned[seq]
        if self._is_for_all(limit):
            end = self._all(reached)
        else:
            end = self._end(sorted(self._planned.values()), limit)
            if end is None:
                end = self._received(reached, limit)
        self._seq = reached if end is None else end
        if end is None:
            return start if self._target is None else self._finished(begun)
        self._batch_at = time.monotonic()
        return Offset(self._spool.identity, end).to_json()

    def _received(self, reached: int, limit: ReadLimit) -> int | None:
        """Return the end of a batch of collected segments; None: the queue has nothing."""
        self._collect(reached)
        least = self.options.least_rows
        ahead = self._collector.wait_ahead(least, _IDLE_SECONDS) if least else True
        if not ahead and not self._is_enough(self._collector.ahead_rows):
            return None
        self._is_settled = not self.options.place.is_fifo
        while True:
            sealed = self._collector.wait_sealed(reached, _IDLE_SECONDS)
            end = self._end(sealed, limit)
            if end is not None:
                self._collector.serve(end)
                return end
            self._deleter.raise_failure()
            if self._target is None or self._is_exhausted():
                return None

    def _all(self, reached: int) -> int | None:
        """Return the end of a batch of everything that may be in flight, or fits into one batch
        where rows travel with their tasks."""
        left = sorted(self._planned.values())
        end = self._end(left, None)
        if end is not None and (end < left[-1].seq or self.options.keeps_order):
            return end
        self._collect(reached)
        self._is_settled = not self.options.place.is_fifo
        while not self._is_whole(end):
            sealed = self._collector.wait_sealed(end or reached, _IDLE_SECONDS)
            found = self._end(sealed, None)
            end = end if found is None else found
            self._deleter.raise_failure()
            is_full = self._collector.is_full and not self._collector.ahead_rows
            if not sealed and (is_full or self._is_exhausted()):
                break
        if end is not None:
            self._collector.serve(end)
        return end

    def _is_whole(self, end: int | None) -> bool:
        """Return True if the batch is full: tasks that carry their rows must not be large."""
        if end is None or self.options.spool_payload == "shared":
            return False
        body_bytes = sum(one.body_bytes for one in self._planned.values())
        return body_bytes >= self.options.most_bytes

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan a task for each slot of the batch's segments. Raises DataLost."""
        first, last = Offset.of(start), Offset.of(end)
        self._open(first, last)
        if last.spool != self._spool.identity:
            return self._of_another_spool(last)
        segments = [
            found
            for seq in range(self._reached(first) + 1, last.seq + 1)
            if (found := self._planned.get(seq) or self._sealed_at(SegmentPlace(seq))) is not None
        ]
        tasks = []
        for slot in range(max((len(one.slots) for one in segments), default=0)):
            filled = [one for one in segments if slot < len(one.slots) and one.slots[slot]]
            if filled:
                tasks.append(self._task(slot, tuple(SegmentPlace(one.seq) for one in filled)))
        return tasks

    def _task(self, slot: int, places: tuple[SegmentPlace, ...]) -> SlotTask:
        if self.options.spool_payload == "shared":
            return SlotTask(self._spool.identity, slot, places)
        inline = inline_of(slot, [self._spool.read(one) for one in places])
        return SlotTask(self._spool.identity, slot, places, inline)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        assert isinstance(partition, SlotTask)
        store = self.open_store() if partition.inline is None else None
        return rows_of(partition, store, self.options)

    def stop(self) -> None:
        """Release messages that are only in memory, so that other consumers get them at once."""
        if self._opened:
            self._collector.stop()
            release_messages(self._transport, self._url, self._collector.release())
        super().stop()

    def _sealed_at(self, place: SegmentPlace) -> SealedSegment | None:
        segment = segment_at(self._spool, place, self.options)
        if segment is None:
            return None
        slots = tuple(segment.slot(one).num_rows for one in range(segment.slot_count))
        return SealedSegment(place.seq, segment.row_count, segment.body_bytes, slots)

    def _collect(self, reached: int) -> None:
        """Start to receive, when a batch is first requested and the spool has none left."""
        if self._is_collecting:
            return
        self._is_collecting = True
        if self._target is not None:
            figures = self._transport.figures(self._url)
            self._target = figures.visible + figures.in_flight
            if self.most_target is not None:
                self._target = min(self._target, self.most_target)
            self._collector.limit_to(self._target)
        self._collector.start(max(reached, self._highest))

    def _is_exhausted(self) -> bool:
        """Return True if this AvailableNow run has read its target, or the queue has no more."""
        if not self._deleter.flush(0):
            return False
        if not self._is_settled:
            # A FIFO group delivers its next messages only now: earlier polls do not count.
            self._is_settled = True
            self._collector.forget_polls()
        return self._collector.is_exhausted

    def _end(self, sealed: Sequence[SealedSegment], limit: ReadLimit | None) -> int | None:
        """Return the last of the segments that make the next batch: at least one, within the
        limits; None: there are none."""
        most_rows = math.inf if limit is None else self._limit_rows(limit)
        most_bytes = math.inf if limit is None else self.options.most_bytes
        end, rows, body_bytes, slots = None, 0, 0, 0
        for one in sealed:
            rows, body_bytes = rows + one.rows, body_bytes + one.body_bytes
            is_over = rows > most_rows or body_bytes > most_bytes
            # With another number of slots a group is in another slot, and loses its order.
            is_other = self.options.keeps_order and len(one.slots) != slots
            if end is not None and (is_over or is_other):
                break
            end, slots = one.seq, len(one.slots)
            self._planned[one.seq] = one
        return end

    def _progress(self, visible: int | None) -> dict[str, Any]:
        collector = self._collector
        ahead = collector.ahead_rows
        return {
            "seq": max(collector.newest_seq, self._highest, self._seq),
            "behind": None if visible is None else visible + ahead,
            "received": collector.received_count,
            "redeliveriesDropped": collector.dropped_count,
            "rememberedIds": len(self._known),
            "prefetchedRows": ahead,
            "spoolBytes": collector.spooled_bytes,
            "lastError": collector.last_error or self._deleter.last_error,
        }
