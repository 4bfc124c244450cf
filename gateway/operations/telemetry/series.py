"""The counts of this process: plain numbers on the hot path, converted to Prometheus only when
scraped; rates of channels, from totals of the database.

An increment of a Prometheus child takes a lock and about 1 µs; an attribute takes 30 ns.
``gateway/metrics/scraping.py`` renders them. At most a fixed number of topics and groups have
labels of their own; all others are counted together.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from datetime import datetime
from time import perf_counter
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, Self, TypeVar

from queuegate.gateway.operations.runtime.traffic import Traffic
from queuegate.protocol import arns

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.storage.model import ConsumerGroup, StoredLog, Topic
    from queuegate.storage.queue_model import Queue, Received
    from queuegate.storage.topics.web_hook_deliveries import Source


DATABASE_SECONDS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
HTTP_SECONDS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
AGE_SECONDS = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
ATTEMPT_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
LATE_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
WAITING_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
FLUSH_ENTRIES = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0)

MOST_QUEUES = 1_000
"""Queues with series of their own; all later queues have the labels _other."""
MOST_TIMED_QUEUES = 50
"""Of these, queues with histograms of their own, which are as long as the other series of ten
queues."""
NO_QUEUE, OTHER_QUEUES = 0, -1
"""In place of a queue's number: there is no queue, or it has the labels _other."""
MOST_TOPICS = 1_000
MOST_GROUPS = 1_000
MOST_KEYS = 1_000


