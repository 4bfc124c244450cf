"""Pages of /metrics, read by the parser of Prometheus."""

from __future__ import annotations

import re

from prometheus_client.parser import text_string_to_metric_families

_OF_BUCKETS = ("_bucket", "_sum", "_count")


class Page:
    """One page as it was scraped."""

    def __init__(self, text: str) -> None:
        self.types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
        """By the name in the line TYPE: counters with their suffix."""
        self._samples = [
            (sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples with that name and at least these labels."""
        return sum(
            value
            for found, own, value in self._samples
            if found == name and labels.items() <= own.items()
        )

    def labels(self, metric: str) -> set[frozenset[str]]:
        """The names of the labels of its samples; bounds of buckets are none."""
        names = {metric, *(metric + end for end in _OF_BUCKETS)}
        return {frozenset(own.keys() - {"le"}) for found, own, _ in self._samples if found in names}

    def values_of(self, name: str, label: str) -> list[str]:
        """The values of a label of these samples."""
        return sorted({own[label] for found, own, _ in self._samples if found == name})

    def bounds(self, metric: str) -> list[float]:
        """Of its buckets, the infinite one left out."""
        found = {own["le"] for name, own, _ in self._samples if name == metric + "_bucket"}
        return sorted(float(bound) for bound in found - {"+Inf"})
