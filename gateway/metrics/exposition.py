"""Our numbers as Prometheus text. Imported at the first scrape: the library takes 20 ms to load.

Everything here runs in a thread beside the event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from importlib.metadata import version
from itertools import accumulate, chain
from operator import add
from platform import python_version
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from prometheus_client import ProcessCollector, generate_latest
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
from queuegate.gateway.operations.telemetry.database_health import OLD_SNAPSHOT_TRANSACTIONS
from queuegate.gateway.operations.telemetry.series import (
    DeliverySeries,
    GroupSeries,
    Histogram,
    QueueSeries,
    Series,
    TopicSeries,
)
from queuegate.storage.embedded.data_directory import DiskSpace
from queuegate.storage.logs.stored_logs import GroupGauges

if TYPE_CHECKING:
    from queuegate.gateway.metrics.snapshots import DatabaseSnapshot, ProcessSnapshot
    from queuegate.gateway.operations.telemetry.database_health import DatabaseReport
    from queuegate.storage.database_statistics import ServerStatistics


_VERSION: Final = version("queuegate")
"""Read once: a process without free file descriptors cannot."""
_OF_QUEUES = ["account", "region", "queue"]
_OF_GROUPS = ["account", "region", "log", "group"]
_OF_TOPICS = ["account", "region", "topic"]
_TENANT_LABELS = frozenset(
    {*_OF_QUEUES, *_OF_GROUPS, *_OF_TOPICS, "key", "name", "replica", "slot"}
)
_LOOP_LAG = "queuegate_event_loop_lag_seconds"
_LAST_ROUND = "queuegate_worker_last_round_timestamp_seconds"
_Labels = tuple[str, ...]
Wants = Callable[[str], bool]
"""Returns True if a scrape asked for the metric of this name."""

_ENDINGS = ("", "_total", "_bucket", "_sum", "_count")


def requested(names: frozenset[str]) -> Wants:
    """Select metrics by ``?name[]=``, by their own or a sample's name; without names, all."""
    if not names:
        return lambda _: True
    return lambda name: any(name + ending in names for ending in _ENDINGS)


class _Named(Protocol):
    def labels(self) -> _Labels:
        """Return the values of the labels."""


class _Row(NamedTuple):
    """A metric. Generators among the values are read only if the metric is requested."""

    family: Callable[..., Any]
    name: str
    text: str
    values: float | Iterable[tuple[Iterable[str], float | Histogram]]
    labels: Sequence[str] = ()

    def metric(self) -> Any:
        """Read the values."""
        family = self.family(self.name, self.text, labels=self.labels)
        values = self.values
        for labels, value in [((), values)] if isinstance(values, int | float) else values:
            if isinstance(value, Histogram):
                bounds = [*map(str, value.bounds), "+Inf"]
                counts = map(float, accumulate(value.counts))
                family.add_metric(labels, list(zip(bounds, counts, strict=True)), value.total)
            else:
                family.add_metric(labels, value)
        return family


_counter = partial(_Row, CounterMetricFamily)
"""Build a counter; its samples end in ``_total``."""
_gauge = partial(_Row, GaugeMetricFamily)
_histogram = partial(_Row, HistogramMetricFamily)


def _sums(values: Iterable[tuple[_Labels, float]]) -> Iterator[tuple[_Labels, float]]:
    """Sum the values with equal labels: a deleted resource may share its name with a new one."""
    sums: dict[_Labels, float] = {}
    for labels, value in values:
        sums[labels] = sums.get(labels, 0.0) + value
    yield from sums.items()


def _by_labels(all_series: Iterable[_Named], attribute: str) -> Iterator[tuple[_Labels, float]]:
    return _sums((series.labels(), getattr(series, attribute)) for series in all_series)


