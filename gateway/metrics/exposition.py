"""Our numbers as Prometheus text. Imported at the first scrape: the library takes 20 ms to load.

Everything here runs in a thread beside the event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain
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

from queuegate.gateway.operations.queues.fair_queueing import FairGauges
from queuegate.gateway.operations.runtime.traffic import Traffic
from queuegate.gateway.operations.telemetry.series import (
    DeliverySeries,
    GroupSeries,
    Histogram,
    PushSeries,
    QueueSeries,
    ScheduleSeries,
    Series,
    TopicSeries,
)
from queuegate.storage.embedded.data_directory import DiskSpace
from queuegate.storage.logs.stored_logs import GroupGauges
from queuegate.storage.queues import depths

if TYPE_CHECKING:
    from queuegate.gateway.metrics.snapshots import DatabaseSnapshot, ProcessSnapshot


_Labels = list[str]
_OF_QUEUES = ["account", "region", "queue"]
_OF_GROUPS = ["account", "region", "log", "group"]
_QUIET = (
    ("messages_visible", "visible", "Visible messages of quiet message groups."),
    ("messages_not_visible", "in_flight", "Messages in flight of quiet message groups."),
    ("messages_delayed", "delayed", "Delayed messages of quiet message groups."),
    ("oldest_age_seconds", "oldest_seconds", "Age of the oldest visible message of quiet groups."),
)


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
    name: str, text: str, labels: _Labels, values: Iterable[tuple[Sequence[str], float]]
) -> Metric:
    """Build a counter with these labels; its samples end in ``_total``."""
    family = CounterMetricFamily(name, text, labels=labels)
    for value, number in values:
        family.add_metric(value, number)
    return family


def _gauge_of(
    name: str, text: str, labels: _Labels, values: Iterable[tuple[Sequence[str], float]]
) -> Metric:
    """Build a gauge with these labels."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for value, number in values:
        family.add_metric(value, number)
    return family


_TENANT_LABELS = frozenset({"account", "region", "queue", "topic", "log", "group", "key", "name"})
_OF_TOPICS = ["account", "region", "topic"]
Wants = Callable[[str], bool]
"""Returns True if a scrape asked for the metric of this name."""

_ENDINGS = ("", "_total", "_bucket", "_sum", "_count")


def requested(names: frozenset[str]) -> Wants:
    """Select metrics by ``?name[]=``, by their own or a sample's name; without names, all."""
    if not names:
        return lambda _: True
    return lambda name: any(name + ending in names for ending in _ENDINGS)


def _process_counters(numbers: ProcessSnapshot, wants: Wants) -> Iterator[Metric]:
    """Yield the counters of this process."""
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
    yield from _queues(series.shown_queues(), wants)
    yield from _times(series.timed_queues(), wants)
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
    yield _gauge_of(
        "queuegate_push_connections",
        "Open connections for pushed messages of channels.",
        ["kind"],
        [([kind], number) for kind, number in push.open_counts.items()],
    )
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
    yield _gauge_of(
        "queuegate_account_buffered_bytes",
        "Buffered bytes of the 20 largest accounts, of all others, and of unverified clients.",
        ["account"],
        [([account_id], number) for account_id, number in traffic.by_account().items()],
    )
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
            yield _counter_of(name, text, _OF_QUEUES, _by_labels(all_series, attribute))
    yield _counter_of(
        "queuegate_queue_full",
        "Messages refused because the bounded queue is full.",
        _OF_QUEUES,
        [(labels, number) for labels, number in _by_labels(all_series, "was_full") if number],
    )
    yield _counter_of(
        "queuegate_dead_letters",
        "Messages moved to the dead-letter queue of this queue.",
        _OF_QUEUES,
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
            yield _histogram_of(name, text, _OF_QUEUES, _merged(used))


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
        yield _counter_of(f"queuegate_log_{name}", text, _OF_GROUPS, values)


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
            [*_OF_QUEUES, "outcome"],
            [(list(key), number) for key, number in totals.items()],
        )


