"""Executor mode: tasks receive, each into a segment of its own in the shared spool.

The offset is a batch number. A task that runs again, or twice at once, finds the segment of its
slot or loses the race to write it; either way all attempts yield the same rows. A queue may give a
message to two tasks at the same time: the slot that was written first has it.

SQS offers no wait without a receive. So the driver itself waits at an idle queue, with one receive
at a time, and writes the first slot of the batch. If that is all, tasks only read the slot.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from spark_connectors.errors import ConnectorError, DataLost, NotNow
from spark_connectors.message_rows import shaped
from spark_connectors.source.deleter import ForgetRule, SegmentDelete
from spark_connectors.source.queue_options import StreamOptions
from spark_connectors.source.queue_stream_reader import (
    Offset,
    QueueStreamReader,
    SegmentBuilder,
    SlotTask,
    complete,
    segment_at,
    spool_of,
    without,
)
from spark_connectors.spool import (
    Contents,
    DeletedSegment,
    Segment,
    SegmentPlace,
    Spool,
    SpoolTaken,
)
from spark_connectors.stores import Missing
from spark_connectors.transport import MOST_PER_CALL, Transport

_log = logging.getLogger(__name__)
# For a first receive from a queue that reports messages: a short poll asks only some of AWS's
# servers, and visible messages of a FIFO queue can be blocked by their group.
_WAIT_SECONDS = 1
_ATTEMPTS = 3
_LEAST_IN_PARALLEL = 2

_Item = TypeVar("_Item")


class TooLate(ConnectorError):
    """The messages of a task were held so long that another task may receive them."""


class SlotPlan(NamedTuple):
    """The queue of a slot, and its limits in messages and bytes of bodies."""

    url: str
    rows: int
    body_bytes: int
    rule: ForgetRule


class SlotFilling(SegmentBuilder):
    """One slot's receives and deletes, on ``receiveThreads`` threads."""

    def __init__(
        self, options: StreamOptions, spool: Spool, transport: Transport, slot: SlotPlan
    ) -> None:
        super().__init__(options, transport, slot.url, spool)
        self._slot = slot
        self._per_call = transport.most_per_call
        self._lock = threading.Lock()
        self._threads = options.receive_threads
        self._repeats: list[str] = []
        self._known: set[bytes] | None = None
        self._is_over = False
        self._is_failing = False
        # No visibility timeout of the received messages began before this.
        self._began = time.time()
        self._deadline = time.monotonic() + options.receive_seconds

    def fill(self, place: SegmentPlace) -> Segment | None:
        """Receive and write the segment. None: another attempt was faster; its messages count.
        Raises TooLate when receiving took so long that other consumers may have the messages, and
        SpoolTaken when the batch was committed long ago."""
        try:
            self._receive()
        except BaseException:
            self.release()
            raise
        return self.write(place)

    def poll(self, wait_seconds: int) -> bool:
        """Receive once. Returns True if a message came that the spool does not know."""
        self._ask(self._claim(), wait_seconds)
        self._delete_repeats()
        return bool(self._taken)

    def write(self, place: SegmentPlace) -> Segment | None:
        """Write the received messages, as ``fill`` does."""
        try:
            if self.is_late:
                raise TooLate(
                    f"receiving took more than half of visibilityTimeout="
                    f"{self._options.visibility_seconds}: raise it"
                )
            data = self._encoded(place, [list(self._taken.values())], self._began)
        except BaseException:
            self.release()
            raise
        # Not released when the store fails: the segment may exist.
        try:
            if self._spool.put(place, data):
                return Segment(data, str(place))
        except SpoolTaken:
            self.release()
            raise
        self.release()
        return None

    @property
    def is_late(self) -> bool:
        """True if received messages may expire before they are spooled and deleted."""
        age = time.time() - self._began
        return bool(self._taken) and age > self._options.visibility_seconds / 2

    def to_delete(self) -> SegmentDelete:
        """Return the received messages as a delete for later."""
        return self._delete_of(self._taken, self._began)

    # Receiving

    def _receive(self) -> None:
        """Receive until the slot is full, its time is up, or the queue is empty or does not
        answer."""
        options = self._options
        is_slow = self._slot.rule.is_aws or options.place.is_fifo
        try:
            # One call polls a queue that may be empty; others join when its answer is full.
            most = self._claim()
            count = self._ask(most, min(_WAIT_SECONDS, options.wait_seconds) if is_slow else 0)
            is_full = count >= min(most, MOST_PER_CALL)
            self._in_parallel(self._receive_on, range(self._threads if is_full else 1))
        except NotNow as passing:
            # A restart of the gateway must not end a stream; the messages so far are a slot.
            _log.warning("receiving from %s: %s", options.place.name, passing)
        self._delete_repeats()

    def _delete_repeats(self) -> None:
        """Delete repeats: their rows come from the spool, which has them."""
        repeats, self._repeats = self._repeats, []
        self._delete_all(repeats)

    def _receive_on(self, _: int) -> bool:
        while most := self._claim():
            self._ask(most, 0)
        return True

    def _claim(self) -> int:
        """Return the number of messages to request: all threads together stay within the limits."""
        with self._lock:
            # Pending answers may be as large as the largest so far.
            bytes_left = self._slot.body_bytes - self._taken_bytes - self._asked_for * self._largest
            if self._is_over or bytes_left <= 0:
                return 0
            capacity = self._slot.rows - len(self._taken) - self._asked_for
            # The first messages show the usual size.
            per_call = self._per_call if self._taken else MOST_PER_CALL
            most = max(0, min(per_call, capacity, -(-bytes_left // self._largest)))
            self._asked_for += most
            return most

    def _ask(self, most: int, wait_seconds: int) -> int:
        """Receive once. Returns the number of messages."""
        try:
            rows, is_repeated = self._fetch(most, wait_seconds)
        except BaseException:
            self._is_over = True
            raise
        with self._lock:
            self._asked_for -= most
            if is_repeated and self._known is None:
                found = self._spool.remembered(self._spool.contents(), time.time())
                self._known = set(itertools.chain.from_iterable(keys for _, keys in found))
            for received in rows:
                if self._known is not None and received.key in self._known:
                    self._repeats.append(received.receipt)
                else:
                    self._hold(received.key, received)
            if not rows or time.monotonic() >= self._deadline:
                self._is_over = True
        return len(rows)

    # Deleting

    def delete(self, place: SegmentPlace) -> None:
        """Delete the segment's messages; the driver finds and deletes those for which that
        fails."""
        receipts = [receipt for one in self._taken.values() for receipt in one.receipts]
        if self._delete_all(receipts):
            safe_until = self.to_delete().safe_until
            now = time.time()
            forget_at = self._slot.rule.forget_at(safe_until, now, is_sure=True)
            self._spool.mark_done(DeletedSegment(place, forget_at, len(self._taken)))

    def _delete_all(self, receipts: Sequence[str]) -> bool:
        most = self._per_call
        parts = [receipts[at : at + most] for at in range(0, len(receipts), most)]
        return all(self._in_parallel(self._is_deleted, parts))

    def _is_deleted(self, receipts: Sequence[str]) -> bool:
        if self._is_failing:
            return False
        try:
            return not any(self._transport.delete(self._url, receipts))
        except ConnectorError:
            # Each call was retried: a task must not spend hours on a dead endpoint.
            self._is_failing = True
            return False

    def _in_parallel(self, work: Callable[[_Item], bool], items: Sequence[_Item]) -> list[bool]:
        if len(items) < _LEAST_IN_PARALLEL:
            return [work(one) for one in items]
        with ThreadPoolExecutor(self._threads) as threads:
            return list(threads.map(work, items))


_FIRST_PAUSE_SECONDS = 0.1
_MOST_PAUSE_SECONDS = 5.0


class IdlePoller:
    """Polls a queue until it has a message, beside the query."""

    def __init__(self, begin: Callable[[], SlotFilling], wait_seconds: int) -> None:
        self._begin = begin
        self._wait_seconds = wait_seconds
        self._polling: Future[SlotFilling | None] | None = None
        self._stopped = threading.Event()
        self.last_error: str | None = None

    def found(self, seconds: float) -> SlotFilling | None:
        """Return the received messages, which are then the caller's; None: none came within that
        time. Polling goes on until a message comes. Raises the error that ended it."""
        if self._polling is None:
            self._polling = Future()
            threading.Thread(
                target=self._run, args=(self._polling,), name="scout", daemon=True
            ).start()
        wait([self._polling], seconds)
        if not self._polling.done():
            return None
        found = self._polling.result()
        self._polling = None
        if found is not None and found.is_late:
            # Another source of the same query took its time, and the messages may be visible again.
            found.release()
            return None
        return found

    @property
    def is_polling(self) -> bool:
        """True while it polls, and until its result is fetched."""
        return self._polling is not None

    def stop(self) -> None:
        """Release the received messages; later ones are released as well."""
        self._stopped.set()
        if self._polling is not None:
            self._polling.add_done_callback(_give_back)

    def _run(self, polling: Future[SlotFilling | None]) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while not self._stopped.is_set():
            try:
                filling = self._begin()
                has_any = filling.poll(self._wait_seconds)
                pause, self.last_error = _FIRST_PAUSE_SECONDS, None
                if has_any:
                    return polling.set_result(filling)
            except NotNow as passing:
                # A restart of the gateway must not end a stream.
                self.last_error = str(passing)
                _log.warning("polling for messages: %s", passing)
                self._stopped.wait(pause)
                pause = min(2 * pause, _MOST_PAUSE_SECONDS)
            except Exception as broken:  # noqa: BLE001
                return polling.set_exception(broken)
        return polling.set_result(None)


def _give_back(polled: Future[SlotFilling | None]) -> None:
    if polled.exception() is None and (found := polled.result()) is not None:
        found.release()


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
        self._idle_poller = IdlePoller(
            lambda: self._filling(self.options.most_rows), self.options.longest_wait_seconds
        )

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the next batch when the queue has messages, or tasks have begun that batch.
        ``start`` is committed when Spark asks this. Raises SpoolTaken when another query began to
        use the spool."""
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
        """Yield the rows of a slot, from its segment, or received now. With ``deleteMode=spool``
        messages are deleted while the rows are read; the deletes have ended when this ends. Raises
        SpoolMismatch when the spool is not the driver's, before anything is received, and DataLost
        when the segment existed and is missing."""
        assert isinstance(partition, FillTask)
        options, [place] = self.options, partition.places
        spool = spool_of(partition, self.open_store(), options)
        segment, filling = self._segment(spool, place, partition.filled_from)
        if segment is None:
            return
        # Before any delete: the number records that the segment was written, whatever happens next.
        before = spool.slots_before(place)
        with contextlib.ExitStack() as deletes:
            if filling is not None and options.delete_mode == "spool":
                deleting = threading.Thread(target=filling.delete, args=(place,))
                deleting.start()
                deletes.callback(deleting.join)
            rows = without(_repeats(spool, before, segment), complete(segment, options).slot(0))
            yield shaped(rows, options.shape)

    def _segment(
        self, spool: Spool, place: SegmentPlace, slot: SlotPlan
    ) -> tuple[Segment | None, SlotFilling | None]:
        """Return the segment, received and written now if there is none, and its filling if it was
        filled here. None: it is lost, and failOnDataLoss is false. Raises DataLost, TooLate,
        SpoolTaken, and the transport's errors."""
        attempts = 0
        while True:
            with contextlib.suppress(Missing):
                return spool.read(place), None
            if spool.was_written(place):
                # Another attempt wrote it just now; or it is lost. Other messages must not replace
                # it: a sink that knows the batch would drop them.
                return segment_at(spool, place, self.options), None
            filling = SlotFilling(self.options, spool, self.open_transport(), slot)
            try:
                segment = filling.fill(place)
                return (spool.read(place), None) if segment is None else (segment, filling)
            except TooLate:
                # A machine that slept is no failure: on a single machine Spark tries tasks once.
                attempts += 1
                if attempts == _ATTEMPTS:
                    raise

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