def _merged(histograms: Iterable[tuple[_Labels, Histogram]]) -> Iterator[tuple[_Labels, Histogram]]:
    """Merge histograms with equal labels."""
    merged: dict[_Labels, Histogram] = {}
    for labels, histogram in histograms:
        total = merged.setdefault(labels, Histogram(histogram.bounds))
        total.total += histogram.total
        total.counts = list(map(add, total.counts, histogram.counts))
    yield from merged.items()


def _process_counters(numbers: ProcessSnapshot) -> Iterator[_Row]:
    """Yield the counters of this process."""
    series, push, schedules = numbers.series, numbers.series.push, numbers.series.schedules
    yield from _http(series)
    yield from _traffic(series.traffic)
    yield _counter(
        "queuegate_requests_throttled",
        "Requests over the rate limit of their key, or of requests without a key.",
        series.throttled_requests.items(),
        ["account", "key"],
    )
    yield _counter(
        "queuegate_quota_refusals",
        "Requests refused by a quota of requests, queues, topics, subscriptions or logs.",
        series.quota_refusals.items(),
        ["account", "quota"],
    )
    yield from _queues(series.shown_queues(), series.timed_queues())
    yield from _simple_queues(series)
    yield from _logs(series.groups.shown())
    yield from _lanes(series)
    yield from _topics(series.topics.shown())
    yield from _deliveries(series.deliveries)
    fires = [(["success"], schedules.fired_count), (["failure"], schedules.failed_count)]
    name = "queuegate_queue_schedule_fires"
    yield _counter(name, "Fires of schedules, and manual runs.", fires, ["outcome"])
    yield _histogram(
        "queuegate_queue_schedule_lateness_seconds",
        "Time from the fire time of a schedule to the commit of its messages.",
        [([], schedules.late_seconds)],
    )
    text = "Schedules paused after too many failures."
    yield _counter("queuegate_queue_schedules_paused", text, schedules.paused_count)
    open_counts = [([kind], number) for kind, number in push.open_counts.items()]
    text = "Open connections for pushed messages of channels."
    yield _gauge("queuegate_push_connections", text, open_counts, ["kind"])
    yield _counter("queuegate_push_messages", "Messages pushed to consumers.", push.pushed_count)
    text = "Consumers disconnected because they did not read."
    yield _counter("queuegate_push_consumers_dropped", text, push.dropped_count)
    yield from _pool(numbers)


def _pool(numbers: ProcessSnapshot) -> Iterator[_Row]:
    """Yield the gauges of the pool, of parked receives and of the clock."""
    clock, size, idle = numbers.series.clock, numbers.pool_size, numbers.pool_idle
    yield _gauge("queuegate_db_pool_size", "Open connections of the pool.", size)
    yield _gauge("queuegate_db_pool_idle", "Idle connections of the pool.", idle)
    yield _gauge("queuegate_db_pool_active", "Connections of the pool in use.", size - idle)
    text = "Long polls that wait for a message."
    yield _gauge("queuegate_parked_receives", text, numbers.parked_receives)
    text = "Rules that make requests fail on purpose; summed over processes."
    yield _gauge("queuegate_fault_rules", text, numbers.fault_rules)
    text = "Seconds of the database clock behind the present; below 0: ahead of it."
    yield _gauge("queuegate_clock_behind_seconds", text, clock.behind_seconds)
    text = "Steps back of the database clock."
    yield _counter("queuegate_clock_steps_back", text, clock.step_count)
    text = "Steps forward of the database clock."
    yield _counter("queuegate_clock_steps_forward", text, clock.forward_count)
    text = "Timeouts of waits for a connection of the pool."
    yield _counter("queuegate_db_pool_acquire_timeouts", text, numbers.acquire_timeouts)


