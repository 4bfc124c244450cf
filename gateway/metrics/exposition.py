"""Our numbers as Prometheus text. Imported at the first scrape: the library takes 20 ms to load.

Everything here runs in a thread beside the event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from operator import add
from typing import TYPE_CHECKING, Protocol

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from queuegate.gateway.metrics.database_gauges import (
    OF_GROUPS,
    OF_QUEUES,
    database_collectors,
    disk_collector,
)
from queuegate.gateway.operations.runtime.traffic import Traffic
from queuegate.gateway.operations.telemetry.bounded_series import GroupSeries, TopicSeries
from queuegate.gateway.operations.telemetry.series import (
    DeliverySeries,
    Histogram,
    PushSeries,
    QueueSeries,
    ScheduleSeries,
    Series,
)
from queuegate.storage.embedded.data_directory import DiskSpace

if TYPE_CHECKING:
    from queuegate.gateway.metrics.snapshots import DatabaseSnapshot, ProcessSnapshot

_Labels = list[str]


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    bounds = [str(bound) for bound in histogram.bounds] + ["+Inf"]
    return list(zip(bounds, map(float, accumulate(histogram.counts)), strict=True))


class _Named(Protocol):
    def labels(self) -> tuple[str, ...]:
        """Return the values of the labels."""


def _by_labels(all_series: Iterable[_Named], attribute: str) -> list[tuple[_Labels, float]]:
    """Sum the values with equal labels: a deleted resource may share its name with a new one."""
    values: dict[tuple[str, ...], float] = {}
    for series in all_series:
        key = series.labels()
        values[key] = values.get(key, 0.0) + getattr(series, attribute)
    return [(list(key), value) for key, value in values.items()]


def _histogram_of(
    name: str, text: str, labels: _Labels, values: Iterable[tuple[_Labels, Histogram]]
) -> Metric:
    """Build a histogram with these labels."""
    family = HistogramMetricFamily(name, text, labels=labels)
    for value, histogram in values:
        family.add_metric(value, _buckets(histogram), histogram.total)
    return family


def _counter_of(
    name: str, text: str, labels: _Labels, values: Iterable[tuple[_Labels, float]]
) -> Metric:
    """Build a counter with these labels; its samples end in ``_total``."""
    family = CounterMetricFamily(name, text, labels=labels)
    for value, number in values:
        family.add_metric(value, number)
    return family


_TENANT_LABELS = frozenset({"account", "region", "queue", "topic", "log", "group", "key", "name"})
_OF_TOPICS = ["account", "region", "topic"]
Wants = Callable[[str], bool]
"""Returns True if a scrape asked for the metric of this name."""

_ENDINGS = ("", "_total", "_bucket", "_sum", "_count")


def wanted(names: frozenset[str]) -> Wants:
    """Select metrics by ``?name[]=``, by their own or a sample's name; without names, all."""
    if not names:
        return lambda _: True
    return lambda name: any(name + ending in names for ending in _ENDINGS)


class _ProcessCounters(Collector):
    """Counters of this process."""

    def __init__(self, numbers: ProcessSnapshot, wants: Wants) -> None:
        self._numbers = numbers
        self._wants = wants

    def collect(self) -> Iterator[Metric]:
        numbers = self._numbers
        series = numbers.series
        yield from _http(series)
        yield from _traffic(series.traffic)
        yield _counter_of(
            "queuegate_requests_throttled",
            "Requests over the rate limit of their key, or of requests without a key.",
            ["account", "key"],
            [([*key], number) for key, number in series.throttled_requests.items()],
        )
        yield _counter_of(
            "queuegate_quota_refusals",
            "Requests refused by a quota of requests, queues, topics, subscriptions or logs.",
            ["account", "quota"],
            [([*key], number) for key, number in series.quota_refusals.items()],
        )
        yield from _queues(series.shown_queues(), self._wants)
        yield from _times(series.timed_queues(), self._wants)
        yield from _simple_queues(series)
        yield from _logs(series.groups.shown())
        yield _histogram_of(
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
            (
                "queuegate_parked_receives",
                numbers.parked_receives,
                "Long polls that wait for a message.",
            ),
            (
                "queuegate_clock_behind_seconds",
                series.clock.behind_seconds,
                "Seconds of the database clock behind its last value; summed over processes.",
            ),
        ):
            yield GaugeMetricFamily(name, text, value=value)
        yield from _clock_steps(series)
        yield CounterMetricFamily(
            "db_pool_acquire_timeouts",
            "Timeouts of waits for a connection of the pool.",
            numbers.acquire_timeouts,
        )


