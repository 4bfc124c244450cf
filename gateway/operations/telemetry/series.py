"""The counts of this process: plain numbers on the hot path, converted to Prometheus only when
scraped.

An increment of a Prometheus child takes a lock and about 1 µs; an attribute takes 30 ns.
``gateway/metrics/scraping.py`` renders them.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING

from queuegate.gateway.operations.runtime.traffic import Traffic
from queuegate.gateway.operations.telemetry.bounded_series import (
    BoundedSeries,
    GroupNumbers,
    TopicNumbers,
)

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.storage.queue_model import Queue, Received
    from queuegate.storage.topics.web_hook_deliveries import Source

DATABASE_SECONDS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
HTTP_SECONDS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
AGE_SECONDS = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
ATTEMPT_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
LATE_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
FLUSH_ENTRIES = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0)

MOST_QUEUES = 1_000
"""Queues with series of their own; all later queues have the labels _other."""
MOST_TIMED_QUEUES = 50
"""Of these, queues with histograms of their own, which are as long as the other series of ten
queues."""
NO_QUEUE, OTHER_QUEUES = 0, -1
"""In place of a queue's number: there is no queue, or it has the labels _other."""
MOST_TOPICS = 1_000
"""Topics with series of their own."""
MOST_GROUPS = 1_000
"""Consumer groups with series of their own."""
MOST_KEYS = 1_000
"""Keys with series of their own."""