def _lanes(series: Series) -> Iterator[_Row]:
    """Yield the flushes of the lanes, and the delay of the event loop."""
    for name, attribute, text in (
        ("queue_coalescer_flush_batch_size", "entries", "Entries per flush of a lane."),
        ("lane_flush_duration_seconds", "flush_seconds", "Time of a flush of a lane."),
        (
            "lane_waiting_seconds",
            "waiting_seconds",
            "Time for which the first entry of a flush waited for it.",
        ),
    ):
        values = [([lane], getattr(own, attribute)) for lane, own in series.lanes.items()]
        yield _histogram(f"queuegate_{name}", text, values, ["lane"])
    text = "Highest delay of the event loop in the last 30 s."
    yield _gauge(_LOOP_LAG, text, series.loop_lag.highest())
    text = "End of the last round of a worker without a failure."
    rounds = [([worker], at) for worker, at in series.rounds.items()]
    yield _gauge(_LAST_ROUND, text, rounds, ["worker"])


def _traffic(traffic: Traffic) -> Iterator[_Row]:
    yield _gauge("queuegate_connections", "Open connections of clients.", traffic.connections)
    text = "Bytes of requests in progress and of unread responses."
    yield _gauge("queuegate_buffered_bytes", text, traffic.held_bytes)
    yield _gauge(
        "queuegate_account_buffered_bytes",
        "Buffered bytes of the 20 largest accounts, of all others, and of unverified clients.",
        [([account_id], number) for account_id, number in traffic.by_account().items()],
        ["account"],
    )
    text = "Connections over the limit."
    yield _counter("queuegate_connections_refused", text, traffic.refused_clients)
    text = "Requests refused because the buffer is full, or would wait too long."
    yield _counter("queuegate_requests_refused", text, traffic.refused_requests)
    text = "Connections closed because the client did not read."
    yield _counter("queuegate_unread_answers_closed", text, traffic.unread_closed)
    text = "Checks that found no free file descriptor."
    yield _counter("queuegate_open_files_exhausted", text, traffic.file_errors)


def _http(series: Series) -> Iterator[_Row]:
    requests, seconds = series.requests.items(), series.request_seconds.items()
    yield _counter(
        "queuegate_http_requests",
        "Requests completed.",
        _sums(((method, path, str(status)), n) for (method, path, _, status), n in requests),
        ["method", "path", "status"],
    )
    yield _histogram(
        "queuegate_http_request_duration_seconds",
        "Time to answer a request.",
        _merged((key[:2], histogram) for key, histogram in seconds),
        ["method", "path"],
    )
    yield _gauge("queuegate_http_connections_active", "Requests in flight.", series.active_requests)
    yield _counter(
        "queuegate_actions",
        "AWS actions answered.",
        (((action, str(status)), n) for (_, _, action, status), n in requests if action),
        ["action", "status"],
    )
    yield _histogram(
        "queuegate_action_duration_seconds",
        "Time to answer an AWS action; long polls include their wait.",
        (([action], histogram) for (_, _, action), histogram in seconds if action),
        ["action"],
    )


def _queues(all_series: list[QueueSeries], timed: list[QueueSeries]) -> Iterator[_Row]:
    for attribute, text in (
        ("sent", "Messages committed."),
        ("received", "Messages received."),
        ("deleted", "Messages deleted by their receivers."),
        ("redelivered", "Messages received again."),
    ):
        values = _by_labels(all_series, attribute)
        yield _counter(f"queuegate_queue_messages_{attribute}", text, values, _OF_QUEUES)
    for name, attribute, text in (
        ("queue_full", "was_full", "Messages refused because the bounded queue is full."),
        ("dead_letters", "dead_lettered", "Messages moved to the dead-letter queue of this queue."),
    ):
        counted = (one for one in _by_labels(all_series, attribute) if one[1])
        yield _counter(f"queuegate_{name}", text, counted, _OF_QUEUES)
    for name, attribute, text in (
        ("send_duration", "send_seconds", "Time to commit a send."),
        ("receive_duration", "receive_seconds", "Time of one receive from the database."),
        ("delete_duration", "delete_seconds", "Time to commit a delete."),
        ("age_at_receive", "age_seconds", "Age of a message at its first receive."),
    ):
        own = [(series.labels(), getattr(series, attribute)) for series in timed]
        used = _merged((labels, times) for labels, times in own if any(times.counts))
        yield _histogram(f"queuegate_queue_message_{name}_seconds", text, used, _OF_QUEUES)