def _clock_steps(series: Series) -> Iterator[Metric]:
    for name, count, text in (
        ("back", series.clock.step_count, "Steps back of the database clock."),
        ("forward", series.clock.forward_count, "Steps forward of the database clock."),
    ):
        yield CounterMetricFamily(f"queuegate_clock_steps_{name}", text, count)


def _push(push: PushSeries) -> Iterator[Metric]:
    connections = GaugeMetricFamily(
        "queuegate_push_connections",
        "Open connections for pushed messages of channels.",
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
        "Consumers disconnected because they did not read.",
        push.dropped_count,
    )


def _traffic(traffic: Traffic) -> Iterator[Metric]:
    for name, value, text in (
        ("queuegate_connections", traffic.connections, "Open connections of clients."),
        (
            "queuegate_buffered_bytes",
            traffic.held_bytes,
            "Bytes of requests in progress and of unread responses.",
        ),
    ):
        yield GaugeMetricFamily(name, text, value=value)
    by_account = GaugeMetricFamily(
        "queuegate_account_buffered_bytes",
        "Buffered bytes of the 20 largest accounts, of all others, and of unverified clients.",
        labels=["account"],
    )
    for account_id, held_bytes in traffic.by_account().items():
        by_account.add_metric([account_id], held_bytes)
    yield by_account
    for name, value, text in (
        ("connections_refused", traffic.refused_clients, "Connections over the limit."),
        (
            "requests_refused",
            traffic.refused_requests,
            "Requests refused because the buffer is full.",
        ),
        (
            "unread_answers_closed",
            traffic.unread_closed,
            "Connections closed because the client did not read.",
        ),
        ("open_files_exhausted", traffic.file_errors, "Checks that found no free file descriptor."),
    ):
        yield CounterMetricFamily(f"queuegate_{name}", text, value)