class Histogram:
    """Counts per bucket, not cumulative. The last bucket is above all bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def observe_all(self, values: list[float]) -> None:
        """Count values, which are often in one bucket."""
        if not values:
            return
        low, high = bisect_left(self.bounds, min(values)), bisect_left(self.bounds, max(values))
        if low == high:
            self.counts[low] += len(values)
        else:
            for value in values:
                self.counts[bisect_left(self.bounds, value)] += 1
        self.total += sum(values)


@dataclass(slots=True, eq=False)
class QueueSeries:
    """The counts of one queue."""

    account_id: str
    region: str
    name: str
    sent: int = 0
    received: int = 0
    redelivered: int = 0
    deleted: int = 0
    was_full: int = 0
    buried: int = 0
    used: int = 0
    """Number of sends, receives and deletes, including empty and refused ones."""
    is_timed: bool = True
    """False: the histograms are shared with other queues."""
    send_seconds: Histogram = field(default_factory=lambda: Histogram(DATABASE_SECONDS))
    receive_seconds: Histogram = field(default_factory=lambda: Histogram(DATABASE_SECONDS))
    delete_seconds: Histogram = field(default_factory=lambda: Histogram(DATABASE_SECONDS))
    age_seconds: Histogram = field(default_factory=lambda: Histogram(AGE_SECONDS))

    def labels(self) -> tuple[str, str, str]:
        """Return the labels: account, region and name."""
        return self.account_id, self.region, self.name

    def sharing_times(self, other: QueueSeries) -> QueueSeries:
        """Share the histograms of another queue, and return this series."""
        self.is_timed = False
        self.send_seconds, self.receive_seconds = other.send_seconds, other.receive_seconds
        self.delete_seconds, self.age_seconds = other.delete_seconds, other.age_seconds
        return self


class DeliverySeries:
    """Deliveries to web hooks, in total and by topic."""

    __slots__ = ("_topics", "attempts", "exhausted_count", "lost_count")

    def __init__(self, topics: TopicNumbers) -> None:
        self._topics = topics
        self.attempts = {
            "success": Histogram(ATTEMPT_SECONDS),
            "failure": Histogram(ATTEMPT_SECONDS),
        }
        self.exhausted_count = 0
        self.lost_count = 0

    def attempted(self, source: Source, seconds: float, *, succeeded: bool) -> None:
        """Count one request."""
        self.attempts["success" if succeeded else "failure"].observe(seconds)
        series = self._topics.of_delivery(*source)
        if succeeded:
            series.attempts_succeeded += 1
        else:
            series.attempts_failed += 1

    def exhausted(self, source: Source, count: int) -> None:
        """Count deliveries that failed in all attempts."""
        self.exhausted_count += count
        self._topics.of_delivery(*source).deliveries_exhausted += count

    def lost(self, count: int) -> None:
        """Count leases that expired or were interrupted: their requests may be repeated."""
        self.lost_count += count


@dataclass(slots=True, eq=False)
class ScheduleSeries:
    """Invocations of schedules."""

    fired_count: int = 0
    failed_count: int = 0
    paused_count: int = 0
    late_seconds: Histogram = field(default_factory=lambda: Histogram(LATE_SECONDS))

    def fired(self, count: int) -> None:
        """Count invocations."""
        self.fired_count += count

    def failed(self, count: int) -> None:
        """Count failed attempts."""
        self.failed_count += count

    def late(self, seconds: float) -> None:
        """Note the delay of an invocation."""
        self.late_seconds.observe(max(seconds, 0.0))

    def paused(self, count: int) -> None:
        """Count schedules that were paused after too many failures."""
        self.paused_count += count


@dataclass(slots=True, eq=False)
class ClockSeries:
    """The clock of the database."""

    behind_seconds: float = 0.0
    step_count: int = 0
    forward_count: int = 0

    def stands_behind(self, seconds: float) -> None:
        """Note the seconds that the clock is behind an earlier reading; 0: it is not."""
        self.behind_seconds = seconds

    def stepped_back(self) -> None:
        """Count a step backwards."""
        self.step_count += 1

    def stepped_forward(self) -> None:
        """It was found ahead of the time that passed."""
        self.forward_count += 1


@dataclass(slots=True, eq=False)
class PushSeries:
    """Consumers of channels."""

    open_counts: dict[str, int] = field(default_factory=lambda: {"sse": 0, "websocket": 0})
    """By transport."""
    pushed_count: int = 0
    """Messages."""
    dropped_count: int = 0
    """Consumers that were disconnected because they did not read."""


class Series:
    """All counts of this process.

    ``timestamp`` returns the present in seconds since the epoch, by the clock of messages.
    """

    def __init__(self, timestamp: Callable[[], float] = time.time) -> None:
        self._timestamp = timestamp
        self.queues: dict[int, QueueSeries] = {}
        self.other = QueueSeries("_other", "_other", "_other")
        self.flushes: dict[str, Histogram] = {}
        self.topics = TopicNumbers(MOST_TOPICS)
        self.groups = GroupNumbers(MOST_GROUPS)
        self.deliveries = DeliverySeries(self.topics)
        self.schedules = ScheduleSeries()
        self.clock = ClockSeries()
        self.push = PushSeries()
        self.requests: dict[tuple[str, str, str, int], int] = {}
        """(method, path, action or "", status) -> requests."""
        self.request_seconds: dict[tuple[str, str, str], Histogram] = {}
        self.throttled_requests: dict[tuple[str, str], int] = {}
        """(account, name of the key; empty: no key) -> requests above the limit."""
        self.quota_refusals: dict[tuple[str, str], int] = {}
        """(account, limited resource) -> requests above a quota."""
        self.tries: dict[tuple[int, str, str], int] = {}
        """(number of a queue, operation, outcome) -> requests to the simple face."""
        self.active_requests = 0
        self.traffic = Traffic()
        self.on_answer: Callable[[Caller | None, int], None] | None = None
        """Called with the size of each answer if bytes have quotas."""
        self._used_before: dict[int, int] = {}
        self._timed_count = 0

    def _of(self, queue: Queue) -> QueueSeries:
        series = self.queues.get(queue.queue_id)
        if series is None:
            if len(self.queues) >= MOST_QUEUES:
                return self.other
            series = self.queues[queue.queue_id] = QueueSeries(
                queue.account_id, queue.region, queue.name
            )
            if self._timed_count < MOST_TIMED_QUEUES:
                self._timed_count += 1
            else:
                series.sharing_times(self.other)
        return series

    def copy(self) -> Series:
        """Return a copy, for a thread to iterate over while series are added here."""
        same = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict | BoundedSeries):
                setattr(same, name, value.copy())
        return same

    def forget(self, queue_id: int) -> None:
        """Remove the series of a deleted queue."""
        series = self.queues.pop(queue_id, None)
        self._timed_count -= series is not None and series.is_timed
        self.tries = {key: number for key, number in self.tries.items() if key[0] != queue_id}

    def unused_queues(self) -> list[int]:
        """Return queues without new counts since the last call; some may have been deleted."""
        uses = {queue_id: series.used for queue_id, series in self.queues.items()}
        before, self._used_before = self._used_before, uses
        return [queue_id for queue_id, number in uses.items() if before.get(queue_id) == number]

    def shown_queues(self) -> list[QueueSeries]:
        """Return every queue with series of its own, and the common one if it has counts."""
        return [*self.queues.values(), *([self.other] if self.other.used else [])]

    def timed_queues(self) -> list[QueueSeries]:
        """Return every queue with histograms of its own, and the common one."""
        return [*[one for one in self.queues.values() if one.is_timed], self.other]

    def sent(self, queue: Queue, count: int, started: float) -> None:
        """Count ``count`` messages of a send that started at ``perf_counter()``."""
        series = self._of(queue)
        series.used += 1
        series.sent += count
        series.send_seconds.observe(perf_counter() - started)

    def was_full(self, queue: Queue, count: int) -> None:
        """Count ``count`` messages that were refused because the queue was full."""
        series = self._of(queue)
        series.used += 1
        series.was_full += count

    def copied(self, queue: Queue, count: int) -> None:
        """Count ``count`` copies of topics' messages in the queue."""
        self._of(queue).sent += count

    def received(self, queue: Queue, messages: list[Received], seconds: float) -> None:
        """Count received messages; ``seconds`` is the duration of the last lookup."""
        series = self._of(queue)
        series.used += 1
        series.received += len(messages)
        series.receive_seconds.observe(seconds)
        now_ms = self._timestamp() * 1000
        ages = [
            max(now_ms - message.sent_at_ms, 0.0) / 1000
            for message in messages
            if message.receive_count == 1
        ]
        series.redelivered += len(messages) - len(ages)
        series.age_seconds.observe_all(ages)

    def deleted(self, queue: Queue, count: int, started: float) -> None:
        """Count ``count`` deleted messages."""
        series = self._of(queue)
        series.used += 1
        series.deleted += count
        series.delete_seconds.observe(perf_counter() - started)

    def buried(self, queue: Queue, count: int) -> None:
        """Count ``count`` messages that were moved to the dead-letter queue."""
        self._of(queue).buried += count

    def tried(self, queue: Queue | None, operation: str, outcome: str) -> None:
        """Count a request to the simple face; None: the queue does not exist."""
        queue_id = NO_QUEUE
        if queue is not None:
            queue_id = OTHER_QUEUES if self._of(queue) is self.other else queue.queue_id
        key = (queue_id, operation, outcome)
        self.tries[key] = self.tries.get(key, 0) + 1

    def shown_tries(self) -> list[tuple[str, tuple[str, str, str], str, int]]:
        """Return (operation, account, region and name of the queue, outcome, requests)."""
        return [
            (operation, self._labels_of(queue_id), outcome, number)
            for (queue_id, operation, outcome), number in self.tries.items()
        ]

    def _labels_of(self, queue_id: int) -> tuple[str, str, str]:
        if queue_id == NO_QUEUE:
            return ("_unknown", "_unknown", "_unknown")
        return self.queues.get(queue_id, self.other).labels()

    def answered(self, method: str, path: str, action: str, status: int, started: float) -> None:
        """Count an HTTP request."""
        key = (method, path, action, status)
        self.requests[key] = self.requests.get(key, 0) + 1
        name = (method, path, action)
        histogram = self.request_seconds.get(name)
        if histogram is None:
            histogram = self.request_seconds[name] = Histogram(HTTP_SECONDS)
        histogram.observe(perf_counter() - started)

    def throttled(self, account_id: str, key_name: str) -> None:
        """Count a request above the rate limit of its key, or of requests without one."""
        key = (account_id, key_name)
        if key not in self.throttled_requests and len(self.throttled_requests) >= MOST_KEYS:
            key = ("_other", "_other")
        self.throttled_requests[key] = self.throttled_requests.get(key, 0) + 1

    def over_quota(self, account_id: str, quota: str) -> None:
        """Count a request above a quota of the account or of one of its keys."""
        key = (account_id, quota)
        if key not in self.quota_refusals and len(self.quota_refusals) >= MOST_KEYS:
            key = ("_other", quota)
        self.quota_refusals[key] = self.quota_refusals.get(key, 0) + 1

    def flush_observer(self, lane: str) -> Histogram:
        """Return the histogram of entries per flush of a lane."""
        return self.flushes.setdefault(lane, Histogram(FLUSH_ENTRIES))
