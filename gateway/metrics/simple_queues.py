"""What /metrics shows of the simple queue: what begins with simplemq (docs/seeds.md
2.3)."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from queuegate.gateway.metrics.families import OF_QUEUES, counter_of
from queuegate.gateway.operations.telemetry.series import Series
from queuegate.storage.queues.depths import TitledDepth


def simple_queue_counters(series: Series) -> Iterator[Metric]:
    """Requests about messages, by queue and outcome."""
    tries = series.shown_tries()
    for operation in ("enqueue", "dequeue", "ack", "requeue"):
        totals: dict[tuple[str, ...], float] = {}
        for tried, labels, outcome, number in tries:
            if tried == operation:
                key = (*labels, outcome)
                totals[key] = totals.get(key, 0.0) + number
        yield counter_of(
            f"simplemq_{operation}",
            f"Requests to {operation} at the simple queue.",
            [*OF_QUEUES, "outcome"],
            [(list(key), number) for key, number in totals.items()],
        )


class SimpleQueueDepths(Collector):
    """How full the queues with titles are."""

    def __init__(self, found: list[TitledDepth]) -> None:
        self._found = found

    def collect(self) -> Iterator[Metric]:
        count = GaugeMetricFamily(
            "simplemq_queue_depth", "Messages in the queue.", labels=OF_QUEUES
        )
        held = GaugeMetricFamily(
            "simplemq_queue_inflight", "Delivered, not acknowledged.", labels=OF_QUEUES
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
