"""What /metrics shows of the groups of logs: what this process counted, and how far they are."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from queuegate.gateway.metrics.families import by_labels, counter_of
from queuegate.gateway.operations.telemetry.bounded_series import GroupSeries
from queuegate.storage.logs.gauges import GroupGauges

_OF_GROUPS = ["account", "region", "log", "group"]


def log_counters(all_series: list[GroupSeries]) -> Iterator[Metric]:
    """What became of records."""
    for attribute, name, text in (
        ("delivered", "records_delivered", "Records handed to subscribers."),
        ("redelivered", "records_redelivered", "Those of them that had been handed out before."),
        ("buried", "dead_letters", "Records that the group has given up."),
        ("fed", "records_fed", "Records that became messages of the group's queue."),
    ):
        values = by_labels(all_series, attribute)
        yield counter_of(f"queuegate_log_{name}", text, _OF_GROUPS, values)


class GroupsOfLogs(Collector):
    """How far they are."""

    def __init__(self, found: list[GroupGauges]) -> None:
        self._found = found

    def collect(self) -> Iterator[Metric]:
        lag, age, subscribers, waiting = [
            GaugeMetricFamily(f"queuegate_log_{name}", text, labels=_OF_GROUPS)
            for name, text in (
                ("lag", "Offsets beyond the watermarks of the group."),
                ("watermark_age_seconds", "Age of the oldest record that it is not done with."),
                ("subscribers", "Live subscribers."),
                ("feed_waiting", "1 while the queue that the group feeds is not there."),
            )
        ]
        leases = GaugeMetricFamily(
            "queuegate_log_leases",
            "Partitions that a live subscriber holds, and those that nobody does.",
            labels=[*_OF_GROUPS, "state"],
        )
        rebalances = CounterMetricFamily(
            "queuegate_log_rebalances",
            "Times that subscribers came, left or were found dead.",
            labels=_OF_GROUPS,
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