def _topics(all_series: list[TopicSeries]) -> Iterator[_Row]:
    for name, text, label, attributes in _BY_TOPIC:
        yield _counter(
            f"queuegate_topic_{name}",
            text,
            [
                ((*one.labels(), *value), getattr(one, attribute))
                for one in all_series
                for attribute, *value in attributes
            ],
            _OF_TOPICS + label,
        )


_BY_TOPIC: tuple[tuple[str, str, list[str], list[tuple[str, ...]]], ...] = (
    ("messages_published", "Messages published to the topic.", [], [("published",)]),
    (
        "copies",
        "Copies committed for subscriptions: in queues, for web hooks, in logs, in the outbox.",
        ["kind"],
        [(f"{kind}_copies", kind) for kind in ("queue", "web_hook", "log", "outbox")],
    ),
    (
        "copies_refused",
        "Copies that their queue or log refused: kept in a dead-letter queue, or dropped.",
        ["outcome"],
        [("copies_kept", "kept"), ("copies_dropped", "dropped")],
    ),
    (
        "delivery_attempts",
        "Requests to web hooks.",
        ["outcome"],
        [("attempts_succeeded", "success"), ("attempts_failed", "failure")],
    ),
    ("deliveries_exhausted", "Exhausted deliveries to web hooks.", [], [("deliveries_exhausted",)]),
    (
        "copies_barred",
        "Copies, dead letters and confirmations that the policy of a queue denied.",
        [],
        [("copies_barred",)],
    ),
)


def _deliveries(series: DeliverySeries) -> Iterator[_Row]:
    attempts = [([outcome], histogram) for outcome, histogram in series.attempts.items()]
    counts = [(outcome, sum(histogram.counts)) for outcome, histogram in attempts]
    yield _counter(
        "queuegate_queue_delivery_attempts", "Requests to web hooks.", counts, ["outcome"]
    )
    name = "queuegate_queue_delivery_attempt_duration_seconds"
    yield _histogram(name, "Time until a web hook answered.", attempts, ["outcome"])
    yield _counter(
        "queuegate_queue_delivery_exhausted", "Exhausted deliveries.", series.exhausted_count
    )
    text = "Repeated attempts whose first outcome is unknown: possible duplicates."
    yield _counter("queuegate_delivery_leases_lost", text, series.lost_count)


def _logs(all_series: list[GroupSeries]) -> Iterator[_Row]:
    """Counters of the groups of logs."""
    for attribute, name, text in (
        ("delivered", "records_delivered", "Records delivered to subscribers."),
        ("redelivered", "records_redelivered", "Records delivered again."),
        ("dead_lettered", "dead_letters", "Records that the group dead-lettered."),
        ("fed", "records_fed", "Records fed into the queue of the group."),
    ):
        values = _by_labels(all_series, attribute)
        yield _counter(f"queuegate_log_{name}", text, values, _OF_GROUPS)


def _simple_queues(series: Series) -> Iterator[_Row]:
    """Counters of the simple queue, by queue and outcome (docs/seeds.md 2.3)."""
    tries = series.shown_tries()
    for operation in ("enqueue", "dequeue", "ack", "requeue"):
        own = [((*labels, outcome), n) for tried, labels, outcome, n in tries if tried == operation]
        text = f"Requests to {operation} at the simple queue."
        yield _counter(f"simplemq_{operation}", text, _sums(own), [*_OF_QUEUES, "outcome"])


