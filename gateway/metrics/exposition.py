"""Our numbers as Prometheus text. Imported at the first scrape: the library takes 20 ms to load.

Everything here runs in a thread beside the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from queuegate.gateway.metrics.families import (
    OF_QUEUES,
    Labels,
    by_labels,
    counter_of,
    histogram_of,
)
from queuegate.gateway.metrics.logs import GroupsOfLogs, log_counters
from queuegate.gateway.metrics.message_groups import MessageGroups
from queuegate.gateway.metrics.simple_queues import SimpleQueueDepths, simple_queue_counters
from queuegate.gateway.metrics.sums import Sum, total_of
from queuegate.gateway.operations.runtime.traffic import Traffic
from queuegate.gateway.operations.telemetry.bounded_series import TopicSeries
from queuegate.gateway.operations.telemetry.series import (
    DeliverySeries,
    Histogram,
    PushSeries,
    QueueSeries,
    ScheduleSeries,
    Series,
)
from queuegate.storage.deliveries.delivery_inspection import Gauges
from queuegate.storage.embedded.disk import Room
from queuegate.storage.queues import depths

if TYPE_CHECKING:
    from queuegate.gateway.metrics.scraping import Numbers, Stored

_OF_TOPICS = ["account", "region", "topic"]
Wants = Callable[[str], bool]
"""Whether a scrape asked for the metric of this name."""

_ENDINGS = ("", "_total", "_bucket", "_sum", "_count")


def wanted(names: frozenset[str]) -> Wants:
    """Those of ``?name[]=``, as metrics or as one of their samples; without any, all."""
    if not names:
        return lambda _: True
    return lambda name: any(name + ending in names for ending in _ENDINGS)


class _ProcessNumbers(Collector):
    """What this process counted itself."""

    def __init__(self, numbers: Numbers, wants: Wants) -> None:
        self._numbers = numbers
        self._wants = wants

    def collect(self) -> Iterator[Metric]:
        numbers = self._numbers
        series = numbers.series
        yield from _http(series)
        yield from _traffic(series.traffic)
        yield counter_of(
            "queuegate_requests_throttled",
            "Requests over the rate limit of their key, or over that of those without one.",
            ["account", "key"],
            [([*key], number) for key, number in series.throttled_requests.items()],
        )
        yield counter_of(
            "queuegate_quota_refusals",
            "Requests over a quota: of requests, or of queues, topics, subscriptions or logs.",
            ["account", "quota"],
            [([*key], number) for key, number in series.quota_refusals.items()],
        )
        yield from _queues(series.shown_queues(), self._wants)
        yield from _times(series.timed_queues(), self._wants)
        yield from simple_queue_counters(series)
        yield from log_counters(series.groups.shown())
        yield histogram_of(
            "queue_coalescer_flush_batch_size",
            "Entries per flush of a lane.",
            ["lane"],
            [([lane], histogram) for lane, histogram in series.flushes.items()],
        )
        yield from _topics(series.topics.shown())
        yield from _deliveries(series.deliveries)
        yield from _schedules(series.schedules)
        yield from _push(series.push)
        size, idle = numbers.pool_size, numbers.pool_idle
        for name, value, text in (
            ("db_pool_size", size, "Open connections of the pool."),
            ("db_pool_idle", idle, "Idle connections of the pool."),
            ("db_pool_active", size - idle, "Connections of the pool in use."),
            ("queuegate_parked_receives", numbers.parked_receives, "Long polls."),
            (
                "queuegate_clock_behind_seconds",
                series.clock.behind_seconds,
                "How far the clock of the database is behind what it was; added up over processes.",
            ),
        ):
            yield GaugeMetricFamily(name, text, value=value)
        yield CounterMetricFamily(
            "queuegate_clock_steps_back",
            "Times that the clock of the database was found behind what it was.",
            series.clock.step_count,
        )
        yield CounterMetricFamily(
            "queuegate_clock_steps_forward",
            "Times that the clock of the database was found ahead of the time that passed.",
            series.clock.forward_count,
        )
        yield CounterMetricFamily(
            "db_pool_acquire_timeouts",
            "Waits for a connection in vain.",
            numbers.acquire_timeouts,
        )


def _push(push: PushSeries) -> Iterator[Metric]:
    connections = GaugeMetricFamily(
        "queuegate_push_connections",
        "Open connections to which messages of channels are pushed.",
        labels=["kind"],
    )
    for kind, number in push.open_counts.items():
        connections.add_metric([kind], number)
    yield connections
    yield CounterMetricFamily(
        "queuegate_push_messages", "Messages pushed to consumers.", push.pushed_count
    )
    yield CounterMetricFamily(
        "queuegate_push_consumers_dropped",
        "Consumers that were hung up on because they did not read.",
        push.dropped_count,
    )


def _traffic(traffic: Traffic) -> Iterator[Metric]:
    for name, value, text in (
        ("queuegate_connections", traffic.connections, "Open connections of clients."),
        (
            "queuegate_buffered_bytes",
            traffic.held_bytes,
            "Bytes of requests under way and of answers that are not read.",
        ),
    ):
        yield GaugeMetricFamily(name, text, value=value)
    by_account = GaugeMetricFamily(
        "queuegate_account_buffered_bytes",
        "Those of the 20 accounts that hold most, of all other ones, and of clients not verified.",
        labels=["account"],
    )
    for account_id, held_bytes in traffic.by_account().items():
        by_account.add_metric([account_id], held_bytes)
    yield by_account
    for name, value, text in (
        ("connections_refused", traffic.refused_clients, "Connections above the most."),
        ("requests_refused", traffic.refused_requests, "Requests without room for their bytes."),
        ("unread_answers_closed", traffic.unread_closed, "Connections closed: nobody read."),
        ("open_files_exhausted", traffic.file_errors, "Looks that found no file descriptor."),
    ):
        yield CounterMetricFamily(f"queuegate_{name}", text, value)


def _http(series: Series) -> Iterator[Metric]:
    totals: dict[tuple[str, str, str], int] = {}
    for (method, path, _, status), number in series.requests.items():
        key = (method, path, str(status))
        totals[key] = totals.get(key, 0) + number
    yield counter_of(
        "http_requests",
        "Requests completed.",
        ["method", "path", "status"],
        [(list(key), number) for key, number in totals.items()],
    )
    yield histogram_of(
        "http_request_duration_seconds",
        "Time to answer a request.",
        ["method", "path"],
        _merged(
            ((method, path), histogram)
            for (method, path, _), histogram in series.request_seconds.items()
        ),
    )
    yield GaugeMetricFamily(
        "http_connections_active", "Requests in flight.", series.active_requests
    )
    yield counter_of(
        "queuegate_actions",
        "AWS actions answered.",
        ["action", "status"],
        [
            ([action, str(status)], number)
            for (_, _, action, status), number in series.requests.items()
            if action
        ],
    )
    yield histogram_of(
        "queuegate_action_duration_seconds",
        "Time to answer an AWS action; long polls include their wait.",
        ["action"],
        [([action], h) for (_, _, action), h in series.request_seconds.items() if action],
    )


def _queues(all_series: list[QueueSeries], wants: Wants) -> Iterator[Metric]:
    for attribute, text in (
        ("sent", "Messages committed."),
        ("received", "Messages handed out."),
        ("deleted", "Messages deleted by their receivers."),
        ("redelivered", "Messages handed out again."),
    ):
        name = f"queue_messages_{attribute}"
        # What is not asked for is not added up either: there may be a thousand queues.
        if wants(name):
            yield counter_of(name, text, OF_QUEUES, by_labels(all_series, attribute))
    yield counter_of(
        "queuegate_queue_full",
        "Messages that were refused because the queue holds as many as it may.",
        OF_QUEUES,
        [(labels, number) for labels, number in by_labels(all_series, "was_full") if number],
    )
    yield counter_of(
        "queuegate_dead_letters",
        "Messages moved to the dead-letter queue of this queue.",
        OF_QUEUES,
        [(labels, number) for labels, number in by_labels(all_series, "buried") if number],
    )


def _times(timed: list[QueueSeries], wants: Wants) -> Iterator[Metric]:
    for attribute, name, text in (
        ("send_seconds", "queue_message_send_duration_seconds", "Time to commit a send."),
        ("receive_seconds", "queue_message_receive_duration_seconds", "Time of one look."),
        ("delete_seconds", "queue_message_delete_duration_seconds", "Time to commit a delete."),
        ("age_seconds", "queue_message_age_at_receive_seconds", "Age at the first delivery."),
    ):
        if wants(name):
            own = [(series.labels(), getattr(series, attribute)) for series in timed]
            used = [(labels, times) for labels, times in own if any(times.counts)]
            yield histogram_of(name, text, OF_QUEUES, _merged(used))


def _topics(all_series: list[TopicSeries]) -> Iterator[Metric]:
    yield counter_of(
        "queuegate_topic_messages_published",
        "Messages published, whoever got them.",
        _OF_TOPICS,
        [(list(one.labels()), one.published) for one in all_series],
    )
    for name, text, label, attributes in _BY_TOPIC:
        yield counter_of(
            f"queuegate_topic_{name}",
            text,
            [*_OF_TOPICS, label],
            [
                ([*one.labels(), value], getattr(one, attribute))
                for one in all_series
                for value, attribute in attributes
            ],
        )
    for name, attribute, text in (
        ("deliveries_exhausted", "deliveries_exhausted", "Deliveries to web hooks given up."),
        (
            "copies_barred",
            "copies_barred",
            "Copies, dead letters and confirmations that the policy of a queue did not let in.",
        ),
    ):
        yield counter_of(
            f"queuegate_topic_{name}",
            text,
            _OF_TOPICS,
            [(list(one.labels()), getattr(one, attribute)) for one in all_series],
        )


_BY_TOPIC = (
    (
        "copies",
        "Copies committed for subscriptions: in queues, for web hooks, in logs, in the outbox.",
        "kind",
        (
            ("queue", "queue_copies"),
            ("web_hook", "web_hook_copies"),
            ("log", "log_copies"),
            ("outbox", "outbox_copies"),
        ),
    ),
    (
        "copies_refused",
        "Copies that their queue or log could not take: kept in a dead-letter queue, or dropped.",
        "outcome",
        (("kept", "copies_kept"), ("dropped", "copies_dropped")),
    ),
    (
        "delivery_attempts",
        "Requests to web hooks.",
        "outcome",
        (("success", "attempts_succeeded"), ("failure", "attempts_failed")),
    ),
)


def _deliveries(series: DeliverySeries) -> Iterator[Metric]:
    yield counter_of(
        "queue_delivery_attempts",
        "Requests to web hooks.",
        ["outcome"],
        [([outcome], sum(histogram.counts)) for outcome, histogram in series.attempts.items()],
    )
    yield histogram_of(
        "queue_delivery_attempt_duration_seconds",
        "Time until a web hook had answered.",
        ["outcome"],
        [([outcome], histogram) for outcome, histogram in series.attempts.items()],
    )
    for name, value, text in (
        ("queue_delivery_exhausted", series.exhausted_count, "Deliveries given up."),
        (
            "queuegate_delivery_leases_lost",
            series.lost_count,
            "Attempts without a known outcome, repeated: possible duplicates.",
        ),
    ):
        yield CounterMetricFamily(name, text, value)


def _schedules(series: ScheduleSeries) -> Iterator[Metric]:
    yield counter_of(
        "queue_schedule_fires",
        "Attempts to send for a time of a schedule, or for a manual run.",
        ["outcome"],
        [(["success"], series.fired_count), (["failure"], series.failed_count)],
    )
    yield histogram_of(
        "queue_schedule_lateness_seconds",
        "From when a schedule was due to the commit of its messages.",
        [],
        [([], series.late_seconds)],
    )
    yield CounterMetricFamily(
        "queue_schedules_paused", "Schedules paused after too many failures.", series.paused_count
    )


def _merged(
    histograms: Iterable[tuple[tuple[str, ...], Histogram]],
) -> list[tuple[Labels, Histogram]]:
    """One histogram for all that have the same labels."""
    merged: dict[tuple[str, ...], Histogram] = {}
    for labels, histogram in histograms:
        total = merged.setdefault(labels, Histogram(histogram.bounds))
        total.total += histogram.total
        total.counts = [a + b for a, b in zip(total.counts, histogram.counts, strict=True)]
    return [(list(key), histogram) for key, histogram in merged.items()]


class _PriorityAges(Collector):
    """Whether a low priority starves."""

    def __init__(self, ages: list[depths.PriorityAge]) -> None:
        self._ages = ages

    def collect(self) -> Iterator[Metric]:
        oldest = GaugeMetricFamily(
            "queue_oldest_age_seconds",
            "How long the first visible message of a priority has been there.",
            labels=[*OF_QUEUES, "priority"],
        )
        for account_id, region, name, priority, age in self._ages:
            oldest.add_metric([account_id, region, name, str(priority)], age)
        yield oldest


class _Pauses(Collector):
    def __init__(self, found: list[tuple[str, ...]]) -> None:
        self._found = found

    def collect(self) -> Iterator[Metric]:
        text = "1 while a queue, topic or subscription is paused; absent otherwise."
        labels = ["kind", "account", "region", "name"]
        paused = GaugeMetricFamily("queuegate_paused", text, labels=labels)
        for one in self._found:
            paused.add_metric(one, 1)
        yield paused


class _Depths(Collector):
    def __init__(self, depths: list[depths.Depth]) -> None:
        self._values = depths

    def collect(self) -> Iterator[Metric]:
        visible = GaugeMetricFamily("queue_depth", "Messages visible now.", labels=OF_QUEUES)
        hidden = GaugeMetricFamily(
            "queue_in_flight", "Messages received or delayed, not visible.", labels=OF_QUEUES
        )
        sizes = GaugeMetricFamily(
            "queuegate_queue_size",
            "Messages that the queue may hold, of those that have a bound.",
            labels=OF_QUEUES,
        )
        waiting = GaugeMetricFamily(
            "queuegate_queue_waiting",
            "Copies and dead letters that wait for room in a queue with a bound.",
            labels=OF_QUEUES,
        )
        for account_id, region, name, shown, held, most, waits in self._values:
            labels = [account_id, region, name]
            visible.add_metric(labels, shown)
            hidden.add_metric(labels, held)
            if most is not None:
                sizes.add_metric(labels, most)
                waiting.add_metric(labels, waits or 0)
        yield from (visible, hidden, sizes, waiting)


class _Gauges(Collector):
    """Single numbers: the end of each name, the number, and what it is."""

    def __init__(self, prefix: str, *rows: tuple[str, float, str]) -> None:
        self._prefix = prefix
        self._rows = rows

    def collect(self) -> Iterator[Metric]:
        for name, value, text in self._rows:
            yield GaugeMetricFamily(f"{self._prefix}_{name}", text, value=value)


def _pending(gauges: Gauges) -> Collector:
    return _Gauges(
        "queuegate_deliveries",
        ("pending", gauges.pending, "Deliveries to be made; estimated above 10,000."),
        ("exhausted", gauges.exhausted, "Deliveries given up and kept; likewise."),
        (
            "oldest_pending_seconds",
            gauges.oldest_pending_seconds,
            "Age of the oldest of the first deliveries of up to 1,000 subscriptions.",
        ),
    )


def _disk(room: Room, refuses: bool) -> Collector:
    return _Gauges(
        "queuegate_disk",
        ("free_bytes", room.free_bytes, "What the bundled database may still use."),
        ("low_water_bytes", room.low_water_bytes, "With less free, sends are refused."),
        ("refuses_sends", float(refuses), "1 while sends are refused for it."),
    )


class _Only(Collector):
    """Of several collectors the metrics that a scrape asked for."""

    def __init__(self, wants: Wants, collectors: Iterable[Collector], *, in_total: bool) -> None:
        self._wants = wants
        self._collectors = collectors
        self._in_total = in_total

    def collect(self) -> Iterator[Metric]:
        for collector in self._collectors:
            for metric in collector.collect():
                if self._wants(metric.name):
                    yield total_of(metric) if self._in_total else metric


def _page(wants: Wants, *collectors: Collector, in_total: bool = False) -> bytes:
    registry = CollectorRegistry()
    registry.register(_Only(wants, collectors, in_total=in_total))
    return generate_latest(registry)


def added(pages: list[bytes], wants: Wants) -> bytes:
    """Several pages as one, sample by sample."""
    return _page(wants, Sum(pages))


def process_page(numbers: Numbers, wants: Wants, *, in_total: bool = False) -> bytes:
    """Render the counts of this process and of the operating system. ``in_total``: without the
    labels that tell accounts and their things apart, here and below."""
    own = _ProcessNumbers(numbers, wants)
    return _page(wants, own, ProcessCollector(registry=None), in_total=in_total)


def depth_page(stored: Stored, wants: Wants, *, in_total: bool = False) -> bytes:
    """The gauges of what the database holds."""
    pending = () if stored.deliveries is None else (_pending(stored.deliveries),)
    depths = _Depths(stored.depths), _PriorityAges(stored.priorities)
    more = SimpleQueueDepths(stored.titled), GroupsOfLogs(stored.groups)
    kept = _Pauses(stored.paused), MessageGroups(stored.fair)
    return _page(wants, *depths, *more, *kept, *pending, in_total=in_total)


def disk_page(room: Room | None, wants: Wants, *, refuses: bool) -> bytes:
    """The gauges of the disk that is ours to watch; nothing if none is."""
    return b"" if room is None else _page(wants, _disk(room, refuses))