def _http(series: Series) -> Iterator[Metric]:
    totals: dict[tuple[str, str, str], int] = {}
    for (method, path, _, status), number in series.requests.items():
        key = (method, path, str(status))
        totals[key] = totals.get(key, 0) + number
    yield _counter_of(
        "http_requests",
        "Requests completed.",
        ["method", "path", "status"],
        [(list(key), number) for key, number in totals.items()],
    )
    yield _histogram_of(
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
    yield _counter_of(
        "queuegate_actions",
        "AWS actions answered.",
        ["action", "status"],
        [
            ([action, str(status)], number)
            for (_, _, action, status), number in series.requests.items()
            if action
        ],
    )
    yield _histogram_of(
        "queuegate_action_duration_seconds",
        "Time to answer an AWS action; long polls include their wait.",
        ["action"],
        [([action], h) for (_, _, action), h in series.request_seconds.items() if action],
    )


def _queues(all_series: list[QueueSeries], wants: Wants) -> Iterator[Metric]:
    for attribute, text in (
        ("sent", "Messages committed."),
        ("received", "Messages received."),
        ("deleted", "Messages deleted by their receivers."),
        ("redelivered", "Messages received again."),
    ):
        name = f"queue_messages_{attribute}"
        # Only requested metrics are summed: there may be a thousand queues.
        if wants(name):
            yield _counter_of(name, text, OF_QUEUES, _by_labels(all_series, attribute))
    yield _counter_of(
        "queuegate_queue_full",
        "Messages refused because the bounded queue is full.",
        OF_QUEUES,
        [(labels, number) for labels, number in _by_labels(all_series, "was_full") if number],
    )
    yield _counter_of(
        "queuegate_dead_letters",
        "Messages moved to the dead-letter queue of this queue.",
        OF_QUEUES,
        [(labels, number) for labels, number in _by_labels(all_series, "buried") if number],
    )


def _times(timed: list[QueueSeries], wants: Wants) -> Iterator[Metric]:
    for attribute, name, text in (
        ("send_seconds", "queue_message_send_duration_seconds", "Time to commit a send."),
        (
            "receive_seconds",
            "queue_message_receive_duration_seconds",
            "Time of one receive from the database.",
        ),
        ("delete_seconds", "queue_message_delete_duration_seconds", "Time to commit a delete."),
        (
            "age_seconds",
            "queue_message_age_at_receive_seconds",
            "Age of a message at its first receive.",
        ),
    ):
        if wants(name):
            own = [(series.labels(), getattr(series, attribute)) for series in timed]
            used = [(labels, times) for labels, times in own if any(times.counts)]
            yield _histogram_of(name, text, OF_QUEUES, _merged(used))


def _topics(all_series: list[TopicSeries]) -> Iterator[Metric]:
    yield _counter_of(
        "queuegate_topic_messages_published",
        "Messages published to the topic.",
        _OF_TOPICS,
        [(list(one.labels()), one.published) for one in all_series],
    )
    for name, text, label, attributes in _BY_TOPIC:
        yield _counter_of(
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
        ("deliveries_exhausted", "deliveries_exhausted", "Exhausted deliveries to web hooks."),
        (
            "copies_barred",
            "copies_barred",
            "Copies, dead letters and confirmations that the policy of a queue denied.",
        ),
    ):
        yield _counter_of(
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
        "Copies that their queue or log refused: kept in a dead-letter queue, or dropped.",
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
    yield _counter_of(
        "queue_delivery_attempts",
        "Requests to web hooks.",
        ["outcome"],
        [([outcome], sum(histogram.counts)) for outcome, histogram in series.attempts.items()],
    )
    yield _histogram_of(
        "queue_delivery_attempt_duration_seconds",
        "Time until a web hook answered.",
        ["outcome"],
        [([outcome], histogram) for outcome, histogram in series.attempts.items()],
    )
    for name, value, text in (
        ("queue_delivery_exhausted", series.exhausted_count, "Exhausted deliveries."),
        (
            "queuegate_delivery_leases_lost",
            series.lost_count,
            "Repeated attempts whose first outcome is unknown: possible duplicates.",
        ),
    ):
        yield CounterMetricFamily(name, text, value)


def _schedules(series: ScheduleSeries) -> Iterator[Metric]:
    yield _counter_of(
        "queue_schedule_fires",
        "Fires of schedules, and manual runs.",
        ["outcome"],
        [(["success"], series.fired_count), (["failure"], series.failed_count)],
    )
    yield _histogram_of(
        "queue_schedule_lateness_seconds",
        "Time from the fire time of a schedule to the commit of its messages.",
        [],
        [([], series.late_seconds)],
    )
    yield CounterMetricFamily(
        "queue_schedules_paused", "Schedules paused after too many failures.", series.paused_count
    )


def _logs(all_series: list[GroupSeries]) -> Iterator[Metric]:
    """Counters of the groups of logs."""
    for attribute, name, text in (
        ("delivered", "records_delivered", "Records delivered to subscribers."),
        ("redelivered", "records_redelivered", "Records delivered again."),
        ("buried", "dead_letters", "Records that the group dead-lettered."),
        ("fed", "records_fed", "Records fed into the queue of the group."),
    ):
        values = _by_labels(all_series, attribute)
        yield _counter_of(f"queuegate_log_{name}", text, OF_GROUPS, values)


def _simple_queues(series: Series) -> Iterator[Metric]:
    """Counters of the simple queue, by queue and outcome (docs/seeds.md 2.3)."""
    tries = series.shown_tries()
    for operation in ("enqueue", "dequeue", "ack", "requeue"):
        totals: dict[tuple[str, ...], float] = {}
        for tried, labels, outcome, number in tries:
            if tried == operation:
                key = (*labels, outcome)
                totals[key] = totals.get(key, 0.0) + number
        yield _counter_of(
            f"simplemq_{operation}",
            f"Requests to {operation} at the simple queue.",
            [*OF_QUEUES, "outcome"],
            [(list(key), number) for key, number in totals.items()],
        )


def _merged(
    histograms: Iterable[tuple[tuple[str, ...], Histogram]],
) -> list[tuple[_Labels, Histogram]]:
    """Merge histograms with equal labels."""
    merged: dict[tuple[str, ...], Histogram] = {}
    for labels, histogram in histograms:
        total = merged.setdefault(labels, Histogram(histogram.bounds))
        total.total += histogram.total
        total.counts = [a + b for a, b in zip(total.counts, histogram.counts, strict=True)]
    return [(list(key), histogram) for key, histogram in merged.items()]


def _without_tenants(metric: Metric) -> Metric:
    """Drop the labels of accounts and their resources: sum the values, or take the highest age."""
    join = max if metric.type == "gauge" and "_age_" in metric.name else add
    values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for name, labels, value, *_ in metric.samples:
        key = name, tuple([pair for pair in labels.items() if pair[0] not in _TENANT_LABELS])
        values[key] = join(values[key], value) if key in values else value
    total = Metric(metric.name, metric.documentation, metric.type)
    for (name, kept), value in values.items():
        total.add_sample(name, dict(kept), value)
    return total


class _SummedPages(Collector):
    """The sum of pages of several processes, sample by sample."""

    def __init__(self, pages: list[bytes]) -> None:
        self._pages = pages

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        totals: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
        for page in self._pages:
            for family in text_string_to_metric_families(page.decode()):
                families.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                samples = totals.setdefault(family.name, {})
                for sample in family.samples:
                    key = (sample.name, tuple(sample.labels.items()))
                    samples[key] = samples.get(key, 0.0) + sample.value
        for name, family in families.items():
            for (sample_name, labels), value in totals[name].items():
                family.add_sample(sample_name, dict(labels), value)
            yield family


class _RequestedMetrics(Collector):
    """The requested metrics of several collectors."""

    def __init__(self, wants: Wants, collectors: Iterable[Collector], *, in_total: bool) -> None:
        self._wants = wants
        self._collectors = collectors
        self._in_total = in_total

    def collect(self) -> Iterator[Metric]:
        for collector in self._collectors:
            for metric in collector.collect():
                if self._wants(metric.name):
                    yield _without_tenants(metric) if self._in_total else metric


def _page(wants: Wants, *collectors: Collector, in_total: bool = False) -> bytes:
    registry = CollectorRegistry()
    registry.register(_RequestedMetrics(wants, collectors, in_total=in_total))
    return generate_latest(registry)


def added(pages: list[bytes], wants: Wants) -> bytes:
    """Render the sum of pages of several processes."""
    return _page(wants, _SummedPages(pages))


def process_page(numbers: ProcessSnapshot, wants: Wants, *, in_total: bool = False) -> bytes:
    """Render the counters of this process, and those of the operating system about it.

    ``in_total``: without the labels of accounts and their resources, here and below.
    """
    own = _ProcessCounters(numbers, wants)
    return _page(wants, own, ProcessCollector(registry=None), in_total=in_total)


def depth_page(stored: DatabaseSnapshot, wants: Wants, *, in_total: bool = False) -> bytes:
    """Render the gauges of the database."""
    return _page(wants, *database_collectors(stored), in_total=in_total)


def disk_page(room: DiskSpace | None, wants: Wants, *, refuses: bool) -> bytes:
    """Render the gauges of the watched disk; nothing if no disk is watched."""
    return b"" if room is None else _page(wants, disk_collector(room, refuses=refuses))
