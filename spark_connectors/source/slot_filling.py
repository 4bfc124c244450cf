"""Filling of one slot of a batch: receive, spool, delete. Tasks fill slots, and the driver its
own."""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from spark_connectors.errors import ConnectorError, NotNow
from spark_connectors.rows.received import FetchedMessage, packed, received_of, stored_batch
from spark_connectors.rows.row_columns import kept_columns
from spark_connectors.source.deleter import (
    SAFE_UNTIL,
    ForgetRule,
    SegmentDelete,
    receipts_of,
    release_messages,
    safe_from,
)
from spark_connectors.source.queue_options import StreamOptions
from spark_connectors.source.slot_tasks import note_of, segment_at
from spark_connectors.spool.segments import Segment, encode
from spark_connectors.spool.spool import DeletedSegment, SegmentPlace, Spool, SpoolTaken
from spark_connectors.spool.stores import Missing
from spark_connectors.transport.aws import Transport
from spark_connectors.transport.aws.message_calls import MOST_PER_CALL, Message

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


@contextlib.contextmanager
def filled_slot(
    options: StreamOptions,
    spool: Spool,
    place: SegmentPlace,
    open_transport: Callable[[], Transport],
    slot: SlotPlan,
) -> Iterator[tuple[Segment, list[SegmentPlace]] | None]:
    """Yield the slot's segment, received and written now if there is none, and the slots that were
    written before. With ``deleteMode=spool`` its messages are deleted while the rows are read; the
    deletes have ended when this ends. None: the segment is lost, and failOnDataLoss is false."""
    segment, filling = _segment(options, spool, place, open_transport, slot)
    if segment is None:
        yield None
        return
    # Before any delete: the number records that the segment was written, whatever happens to it.
    filled = segment, spool.slots_before(place)
    if filling is None or options.delete_mode != "spool":
        yield filled
        return
    deleting = threading.Thread(target=filling.delete, args=(place,))
    deleting.start()
    try:
        yield filled
    finally:
        deleting.join()


def _segment(
    options: StreamOptions,
    spool: Spool,
    place: SegmentPlace,
    open_transport: Callable[[], Transport],
    slot: SlotPlan,
) -> tuple[Segment | None, SlotFilling | None]:
    """Return the segment, and its filling if it was filled here. None: it is lost, and
    failOnDataLoss is false.

    Raises DataLost, TooLate, SpoolTaken, and the transport's errors.
    """
    attempts = 0
    while True:
        with contextlib.suppress(Missing):
            return spool.read(place), None
        if spool.was_written(place):
            # Another attempt wrote it just now; or it is lost. Other messages must not replace it:
            # a sink that knows the batch would drop them.
            return segment_at(spool, place, options), None
        filling = SlotFilling(options, spool, open_transport(), slot)
        try:
            segment = filling.fill(place)
            return (spool.read(place), None) if segment is None else (segment, filling)
        except TooLate:
            # A machine that slept is no failure: on a single machine Spark tries tasks once.
            attempts += 1
            if attempts == _ATTEMPTS:
                raise