def _database_gauges(stored: DatabaseSnapshot) -> Iterator[_Row]:
    """Yield the gauges of a snapshot of the database."""
    text = "Messages received or delayed, not visible."
    visible = [(one[:3], one.visible) for one in stored.depths]
    yield _gauge("queuegate_queue_depth", "Messages visible now.", visible, _OF_QUEUES)
    yield _gauge(
        "queuegate_queue_in_flight", text, [(o[:3], o.hidden) for o in stored.depths], _OF_QUEUES
    )
    bounded = [(one[:3], one.most_messages, one.waiting or 0) for one in stored.depths]
    text = "Age of the oldest visible message; absent without one."
    oldest = [(one[:3], one[3]) for one in stored.ages]
    yield _gauge("queuegate_queue_oldest_message_age_seconds", text, oldest, _OF_QUEUES)
    text = "Maximum messages of a bounded queue."
    sizes = [(labels, most) for labels, most, _ in bounded if most is not None]
    yield _gauge("queuegate_queue_size", text, sizes, _OF_QUEUES)
    text = "Copies and dead letters that wait for capacity of a bounded queue."
    waiting = [(labels, waits) for labels, most, waits in bounded if most is not None]
    yield _gauge("queuegate_queue_waiting", text, waiting, _OF_QUEUES)
    ages = [((*one[:3], str(one.priority)), one.age_seconds) for one in stored.priorities]
    text = "Age of the oldest visible message of a priority."
    yield _gauge("queuegate_queue_oldest_age_seconds", text, ages, [*_OF_QUEUES, "priority"])
    for name, attribute, text in (
        # Depths of simple queues (docs/seeds.md 2.3).
        ("depth", "total", "Messages in the queue."),
        ("inflight", "in_flight", "Messages delivered and not acknowledged."),
        (
            "oldest_message_age_seconds",
            "oldest_seconds",
            "Age of the oldest message; 0 without one.",
        ),
    ):
        depths = [(one[:3], getattr(one, attribute)) for one in stored.titled]
        yield _gauge(f"simplemq_queue_{name}", text, depths, _OF_QUEUES)
    yield from _log_groups(stored.groups)
    text = "1 while a queue, topic or subscription is paused; absent otherwise."
    paused = [(one, 1) for one in stored.paused]
    yield _gauge("queuegate_paused", text, paused, ["kind", "account", "region", "name"])
    yield from _message_groups(stored.fair)
    found = stored.deliveries
    if found is None:
        return
    text = "Pending deliveries; estimated above 10,000."
    yield _gauge("queuegate_deliveries_pending", text, found.pending)
    text = "Exhausted deliveries; estimated above 10,000."
    yield _gauge("queuegate_deliveries_exhausted", text, found.exhausted)
    text = "Age of the oldest pending delivery of up to 1,000 subscriptions."
    yield _gauge("queuegate_deliveries_oldest_pending_seconds", text, found.oldest_pending_seconds)


def _log_groups(found: list[GroupGauges]) -> Iterator[_Row]:
    """Lag, leases and subscribers of the groups of logs."""
    own = [one for one in found if one.waits_for_queue is None]
    lag = [(one[:4], one.lag) for one in found]
    text = "Offsets beyond the watermarks of the group."
    yield _gauge("queuegate_log_lag", text, lag, _OF_GROUPS)
    ages = [(one[:4], one.watermark_age_seconds) for one in found]
    text = "Age of the oldest record that the group has not consumed."
    yield _gauge("queuegate_log_watermark_age_seconds", text, ages, _OF_GROUPS)
    subscribers = [(one[:4], one.subscribers) for one in own]
    yield _gauge("queuegate_log_subscribers", "Live subscribers.", subscribers, _OF_GROUPS)
    leases = [((*o[:4], state), getattr(o, state)) for o in own for state in ("held", "free")]
    text = "Partitions with a live subscriber (held), and without one (free)."
    yield _gauge("queuegate_log_leases", text, leases, [*_OF_GROUPS, "state"])
    text = "Rebalances: subscribers that joined, left or expired."
    rebalances = [(one[:4], one.rebalances) for one in found]
    yield _counter("queuegate_log_rebalances", text, rebalances, _OF_GROUPS)
    waits = [(one[:4], one.waits_for_queue) for one in found if one.waits_for_queue is not None]
    text = "1 while the target queue of the group does not exist."
    yield _gauge("queuegate_log_feed_waiting", text, waits, _OF_GROUPS)


