"""Sums of samples: over processes, and over accounts with all that is theirs."""

from __future__ import annotations

from collections.abc import Iterator
from operator import add

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

_OF_TENANTS = frozenset({"account", "region", "queue", "topic", "log", "group", "key", "name"})


def total_of(metric: Metric) -> Metric:
    """The metric without what tells accounts and their things apart: sums, and the highest age."""
    join = max if metric.type == "gauge" and "_age_" in metric.name else add
    values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for name, labels, value, *_ in metric.samples:
        key = name, tuple([pair for pair in labels.items() if pair[0] not in _OF_TENANTS])
        values[key] = join(values[key], value) if key in values else value
    total = Metric(metric.name, metric.documentation, metric.type)
    for (name, kept), value in values.items():
        total.add_sample(name, dict(kept), value)
    return total


class Sum(Collector):
    """Pages of several processes as one, sample by sample."""

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
