"""Gauges of fair queues: standard queues that had messages with a MessageGroupId."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from queuegate.gateway.metrics.families import OF_QUEUES
from queuegate.gateway.operations.queues.fair_queueing import FairGauges

_QUIET = (
    ("messages_visible", "visible", "Visible messages of quiet message groups."),
    ("messages_not_visible", "in_flight", "Messages in flight of quiet message groups."),
    ("messages_delayed", "delayed", "Delayed messages of quiet message groups."),
    ("oldest_age_seconds", "oldest_seconds", "Age of the oldest visible message of quiet groups."),
)


class MessageGroups(Collector):
    """Noisy message groups, and messages of the quiet ones."""

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