def _message_groups(found: list[FairGauges]) -> Iterator[_Row]:
    """Fair queues: noisy message groups, and messages of quiet groups."""
    noisy = [(one.queue[1:], one.noisy) for one in found]
    text = "Noisy message groups of standard queues."
    yield _gauge("queuegate_noisy_groups", text, noisy, _OF_QUEUES)
    for name, attribute, text in (
        ("messages_visible", "visible", "Visible messages of quiet message groups."),
        ("messages_not_visible", "in_flight", "Messages in flight of quiet message groups."),
        ("messages_delayed", "delayed", "Delayed messages of quiet message groups."),
        (
            "oldest_age_seconds",
            "oldest_seconds",
            "Age of the oldest visible message of quiet groups.",
        ),
    ):
        values = [(one.queue[1:], getattr(one.quiet, attribute)) for one in found]
        yield _gauge(f"queuegate_quiet_groups_{name}", text, values, _OF_QUEUES)


def _disk_gauges(room: DiskSpace, *, refuses: bool) -> Iterator[_Row]:
    text = "Free bytes on the disk of the bundled database."
    yield _gauge("queuegate_disk_free_bytes", text, room.free_bytes)
    text = "Free bytes below which sends are refused."
    yield _gauge("queuegate_disk_low_water_bytes", text, room.low_water_bytes)
    text = "1 while sends are refused because the disk is nearly full."
    yield _gauge("queuegate_disk_refuses_sends", text, float(refuses))


_OF_SERVER = (
    ("database_xmin_age_transactions", "xmin_age", "Transactions since the oldest snapshot."),
    ("database_connections_limit", "connections_limit", "Maximum connections without privileges."),
    ("database_size_bytes", "size_bytes", "Size of the database."),
)
_OF_PARTS = (
    ("table_live_rows", "tables", "live_rows", "Live rows, by the statistics."),
    ("table_dead_rows", "tables", "dead_rows", "Dead rows that no vacuum removed."),
    ("table_size_bytes", "tables", "size_bytes", "Size with indexes."),
    ("table_last_vacuum_timestamp_seconds", "tables", "vacuumed_at", "End of the last vacuum."),
    ("replication_lag_seconds", "replicas", "lag_seconds", "Time that a standby is behind."),
    ("replication_lag_bytes", "replicas", "lag_bytes", "WAL that a standby has not replayed."),
    ("replication_slot_retained_bytes", "slots", "retained_bytes", "WAL that a slot keeps."),
    ("replication_slot_active", "slots", "is_active", "1 while a slot has a receiver."),
)


def _health(health: DatabaseReport) -> Iterator[_Row]:
    """Yield the statistics of the database; those that are unknown are absent."""
    yield _gauge("queuegate_database_up", "1 if the database answers.", float(health.is_up))
    found = health.statistics
    if found.server is not None:
        yield from _server(found.server)
    for name, part, attribute, text in _OF_PARTS:
        known = [([one.name], getattr(one, attribute)) for one in getattr(found, part)]
        values = [(labels, value) for labels, value in known if value is not None]
        yield _gauge(f"queuegate_{name}", text, values, [part.removesuffix("s")])


