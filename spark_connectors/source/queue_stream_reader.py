"""A queue as a stream: the driver receives into the spool, tasks read the spool.

Order of events for each message, each step only after the one before is durable: received, in a
segment, in Spark's offset log, in the sink, in Spark's commit log, deleted from the queue. After a
crash in between, the message is found in the spool; a redelivery is recognized by its id there.
"""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from spark_connectors.endpoints import Connection, TransientFailure, json_value
from spark_connectors.errors import ConnectorError, Refused, hide_traceback
from spark_connectors.source.collector import Collector, SealedSegment
from spark_connectors.source.deleter import Deleter, ForgetRule
from spark_connectors.source.queue_options import StreamOptions
from spark_connectors.source.slot_tasks import (
    Offset,
    SlotTask,
    inline_of,
    joined_slots,
    replace_damaged,
    report_loss,
    rows_of,
    segment_at,
    store_of,
)
from spark_connectors.spool import (
    Contents,
    DeletedSegment,
    KnownMessages,
    SegmentPlace,
    Spool,
    SpoolMismatch,
    segment_name,
)
from spark_connectors.stores import Store
from spark_connectors.transport import Transport, is_aws, open_service, shared_transport

_log = logging.getLogger(__name__)
_AGE_SECONDS = 5.0


class Gauge:
    """Counts of one queue, and the age of its oldest message where the endpoint reports it.
    Queuegate reports it at ``GET /v1/queues/{name}``; AWS only in CloudWatch."""

    def __init__(self, transport: Transport, url: str, connection: Connection, name: str) -> None:
        self._transport = transport
        self._url = url
        self._service = open_service(connection)
        self._path = f"/v1/queues/{quote(name, safe='')}"

    def shown(self) -> dict[str, Any]:
        """Return the present counts and the age; None for an unknown figure."""
        try:
            found = self._transport.figures(self._url)
        except ConnectorError:
            return dict.fromkeys(("visible", "notVisible", "delayed", "oldestAgeSeconds"))
        return {
            "visible": found.visible,
            "notVisible": found.in_flight,
            "delayed": found.delayed,
            "oldestAgeSeconds": self._oldest_age_seconds(),
        }

    def _oldest_age_seconds(self) -> int | None:
        if self._service is None:
            return None
        try:
            answer = self._service.call(
                {}, b"", timeout_seconds=_AGE_SECONDS, method="GET", path=self._path
            )
            age: int | None = json_value(answer)["oldest_msg_age_sec"]
            return age
        except (Refused, ValueError, KeyError, TypeError):
            # Not Queuegate, or no permission: the answer will not change.
            self._service = None
        except (TransientFailure, ConnectorError):
            pass
        return None


