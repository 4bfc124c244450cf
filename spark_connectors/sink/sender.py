"""Sending of rows: retries, dead letters, a rate limit, several requests at once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol

from spark_connectors.errors import ConnectorError, Fault, Refused
from spark_connectors.sink.packing import (
    Batching,
    Content,
    Destination,
    OutgoingRow,
    Packer,
    Request,
)

if TYPE_CHECKING:
    import pyarrow as pa


class SendRate:
    """A rate limit. Time with fewer messages is not made up for by a burst. ``None``: no limit. Not
    to be shared between threads."""

    def __init__(
        self,
        per_second: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._per_second = per_second
        self._clock = clock
        self._pause = pause
        self._next_at = 0.0

    def wait(self, count: int) -> None:
        """Return when so many may be sent: at once for the first, then at the end of the time of
        those before."""
        if self._per_second is None:
            return
        now = self._clock()
        if self._next_at > now:
            self._pause(self._next_at - now)
        self._next_at = max(now, self._next_at) + count / self._per_second


# Large rows: the window is full at this many bytes, however few rows that is.
MOST_WINDOW_BYTES = 32 << 20
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 20.0
# Few at a time: each may be a megabyte.
_FILL = 16

# For each entry of a request, in order: a Fault, or any other value for an accepted one.
Answers = Sequence[object]


class SendTarget(Protocol[Content]):
    """The target for the rows of a partition: queues, topics, or another service."""

    def pack(self, batch: pa.RecordBatch) -> Iterator[OutgoingRow[Content]]:
        """Yield the rows of a batch as they will be sent, checked and measured, in their order. A
        row that cannot be sent is replaced by the result of ``refused``."""
        ...

    def send(self, destination: Destination, entries: Sequence[Content]) -> Answers:
        """Send one request. Raises Refused for all of it, and NotNow."""
        ...

    def refused(self, row: OutgoingRow[Content], fault: Fault) -> OutgoingRow[Content]:
        """Return the dead letter of a row that is refused for good, or raise."""
        ...


class NotTaken(ConnectorError):
    """An entry had more transient failures than retries."""


class Pace(NamedTuple):
    """The pace of a sender.

    ``most_groups``: the number of FIFO groups that it remembers, 0 for none. ``is_routed``: rows
    name their destination, so a destination that refuses a request refuses only its own rows.
    """

    window: int
    max_retries: int
    most_per_second: int | None = None
    concurrency: int = 1
    most_groups: int = 0
    is_routed: bool = False


@dataclass
class SendTotals:
    """Counts of a sender. ``rows`` excludes dead letters, ``byte_count`` is as the service
    counts."""

    rows: int = 0
    byte_count: int = 0
    calls: int = 0
    retries: int = 0
    dead_letters: int = 0
    groups: set[tuple[str, str]] = field(default_factory=set)
    has_all_groups: bool = True


class Sender(Generic[Content]):
    """Sends the rows of one partition. Not to be shared between threads."""

    def __init__(
        self,
        target: SendTarget[Content],
        batching: Batching,
        pace: Pace,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.totals = SendTotals()
        self._target = target
        self._most_entries = batching.most_entries
        self._packer: Packer[Content] = Packer(batching)
        self._pace = pace
        self._clock = clock
        self._pause = pause
        self._limit = SendRate(pace.most_per_second, clock=clock, pause=pause)
        self._is_exhausted = False

    def send(self, rows: Iterator[OutgoingRow[Content]]) -> SendTotals:
        """Send all rows. Raises the target's errors, NotTaken, Refused and
        NotNow."""
        if self._pace.concurrency == 1:
            while request := self._next_request(rows, may_wait=True):
                self._settle(request, self._call(request))
            return self.totals
        with ThreadPoolExecutor(self._pace.concurrency) as pool:
            self._send_several(rows, pool)
        return self.totals

    def _send_several(self, rows: Iterator[OutgoingRow[Content]], pool: ThreadPoolExecutor) -> None:
        under_way: dict[Future[Answers], Request[Content]] = {}
        while True:
            request = self._next_request(rows, may_wait=not under_way)
            if request:
                under_way[pool.submit(self._call, request)] = request
            elif not under_way:
                return
            if not request or len(under_way) == self._pace.concurrency:
                done, _ = wait(under_way, return_when=FIRST_COMPLETED)
                for each in done:
                    self._settle(under_way.pop(each), each.result())

    def _next_request(
        self, rows: Iterator[OutgoingRow[Content]], *, may_wait: bool
    ) -> Request[Content]:
        """Return the next request; with ``may_wait``, after waiting for retries. Empty: nothing is
        left."""
        while True:
            self._fill(rows)
            request = self._packer.take(self._clock())
            if request:
                self._limit.wait(len(request))
                return request
            ready_at = self._packer.next_ready_at()
            if ready_at is None or not may_wait:
                return []
            self._pause(max(0.0, ready_at - self._clock()))

    def _fill(self, rows: Iterator[OutgoingRow[Content]]) -> None:
        """Fill the window once half of it is empty."""
        packer = self._packer
        if self._is_exhausted or packer.row_count > max(self._pace.window // 2, self._most_entries):
            return
        while packer.row_count < self._pace.window and packer.byte_count < MOST_WINDOW_BYTES:
            some = list(islice(rows, min(_FILL, self._pace.window - packer.row_count)))
            if not some:
                self._is_exhausted = True
                return
            packer.add(some)

    def _call(self, request: Request[Content]) -> Answers:
        destination = request[0].destination
        entries = [row.entry for row in request]
        try:
            return self._target.send(destination, entries)
        except Refused as no:
            if self._pace.is_routed and not request[0].is_dead_letter:
                return [Fault(no.code, no.message, is_senders=True)] * len(request)
            raise Refused(no.code, f"{no.message} (sending to {destination.address})") from None

    def _settle(self, request: Request[Content], answers: Answers) -> None:
        totals = self.totals
        totals.calls += 1
        failed: Request[Content] = []
        letters: Request[Content] = []
        for row, answer in zip(request, answers, strict=True):
            if not isinstance(answer, Fault):
                self._count(row)
            elif answer.is_senders:
                letters.append(self._target.refused(row, answer))
            else:
                self._put_off(row, answer)
                failed.append(row)
        self._packer.settle(request, failed)
        self._packer.add(letters)

    def _count(self, row: OutgoingRow[Content]) -> None:
        totals = self.totals
        if row.is_dead_letter:
            totals.dead_letters += 1
            return
        totals.rows += 1
        totals.byte_count += row.size
        if self._pace.most_groups and row.destination.is_fifo:
            if len(totals.groups) < self._pace.most_groups:
                totals.groups.add((row.destination.address, row.entry.group_id or ""))
            else:
                totals.has_all_groups = False

    def _put_off(self, row: OutgoingRow[Content], fault: Fault) -> None:
        if row.attempts >= self._pace.max_retries:
            raise NotTaken(
                f"row {row.position} of its partition failed {row.attempts + 1} times, the last "
                f"time with {fault.code}: {fault.message} (sending to {row.destination.address}; "
                "maxRetries says how often it is tried again)"
            )
        longest = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2**row.attempts)
        row.attempts += 1
        row.ready_at = self._clock() + random.uniform(0, longest)
        self.totals.retries += 1