def _server(server: ServerStatistics) -> Iterator[_Row]:
    age = 0.0 if server.oldest is None else server.oldest.age_seconds
    text = "Age of the oldest open transaction that the role may see."
    yield _gauge("queuegate_database_oldest_transaction_seconds", text, age)
    for name, attribute, text in _OF_SERVER:
        yield _gauge(f"queuegate_{name}", text, getattr(server, attribute))
    holder = server.holder
    text = "Age of the oldest snapshot by its holder, from an age of 20,000 transactions on."
    if holder is not None and server.xmin_age >= OLD_SNAPSHOT_TRANSACTIONS:
        labels = [holder.kind, holder.name, holder.user or "", str(holder.pid or "")]
        names = ["kind", "name", "user", "pid"]
        held = [(labels, server.xmin_age)]
        yield _gauge("queuegate_database_snapshot_holder_transactions", text, held, names)
    states = [([state], number) for state, number in server.connections.items()]
    text = "Connections of clients to the server."
    yield _gauge("queuegate_database_connections", text, states, ["state"])
    text = "WAL written since the server was created."
    yield _counter("queuegate_database_wal_bytes", text, server.wal_bytes)


def _process_facts(health: DatabaseReport, certificates: Mapping[str, str]) -> Iterator[_Row]:
    server = health.statistics.server
    versions = [_VERSION, python_version(), "" if server is None else server.version]
    text = "1; the versions are labels."
    yield _gauge("queuegate_build_info", text, [(versions, 1)], ["version", "python", "postgresql"])
    ends = [([name], _expiry(pem)) for name, pem in certificates.items()]
    text = "End of the validity of a certificate in use."
    name = "queuegate_certificate_expiry_timestamp_seconds"
    yield _gauge(name, text, ends, ["certificate"])


@lru_cache(maxsize=8)
def _expiry(pem: str) -> float:
    """Return the end of the first certificate, which is the gateway's own."""
    from cryptography.x509 import load_pem_x509_certificate

    return load_pem_x509_certificate(pem.encode()).not_valid_after_utc.timestamp()


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


_HIGHEST = frozenset({_LOOP_LAG, _LAST_ROUND})
"""Metrics of which the highest of several processes counts, not the sum."""


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
                join = max if family.name in _HIGHEST else add
                samples[key] = join(samples[key], sample.value) if key in samples else sample.value
    for name, family in families.items():
        for (sample_name, labels), value in totals[name].items():
            family.add_sample(sample_name, dict(labels), value)
        yield family


class _RequestedMetrics(Collector):
    """The requested ones of these metrics."""

    def __init__(self, wants: Wants, metrics: Iterable[Metric | _Row], *, in_total: bool) -> None:
        self._wants = wants
        self._metrics = metrics
        self._in_total = in_total

    def collect(self) -> Iterator[Metric]:
        for one in self._metrics:
            if self._wants(one.name):
                metric = one.metric() if isinstance(one, _Row) else one
                yield _without_tenants(metric) if self._in_total else metric


def _page(wants: Wants, metrics: Iterable[Metric | _Row], *, in_total: bool = False) -> bytes:
    return generate_latest(_RequestedMetrics(wants, metrics, in_total=in_total))


def added(pages: list[bytes], wants: Wants) -> bytes:
    """Render the sum of pages of several processes."""
    return _page(wants, _summed(pages))


def process_page(numbers: ProcessSnapshot, wants: Wants, *, in_total: bool = False) -> bytes:
    """Render the counters of this process, and those of the operating system about it.

    ``in_total``: without the labels of accounts and their resources, here and below.
    """
    system = ProcessCollector(registry=None).collect()
    return _page(wants, chain(_process_counters(numbers), system), in_total=in_total)


def depth_page(stored: DatabaseSnapshot, wants: Wants, *, in_total: bool = False) -> bytes:
    """Render the gauges of the database."""
    return _page(wants, _database_gauges(stored), in_total=in_total)


def disk_page(room: DiskSpace | None, wants: Wants, *, refuses: bool) -> bytes:
    """Render the gauges of the watched disk; nothing if no disk is watched."""
    return b"" if room is None else _page(wants, _disk_gauges(room, refuses=refuses))


def health_page(
    health: DatabaseReport, certificates: Mapping[str, str], wants: Wants, *, in_total: bool
) -> bytes:
    """Render the health of the database, versions, and the end of certificates."""
    rows = chain(_health(health), _process_facts(health, certificates))
    return _page(wants, rows, in_total=in_total)