class Histogram:
    """Counts per bucket, not cumulative. The last bucket is above all bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
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
    dead_lettered: int = 0
    used: int = 0
    """Number of sends, receives and deletes, including empty and refused ones."""
    received_at_ms: float = 0.0
    """The time of the last receive that returned messages; 0: there was none."""
    is_timed: bool = True
    """False: the histograms are shared with other queues."""
    send_seconds: Histogram = field(default_factory=lambda: Histogram(DATABASE_SECONDS))
    receive_seconds: Histogram = field(default_factory=lambda: Histogram(DATABASE_SECONDS))
    delete_seconds: Histogram = field(default_factory=lambda: Histogram(DATABASE_SECONDS))
    age_seconds: Histogram = field(default_factory=lambda: Histogram(AGE_SECONDS))

    def labels(self) -> tuple[str, str, str]:
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
        self.attempts["success" if succeeded else "failure"].observe(seconds)
        series = self._topics.of_delivery(*source)
        if succeeded:
            series.attempts_succeeded += 1
        else:
            series.attempts_failed += 1

    def exhausted(self, source: Source, count: int) -> None:
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
        self.fired_count += count

    def failed(self, count: int) -> None:
        self.failed_count += count

    def late(self, seconds: float) -> None:
        """Note the delay of an invocation."""
        self.late_seconds.observe(max(seconds, 0.0))

    def paused(self, count: int) -> None:
        self.paused_count += count


@dataclass(slots=True, eq=False)
class ClockSeries:
    """The clock of the database."""

    behind_seconds: float = 0.0
    """Seconds that it is behind the present; negative: ahead of it."""
    step_count: int = 0
    """Steps back."""
    forward_count: int = 0


@dataclass(slots=True, eq=False)
class PushSeries:
    """Consumers of channels."""

    open_counts: dict[str, int] = field(default_factory=lambda: {"sse": 0, "websocket": 0})
    pushed_count: int = 0
    dropped_count: int = 0
    """Consumers that were disconnected because they did not read."""


class LaneSeries:
    """The flushes of one lane."""

    __slots__ = ("entries", "flush_seconds", "waiting_seconds")

    def __init__(self) -> None:
        self.entries = Histogram(FLUSH_ENTRIES)
        self.waiting_seconds = Histogram(WAITING_SECONDS)
        self.flush_seconds = Histogram(DATABASE_SECONDS)

    def timed(self, waited: float, seconds: float) -> None:
        """Count a flush of ``seconds``, whose first entry waited ``waited`` seconds. Two calls of
        ``observe`` would cost a third more."""
        waits, flushes = self.waiting_seconds, self.flush_seconds
        waits.counts[bisect_left(waits.bounds, waited)] += 1
        waits.total += waited
        flushes.counts[bisect_left(flushes.bounds, seconds)] += 1
        flushes.total += seconds


class LoopLag:
    """The delays of a timer that ticks once a second, over the last 30 s."""

    __slots__ = ("_delays", "_ticked_at")

    def __init__(self) -> None:
        self._delays: deque[float] = deque([0.0], maxlen=30)
        self._ticked_at = time.monotonic()

    def tick(self) -> None:
        now = time.monotonic()
        self._delays.append(max(now - self._ticked_at - 1.0, 0.0))
        self._ticked_at = now

    def highest(self) -> float:
        return max(list(self._delays))


class Series:
    """All counts of this process. ``timestamp`` returns the present in seconds since the epoch, by
    the clock of messages."""

    def __init__(self, timestamp: Callable[[], float] = time.time) -> None:
        self._timestamp = timestamp
        self.started_at = timestamp()
        self.queues: dict[int, QueueSeries] = {}
        self.other = QueueSeries("_other", "_other", "_other")
        self.lanes: dict[str, LaneSeries] = {}
        self.loop_lag = LoopLag()
        self.rounds: Mapping[str, float] = {}
        """By job of a worker, seconds since the epoch at the end of its last round."""
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
        series = self._of(queue)
        series.used += 1
        series.was_full += count

    def copied(self, queue: Queue, count: int) -> None:
        self._of(queue).sent += count

    def received(self, queue: Queue, messages: list[Received], seconds: float) -> None:
        """Count received messages; ``seconds`` is the duration of the last lookup."""
        series = self._of(queue)
        series.used += 1
        series.received += len(messages)
        series.receive_seconds.observe(seconds)
        now_ms = series.received_at_ms = self._timestamp() * 1000
        ages = [
            max(now_ms - message.sent_at_ms, 0.0) / 1000
            for message in messages
            if message.receive_count == 1
        ]
        series.redelivered += len(messages) - len(ages)
        series.age_seconds.observe_all(ages)

    def deleted(self, queue: Queue, count: int, started: float) -> None:
        series = self._of(queue)
        series.used += 1
        series.deleted += count
        series.delete_seconds.observe(perf_counter() - started)

    def dead_lettered(self, queue: Queue, count: int) -> None:
        """Count ``count`` messages that were moved to the dead-letter queue."""
        self._of(queue).dead_lettered += count

    def tried(self, queue: Queue | None, operation: str, outcome: str) -> None:
        """Count a request to the simple face; None: the queue does not exist."""
        queue_id = NO_QUEUE
        if queue is not None:
            queue_id = OTHER_QUEUES if self._of(queue) is self.other else queue.queue_id
        key = (queue_id, operation, outcome)
        self.tries[key] = self.tries.get(key, 0) + 1

    def shown_tries(self) -> list[tuple[str, tuple[str, str, str], str, int]]:
        """Return (operation, account, region and name of the queue, outcome, requests)."""
        unknown = QueueSeries("_unknown", "_unknown", "_unknown")
        series = {NO_QUEUE: unknown, **self.queues}
        return [
            (operation, series.get(queue_id, self.other).labels(), outcome, number)
            for (queue_id, operation, outcome), number in self.tries.items()
        ]

    def answered(self, method: str, path: str, action: str, status: int, started: float) -> None:
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

    def lane(self, name: str) -> LaneSeries:
        return self.lanes.setdefault(name, LaneSeries())


class _Counted(Protocol):
    def uses(self) -> int:
        """Return the sum of all counts."""


Key = TypeVar("Key", bound=Hashable)
Counted = TypeVar("Counted", bound=_Counted)


class BoundedSeries(Generic[Key, Counted]):
    """At most ``most`` series by key; ``other`` counts for all later keys."""

    def __init__(self, most: int, other: Counted) -> None:
        self._most = most
        self._series: dict[Key, Counted] = {}
        self._other = other
        self._used_before: dict[Key, int] = {}

    @property
    def is_full(self) -> bool:
        return len(self._series) >= self._most

    def shown(self) -> list[Counted]:
        """Return all series, and the common one if it has counts."""
        return [*self._series.values(), *([self._other] if self._other.uses() else [])]

    def copy(self) -> Self:
        """Return a copy, for a thread to iterate over while series are added here."""
        same = copy(self)
        same._series = self._series.copy()
        return same

    def unused(self) -> dict[Key, Counted]:
        """Return the series without new counts since the last call; their resources may have been
        deleted."""
        uses = {key: series.uses() for key, series in self._series.items()}
        before, self._used_before = self._used_before, uses
        return {key: self._series[key] for key, used in uses.items() if before.get(key) == used}

    def forget(self, key: Key) -> None:
        self._series.pop(key, None)


@dataclass(slots=True, eq=False)
class GroupSeries:
    """The counts of one group."""

    account_id: str
    region: str
    log: str
    name: str
    delivered: int = 0
    redelivered: int = 0
    dead_lettered: int = 0
    fed: int = 0

    def labels(self) -> tuple[str, str, str, str]:
        return self.account_id, self.region, self.log, self.name

    def uses(self) -> int:
        return self.delivered + self.dead_lettered + self.fed


class GroupNumbers(BoundedSeries[int, GroupSeries]):
    """The series of at most ``most`` groups by number; all later groups have the labels _other."""

    def __init__(self, most: int) -> None:
        super().__init__(most, GroupSeries("_other", "_other", "_other", "_other"))

    def of(self, log: StoredLog, group: ConsumerGroup) -> GroupSeries:
        series = self._series.get(group.group_id)
        if series is None:
            if self.is_full:
                return self._other
            series = GroupSeries(log.account_id, log.region, log.name, group.name)
            self._series[group.group_id] = series
        return series


@dataclass(slots=True, eq=False)
class TopicSeries:
    """The counts of one topic."""

    account_id: str
    region: str
    name: str
    published: int = 0
    queue_copies: int = 0
    web_hook_copies: int = 0
    log_copies: int = 0
    outbox_copies: int = 0
    copies_kept: int = 0
    copies_dropped: int = 0
    copies_barred: int = 0
    attempts_succeeded: int = 0
    attempts_failed: int = 0
    deliveries_exhausted: int = 0

    def labels(self) -> tuple[str, str, str]:
        return self.account_id, self.region, self.name

    def delivered(self) -> int:
        """Count copies for queues, logs and the outbox, and those that web hooks accepted."""
        return self.queue_copies + self.log_copies + self.outbox_copies + self.attempts_succeeded

    def uses(self) -> int:
        return sum([getattr(self, counter.name) for counter in fields(self)[3:]])


class TopicNumbers(BoundedSeries[str, TopicSeries]):
    """The series of at most ``most`` topics by ARN; all later topics have the labels _other. Events
    whose routing keys are not topics have the labels _events, because the number of keys is not
    limited."""

    def __init__(self, most: int) -> None:
        super().__init__(most, TopicSeries("_other", "_other", "_other"))
        self._events = TopicSeries("_events", "_events", "_events")

    def of(self, topic: Topic) -> TopicSeries:
        series = self._series.get(topic.arn)
        if series is not None:
            return series
        if not topic.topic_id:
            return self._events
        return self._begin(topic.account_id, topic.region, topic.name)

    def of_delivery(self, account_id: str, region: str, topic_name: str) -> TopicSeries:
        """Return the series of a delivery's source: a topic, or a routing key, which may have
        dots."""
        series = self._series.get(arns.topic_arn(region, account_id, topic_name))
        if series is not None:
            return series
        if "." in topic_name.removesuffix(".fifo"):
            return self._events
        return self._begin(account_id, region, topic_name)

    def _begin(self, account_id: str, region: str, name: str) -> TopicSeries:
        if self.is_full:
            return self._other
        series = TopicSeries(account_id, region, name)
        self._series[arns.topic_arn(region, account_id, name)] = series
        return series

    def shown(self) -> list[TopicSeries]:
        """Return all series, and the common ones if they have counts."""
        return [*super().shown(), *([self._events] if self._events.uses() else [])]


_SPAN_SECONDS = 60.0
_APART_SECONDS = 5.0
_MOST_CHANNELS = 10_000


class ChannelTotals(NamedTuple):
    """Totals of a channel at an instant."""

    at: datetime
    published: int
    finished: int
    dead: int


class ChannelRates(NamedTuple):
    """Messages per second, over ``seconds``."""

    over_seconds: float
    published: float
    finished: float
    dead: float


class Throughput:
    """A memory of the totals of the last minute."""

    def __init__(self) -> None:
        self._looks: dict[Hashable, deque[ChannelTotals]] = {}

    def rates(self, key: Hashable, created_at: datetime, totals: ChannelTotals) -> ChannelRates:
        """Return rates since the first totals of the last minute, or else since the last totals; at
        the first request, since the creation."""
        looks = self._looks.get(key)
        if looks is None:
            if len(self._looks) >= _MOST_CHANNELS:
                del self._looks[next(iter(self._looks))]
            looks = self._looks[key] = deque([ChannelTotals(created_at, 0, 0, 0)])
        while len(looks) > 1 and (totals.at - looks[0].at).total_seconds() > _SPAN_SECONDS:
            looks.popleft()
        first = looks[0]
        if (totals.at - looks[-1].at).total_seconds() >= _APART_SECONDS:
            looks.append(totals)
        seconds = max((totals.at - first.at).total_seconds(), 1.0)
        pairs = zip(totals[1:], first[1:], strict=True)
        return ChannelRates(seconds, *[(now - then) / seconds for now, then in pairs])