class SlotFilling:
    """One slot's receives and deletes, on ``receiveThreads`` threads."""

    def __init__(
        self, options: StreamOptions, spool: Spool, transport: Transport, slot: SlotPlan
    ) -> None:
        self._options = options
        self._spool = spool
        self._transport = transport
        self._slot = slot
        self._per_call = transport.most_per_call
        self._lock = threading.Lock()
        self._threads = options.receive_threads
        self._taken: dict[bytes, FetchedMessage] = {}
        self._repeats: list[str] = []
        self._known: set[bytes] | None = None
        self._body_bytes = 0
        self._largest = 1
        self._asked_for = 0
        self._is_over = False
        self._is_failing = False
        # No visibility timeout of the received messages began before this.
        self._began = time.time()
        self._deadline = time.monotonic() + options.receive_seconds

    def fill(self, place: SegmentPlace) -> Segment | None:
        """Receive and write the segment. None: another attempt was faster; its messages count.

        Raises TooLate when receiving took so long that other consumers may have the messages, and
        SpoolTaken when the batch was committed long ago.
        """
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
            shape = self._options.shape
            taken = list(self._taken.values())
            rows = stored_batch(self._options.place.name, taken, kept_columns(shape))
            note = {**note_of(shape), **self._spool.note_of(place)}
            description = {SAFE_UNTIL: str(self._safe_until), **note}
            data = encode([rows], self._options.spool_compression, description)
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

    @property
    def _safe_until(self) -> float:
        return safe_from(self._began, self._options.visibility_seconds)

    def to_delete(self) -> SegmentDelete:
        """Return the received messages as a delete for later."""
        return SegmentDelete(receipts_of(self._taken), self._safe_until, self._began)

    def release(self) -> None:
        """Make the received messages visible again."""
        newest = [one.receipt for one in self._taken.values()]
        older = [receipt for one in self._taken.values() for receipt in one.older]
        for receipts in (newest, older):
            release_messages(self._transport, self._slot.url, receipts)

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
            bytes_left = self._slot.body_bytes - self._body_bytes - self._asked_for * self._largest
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
        options = self._options
        try:
            messages = self._transport.receive(
                self._slot.url,
                most=most,
                visibility_seconds=options.visibility_seconds,
                wait_seconds=wait_seconds,
                attempt_id=str(uuid.uuid4()) if options.place.is_fifo else None,
                wanted=options.wanted,
            )
            now = time.time()
            is_repeated = any(_is_repeated(one) for one in messages)
            found = [received_of(one, now) for one in messages]
            rows = packed(options.place.name, found, kept_columns(options.shape))
        except BaseException:
            self._is_over = True
            raise
        with self._lock:
            self._asked_for -= most
            if is_repeated and self._known is None:
                self._known = self._spooled(now)
            self._take(rows)
            if not messages or time.monotonic() >= self._deadline:
                self._is_over = True
        return len(messages)

    def _take(self, rows: Sequence[FetchedMessage]) -> None:
        for received in rows:
            key = received.key
            if self._known is not None and key in self._known:
                self._repeats.append(received.receipt)
                continue
            if key in self._taken:
                # Of two threads either may have the receipt that still deletes it.
                self._taken[key] = received._replace(older=self._taken[key].receipts)
                continue
            self._body_bytes += received.body_bytes
            self._largest = max(self._largest, received.body_bytes)
            self._taken[key] = received

    def _spooled(self, now: float) -> set[bytes]:
        """Return every message that the spool knows; called only after a redelivery."""
        found = self._spool.remembered(self._spool.contents(), now)
        return set(itertools.chain.from_iterable(keys for _, keys in found))

    # Deleting

    def delete(self, place: SegmentPlace) -> None:
        """Delete the segment's messages; the driver finds and deletes those for which that
        fails."""
        receipts = [receipt for one in self._taken.values() for receipt in one.receipts]
        if self._delete_all(receipts):
            now = time.time()
            forget_at = self._slot.rule.forget_at(self._safe_until, now, is_sure=True)
            self._spool.mark_done(DeletedSegment(place, forget_at, len(self._taken)))

    def _delete_all(self, receipts: Sequence[str]) -> bool:
        most = self._per_call
        parts = [receipts[at : at + most] for at in range(0, len(receipts), most)]
        return all(self._in_parallel(self._is_deleted, parts))

    def _is_deleted(self, receipts: Sequence[str]) -> bool:
        if self._is_failing:
            return False
        try:
            return not any(self._transport.delete(self._slot.url, receipts))
        except ConnectorError:
            # Each call was retried: a task must not spend hours on a dead endpoint.
            self._is_failing = True
            return False

    def _in_parallel(self, work: Callable[[_Item], bool], items: Sequence[_Item]) -> list[bool]:
        if len(items) < _LEAST_IN_PARALLEL:
            return [work(one) for one in items]
        with ThreadPoolExecutor(self._threads) as threads:
            return list(threads.map(work, items))


def _is_repeated(message: Message) -> bool:
    attributes = message.get("Attributes") or {}
    return bool(attributes.get("ApproximateReceiveCount") != "1")
