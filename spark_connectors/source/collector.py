"""Threads of the driver that receive from a queue, and write segments of the spool."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import pyarrow as pa

from spark_connectors.errors import NotNow
from spark_connectors.message_rows import (
    FetchedMessage,
    kept_columns,
    packed,
    received_of,
    stored_batch,
)
from spark_connectors.source.deleter import (
    SAFE_UNTIL,
    Deleter,
    SegmentDelete,
    release_messages,
    safe_from,
)
from spark_connectors.source.queue_options import StreamOptions
from spark_connectors.source.slot_tasks import note_of
from spark_connectors.spool import (
    KnownMessages,
    SegmentPlace,
    Spool,
    SpoolTaken,
    encode,
    slots_of,
)
from spark_connectors.transport import MOST_PER_CALL, Transport

_log = logging.getLogger(__name__)
# Of malloc.h.
_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
_ARENAS = 2
_LARGE_BYTES = 256 << 10


def keep_little() -> Callable[[], None]:
    """Make allocators return free memory early. Call the result in a thread that has just written a
    segment: it returns the memory that Arrow's own allocator keeps for that thread. Buffers are
    allocated in one thread and freed in another, between longer-lived ones: of 280 MB in the
    process, 34 MB were in use."""
    own = pa.default_memory_pool()
    # Compression uses Arrow's own allocator, whatever is set here.
    pa.set_memory_pool(pa.system_memory_pool())
    # glibc has it. Large blocks are mapped, and freed at once; the rest shares few arenas.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_ARENA_MAX, _ARENAS)
    release: Callable[[], None] = own.release_unused
    return release


# Fewer rows are not worth a separate task.
_LEAST_ROWS_PER_SLOT = 250
_MOST_PAUSE_SECONDS = 5.0
# Of the visibility timeout.
_STALE_SHARE = 0.25
# A FIFO group continues only when its messages are deleted: larger segments would only delay it.
_MOST_EAGER_ROWS = 1_000
# An AvailableNow run ends after that many empty polls.
_TARGET_POLLS = 2
_TARGET_WAIT_SECONDS = 2
# More than two large answers at once are not read sooner, and all of them are in memory.
_MOST_UNDER_WAY = 2_000


class SealedSegment(NamedTuple):
    """A segment in the spool; ``slots``: the rows of each."""

    seq: int
    rows: int
    body_bytes: int
    slots: tuple[int, ...]


class Collector:
    """Threads that receive messages and write them as numbered segments. A message is handed out
    only when its segment is durable. Messages that are only in memory return to the queue by their
    visibility timeout."""

    def __init__(
        self,
        options: StreamOptions,
        transport: Transport,
        url: str,
        spool: Spool,
        known: KnownMessages,
        deleter: Deleter,
    ) -> None:
        self._options = options
        self._transport = transport
        self._url = url
        self._spool = spool
        self._known = known
        self._deleter = deleter
        self.next_seq = 0
        # Received and in no segment, with the bytes of their bodies.
        self._taken: dict[bytes, FetchedMessage] = {}
        self._taken_bytes = 0
        self._largest = 1
        # Of requests under way.
        self._asked_for = 0
        self._taken_since = 0.0
        self._sealing: dict[bytes, FetchedMessage] = {}
        self._sealed: deque[SealedSegment] = deque()
        self._is_busy = False
        self._is_asked = False
        self._is_stopped = False
        self._budget: int | None = None
        self._failure: Exception | None = None
        self._changed = threading.Condition()
        self._seal_lock = threading.Lock()
        self.received_count = 0
        self.dropped_count = 0
        self.empty_polls = 0
        self._polls_since = 0
        self.last_error: str | None = None
        self.spooled_bytes = 0
        self._is_eager = options.place.is_fifo and options.delete_mode == "spool"

    # Methods that the reader calls

    def start(self, after: int) -> None:
        """Start to receive, once, for segments behind ``after``."""
        self._release_memory = keep_little()
        self.next_seq = after + 1
        for number in range(self._options.receive_threads):
            threading.Thread(
                target=self._run, args=(number,), name=f"receive-{number}", daemon=True
            ).start()

    def stop(self) -> None:
        """Stop receiving. A segment that is being written is in the spool when this returns."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        with self._seal_lock:
            pass

    def limit_to(self, count: int) -> None:
        """Receive only that many further new messages."""
        with self._changed:
            self._budget = self.received_count + count
            self._changed.notify_all()

    def wait_sealed(self, after: int, seconds: float) -> list[SealedSegment]:
        """Return segments behind ``after``: those that exist, or the first within that time.
        Messages in memory become a segment now rather than when it is large. Raises the error that
        ended a receiving thread."""
        deadline = time.monotonic() + seconds
        self.serve(after)
        with self._asking():
            while not self._sealed and not self._is_ripe():
                self._raise_failure()
                left = deadline - time.monotonic()
                if left <= 0 or (self.is_spent and not self._sealing):
                    return []
                self._changed.wait(left)
        if not self._sealed:
            self._seal()
        self._raise_failure()
        with self._changed:
            return list(self._sealed)

    def wait_ahead(self, rows: int, seconds: float) -> bool:
        """Wait until that many messages have come for the next batch, and write them as segments.
        Returns False after a timeout."""
        with self._asking():
            self._changed.wait_for(
                lambda: self.ahead_rows >= rows or self._failure is not None, seconds
            )
            self._raise_failure()
            if self.ahead_rows < rows:
                return False
        self._seal()
        return True

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """Hold the lock, and let threads receive for a batch that Spark waits for."""
        with self._changed:
            self._is_asked = True
            self._changed.notify_all()
            try:
                yield
            finally:
                self._is_asked = False

    def serve(self, seq: int) -> None:
        """Free the capacity of all segments up to this one: Spark works on them."""
        with self._changed:
            while self._sealed and self._sealed[0].seq <= seq:
                self._sealed.popleft()
            self._changed.notify_all()

    def _is_ripe(self) -> bool:
        """Return True if the messages in memory make a batch. While Spark works on a batch the next
        one grows by itself; otherwise receiving goes on as long as answers are full."""
        if not self._taken:
            return False
        grows = self._options.prefetch_batches > 0 and self._budget is None
        return grows or not self._is_busy or self._is_due()

    @property
    def is_full(self) -> bool:
        """True if messages must be deleted before more may be received."""
        return self._in_flight_left <= 0

    @property
    def _in_flight_left(self) -> int:
        with self._changed:
            waiting = len(self._taken) + len(self._sealing) + self._deleter.pending_rows
        return self._options.most_in_flight - waiting

    @property
    def is_spent(self) -> bool:
        """True if ``limit_to`` allows no more."""
        return self._budget is not None and self.received_count >= self._budget

    @property
    def is_exhausted(self) -> bool:
        """True if ``limit_to`` allows no more, or two polls found nothing, and all received
        messages were handed out."""
        with self._changed:
            is_over = self.is_spent or self.empty_polls >= _TARGET_POLLS
            return is_over and not self.ahead_rows

    def forget_polls(self) -> None:
        """Do not count empty polls up to now, nor those under way: the queue's content has
        changed."""
        with self._changed:
            self.empty_polls = 0
            self._polls_since += 1

    @property
    def ahead_rows(self) -> int:
        """Messages received for batches that Spark has not requested."""
        with self._changed:
            return sum(one.rows for one in self._sealed) + len(self._taken) + len(self._sealing)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    # Receiving

    def _run(self, number: int) -> None:
        pause = 0.1
        while self._wait_for_capacity(number):
            try:
                self._receive_once(number)
                pause, self.last_error = 0.1, None
            except NotNow as passing:
                # A restart of the gateway must not end a stream. AvailableNow has an end, and
                # fails.
                self.last_error = str(passing)
                _log.warning("receiving from %s: %s", self._options.place.name, passing)
                if self._budget is not None:
                    self._fail(passing)
                with self._changed:
                    self._changed.wait(pause)
                pause = min(2 * pause, _MOST_PAUSE_SECONDS)
            except Exception as broken:  # noqa: BLE001
                self._fail(broken)

    def _fail(self, broken: Exception) -> None:
        with self._changed:
            self._failure = broken
            self._is_stopped = True
            self._changed.notify_all()

    def _wait_for_capacity(self, number: int) -> bool:
        """Return True when this thread has something to do, False when it should end. One thread
        alone polls an idle queue; the others join while answers are full."""
        with self._changed:
            while not self._is_stopped:
                if number == 0 and self._is_stale():
                    return True
                if (number == 0 or self._is_busy) and self._has_capacity() and self._most():
                    return True
                self._changed.wait(self._options.receive_seconds)
            return False

    def _has_capacity(self) -> bool:
        options = self._options
        ahead = self.ahead_rows
        if self.is_full:
            return False
        if ahead < options.most_rows * options.prefetch_batches:
            return True
        return self._is_asked and ahead < options.most_rows

    def _is_stale(self) -> bool:
        """Return True if messages in memory should be written without waiting for capacity: only
        spooled messages are hidden longer, and a segment can be deleted only as long as its oldest
        message."""
        options = self._options
        least = max(options.receive_seconds, options.visibility_seconds * _STALE_SHARE)
        return bool(self._taken) and time.monotonic() - self._taken_since >= least

    def _most(self) -> int:
        """Return the number of messages to request: as many as one call allows or capacity remains,
        but at least 10; together no more than ``limit_to`` allows. 0: none now."""
        if self._asked_for >= _MOST_UNDER_WAY:
            return 0
        options = self._options
        ahead = max(options.prefetch_batches, 1) * options.most_rows
        rows = min(ahead - self.ahead_rows, self._in_flight_left) - self._asked_for
        if rows <= 0 and self._asked_for:
            # Requests under way fill it: further calls of ten would cost as much as large ones.
            return 0
        # Pending answers may be as large as the largest so far.
        fitting = max(0, options.most_bytes - self._taken_bytes) // self._largest
        capacity = min(rows, fitting - self._asked_for)
        most = min(self._transport.most_per_call, max(capacity, MOST_PER_CALL))
        if self._budget is None:
            return most
        return max(0, min(most, self._budget - self.received_count - self._asked_for))

    def _receive_once(self, number: int) -> None:
        options = self._options
        if number == 0 and self._is_stale():
            self._seal()
            return
        wait = 0
        if number == 0 and not self._is_busy:
            wait = options.longest_wait_seconds
            if self._budget is not None:
                wait = max(1, min(wait, _TARGET_WAIT_SECONDS))
            elif self._taken:
                wait = min(wait, 1)
        with self._changed:
            most = self._most()
            self._asked_for += most
            polls_since = self._polls_since
        if not most:
            return
        try:
            messages = self._fetch(most, wait)
        except BaseException:
            with self._changed:
                self._asked_for -= most
            raise
        if not self._take(messages, most):
            release_messages(self._transport, self._url, [one.receipt for one in messages])
            return
        with self._changed:
            if messages:
                self.empty_polls = 0
            elif number == 0 and wait >= 1 and polls_since == self._polls_since:
                self.empty_polls += 1

    def _fetch(self, most: int, wait_seconds: int) -> Sequence[FetchedMessage]:
        """Receive once. Nothing else of the answer outlives this call."""
        options = self._options
        asked_at = time.time()
        messages = self._transport.receive(
            self._url,
            most=most,
            visibility_seconds=options.visibility_seconds,
            wait_seconds=wait_seconds,
            # One id for every attempt: the queue repeats a lost answer.
            attempt_id=str(uuid.uuid4()) if options.place.is_fifo else None,
            wanted=options.wanted,
        )
        now = time.time()
        found = [received_of(one, now, asked_at) for one in messages]
        return packed(options.place.name, found, kept_columns(options.shape))

    def _take(self, messages: Sequence[FetchedMessage], most: int) -> bool:
        """Add messages to the buffer. Returns False after ``stop``."""
        known_receipts: list[str] = []
        with self._changed:
            self._asked_for -= most
            if self._is_stopped:
                return False
            # An answer to a request for more than ten may be short although there are more.
            self._is_busy = len(messages) >= min(most, MOST_PER_CALL)
            for message in messages:
                receipt = self._remember(message)
                if receipt is not None:
                    known_receipts.append(receipt)
            is_due = self._is_due()
            self._changed.notify_all()
        if known_receipts:
            self._deleter.delete_repeats(known_receipts)
        if is_due:
            self._seal()
        return True

    def _remember(self, received: FetchedMessage) -> str | None:
        """Add a message to the buffer; return its receipt if the spool has it already."""
        key = received.key
        if not self._options.dedupe:
            key += len(self._taken).to_bytes(8, "big") + self.received_count.to_bytes(8, "big")
        elif key not in self._taken:
            place = self._known.place_of(key)
            if place is not None or key in self._sealing:
                self.dropped_count += 1
                if self._options.is_in_memory or place is None:
                    self._deleter.renew(key, received.receipt, place)
                    return None
                return received.receipt
        if not self._taken:
            self._taken_since = time.monotonic()
        if key in self._taken:
            # Of two threads either may have the receipt that still deletes it.
            self._taken[key] = received._replace(older=self._taken[key].receipts)
            self.dropped_count += 1
            return None
        self._taken_bytes += received.body_bytes
        self._largest = max(self._largest, received.body_bytes)
        self._taken[key] = received
        self.received_count += 1
        return None

    def _is_due(self) -> bool:
        rows = len(self._taken)
        if not rows:
            return False
        options = self._options
        if self._is_eager and (not self._is_busy or rows >= _MOST_EAGER_ROWS):
            return True
        return (
            rows >= options.most_rows
            or self._taken_bytes >= options.most_bytes
            or self.is_spent
            or time.monotonic() - self._taken_since >= options.receive_seconds
        )

    # Sealing

    def _seal(self) -> None:
        """Write the buffer as a segment. Segments are written one after the other, in order."""
        with self._seal_lock:
            with self._changed:
                taken = {} if self._is_stopped else self._cut()
                self._sealing = taken
            if not taken:
                return
            written: list[SealedSegment] = []
            try:
                written.append(self._write(taken))
            finally:
                with self._changed:
                    # In one step, so that the rows are always in one of the two.
                    self._sealing = {}
                    self._sealed.extend(written)
                    self._changed.notify_all()

    def _cut(self) -> dict[bytes, FetchedMessage]:
        """Take the first messages of the buffer, within the limits of a batch."""
        options = self._options
        count = body_bytes = 0
        for received in islice(self._taken.values(), options.most_rows):
            body_bytes += received.body_bytes
            if count and body_bytes > options.most_bytes:
                break
            count += 1
        taken = dict(islice(self._taken.items(), count))
        for key in taken:
            del self._taken[key]
        self._taken_bytes = sum(one.body_bytes for one in self._taken.values())
        self._taken_since = time.monotonic()
        return taken

    def _write(self, taken: dict[bytes, FetchedMessage]) -> SealedSegment:
        options = self._options
        messages = list(taken.values())
        slots = options.slots
        if not options.keeps_order:
            slots = max(1, min(slots, len(messages) // _LEAST_ROWS_PER_SLOT))
        parts = slots_of(messages, slots, by_group=options.keeps_order)
        body_bytes = sum(one.body_bytes for one in messages)
        place = SegmentPlace(self.next_seq)
        since = min(one.asked_at for one in messages)
        safe_until = safe_from(since, options.visibility_seconds)
        kept = kept_columns(options.shape)
        data = encode(
            [stored_batch(options.place.name, part, kept) for part in parts],
            options.spool_compression,
            {
                SAFE_UNTIL: str(safe_until),
                **note_of(options.shape),
                **self._spool.note_of(place),
            },
        )
        self._release_memory()
        if not self._spool.put(place, data):
            raise SpoolTaken(
                f"segment {place} of the spool at {options.spool_path} was written by another "
                "query: only one at a time may use a checkpoint and its spool"
            )
        self.next_seq += 1
        self.spooled_bytes += len(data)
        self._known.add(place, list(taken))
        self._deleter.sealed(
            place,
            SegmentDelete(_receipts(taken), safe_until, since),
            at_once=options.delete_mode == "spool",
            size=len(data),
        )
        return SealedSegment(
            place.seq, len(messages), body_bytes, tuple(len(part) for part in parts)
        )

    def release(self) -> None:
        """Make the messages in memory visible again, and drop them."""
        taken, self._taken, self._taken_bytes = self._taken, {}, 0
        receipts = [receipt for one in taken.values() for receipt in one.older]
        receipts += [one.receipt for one in taken.values()]
        release_messages(self._transport, self._url, receipts)


def _receipts(messages: Mapping[bytes, FetchedMessage]) -> dict[bytes, str]:
    """Return all receipts by message key. Further ones of a message have a longer key."""
    found = {key: one.receipt for key, one in messages.items()}
    for key, one in messages.items():
        found.update((b"%s%d" % (key, n), old) for n, old in enumerate(one.older))
    return found
