"""From the text of /metrics to OTLP: imported when something is pushed."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from typing import Any

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import Metric as Family
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

_DOTTED = {
    "simplemq_enqueue_total": "simplemq.enqueue.total",
    "simplemq_dequeue_total": "simplemq.dequeue.total",
    "simplemq_ack_total": "simplemq.ack.total",
    "simplemq_requeue_total": "simplemq.requeue.total",
    "simplemq_queue_depth": "simplemq.queue.depth",
    "simplemq_queue_inflight": "simplemq.queue.inflight",
    "simplemq_queue_oldest_message_age_seconds": "simplemq.queue.oldest_message_age_seconds",
}
"""As they were pushed before there was a /metrics; the others have the same name in both places."""

_CUMULATIVE = AggregationTemporality.CUMULATIVE

# Whoever pushes tells of an outage once; the exporters would at each attempt.
_exporters_log = logging.getLogger("opentelemetry.exporter")
_exporters_log.addHandler(logging.NullHandler())
_exporters_log.propagate = False


def pushed(exporter: MetricExporter, page: str, started_at: int) -> str:
    """Hand the page to the exporter: "", or why it did not work. ``started_at``: from when on is
    counted, in nanoseconds since the epoch."""
    try:
        result = exporter.export(metrics_of(page, started_at, time.time_ns()))
    except OSError as error:
        return str(error)
    return "" if result is MetricExportResult.SUCCESS else "no success"


def metrics_of(page: str, started_at: int, now: int) -> MetricsData:
    """What is to be exported of the page."""
    scope = InstrumentationScope("queuegate", version("queuegate"))
    metrics = [
        metric
        for family in text_string_to_metric_families(page)
        if (metric := _metric(family, started_at, now)) is not None
    ]
    resource = Resource.create(
        {"service.name": "queuegate", "service.version": version("queuegate")}
    )
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(scope, metrics, "")], "")])


def _metric(family: Family, started_at: int, now: int) -> Metric | None:
    if family.type == "histogram":
        points = [*_histogram_points(family.samples, started_at, now)]
        data = Histogram(points, _CUMULATIVE)
        return Metric(family.name, family.documentation, None, data) if points else None
    is_counter = family.type == "counter"
    name = f"{family.name}_total" if is_counter else family.name
    numbers = [
        NumberDataPoint(dict(one.labels), started_at if is_counter else now, now, one.value)
        for one in family.samples
        if one.name == name
    ]
    if not numbers:
        return None
    total = Sum(numbers, _CUMULATIVE, is_monotonic=True) if is_counter else Gauge(numbers)
    return Metric(_DOTTED.get(name, name), family.documentation, None, total)


def _histogram_points(
    samples: Iterable[Sample], started_at: int, now: int
) -> Iterator[HistogramDataPoint]:
    """One point for all samples that have the same labels."""
    by_labels: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for sample in samples:
        labels = tuple(pair for pair in sample.labels.items() if pair[0] != "le")
        by_labels.setdefault(labels, []).append(sample)
    for labels, own in by_labels.items():
        buckets = [one for one in own if one.name.endswith("_bucket")]
        total = sum(one.value for one in own if one.name.endswith("_sum"))
        counts = _differences([int(one.value) for one in buckets])
        bounds = [float(one.labels["le"]) for one in buckets[:-1]]
        # Nobody keeps what was smallest and largest.
        absent: Any = None
        yield HistogramDataPoint(
            dict(labels), started_at, now, sum(counts), total, counts, bounds, absent, absent
        )


def _differences(totals: Sequence[int]) -> list[int]:
    return [above - below for below, above in zip((0, *totals), totals, strict=False)]
