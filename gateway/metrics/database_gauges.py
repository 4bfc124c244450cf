"""Gauges of the database and of its disk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from queuegate.gateway.operations.queues.fair_queueing import FairGauges
from queuegate.storage.embedded.data_directory import DiskSpace
from queuegate.storage.logs.stored_logs import GroupGauges
from queuegate.storage.queues import depths
from queuegate.storage.topics.web_hook_deliveries import DeliveryGauges

if TYPE_CHECKING:
    from queuegate.gateway.metrics.snapshots import DatabaseSnapshot

OF_QUEUES = ["account", "region", "queue"]
OF_GROUPS = ["account", "region", "log", "group"]
_QUIET = (
    ("messages_visible", "visible", "Visible messages of quiet message groups."),
    ("messages_not_visible", "in_flight", "Messages in flight of quiet message groups."),
    ("messages_delayed", "delayed", "Delayed messages of quiet message groups."),
    ("oldest_age_seconds", "oldest_seconds", "Age of the oldest visible message of quiet groups."),
)


def database_collectors(stored: DatabaseSnapshot) -> list[Collector]:
    """Return the collectors of a snapshot of the database."""
    collectors = [
        _Depths(stored.depths),
        _PriorityAges(stored.priorities),
        _SimpleQueueDepths(stored.titled),
        _LogGroups(stored.groups),
        _Pauses(stored.paused),
        _MessageGroups(stored.fair),
    ]
    return (
        collectors if stored.deliveries is None else [*collectors, _deliveries(stored.deliveries)]
    )


class _PriorityAges(Collector):
    """Ages by priority: they show a starving priority."""

    def __init__(self, ages: list[depths.PriorityAge]) -> None:
        self._ages = ages

    def collect(self) -> Iterator[Metric]:
        oldest = GaugeMetricFamily(
            "queue_oldest_age_seconds",
            "Age of the oldest visible message of a priority.",
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
            "Maximum messages of a bounded queue.",
            labels=OF_QUEUES,
        )
        waiting = GaugeMetricFamily(
            "queuegate_queue_waiting",
            "Copies and dead letters that wait for capacity of a bounded queue.",
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
    """Gauges without labels: the end of each name, the value and the help text."""

    def __init__(self, prefix: str, *rows: tuple[str, float, str]) -> None:
        self._prefix = prefix
        self._rows = rows

    def collect(self) -> Iterator[Metric]:
        for name, value, text in self._rows:
            yield GaugeMetricFamily(f"{self._prefix}_{name}", text, value=value)


def _deliveries(gauges: DeliveryGauges) -> Collector:
    return _Gauges(
        "queuegate_deliveries",
        ("pending", gauges.pending, "Pending deliveries; estimated above 10,000."),
        ("exhausted", gauges.exhausted, "Exhausted deliveries; estimated above 10,000."),
        (
            "oldest_pending_seconds",
            gauges.oldest_pending_seconds,
            "Age of the oldest pending delivery of up to 1,000 subscriptions.",
        ),
    )


def disk_collector(room: DiskSpace, *, refuses: bool) -> Collector:
    return _Gauges(
        "queuegate_disk",
        ("free_bytes", room.free_bytes, "Free bytes on the disk of the bundled database."),
        ("low_water_bytes", room.low_water_bytes, "Free bytes below which sends are refused."),
        (
            "refuses_sends",
            float(refuses),
            "1 while sends are refused because the disk is nearly full.",
        ),
    )


class _SimpleQueueDepths(Collector):
    """Depths of simple queues (docs/seeds.md 2.3)."""

    def __init__(self, found: list[depths.TitledDepth]) -> None:
        self._found = found

    def collect(self) -> Iterator[Metric]:
        count = GaugeMetricFamily(
            "simplemq_queue_depth", "Messages in the queue.", labels=OF_QUEUES
        )
        held = GaugeMetricFamily(
            "simplemq_queue_inflight", "Messages delivered and not acknowledged.", labels=OF_QUEUES
        )
        age = GaugeMetricFamily(
            "simplemq_queue_oldest_message_age_seconds",
            "Age of the oldest message; 0 without one.",
            labels=OF_QUEUES,
        )
        for one in self._found:
            labels = [one.account_id, one.region, one.name]
            count.add_metric(labels, one.total)
            held.add_metric(labels, one.in_flight)
            age.add_metric(labels, one.oldest_seconds)
        yield from (count, held, age)


class _LogGroups(Collector):
    """Lag, leases and subscribers of the groups of logs."""

    def __init__(self, found: list[GroupGauges]) -> None:
        self._found = found

    def collect(self) -> Iterator[Metric]:
        lag, age, subscribers, waiting = [
            GaugeMetricFamily(f"queuegate_log_{name}", text, labels=OF_GROUPS)
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
            labels=[*OF_GROUPS, "state"],
        )
        rebalances = CounterMetricFamily(
            "queuegate_log_rebalances",
            "Rebalances: subscribers that joined, left or expired.",
            labels=OF_GROUPS,
        )
        for one in self._found:
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


class _MessageGroups(Collector):
    """Fair queues: noisy message groups, and messages of quiet groups."""

    def __init__(self, gauges: list[FairGauges]) -> None:
        self._gauges = gauges

    def collect(self) -> Iterator[Metric]:
        noisy = GaugeMetricFamily(
            "queuegate_noisy_groups", "Noisy message groups of standard queues.", labels=OF_QUEUES
        )
        for queue, number, _ in self._gauges:
            noisy.add_metric(queue[1:], number)
        yield noisy
        for name, attribute, text in _QUIET:
            family = GaugeMetricFamily(f"queuegate_quiet_groups_{name}", text, labels=OF_QUEUES)
            for queue, _, quiet in self._gauges:
                family.add_metric(queue[1:], getattr(quiet, attribute))
            yield family