def _database_gauges(stored: DatabaseSnapshot) -> Iterator[Metric]:
    """Yield the gauges of a snapshot of the database."""
    yield from _depths(stored.depths)
    yield _gauge_of(
        "queue_oldest_age_seconds",
        "Age of the oldest visible message of a priority.",
        [*_OF_QUEUES, "priority"],
        [
            ([account_id, region, name, str(priority)], age)
            for account_id, region, name, priority, age in stored.priorities
        ],
    )
    yield from _simple_queue_depths(stored.titled)
    yield from _log_groups(stored.groups)
    yield _gauge_of(
        "queuegate_paused",
        "1 while a queue, topic or subscription is paused; absent otherwise.",
        ["kind", "account", "region", "name"],
        [(one, 1) for one in stored.paused],
    )
    yield from _message_groups(stored.fair)
    found = stored.deliveries
    if found is None:
        return
    for name, value, text in (
        ("pending", found.pending, "Pending deliveries; estimated above 10,000."),
        ("exhausted", found.exhausted, "Exhausted deliveries; estimated above 10,000."),
        (
            "oldest_pending_seconds",
            found.oldest_pending_seconds,
            "Age of the oldest pending delivery of up to 1,000 subscriptions.",
        ),
    ):
        yield GaugeMetricFamily(f"queuegate_deliveries_{name}", text, value=value)


def _depths(found: list[depths.Depth]) -> Iterator[Metric]:
    rows = [
        ([account_id, region, name], shown, held, most, waits or 0)
        for account_id, region, name, shown, held, most, waits in found
    ]
    yield _gauge_of(
        "queue_depth", "Messages visible now.", _OF_QUEUES, [(row[0], row[1]) for row in rows]
    )
    yield _gauge_of(
        "queue_in_flight",
        "Messages received or delayed, not visible.",
        _OF_QUEUES,
        [(row[0], row[2]) for row in rows],
    )
    yield _gauge_of(
        "queuegate_queue_size",
        "Maximum messages of a bounded queue.",
        _OF_QUEUES,
        [(labels, most) for labels, _, _, most, _ in rows if most is not None],
    )
    yield _gauge_of(
        "queuegate_queue_waiting",
        "Copies and dead letters that wait for capacity of a bounded queue.",
        _OF_QUEUES,
        [(labels, waits) for labels, _, _, most, waits in rows if most is not None],
    )


def _simple_queue_depths(found: list[depths.TitledDepth]) -> Iterator[Metric]:
    """Depths of simple queues (docs/seeds.md 2.3)."""
    for name, attribute, text in (
        ("depth", "total", "Messages in the queue."),
        ("inflight", "in_flight", "Messages delivered and not acknowledged."),
        (
            "oldest_message_age_seconds",
            "oldest_seconds",
            "Age of the oldest message; 0 without one.",
        ),
    ):
        values = [
            ([one.account_id, one.region, one.name], getattr(one, attribute)) for one in found
        ]
        yield _gauge_of(f"simplemq_queue_{name}", text, _OF_QUEUES, values)


def _log_groups(found: list[GroupGauges]) -> Iterator[Metric]:
    """Lag, leases and subscribers of the groups of logs."""
    lag, age, subscribers, waiting = [
        GaugeMetricFamily(f"queuegate_log_{name}", text, labels=_OF_GROUPS)
        for name, text in (
            ("lag", "Offsets beyond the watermarks of the group."),
            (
                "watermark_age_seconds",
                "Age of the oldest record that the group has not consumed.",
            ),
            ("subscribers", "Live subscribers."),
            ("feed_waiting", "1 while the target queue of the group does not exist."),
        )
    ]
    leases = GaugeMetricFamily(
        "queuegate_log_leases",
        "Partitions with a live subscriber (held), and without one (free).",
        labels=[*_OF_GROUPS, "state"],
    )
    rebalances = CounterMetricFamily(
        "queuegate_log_rebalances",
        "Rebalances: subscribers that joined, left or expired.",
        labels=_OF_GROUPS,
    )
    for one in found:
        labels = [one.account_id, one.region, one.log, one.group]
        lag.add_metric(labels, one.lag)
        age.add_metric(labels, one.watermark_age_seconds)
        rebalances.add_metric(labels, one.rebalances)
        if one.waits_for_queue is not None:
            waiting.add_metric(labels, one.waits_for_queue)
            continue
        subscribers.add_metric(labels, one.subscribers)
        for state, count in (("held", one.held), ("free", one.free)):
            leases.add_metric([*labels, state], count)
    yield from (lag, age, subscribers, leases, rebalances, waiting)


