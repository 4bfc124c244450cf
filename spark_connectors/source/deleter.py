"""Deletes from the queue, beside the query: messages that Spark has committed or the spool holds.

A delete with an expired receipt is answered "Successful" and does nothing. So each segment records
when its ids may be dropped: at once if its messages were deleted well within their visibility
timeout, otherwise after the queue's retention period. Messages that wait long for Spark's commit
are hidden longer in time, so that their delete is certain.
"""

from __future__ import annotations

import functools
import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from spark_connectors.errors import ConnectorError, NotNow
from spark_connectors.message_rows import RECEIPT_COLUMN, message_key
from spark_connectors.source.queue_options import StreamOptions
from spark_connectors.spool import (
    Contents,
    DeletedSegment,
    KnownMessages,
    Segment,
    SegmentPlace,
    Spool,
)
from spark_connectors.stores import Missing
from spark_connectors.transport import Transport

_log = logging.getLogger(__name__)


def release_messages(transport: Transport, url: str, receipts: Sequence[str]) -> None:
    """Set the visibility timeout of these messages to zero. If that fails, the timeout ends by
    itself."""
    try:
        transport.change_visibility(url, receipts, 0)
    except ConnectorError as passing:
        _log.info("messages not released: %s", passing)


# Tolerated difference between the clocks of two machines.
_CLOCKS_SECONDS = 5
# The rest of the visibility timeout is for the duration of the last call.
_SAFE_SHARE = 0.9
# AWS may deliver a deleted message once more shortly after.
_AWS_SECONDS = 300
_ATTEMPTS = 5
# In the segment's own description: another process than the receiver may delete.
SAFE_UNTIL = "safe_until"
_MOST_PAUSE_SECONDS = 5.0
_LOOK_SECONDS = 0.5
_LONGER = 3
_LONGEST_SECONDS = 43_200 - 5


class SegmentDelete(NamedTuple):
    """Receipts of one segment by message key, and the time until which the queue certainly accepts
    them (epoch seconds; None: unknown). ``since``: none of the messages was received before (epoch
    seconds); None: they are not to be hidden any longer."""

    receipts: dict[bytes, str]
    safe_until: float | None
    since: float | None = None

    def hides_for(self, now: float) -> int:
        """Return for how many seconds from now these messages should be hidden; 0: no change.
        Hiding is due when half of the time is over, and possible before its end. Each time is
        nearly twice as long as the one before, so that calls are rare; the queue allows 12 hours
        since the receive (docs/contract/sqs.md, limits)."""
        if self.since is None or self.safe_until is None:
            return 0
        age, left = now - self.since, self.safe_until - now
        if not 0 < left < age:
            return 0
        seconds = min(math.ceil(_LONGER * age), int(_LONGEST_SECONDS - age))
        return seconds if safe_from(now, seconds) >= self.safe_until + left else 0


def safe_from(received_at: float, visibility_seconds: int) -> float:
    """Return the time until which a delete is certain, in epoch seconds."""
    return received_at + visibility_seconds * _SAFE_SHARE


class ForgetRule(NamedTuple):
    """The rule for how long ids are remembered after their delete."""

    retention_seconds: int
    window: float | None
    is_aws: bool

    def forget_at(self, safe_until: float | None, now: float, *, is_sure: bool) -> int:
        """Return the instant; in the past when a redelivery is impossible. ``is_sure``: every
        delete was confirmed."""
        if self.window is not None:
            return int(now + self.window) + 1
        extra = _AWS_SECONDS if self.is_aws else 0
        if is_sure and safe_until is not None and now < safe_until:
            return int(now) + extra
        return int(now) + self.retention_seconds + extra + 1