_MOST_NAMED = 3
_FLUSH_SECONDS = 120.0
# Pause between polls of an idle stream. It delays other sources of the same query.
_IDLE_SECONDS = 0.1
_LONGEST_RETENTION_SECONDS = 14 * 86_400


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Exactly once into an idempotent sink; with a spool in memory at least once. Spark makes
    several of these: one is asked for offsets in the driver's process and works; the others only
    read tasks, and must cost nothing to make or pickle."""

    # A limit below the messages that an AvailableNow run finds in the queue.
    most_target: int | None = None

    def __init__(self, options: StreamOptions) -> None:
        if options.is_in_memory:
            options = options._replace(spool_path=f"memory:{uuid.uuid4()}")
        self.options = options
        self._opened = self._started = False
        # Messages that an AvailableNow run is to read; -1: not counted yet. Spark sets it before
        # any call that opens the spool.
        self._target: int | None = None

    def open_store(self) -> Store:
        """Open the store of the spool."""
        return store_of(self.options)

    def open_transport(self) -> Transport:
        """Open the transport to the queue."""
        return shared_transport(self.options.connection)

    def _open(self, start: Offset | None, planned: Offset | None = None) -> None:
        """Open everything, once. Raises ConnectorError. ``start``: the position of the checkpoint;
        ``planned``: the end of the batch after it."""
        if self._opened:
            return
        options = self.options
        self._transport = self.open_transport()
        self._url = options.place.url(self._transport)
        # Calls the queue first: a wrong endpoint or queue ends the query here.
        attributes = self._transport.attributes(self._url)
        # Evaluates it once, before threads wait for it.
        _log.debug("%s messages a call", self._transport.most_per_call)
        retention = attributes.get("MessageRetentionPeriod", "")
        self._rule = ForgetRule(
            int(retention) if retention.isdigit() else _LONGEST_RETENTION_SECONDS,
            options.dedupe_window,
            is_aws(options.connection),
        )
        self._spool = Spool.open(
            self.open_store(), queue=options.place.name, mode=options.receive_mode
        )
        self._spool.end_old_drivers()
        self._known = KnownMessages()
        self._deleter = Deleter(
            options, self._transport, self._url, self._spool, self._known, self._rule
        )
        contents = self._spool.contents()
        self._refuse_older(start, contents)
        if planned is not None and planned.spool != self._spool.identity:
            planned = None
        if start is not None and planned is not None:
            # The agreement was reached when that batch was planned.
            base: int | None = self._reached(start, contents.acknowledged)
        else:
            base = self._agreed(start, contents)
        if base is None:
            self._spool.clear(contents)
            self._spool.take_over(contents.highest)
            contents = self._spool.contents()
            base = contents.acknowledged
            if start is not None:
                base = self._reached(start, base)
        self._base = base
        contents = replace_damaged(self._spool, contents, base, planned, options)
        self._fail_or_warn(self._spool.lost(contents, base))
        if start is None:
            self._warn_of_repeats(contents)
        self._contents = contents
        self._gauge = Gauge(self._transport, self._url, options.connection, options.place.name)
        self._reported: tuple[int, dict[str, Any]] = -1, {}
        self._batch_at = -math.inf
        self._opened = True

    def _start(self, start: Offset, planned: Offset | None = None) -> None:
        """Open everything, and prepare to read what earlier processes left in the spool, and to
        receive: once, when Spark first plans. Raises ConnectorError."""
        self._open(start, planned)
        if self._started:
            return
        options = self.options
        contents = joined_slots(self._spool, self._contents, self._base, planned, options)
        self._deleter.start(contents)
        if options.dedupe:
            for place, keys in self._spool.remembered(contents, time.time()):
                self._known.add(place, keys)
        # Segments that an earlier process wrote and Spark has not committed come first.
        self._planned = {
            place.seq: found
            for place in contents.segments
            if place.seq > self._base
            and place.slot is None
            and (found := self._sealed_at(place)) is not None
        }
        # Numbers are never reused: a sink that knows a batch would drop it.
        self._highest = contents.highest
        self._collector = Collector(
            options, self._transport, self._url, self._spool, self._known, self._deleter
        )
        self._is_collecting = False
        self._is_settled = False
        # The end of the batch that was planned last.
        self._seq = self._base
        self._started = True

    def _agreed(self, start: Offset | None, contents: Contents) -> int | None:
        """Return the segment to go on after; None when the spool is to be emptied first. ``start``
        None is a new checkpoint. Its spool is unused, or was filled by a query that died before its
        first batch was committed: then all of it is still to be read."""
        options = self.options
        if start is None:
            if not contents.acknowledged:
                return 0
            if options.on_mismatch == "fail":
                raise SpoolMismatch(
                    f"the spool at {options.spool_path} was used by a query with another checkpoint"
                    ". onSpoolMismatch=adopt goes on behind what that query committed, discard "
                    "empties the spool; or give this query a spoolPath of its own"
                )
            is_to_stay = options.on_mismatch == "adopt" or contents.is_just_taken_over
            return contents.acknowledged if is_to_stay else None
        if start.spool == self._spool.identity or options.is_in_memory:
            return self._reached(start, contents.acknowledged)
        if options.on_mismatch == "fail":
            raise SpoolMismatch(
                f"the checkpoint belongs to spool {start.spool}, but at {options.spool_path} is "
                f"{self._spool.identity}: it was deleted, or spoolPath changed. With "
                "onSpoolMismatch=adopt the query goes on with the queue as it is now"
            )
        if contents.is_just_taken_over:
            # By this very query, which died before its first commit.
            return self._reached(start, contents.acknowledged)
        if options.on_mismatch == "discard":
            return None
        unread = sum(place.seq > contents.acknowledged for place in contents.segments)
        if unread:
            raise SpoolMismatch(
                f"the spool at {options.spool_path} has {unread} segments of another query that "
                "were not committed: onSpoolMismatch=discard drops them"
            )
        self._spool.take_over(contents.acknowledged)
        return self._reached(start, contents.acknowledged)

    def _refuse_older(self, start: Offset | None, contents: Contents) -> None:
        """Raise DataLost when the checkpoint has committed batches of which the spool has no trace,
        unless failOnDataLoss is false."""
        if start is None or start.spool != self._spool.identity:
            return
        # Spark may have committed a batch of slots without running one of its tasks.
        untraced = 1 if start.slots and not start.taken else 0
        if start.seq <= contents.highest + untraced:
            return
        told = (
            f"the checkpoint has committed batch {start.seq}, but the spool at "
            f"{self.options.spool_path} ends at batch {contents.highest}: it was restored from an "
            "older copy. Messages that the newer spool had received and no batch has committed may "
            "be deleted from the queue"
        )
        report_loss(
            self.options,
            told,
            "Put the newer spool back, or set the checkpoint back to the same moment; with "
            "failOnDataLoss=false the query goes on without these messages",
        )

    def _warn_of_repeats(self, contents: Contents) -> None:
        """Warn that one batch may be repeated: a query whose checkpoint is lost may have committed
        it without the spool, because Spark reports a commit when it asks for the next batch."""
        behind = [
            place for place in contents.segments if place.seq > self._base and place.slot is None
        ]
        if not behind or not self._base:
            return
        rows = sum(self._spool.read(place).row_count for place in behind)
        _log.warning(
            "going on with the %s messages behind batch %s of the spool at %s: the last batch of "
            "the query before may be among them, and be in its sink already, because the "
            "spool has no report of its commit; the sink can know them by message_id",
            rows,
            self._base,
            self.options.spool_path,
        )

    def _reached(self, offset: Offset, base: int | None = None) -> int:
        """Return the last segment before any later offset. Of another spool: at least ``base``,
        otherwise the base of this query."""
        if offset.spool == self._spool.identity:
            return offset.seq
        return max(offset.seq, self._base if base is None else base)

    def _fail_or_warn(self, lost: Sequence[DeletedSegment]) -> None:
        """Raise DataLost for missing segments, unless failOnDataLoss is false."""
        if not lost:
            return
        names = [f"{segment_name(one.place)} ({one.rows} messages)" for one in lost[:_MOST_NAMED]]
        more = f" and {len(lost) - _MOST_NAMED} more" if len(lost) > _MOST_NAMED else ""
        told = (
            f"{', '.join(names)}{more} not in the spool at {self.options.spool_path}: what was in "
            "there is deleted from the queue, and no batch that was committed has it"
        )
        report_loss(
            self.options,
            told,
            "Put the files back from a copy; with failOnDataLoss=false the query goes on without "
            "these messages",
        )

    def _of_another_spool(self, last: Offset) -> list[InputPartition]:
        """Return no tasks for a batch that was planned with another spool. Raises DataLost."""
        report_loss(
            self.options,
            f"Spark planned a batch of spool {last.spool}, but at {self.options.spool_path} is "
            f"{self._spool.identity}",
            "With failOnDataLoss=false the query goes on without the messages of that batch",
        )
        return []

    # Methods that Spark calls

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the offset before the first batch. Raises SpoolMismatch for a spool that is in
        use."""
        self._open(None)
        return Offset(self._spool.identity, self._base).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of ``maxOffsetsPerTrigger``."""
        return ReadMaxRows(self.options.most_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the target of this run: the messages that the queue has now."""
        self._target = -1

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch; ``start`` itself when there is nothing new. ``start``
        is committed when Spark asks this, also for batches without a call of ``commit``: the last
        one of an AvailableNow run, and the last one before the stream goes idle."""
        begun = Offset.of(start)
        self._start(begun)
        self._acknowledge(begun)
        reached = self._reached(begun)
        for seq in [one for one in self._planned if one <= reached]:
            del self._planned[seq]
        if isinstance(limit, ReadAllAvailable):
            # A run with Trigger.Once: everything in one batch.
            self._target = -1
            end = self._all(reached)
        else:
            end = self._end(sorted(self._planned.values()), limit)
            if end is None:
                end = self._received(reached, limit)
        self._seq = reached if end is None else end
        if end is None:
            if self._target is not None:
                # The process ends after an AvailableNow run.
                self._deleter.flush(_FLUSH_SECONDS)
                self._deleter.raise_failure()
            return start
        self._batch_at = time.monotonic()
        return Offset(self._spool.identity, end).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan a task for each slot of the batch's segments. Raises DataLost."""
        first, last = Offset.of(start), Offset.of(end)
        self._start(first, last)
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
                places = tuple(SegmentPlace(one.seq) for one in filled)
                inline = None
                if self.options.spool_payload == "inline":
                    inline = inline_of(slot, [self._spool.read(one) for one in places])
                tasks.append(SlotTask(self._spool.identity, slot, places, inline))
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        assert isinstance(partition, SlotTask)
        store = self.open_store() if partition.inline is None else None
        return rows_of(partition, store, self.options)

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge everything up to here: Spark has committed it."""
        committed = Offset.of(end)
        self._start(committed)
        self._acknowledge(committed)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return figures for StreamingQueryProgress: ``sources[0].latestOffset``. Spark asks when
        it has planned a batch, and shows them when that is done."""
        if not self._started:
            return None
        planned, found = self._reported
        if planned != self._seq:
            # The counts of the plan, if it has any. An idle stream makes no call: Spark shows
            # batches.
            found = self._gauge.shown()
            self._reported = self._seq, found
        collector, visible = self._collector, found["visible"]
        ahead = collector.ahead_rows
        return {
            "queue": self.options.place.name,
            **found,
            "seq": max(collector.next_seq - 1, self._highest, self._seq),
            "behind": None if visible is None else visible + ahead,
            "received": collector.received_count,
            "redeliveriesDropped": collector.dropped_count,
            "rememberedIds": len(self._known),
            "prefetchedRows": ahead,
            "spoolBytes": collector.spooled_bytes,
            "lastError": collector.last_error or self._deleter.last_error,
            "pendingDeletes": self._deleter.pending_rows,
        }

    def stop(self) -> None:
        """Release messages that are only in memory, so that other consumers get them at once, and
        close connections; a process that Spark kills does without."""
        hide_traceback()
        if self._started:
            self._collector.stop()
            self._collector.release()
            self._deleter.stop()
            self._transport.close()

    # Batches

    def _acknowledge(self, offset: Offset) -> None:
        if offset.spool == self._spool.identity:
            self._deleter.acknowledge(offset.seq)
        self._deleter.raise_failure()

    def _limit_rows(self, limit: ReadLimit) -> int:
        return limit.max_rows if isinstance(limit, ReadMaxRows) else self.options.most_rows

    def _is_enough(self, rows: int) -> bool:
        """Return True if that many messages make a batch (minOffsetsPerTrigger), or the delay is
        over. As in Kafka's source the first batch is not delayed, nor a run that has an end."""
        if rows >= self.options.least_rows or self._target is not None:
            return True
        return time.monotonic() - self._batch_at >= self.options.trigger_delay_seconds

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
