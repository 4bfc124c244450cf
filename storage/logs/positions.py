"""The position of a group in one partition: pure functions of values.

A position gives the state of every offset for the group. Up to the watermark all are done, and
after the head none was ever delivered. Between the two are spans, without a gap: runs of offsets
with the same state. A delivered batch is one span; acked as a whole, it disappears.

Times are milliseconds. Nothing here reads a clock or the database: callers pass ``now`` and the
offsets that have a record. The code that stores a position must ensure that it has not changed
meanwhile.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from queuegate.storage.model import GroupDeliveryPolicy, ReceiptAction, RecordOutcome

WINDOW: Final = 10_000
"""Limit of the head ahead of the watermark."""
MOST_SPANS: Final = 1_000
"""Limit of spans for new deliveries: each fetch and each ack reads and writes all of them."""

_DONE: Final = -1
_WAITING: Final = 0
_WORDS: Final = 4
"""Numbers of a stored span: its length, and three shared by its offsets."""


class Span(NamedTuple):
    """Offsets with the same state."""

    first: int
    last: int
    visible_at: int
    attempts: int
    """Deliveries since the last postponement; 0 if done."""
    number: int
    """The delivery with valid receipts; or a marker for waiting or done."""

    @property
    def is_done(self) -> bool:
        """Return True if the group has finished these offsets."""
        return self.number == _DONE


class Due(NamedTuple):
    """Offsets that may be delivered, if there are records."""

    first: int
    last: int
    attempts: int
    """The number of earlier attempts."""
    is_spent: bool
    """No attempt is left: these records are dead letters."""

    @property
    def length(self) -> int:
        """Return the number of offsets."""
        return self.last - self.first + 1


class Spent(NamedTuple):
    """A record that has become a dead letter."""

    offset: int
    attempts: int


class Position:
    """The position of one group in one partition."""

    __slots__ = ("barrier_until", "deliveries", "head", "spans", "watermark")

    def __init__(
        self,
        watermark: int = -1,
        head: int = -1,
        deliveries: int = 0,
        barrier_until: int = 0,
        stored: Sequence[int] = (),
    ) -> None:
        self.watermark = watermark
        self.head = head
        self.deliveries = deliveries
        """The number of the last fetch that delivered; numbers are never reused."""
        self.barrier_until = barrier_until
        self.spans = _decoded(watermark + 1, stored) if stored else []

    def stored(self) -> list[int]:
        """Return the spans as integers: the time when the first becomes visible, and four for
        each."""
        if not self.spans:
            return []
        numbers = [min(span.visible_at for span in self.spans if not span.is_done)]
        for span in self.spans:
            numbers += (span.last - span.first + 1, *span[2:])
        return numbers

    # Looking

    def in_flight(self, now: int) -> int:
        """Return the number of records in flight and hidden."""
        return sum(
            span.last - span.first + 1
            for span in self.spans
            if span.number > _WAITING and span.visible_at > now
        )

    def next_due(self, now: int, policy: GroupDeliveryPolicy, *, end: int) -> int | None:
        """Return the time of the next delivery if nothing happens until then, ``now`` or later.
        None: never, without new records or acks."""
        if now < self.barrier_until:
            return self.barrier_until
        if self.due(now, policy, end=end, most=1):
            return now
        times = [one.visible_at for one in self.spans if not one.is_done and one.visible_at > now]
        return min(times, default=None)

    def due(self, now: int, policy: GroupDeliveryPolicy, *, end: int, most: int) -> list[Due]:
        """Return the offsets that a fetch of at most ``most`` records may get.

        ``end`` is the next offset of the partition. Spent offsets do not use up ``most``, but also
        come in steps.
        """
        found: list[Due] = []
        if now < self.barrier_until:
            return found
        room = min(most, policy.batch_size - self.in_flight(now))
        steps = policy.batch_size
        for span in self.spans:
            if span.is_done or span.visible_at > now:
                continue
            is_spent = span.attempts >= policy.max_attempts
            left = steps if is_spent else room
            if left <= 0:
                continue
            due = Due(span.first, min(span.last, span.first + left - 1), span.attempts, is_spent)
            found.append(due)
            if is_spent:
                steps -= due.length
            else:
                room -= due.length
        if len(self.spans) >= MOST_SPANS:
            return found
        last = min(end - 1, self.watermark + WINDOW, self.head + room)
        if last > self.head:
            found.append(Due(self.head + 1, last, 0, is_spent=False))
        return found

    # Changing

    def deliver(
        self, now: int, policy: GroupDeliveryPolicy, dues: Iterable[Due], present: Collection[int]
    ) -> list[Spent]:
        """Deliver the offsets of ``due`` that are ``present``; the number is ``deliveries``.

        An absent offset has no record for this group and becomes done. Spent offsets become done,
        too; their records are returned, to be written as dead letters.
        """
        self.deliveries += 1
        out = now + policy.visibility_ms
        spent: list[Spent] = []
        for due in dues:
            if due.first > self.head:
                self.spans.append(Span(due.first, due.last, 0, 0, _WAITING))
                self.head = due.last
            for first, last, is_there in _runs(due, present):
                if is_there and not due.is_spent:
                    self._put(Span(first, last, out, due.attempts + 1, self.deliveries))
                    continue
                if is_there:
                    spent += [Spent(one, due.attempts) for one in range(first, last + 1)]
                self._put(Span(first, last, 0, 0, _DONE))
        self._advance()
        return spent

    def settle(
        self,
        now: int,
        policy: GroupDeliveryPolicy,
        receipt: tuple[int, int],
        do: ReceiptAction,
        delay_ms: int | None = None,
    ) -> RecordOutcome:
        """Apply an operation to the record of a receipt: its offset and delivery number.

        ``delay_ms`` is the delay of a nack (None: by policy) or postponement, or the visibility
        extension from now.
        """
        offset, number = receipt
        span = self._at(offset)
        if span is None or span.is_done:
            return self._settled_before(offset, do)
        if span.number != number or number <= _WAITING:
            return RecordOutcome.SUPERSEDED
        delay = delay_ms or 0
        if do is ReceiptAction.EXTEND:
            self._put(Span(offset, offset, now + delay, span.attempts, number))
        elif do is ReceiptAction.POSTPONE:
            self.barrier_until = max(self.barrier_until, now + delay)
            self._put(Span(offset, offset, now + delay, 0, _WAITING))
        elif do is ReceiptAction.RELEASE:
            self._put(Span(offset, offset, now, span.attempts - 1, _WAITING))
        elif do is ReceiptAction.NACK and span.attempts < policy.max_attempts:
            if delay_ms is None:
                delay = policy.delay_ms(span.attempts)
            self._put(Span(offset, offset, now + delay, span.attempts, _WAITING))
        else:
            self._put(Span(offset, offset, 0, 0, _DONE))
            self._advance()
            return RecordOutcome.DONE if do is ReceiptAction.ACK else RecordOutcome.DEAD
        return RecordOutcome.DONE

    def ack(self, offset: int, number: int, most: int) -> int:
        """Ack at most ``most`` records from this offset on with that delivery number and an equal
        state; return the count."""
        span = self._at(offset)
        if span is None or span.number != number or number <= _WAITING:
            return 0
        last = min(span.last, offset + most - 1)
        self._put(Span(offset, last, 0, 0, _DONE))
        self._advance()
        return last - offset + 1

    def attempts(self, offset: int) -> int:
        """Return the deliveries of the offset; 0 if it is done or was never delivered."""
        span = self._at(offset)
        return 0 if span is None else span.attempts

    def is_done(self, offset: int) -> bool:
        """Return True if the group has finished the offset."""
        span = self._at(offset)
        return offset <= self.watermark or (span is not None and span.is_done)

    def seek(self, offset: int) -> None:
        """Continue at this offset and invalidate all receipts."""
        self.watermark = self.head = offset - 1
        self.spans = []
        self.barrier_until = 0

    def pass_over(self, start: int) -> int:
        """Skip offsets below ``start``, which have no records; return their number."""
        passed = max(start - 1 - self.watermark, 0)
        if passed:
            self.watermark = start - 1
            self.head = max(self.head, self.watermark)
            self.spans = [
                span._replace(first=max(span.first, start))
                for span in self.spans
                if span.last >= start
            ]
            self._advance()
        return passed

    def give_back(self, now: int, since: int) -> int:
        """Make records delivered since then visible, and undo the attempt; return the count."""
        count = 0
        for span in list(self.spans):
            if span.number > since and span.visible_at > now:
                count += span.last - span.first + 1
                self._put(
                    span._replace(visible_at=now, attempts=span.attempts - 1, number=_WAITING)
                )
        return count

    # Spans

    def _index(self, offset: int) -> int:
        """Return the index of the offset's span, if there is one."""
        spans = self.spans
        if spans and offset <= spans[0].last:
            return 0
        return bisect_left(spans, offset, key=_last)

    def _at(self, offset: int) -> Span | None:
        if not self.watermark < offset <= self.head:
            return None
        return self.spans[self._index(offset)]

    def _settled_before(self, offset: int, do: ReceiptAction) -> RecordOutcome:
        if offset > self.head:
            return RecordOutcome.SUPERSEDED
        return RecordOutcome.DONE if do is ReceiptAction.ACK else RecordOutcome.GONE

    def _put(self, new: Span) -> None:
        """Set the state of offsets within one span, and merge neighbours of equal state."""
        spans = self.spans
        index = self._index(new.first)
        old = spans[index]
        low, high = index, index + 1
        pieces: list[Span] = []
        if old.first < new.first:
            pieces.append(old._replace(last=new.first - 1))
        elif low and spans[low - 1][2:] == new[2:]:
            low -= 1
            new = new._replace(first=spans[low].first)
        rest: Span | None = None
        if new.last < old.last:
            rest = old._replace(first=new.last + 1)
        elif high < len(spans) and spans[high][2:] == new[2:]:
            new = new._replace(last=spans[high].last)
            high += 1
        pieces.append(new)
        if rest is not None:
            pieces.append(rest)
        spans[low:high] = pieces

    def _advance(self) -> None:
        """Advance the watermark past done offsets."""
        spans = self.spans
        while spans and spans[0].is_done:
            self.watermark = spans.pop(0).last


def _last(span: Span) -> int:
    return span.last


def _decoded(first: int, stored: Sequence[int]) -> list[Span]:
    firsts = list(accumulate(stored[1::_WORDS], initial=first))
    lasts = [one - 1 for one in firsts[1:]]
    return list(map(Span, firsts, lasts, stored[2::_WORDS], stored[3::_WORDS], stored[4::_WORDS]))


def _runs(due: Due, present: Collection[int]) -> Iterator[tuple[int, int, bool]]:
    """Yield the offsets in runs: first, last, whether there are records."""
    first = due.first
    is_there = first in present
    for offset in range(due.first + 1, due.last + 1):
        if (offset in present) is not is_there:
            yield first, offset - 1, is_there
            first, is_there = offset, not is_there
    yield first, due.last, is_there
