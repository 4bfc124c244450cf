"""Metrics as the library wants them, from our numbers."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

from queuegate.gateway.operations.telemetry.series import Histogram

Labels = list[str]
OF_QUEUES = ["account", "region", "queue"]


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    bounds = [str(bound) for bound in histogram.bounds] + ["+Inf"]
    return list(zip(bounds, map(float, accumulate(histogram.counts)), strict=True))


class _Named(Protocol):
    def labels(self) -> tuple[str, ...]:
        """The values of its labels."""


def by_labels(all_series: Iterable[_Named], attribute: str) -> list[tuple[Labels, float]]:
    """One value for all that have the same labels: something may have been deleted and made again
    under its name."""
    values: dict[tuple[str, ...], float] = {}
    for series in all_series:
        key = series.labels()
        values[key] = values.get(key, 0.0) + getattr(series, attribute)
    return [(list(key), value) for key, value in values.items()]


def histogram_of(
    name: str, text: str, labels: Labels, values: Iterable[tuple[Labels, Histogram]]
) -> Metric:
    """A histogram with these labels."""
    family = HistogramMetricFamily(name, text, labels=labels)
    for value, histogram in values:
        family.add_metric(value, _buckets(histogram), histogram.total)
    return family


def counter_of(
    name: str, text: str, labels: Labels, values: Iterable[tuple[Labels, float]]
) -> Metric:
    """A counter with these labels; its samples end in ``_total``."""
    family = CounterMetricFamily(name, text, labels=labels)
    for value, number in values:
        family.add_metric(value, number)
    return family