class Deleter:
    """Daemon threads that delete. Only ``flush`` waits for them."""

    def __init__(
        self,
        options: StreamOptions,
        transport: Transport,
        url: str,
        spool: Spool,
        known: KnownMessages,
        rule: ForgetRule,
    ) -> None:
        self._options = options
        self._transport = transport
        self._url = url
        self._spool = spool
        self._known = known
        self._rule = rule
        self._retained = 0 if options.is_in_memory else options.spool_retention_batches
        self._sizes: dict[SegmentPlace, int] = {}
        self._work: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._waiting: dict[SegmentPlace, SegmentDelete] = {}
        self._under_way: dict[SegmentPlace, int] = {}
        self._done: dict[SegmentPlace, DeletedSegment] = {}
        self._ids: dict[SegmentPlace, DeletedSegment] = {}
        self._inherited: set[SegmentPlace] = set()
        self._renewed: dict[bytes, str] = {}
        self._acknowledged = 0
        self._unfinished = 0
        self._failure: Exception | None = None
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self.pending_rows = 0
        self.last_error: str | None = None

    def start(self, contents: Contents) -> None:
        """Start the threads; ``contents``: the spool as earlier processes left it."""
        present = set(contents.segments)
        self._acknowledged = contents.acknowledged
        self._done.update(contents.done)
        self._ids.update(contents.ids)
        self._sizes.update(contents.sizes)
        self._inherited = present - contents.done.keys()
        self._spool.remove_orphans(contents.orphans)
        with self._changed:
            self._put_sweep(contents.acknowledged)
        for number in range(self._options.receive_threads):
            threading.Thread(target=self._run, name=f"delete-{number}", daemon=True).start()
        if self._options.delete_mode == "commit":
            threading.Thread(target=self._hide_waiting, name="hide", daemon=True).start()

    def stop(self) -> None:
        """Stop hiding messages: the query has ended, and the next one reads its receipts."""
        self._stopped.set()

    # Work

    def sealed(
        self, place: SegmentPlace, delete: SegmentDelete, *, at_once: bool, size: int
    ) -> None:
        """Register a segment that is in the spool; its messages are deleted when it is
        acknowledged, or at once. ``size``: its bytes."""
        with self._changed:
            self._sizes[place] = size
            self.pending_rows += len(delete.receipts)
            for key in delete.receipts.keys() & self._renewed.keys():
                delete.receipts[key] = self._renewed.pop(key)
            self._waiting[place] = delete
            if at_once:
                self._begin(place)

    def acknowledge(self, seq: int) -> None:
        """Register that Spark has committed everything up to this segment. Idempotent."""
        with self._changed:
            for place in [one for one in self._waiting if one.seq <= seq]:
                self._begin(place)
            if seq <= self._acknowledged:
                return
            self._acknowledged = seq
            self._put(lambda: self._spool.acknowledge(seq))
            self._put_sweep(seq)

    def delete_repeats(self, receipts: Sequence[str]) -> None:
        """Remove messages from the queue that were delivered again although the spool has them."""
        with self._changed:
            self._put(lambda: self._call(receipts))

    def renew(self, key: bytes, receipt: str, place: SegmentPlace | None) -> None:
        """Use this receipt to delete a message that was delivered again before it may be deleted.
        ``place`` None: its segment is being written."""
        with self._changed:
            if place is None:
                self._renewed[key] = receipt
            elif place in self._waiting:
                self._waiting[place].receipts[key] = receipt
            else:
                self._put(lambda: self._call([receipt]))

    def flush(self, seconds: float) -> bool:
        """Wait until nothing is left to do. Returns False after a timeout."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while self._unfinished:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
        return True

    def raise_failure(self) -> None:
        """Raise the error that ended a deleting thread, if there is one."""
        if self._failure is not None:
            raise self._failure

    # Under the lock

    def _put(self, work: Callable[[], object]) -> None:
        self._unfinished += 1
        self._work.put(work)

    def _begin(self, place: SegmentPlace) -> None:
        delete = self._waiting.pop(place)
        self._under_way[place] = len(delete.receipts)
        self._put_calls(
            delete,
            lambda receipts, _: self._call(receipts),
            lambda is_sure: self._finish(place, delete, is_sure),
        )

    def _put_calls(
        self,
        delete: SegmentDelete,
        call: Callable[[Sequence[str], bool], bool],
        end: Callable[[bool], None],
    ) -> None:
        """Put the calls for one segment, and ``end`` after the last of them. A call returns True
        if none of its messages can come again; both receive True if that holds for all before."""
        receipts, most = list(delete.receipts.values()), self._transport.most_per_call
        parts = [receipts[at : at + most] for at in range(0, len(receipts), most)]
        left, are_sure = len(parts), True

        def run(part: Sequence[str]) -> None:
            nonlocal left, are_sure
            is_sure = call(part, are_sure)
            with self._changed:
                left -= 1
                are_sure = are_sure and is_sure
                is_last = left == 0
            if is_last:
                end(are_sure)

        for part in parts:
            self._put(functools.partial(run, part))
        if not parts:
            self._put(lambda: end(True))

    def _hide(self, place: SegmentPlace, now: float, seconds: int) -> None:
        """Hide a segment's messages from others for that many seconds."""
        delete = self._waiting[place]
        # Not tried again after a failure: its ids will be remembered.
        self._waiting[place] = delete._replace(since=None)
        longer = delete._replace(safe_until=safe_from(now, seconds))

        def end(is_sure: bool) -> None:
            with self._changed:
                if is_sure and place in self._waiting:
                    self._waiting[place] = longer

        self._put_calls(
            delete,
            lambda part, is_sure: is_sure and self._is_hidden(place, delete, part, seconds),
            end,
        )

    def _put_sweep(self, seq: int) -> None:
        if any(place.seq <= seq for place in self._inherited):
            self._put(lambda: self._sweep(seq))

    # On the threads

    def _run(self) -> None:
        while True:
            work = self._work.get()
            try:
                work()
            except Exception as broken:  # noqa: BLE001
                # The next call of the reader raises it: a query must not go on without deletes.
                self._failure = broken
                _log.error("deleting from %s: %s", self._options.place.name, broken)
            finally:
                with self._changed:
                    self._unfinished -= 1
                    self._changed.notify_all()

    def _hide_waiting(self) -> None:
        """Hide messages longer while Spark has not committed them, until the reader is stopped."""
        pause_seconds = min(_LOOK_SECONDS, self._options.visibility_seconds / 10)
        while not self._stopped.wait(pause_seconds):
            with self._changed:
                now = time.time()
                for place, delete in list(self._waiting.items()):
                    if seconds := delete.hides_for(now):
                        self._hide(place, now, seconds)

    def _is_hidden(
        self, place: SegmentPlace, delete: SegmentDelete, receipts: Sequence[str], seconds: int
    ) -> bool:
        """Hide some messages. Returns False when they may be delivered again earlier."""
        if place not in self._waiting or self._stopped.is_set():
            return False
        try:
            faults = self._transport.change_visibility(self._url, receipts, seconds)
        except ConnectorError as refused:
            _log.warning("hiding messages of %s longer: %s", self._options.place.name, refused)
            return False
        # After that time the message may have been visible, and received by another consumer.
        return not any(faults) and time.time() < (delete.safe_until or 0)

    def _call(self, receipts: Sequence[str]) -> bool:
        """Delete messages. Returns False when one of them may be delivered again."""
        pause, is_sure = 0.1, True
        for attempt in range(_ATTEMPTS):
            try:
                faults = self._transport.delete(self._url, receipts)
            except NotNow as passing:
                self.last_error = str(passing)
                _log.warning("deleting from %s: %s", self._options.place.name, passing)
                faults = None
            if faults is not None:
                failed = [one for one in zip(receipts, faults, strict=True) if one[1] is not None]
                # An expired receipt of a FIFO queue, or an unknown one: a retry would not help.
                again = [receipt for receipt, fault in failed if fault and not fault.is_senders]
                is_sure = is_sure and len(again) == len(failed)
                if not again:
                    return is_sure
                receipts = again
            if attempt + 1 < _ATTEMPTS:
                with self._changed:
                    self._changed.wait_for(lambda: False, pause)
                pause = min(2 * pause, _MOST_PAUSE_SECONDS)
        return False

    def _finish(self, place: SegmentPlace, delete: SegmentDelete, is_sure: bool) -> None:
        now = time.time()
        forget_at = self._rule.forget_at(delete.safe_until, now, is_sure=is_sure)
        kept = DeletedSegment(place, forget_at, len(delete.receipts))
        self._spool.mark_done(kept)
        with self._changed:
            self._done[place] = kept
            self.pending_rows -= self._under_way.pop(place)
        self._tidy(now)

    def _sweep(self, seq: int) -> None:
        """Process segments that an earlier driver spooled without deleting their messages."""
        with self._changed:
            places = sorted(self._inherited, key=lambda place: place.order)
        for place in places:
            with self._changed:
                if place.seq > seq or place not in self._inherited:
                    continue
                self._under_way[place] = 0
                self._inherited.discard(place)
            try:
                delete = delete_of(self._spool.read(place))
            except Missing:
                delete = SegmentDelete({}, None)
            with self._changed:
                self.pending_rows += len(delete.receipts)
                self._waiting[place] = delete
                self._begin(place)
        self._tidy(time.time())

    def _tidy(self, now: float) -> None:
        """Drop expired ids, and segments that no query will read again."""
        with self._changed:
            horizon = self._horizon()
            due = [
                kept
                for kept in (*self._done.values(), *self._ids.values())
                if kept.forget_at <= now
            ]
            gone = [kept for place, kept in self._done.items() if place.seq <= horizon]
            for kept in gone:
                del self._done[kept.place]
                self._sizes.pop(kept.place, None)
            expired = [kept for kept in self._ids.values() if kept.forget_at <= now]
            for kept in expired:
                del self._ids[kept.place]
            self._ids.update((kept.place, kept) for kept in gone if kept.forget_at > now)
        if gone:
            self._spool.mark_dropped(max(kept.place.seq for kept in gone))
        for kept in gone:
            self._spool.drop(kept, self._known.keys_of(kept.place), now)
        for kept in expired:
            self._spool.forget(kept)
        for kept in due:
            self._known.forget(kept.place)

    def _horizon(self) -> int:
        """Return the last batch whose segments are dropped. Retained segments come after it, and so
        do unfinished ones: an unfinished segment before a dropped one counts as an orphan."""
        undone = (*self._waiting, *self._under_way, *self._inherited)
        retained = max(self._acknowledged - self._retained, self._too_large())
        return min([retained, *(place.seq - 1 for place in undone)])

    def _too_large(self) -> int:
        """Return the newest committed batch that exceeds the size limit together with those after
        it."""
        left = self._options.spool_retention_bytes
        for place in sorted(self._sizes, key=lambda place: place.seq, reverse=True):
            if place.seq <= self._acknowledged:
                left -= self._sizes[place]
                if left < 0:
                    return place.seq
        return 0


def delete_of(segment: Segment) -> SegmentDelete:
    """Return the receipts of a segment, and how long they are certain."""
    safe_until = segment.metadata.get(SAFE_UNTIL)
    receipts = zip(
        map(message_key, segment.message_ids()), segment.texts(RECEIPT_COLUMN), strict=True
    )
    return SegmentDelete(
        dict(receipts), None if safe_until is None else float(safe_until) - _CLOCKS_SECONDS
    )