def _message_groups(found: list[FairGauges]) -> Iterator[Metric]:
    """Fair queues: noisy message groups, and messages of quiet groups."""
    yield _gauge_of(
        "queuegate_noisy_groups",
        "Noisy message groups of standard queues.",
        _OF_QUEUES,
        [(queue[1:], number) for queue, number, _ in found],
    )
    for name, attribute, text in _QUIET:
        yield _gauge_of(
            f"queuegate_quiet_groups_{name}",
            text,
            _OF_QUEUES,
            [(queue[1:], getattr(quiet, attribute)) for queue, _, quiet in found],
        )


def _disk_gauges(room: DiskSpace, *, refuses: bool) -> Iterator[Metric]:
    for name, value, text in (
        ("free_bytes", room.free_bytes, "Free bytes on the disk of the bundled database."),
        ("low_water_bytes", room.low_water_bytes, "Free bytes below which sends are refused."),
        (
            "refuses_sends",
            float(refuses),
            "1 while sends are refused because the disk is nearly full.",
        ),
    ):
        yield GaugeMetricFamily(f"queuegate_disk_{name}", text, value=value)


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


def _summed(pages: list[bytes]) -> Iterator[Metric]:
    """Yield the sum of pages of several processes, sample by sample."""
    families: dict[str, Metric] = {}
    totals: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for page in pages:
        for family in text_string_to_metric_families(page.decode()):
            families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            samples = totals.setdefault(family.name, {})
            for sample in family.samples:
                key = (sample.name, tuple(sample.labels.items()))
                samples[key] = samples.get(key, 0.0) + sample.value
    for name, family in families.items():
        for (sample_name, labels), value in totals[name].items():
            family.add_sample(sample_name, dict(labels), value)
        yield family


class _RequestedMetrics(Collector):
    """The requested ones of these metrics."""

    def __init__(self, wants: Wants, metrics: Iterable[Metric], *, in_total: bool) -> None:
        self._wants = wants
        self._metrics = metrics
        self._in_total = in_total

    def collect(self) -> Iterator[Metric]:
        for metric in self._metrics:
            if self._wants(metric.name):
                yield _without_tenants(metric) if self._in_total else metric


def _page(wants: Wants, metrics: Iterable[Metric], *, in_total: bool = False) -> bytes:
    registry = CollectorRegistry()
    registry.register(_RequestedMetrics(wants, metrics, in_total=in_total))
    return generate_latest(registry)


def added(pages: list[bytes], wants: Wants) -> bytes:
    """Render the sum of pages of several processes."""
    return _page(wants, _summed(pages))


def process_page(numbers: ProcessSnapshot, wants: Wants, *, in_total: bool = False) -> bytes:
    """Render the counters of this process, and those of the operating system about it.

    ``in_total``: without the labels of accounts and their resources, here and below.
    """
    own = _process_counters(numbers, wants)
    system = ProcessCollector(registry=None).collect()
    return _page(wants, chain(own, system), in_total=in_total)


def depth_page(stored: DatabaseSnapshot, wants: Wants, *, in_total: bool = False) -> bytes:
    """Render the gauges of the database."""
    return _page(wants, _database_gauges(stored), in_total=in_total)


def disk_page(room: DiskSpace | None, wants: Wants, *, refuses: bool) -> bytes:
    """Render the gauges of the watched disk; nothing if no disk is watched."""
    return b"" if room is None else _page(wants, _disk_gauges(room, refuses=refuses))
