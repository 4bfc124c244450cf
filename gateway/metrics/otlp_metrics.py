"""Push of /metrics to a collector over OTLP. Imported only when metrics are pushed.

One process of a gateway pushes the metrics of all processes, every minute by default. An outage of
the collector costs one log line when it begins and one when it ends, and no memory: values are
totals, so that the next push makes up for failed ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

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

from queuegate.gateway.metrics.scraping import MetricsPage, Scrape
from queuegate.gateway.tracing.exporters import CollectorExporter, metric_exporter_for
from queuegate.gateway.tracing.otlp_setup import collector

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings

_log = logging.getLogger("queuegate.metrics")

_LAST_PUSH_SECONDS = 2.0


class MetricsPusher:
    """A worker that pushes until it is stopped, and once at the end."""

    def __init__(self, metrics: MetricsPage, settings: Settings) -> None:
        self._metrics = metrics
        self._settings = settings
        self._started_at = time.time_ns()
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._target: CollectorExporter[MetricExporter] | None = None
        self._is_out = False

    def start(self, *, after_seconds: float = 0.0) -> None:
        """Start after this delay."""
        work = self._run(after_seconds + self._settings.otlp_metrics_seconds)
        self._task = asyncio.get_running_loop().create_task(work, name="push metrics")

    async def stop(self) -> None:
        """Push once more, within 2 s, and end."""
        self._stopping.set()
        task, self._task = self._task, None
        if task is not None:
            await asyncio.wait([task], timeout=_LAST_PUSH_SECONDS)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._target is not None:
            self._target.exporter.shutdown(timeout_millis=0)

    async def _run(self, first_seconds: float) -> None:
        pause = first_seconds
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
            pause = self._settings.otlp_metrics_seconds
            page = await self._metrics.render(Scrape(has_old_names=True))
            self._log_outage(await asyncio.to_thread(self._push, page.decode()))

    def _push(self, page: str) -> str:
        """Push a page in a thread, as a collector may be slow; return the error, if any."""
        if self._target is None:
            self._target = metric_exporter_for(*collector(self._settings))
        return _export(self._target.exporter, page, self._started_at)

    def _log_outage(self, trouble: str) -> None:
        assert self._target is not None
        if trouble and not self._is_out:
            _log.warning("metrics are not pushed to %s: %s", self._target.url, trouble)
        elif self._is_out and not trouble:
            _log.info("metrics are pushed to %s again", self._target.url)
        self._is_out = bool(trouble)


_CUMULATIVE = AggregationTemporality.CUMULATIVE

# MetricsPusher logs an outage once; the exporters would log each attempt.
_exporters_log = logging.getLogger("opentelemetry.exporter")
_exporters_log.addHandler(logging.NullHandler())
_exporters_log.propagate = False


def _export(exporter: MetricExporter, page: str, started_at: int) -> str:
    """Export a page; return the error, or "".

    ``started_at``: start of the counters, in nanoseconds since the epoch.
    """
    try:
        result = exporter.export(metrics_of(page, started_at, time.time_ns()))
    except OSError as error:
        return str(error)
    return "" if result is MetricExportResult.SUCCESS else "no success"


def metrics_of(page: str, started_at: int, now: int) -> MetricsData:
    """Convert a page to OTLP."""
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
    # Pushed names of the simple queue are such as simplemq.queue.depth (docs/seeds.md 2.3).
    shown = name.replace("_", ".", 2) if name.startswith("simplemq_") else name
    return Metric(shown, family.documentation, None, total)


def _histogram_points(
    samples: Iterable[Sample], started_at: int, now: int
) -> Iterator[HistogramDataPoint]:
    """Yield a point for each set of labels."""
    by_labels: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for sample in samples:
        labels = tuple(pair for pair in sample.labels.items() if pair[0] != "le")
        by_labels.setdefault(labels, []).append(sample)
    for labels, own in by_labels.items():
        buckets = [one for one in own if one.name.endswith("_bucket")]
        total = sum(one.value for one in own if one.name.endswith("_sum"))
        totals = [int(one.value) for one in buckets]
        counts = [above - below for below, above in zip((0, *totals), totals, strict=False)]
        bounds = [float(one.labels["le"]) for one in buckets[:-1]]
        # Our histograms record no minimum and maximum.
        absent: Any = None
        yield HistogramDataPoint(
            dict(labels), started_at, now, sum(counts), total, counts, bounds, absent, absent
        )
